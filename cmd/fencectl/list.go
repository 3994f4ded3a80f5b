package main

import (
	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
)

func (a *app) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List the locks that are held, by name",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := &clientsdk.LocksQuery{Limit: 1000}
			if len(args) > 0 {
				q.Prefix = args[0]
			}
			return a.with(func(c *clientsdk.Client) error { return a.list(cmd, c, q) })
		},
	}
}

func (a *app) list(cmd *cobra.Command, c *clientsdk.Client, q *clientsdk.LocksQuery) error {
	locks := []clientsdk.LockSummary{}
	for {
		page, err := c.Locks(cmd.Context(), q)
		if err != nil {
			return err
		}
		locks = append(locks, page.Locks...)
		if q.Cursor = page.Cursor; q.Cursor == "" {
			break
		}
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
