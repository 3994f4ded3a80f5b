package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/internal/buildinfo"
)

// streams are the standard streams of one run.
type streams struct {
	in       *os.File
	out, err io.Writer
}

// app is what the subcommands share in one run.
type app struct {
	streams
	getenv  func(string) string
	addr    string
	context string
	output  string
	tls     tlsFiles
	// started tells a usage error from a failure: cobra finds the former first.
	started bool
	// exit is a code that is not an error's, such as that of a command that was run.
	exit int
}

// patience is how long a call goes on while no server answers: people wait for it.
const patience = 5 * time.Second

// run runs one command line and returns its exit code.
func run(ctx context.Context, args []string, std streams, getenv func(string) string) int {
	a := &app{streams: std, getenv: getenv}
	root := a.root()
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		if !a.started { // cobra stops at the first fault, which may stand before the flag
			a.output = cmp.Or(askedOutput(args), a.output)
		}
		return a.fail(interrupted(ctx, err))
	}
	return a.exit
}

// askedOutput is the value of -o on a command line that cannot be read as a whole, ""
// where it has none.
func askedOutput(args []string) string {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	output := flags.StringP("output", "o", "", "")
	_ = flags.Parse(args) // what is wrong is known
	return *output
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "fencectl",
		Short:         "Work with the locks of fenced",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.checkOutput(cmd); err != nil {
				return err
			}
			a.started = true
			return nil
		},
	}
	root.Version = version + " " + buildinfo.Build()
	root.SetVersionTemplate("fencectl {{.Version}}\n")
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	flags := root.PersistentFlags()
	flags.StringVar(&a.addr, "addr", "", "URLs of the servers, separated by commas (default: FENCED_ADDR, the default context, or "+clientsdk.DefaultEndpoint+")")
	flags.StringVar(&a.context, "context", "", "servers and API key of this name in the config file; see \"fencectl help contexts\"")
	cobra.CheckErr(root.RegisterFlagCompletionFunc("context", a.completeContext))
	flags.StringVar(&a.tls.ca, "ca", "", "file of the authorities that the servers' certificates come from (default: FENCED_CA, the context's, or the system's)")
	flags.StringVar(&a.tls.cert, "cert", "", "file of the certificate to show to the servers (default: FENCED_CERT, or the context's)")
	flags.StringVar(&a.tls.key, "key", "", "file of the certificate's private key (default: FENCED_KEY, or the context's)")
	flags.StringVarP(&a.output, "output", "o", "table", "how to print: table or json")
	lists := []*cobra.Command{a.listCommand(), a.watchCommand(), a.topCommand()}
	ofLock := []*cobra.Command{a.getCommand(), a.historyCommand(), a.acquireCommand(), a.checkCommand(), a.breakCommand()}
	run := a.runCommand()
	a.completes(cobra.ShellCompDirectiveNoFileComp, append(lists, ofLock...)...)
	a.completes(cobra.ShellCompDirectiveDefault, run) // a command follows
	root.AddCommand(append(lists, ofLock...)...)
	root.AddCommand(
		run, a.renewCommand(), a.releaseCommand(), a.sessionsCommand(), a.statusCommand(), a.pgCommand(),
		a.membersCommand(), a.snapshotCommand(), a.compactCommand(), a.floorCommand(), a.keyCommand(), a.doctorCommand(),
		a.whoamiCommand(), a.versionCommand(), exitCodesTopic(), contextsTopic(),
	)
	return root
}

// formats is the annotation of commands that print in other ways than table and json.
const formats = "formats"

func (a *app) checkOutput(cmd *cobra.Command) error {
	allowed := "table,json"
	if own := cmd.Annotations[formats]; own != "" {
		allowed = own
	}
	names := strings.Split(allowed, ",")
	if !cmd.Flags().Changed("output") {
		a.output = names[0]
		return nil
	}
	for _, name := range names {
		if a.output == name {
			return nil
		}
	}
	return fmt.Errorf("output must be one of %s, not %q", allowed, a.output)
}

// client returns an SDK client for the servers that flags, environment and config file
// name. edit may change its config, in which TLS is set then.
func (a *app) client(edit func(*clientsdk.Config)) (*clientsdk.Client, error) {
	t, err := a.target()
	if err != nil {
		return nil, err
	}
	if !oneKey(t.key) { // those of files were looked at when they were read
		return nil, usage("FENCED_API_KEY must hold one key and nothing more: no line break, space or other character")
	}
	cfg := clientsdk.Config{APIKey: t.key, RetryFor: patience}
	if cfg.Endpoints, err = t.tls.endpoints(t.addr); err != nil {
		return nil, err
	}
	if cfg.TLS, err = t.tls.config(); err != nil {
		return nil, err
	}
	if edit != nil {
		edit(&cfg)
	}
	client, err := clientsdk.New(cfg)
	if err != nil {
		return nil, usage("%v", err)
	}
	return client, nil
}

// with calls f with a client and closes it.
func (a *app) with(f func(*clientsdk.Client) error) error {
	client, err := a.client(nil)
	if err != nil {
		return err
	}
	defer client.Close()
	return f(client)
}
