package main

import (
	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/tokens"
)

func (a *app) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check LOCK TOKEN",
		Short: "Say whether a token is the live holder's",
		Long: `Say whether a token is "valid" (the live holder's), "stale" (lower than the newest
grant's), "ended" (the newest grant's, which is over) or "unknown".

It is a moment's truth: a token that is valid now may be stale when a write arrives.
Only a guard at the store protects the write. Any verdict but "valid" exits with 78.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			token, err := tokens.Parse(args[1])
			if err != nil {
				return usage("%v", err)
			}
			return a.with(func(c *clientsdk.Client) error {
				res, err := c.Check(cmd.Context(), []clientsdk.CheckItem{{Lock: args[0], Token: token}})
				if err != nil {
					return err
				}
				if res[0].Result != "valid" {
					a.exit = apierr.ExitConflict
				}
				return a.print(res[0], func(t *table) {
					t.row("LOCK", "TOKEN", "RESULT", "NEWEST")
					t.row(res[0].Lock, res[0].Token, res[0].Result, dash(res[0].Current))
				})
			})
		},
	}
}
