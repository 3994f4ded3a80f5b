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

// replayFlags say what to do beside, or instead of, making dead letters due.
type replayFlags struct {
	list    bool
	dismiss []int64
	items   string
	ttl     time.Duration
	locking lockFlags
}

func replayCmd(open openFunc) *cobra.Command {
	var how replayFlags
	cmd := &cobra.Command{
		Use:   "replay [KEY...]",
		Short: "Make dead letters due again: those named, or all",
		Long: `Make dead letters due again under the tokens that they have: those named, or all.

With --items it asks the item server for each reward of the ledger instead, and
makes those due again that it does not know, whatever the outbox says of them, each
under the token of a new hold of its lock. That is for an item server whose database
was restored: its raised floor refuses all older tokens. Nobody is paid twice by it,
because the keys stay the same.

A dead message of the inbox contradicts what was paid, and no replay helps. A person
looks, pays what is owed under an event of its own, and dismisses the message.`,
		RunE: func(cmd *cobra.Command, keys []string) error {
			if err := given(cmd, "items"); err != nil {
				return err
			}
			pool, err := open(cmd.Context())
			if err != nil {
				return err
			}
			defer pool.Close()
			return how.run(cmd.Context(), cmd.OutOrStdout(), pool, keys)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&how.list, "list", false, "change nothing: print dead letters and dead messages, one JSON object a line")
	f.Int64SliceVar(&how.dismiss, "dismiss", nil, "settle the dead messages with these ids instead; nothing is paid for them")
	f.StringVar(&how.items, "items", "", "base URL of the item server: send again what it does not know, under new tokens")
	f.DurationVar(&how.ttl, "ttl", 15*time.Second, "with --items: TTL of a reward's lock")
	how.locking.register(f)
	cmd.MarkFlagsMutuallyExclusive("list", "dismiss", "items")
	return cmd
}

func (f *replayFlags) run(ctx context.Context, out io.Writer, pool *pgxpool.Pool, keys []string) error {
	switch {
	case (f.list || len(f.dismiss) > 0) && len(keys) > 0:
		return errors.New("--list and --dismiss take no keys")
	case f.list:
		return list(ctx, out, pool)
	case len(f.dismiss) > 0:
		return dismiss(ctx, out, pool, f.dismiss)
	case f.items != "":
		return f.resend(ctx, out, pool, keys)
	}
	n, err := rewards.Replay(ctx, pool, keys...)
	if err == nil {
		fmt.Fprintf(out, "%d dead letters are due again\n", n)
	}
	return err
}

func list(ctx context.Context, out io.Writer, pool *pgxpool.Pool) error {
	letters, err := rewards.DeadLetters(ctx, pool)
	if err != nil {
		return err
	}
	messages, err := rewards.DeadMessages(ctx, pool)
	if err != nil {
		return err
	}
	p := &printer{w: out}
	for _, l := range letters {
		p.print(rewards.Record{Kind: "dead", Key: l.Key, Error: l.Reason})
	}
	for _, m := range messages {
		p.print(rewards.Record{Kind: "dead_message", ID: m.ID, Key: m.Reward.Key(), Amount: m.Reward.Amount, Error: m.Reason})
	}
	return nil
}

func dismiss(ctx context.Context, out io.Writer, pool *pgxpool.Pool, ids []int64) error {
	n, err := rewards.Dismiss(ctx, pool, ids...)
	if err == nil {
		fmt.Fprintf(out, "%d dead messages are dismissed\n", n)
	}
	return err
}

func (f *replayFlags) resend(ctx context.Context, out io.Writer, pool *pgxpool.Pool, keys []string) error {
	locks, err := f.locking.open("rewardctl replay", f.ttl)
	if err != nil {
		return err
	}
	defer locks.Close()
	n, err := rewards.Resend(ctx, rewards.ResendConfig{Pool: pool, Items: f.items, Locks: locks, TTL: f.ttl}, keys...)
	fmt.Fprintf(out, "%d rewards that the item server does not know are due again under new tokens, %d are known\n", n.Due, n.Known)
	if err == nil && n.Moved > 0 {
		err = fmt.Errorf("publishers have taken %d of the rows meanwhile, or workers hold their locks: run this again", n.Moved)
	}
	return err
}
