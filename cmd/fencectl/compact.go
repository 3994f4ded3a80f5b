package main

import (
	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
)

func (a *app) compactCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "compact",
		Short: "Drop the history of the store, for one that is full or nearly so",
		Long: `Drop the history of the store. The servers drop what is older than a minute by
themselves; this is for a store that is full or nearly so. Each server makes its own file
smaller within a minute afterwards, where it had more than 80 % of its quota, and a
store that was full takes new holds again.`,
		Args: cobra.NoArgs,
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
