// Command rewardctl runs the parts of the reward pipeline: load, work, publish,
// serve-items, verify, replay, and season, which makes a file of rewards.
//
// It talks to the database named by --dsn or DATABASE_URL and to the lock service
// named by --server. It exits with 0, or with 1 and one line on stderr. To be stopped
// by a signal is the normal end of a command that has no other; of all others, also of
// --drain, it is a failure. A command that works on through an outage says so on stderr.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fenced/fenced/examples/rewards"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "rewardctl:", err)
		os.Exit(1)
	}
}

// logger tells on stderr of what is wrong while a command works on.
func logger(cmd *cobra.Command) *slog.Logger {
	return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
}

// ended is the end of a command that runs until it is stopped, or until a drain is done:
// to be stopped before that is a failure.
func ended(drain bool, err error) error {
	if !drain && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func root() *cobra.Command {
	var dsn string
	cmd := &cobra.Command{
		Use:           "rewardctl",
		Short:         "Pay rewards once: load, work, publish, verify",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.PersistentFlags().StringVar(&dsn, "dsn", os.Getenv("DATABASE_URL"), "PostgreSQL of the rewards (or DATABASE_URL)")
	open := func(ctx context.Context) (*pgxpool.Pool, error) { return openPool(ctx, dsn) }
	cmd.AddCommand(seasonCmd(), loadCmd(open), workCmd(open), publishCmd(open), verifyCmd(open), replayCmd(open), itemsCmd(open))
	return cmd
}

// given refuses a flag that is there and empty, as a variable that is not set makes it:
// what it asks for would be left out without a word.
func given(cmd *cobra.Command, flag string) error {
	if f := cmd.Flags().Lookup(flag); f.Changed && f.Value.String() == "" {
		return fmt.Errorf("--%s is empty", flag)
	}
	return nil
}

// openFunc opens the database that the flags name.
type openFunc func(context.Context) (*pgxpool.Pool, error)

func openPool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	if dsn == "" {
		return nil, errors.New("no database: give --dsn or set DATABASE_URL")
	}
	return pgxpool.New(ctx, dsn)
}

// readFile returns the deliveries of an NDJSON file; "-" is stdin.
func readFile(name string) ([]rewards.Reward, error) {
	f := os.Stdin
	if name != "-" {
		var err error
		if f, err = os.Open(name); err != nil {
			return nil, err
		}
		defer f.Close()
	}
	all, err := rewards.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return all, nil
}
