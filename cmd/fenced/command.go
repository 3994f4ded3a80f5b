package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fenced/fenced/internal/buildinfo"
	"github.com/fenced/fenced/lockserver/embedded"
)

// newCommand returns the command tree.
func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "fenced",
		Short:         "fenced is a lock server whose grants carry fencing tokens",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version + " " + buildinfo.Build(),
	}
	root.SetVersionTemplate("fenced {{.Version}}\n")
	root.AddCommand(serveCommand(), configCommand(), restoreCommand(), healthCommand(), versionCommand())
	return root
}

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server until it is told to stop by SIGINT or SIGTERM",
		Long: `Run the server until it is told to stop by SIGINT or SIGTERM.

The store is an etcd inside the process, alone and with no open port; a member of
an embedded cluster with --initial-cluster; or an etcd that runs by itself with
--etcd-endpoints.` + settingsHelp,
		Args: cobra.NoArgs,
	}
	config, configure := configured(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := configure(); err != nil {
			return err
		}
		program, err := New(config, cmd.OutOrStdout(), cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		if names := strays(config.settings(), os.Environ()); len(names) > 0 {
			program.log.Warn("these environment variables are no settings and change nothing; fenced serve --help lists those that are", "names", names)
		}
		return program.Run(cmd.Context())
	}
	return cmd
}

const settingsHelp = `

Each flag can also be given in the environment, --data-dir as FENCED_DATA_DIR, or
in the YAML or JSON file of --config, as data-dir: a flag wins over the
environment, that over the file, that over the default.`

// configured gives cmd the flags of all settings, and --config. The function that
// it returns must be called when the command runs: it reads the environment and the
// file and returns where each setting comes from.
func configured(cmd *cobra.Command) (*Config, func() (map[string]string, error)) {
	config := defaultConfig()
	settings := config.settings()
	var file string
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&file, "config", "", "config file, YAML or JSON (or FENCED_CONFIG)")
	cmd.Flags().AddFlagSet(settings)
	return config, func() (map[string]string, error) {
		if file == "" {
			file = os.Getenv(envName("config"))
		}
		return load(settings, os.Getenv, file)
	}
}

func configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective settings and where each comes from, secrets masked",
		Long:  "Print the effective settings as a config file, and where each comes from. Secrets are masked." + settingsHelp,
		Args:  cobra.NoArgs,
	}
	config, configure := configured(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		from, err := configure()
		if err != nil {
			return err
		}
		if err := config.validate(); err != nil {
			return err
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), render(config.settings(), func(f *pflag.Flag) (string, string) {
			return "", from[f.Name]
		}))
		return err
	}
	return cmd
}

func restoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make an empty data directory from a snapshot file, so that tokens never go backwards",
		Long: `Make an empty data directory from a snapshot file.

All holds and sessions of the snapshot are ended by the first server that starts on it:
their tokens are older than those that were issued since. It lets tokens go on above all
that any restore before can have issued, by its clock, which must not be behind the one
of that restore. Of a cluster, every member restores the same file with its own
--name and --data-dir and the same --initial-cluster, before any is started.` + settingsHelp,
		Args: cobra.ExactArgs(1),
	}
	config, configure := configured(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := configure(); err != nil {
			return err
		}
		return restore(config, args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

func restore(config *Config, file string, out, logs io.Writer) error {
	if err := config.validate(); err != nil {
		return err
	}
	if config.mode() == modeExternal {
		return errors.New("restore: an external etcd is restored with etcdutl, --bump-revision and --mark-compacted; " +
			"then run fencectl floor raise before anybody acquires")
	}
	id, err := embedded.Restore(file, config.embedded(newLogger(config, logs)))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "restored %s into %s (restore %s)\nstart fenced serve on it: all holds of the snapshot are ended then\n%s",
		file, config.DataDir, id, restoredBlind(config.IssuedFile, time.Now()))
	return err
}

// restoredBlind warns where nothing but a clock tells what was issued since the
// snapshot.
func restoredBlind(issued string, now time.Time) string {
	if _, err := os.Stat(issued); err == nil {
		return ""
	}
	return "there is no " + issued + ": the clock of the server that starts first tells what earlier restores can have\n" +
		"issued; here it is " + now.UTC().Format(time.RFC3339) + ". Where it is wrong, or the floor was raised after the snapshot, run:\n" +
		"fencectl floor raise --above N, with the highest token that your databases have seen (fencectl doctor --database)\n"
}

func healthCommand() *cobra.Command {
	addr := "http://" + defaultListen
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Exit with 0 when the server at --addr can grant, else with 1",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return health(cmd.Context(), addr)
		},
	}
	cmd.Flags().StringVar(&addr, "addr", addr, "URL of the server")
	return cmd
}

// healthTimeout is shorter than what container engines give a health check.
const healthTimeout = 3 * time.Second

func health(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, addr+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("health: the server answers %s", resp.Status)
	}
	return nil
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and how the binary was built",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "fenced", version, buildinfo.Build())
			return err
		},
	}
}

// version is set by the linker in releases.
var version = "devel"
