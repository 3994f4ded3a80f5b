package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
)

func (a *app) getCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get LOCK",
		Short: "Show a lock: its holder, its queue and how the last grants ended",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(func(c *clientsdk.Client) error {
				info, err := c.Lock(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.print(info, func(t *table) { t.lock(info) })
			})
		},
	}
}

func (t *table) lock(info *clientsdk.LockInfo) {
	t.row("lock", info.Lock)
	t.row("state", info.State)
	if h := info.Holder; h != nil {
		t.row("owner", h.Owner)
		t.row("token", h.Token)
		t.row("held for", ago(h.Since))
		t.row("lease left", remaining(h.ExpiresInMS)+" unless renewed")
		t.row("ref", h.Ref)
		t.row("session", dash(h.Session))
		t.row("metadata", dash(joinMap(h.Metadata)))
	}
	if len(info.Queue) > 0 {
		t.row()
		t.row("PLACE", "OWNER", "WAITING", "REF")
		for _, w := range info.Queue {
			t.row(w.Position, w.Owner, ago(w.Since), w.Ref)
		}
	}
	if len(info.History) > 0 {
		t.row()
		t.history(info)
	}
}

func joinMap(m map[string]string) string {
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, k+"="+m[k])
	}
	return strings.Join(pairs, " ")
}
