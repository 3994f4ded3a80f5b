package main

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
)

func (a *app) whoamiCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "whoami",
		Short: "Show which API key the server sees, and what it may do",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(func(c *clientsdk.Client) error {
				me, err := c.WhoAmI(cmd.Context())
				if err != nil {
					return err
				}
				return a.print(me, func(t *table) { t.caller(me) })
			})
		},
	}
}

func (t *table) caller(me *clientsdk.Caller) {
	t.row("key", cmp.Or(me.Key, "none: the server has no keys"))
	if me.Name != "" {
		t.row("name", me.Name)
	}
	for _, g := range me.Grants {
		over := make([]string, len(g.Prefixes))
		for i, p := range g.Prefixes {
			over[i] = cmp.Or(p, "every lock")
		}
		t.row(g.Role, strings.Join(over, ", "))
	}
}
