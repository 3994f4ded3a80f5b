package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
)

// newCommand returns the command tree.
func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "fenced",
		Short:         "fenced is a lock server whose grants carry fencing tokens",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(serveCommand(), healthCommand(), versionCommand())
	return root
}

func serveCommand() *cobra.Command {
	config := defaultConfig()
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server until it is told to stop by SIGINT or SIGTERM",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			program, err := New(config, cmd.OutOrStdout(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return program.Run(cmd.Context())
		},
	}
	config.flags(cmd.Flags())
	return cmd
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
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "fenced", buildVersion())
			return err
		},
	}
}

// version is set by the linker in releases.
var version = "devel"

// buildVersion adds the commit and the Go version that the linker recorded.
func buildVersion() string {
	text := version
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return text
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			text += " " + s.Value
		}
	}
	return text + " " + info.GoVersion
}
