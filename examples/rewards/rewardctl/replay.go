package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fenced/fenced/examples/rewards"
)

func replayCmd(open openFunc) *cobra.Command {
	var locking lockFlags
	var items string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "replay [KEY...]",
		Short: "Make dead letters due again: those named, or all",
		Long: `Make dead letters due again under the tokens that they have: those named, or all.

With --items it asks the item server for each reward of the ledger instead, and
makes those due again that it does not know, whatever the outbox says of them, each
under the token of a new hold of its lock. That is for an item server whose database
was restored: its raised floor refuses all older tokens. Nobody is paid twice by it,
because the keys stay the same.`,
		RunE: func(cmd *cobra.Command, keys []string) error {
			ctx, out := cmd.Context(), cmd.OutOrStdout()
			pool, err := open(ctx)
			if err != nil {
				return err
			}
			defer pool.Close()
			if items != "" {
				return resend(ctx, out, pool, items, locking, ttl, keys)
			}
			n, err := rewards.Replay(ctx, pool, keys...)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%d dead letters are due again\n", n)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&items, "items", "", "base URL of the item server: send again what it does not know, under new tokens")
	f.DurationVar(&ttl, "ttl", 15*time.Second, "with --items: TTL of a reward's lock")
	locking.register(f)
	return cmd
}

func resend(ctx context.Context, out io.Writer, pool *pgxpool.Pool, items string, locking lockFlags, ttl time.Duration, keys []string) error {
	locks, err := locking.open("rewardctl replay", ttl)
	if err != nil {
		return err
	}
	defer locks.Close()
	n, err := rewards.Resend(ctx, rewards.ResendConfig{Pool: pool, Items: items, Locks: locks, TTL: ttl}, keys...)
	fmt.Fprintf(out, "%d rewards that the item server does not know are due again under new tokens, %d are known\n", n.Due, n.Known)
	if err == nil && n.Moved > 0 {
		err = errors.New("publishers have taken " + fmt.Sprint(n.Moved) + " of the rows meanwhile: run this again")
	}
	return err
}
