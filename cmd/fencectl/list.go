package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
)

func (a *app) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List the locks that are held, by name",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := ""
			if len(args) > 0 {
				prefix = args[0]
			}
			return a.with(func(c *clientsdk.Client) error { return a.list(cmd, c, prefix) })
		},
	}
}

// allLocks reads all pages of the locks whose names start with prefix.
func allLocks(ctx context.Context, c *clientsdk.Client, prefix string) ([]clientsdk.LockSummary, error) {
	locks := []clientsdk.LockSummary{}
	q := &clientsdk.LocksQuery{Prefix: prefix, Limit: 1000}
	for {
		page, err := c.Locks(ctx, q)
		if err != nil {
			return nil, err
		}
		locks = append(locks, page.Locks...)
		if q.Cursor = page.Cursor; q.Cursor == "" {
			return locks, nil
		}
	}
}

func (a *app) list(cmd *cobra.Command, c *clientsdk.Client, prefix string) error {
	locks, err := allLocks(cmd.Context(), c, prefix)
	if err != nil {
		return err
	}
	return a.print(locks, func(t *table) {
		t.row("LOCK", "OWNER", "TOKEN", "HELD", "LEFT", "WAITERS")
		for _, l := range locks {
			if h := l.Holder; h != nil {
				t.row(l.Lock, h.Owner, h.Token, ago(h.Since), remaining(h.ExpiresInMS), l.Waiters)
			} else {
				t.row(l.Lock, "-", "-", "-", "-", l.Waiters)
			}
		}
	})
}
