package main

import (
	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
)

func (a *app) compactCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "compact",
		Short: "Drop the history of the server's store, for one that is full",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(func(c *clientsdk.Client) error {
				rev, err := c.Compact(cmd.Context())
				if err != nil {
					return err
				}
				return a.print(map[string]int64{"revision": rev}, func(t *table) { t.row("compacted to revision", rev) })
			})
		},
	}
}
