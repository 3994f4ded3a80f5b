package main

import (
	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
)

func (a *app) sessionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "sessions",
		Short: "List the live sessions and how many holds share each",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(func(c *clientsdk.Client) error {
				list, err := c.Sessions(cmd.Context())
				if err != nil {
					return err
				}
				return a.print(list, func(t *table) {
					t.row("SESSION", "OWNER", "HOLDS", "AGE", "LEFT")
					for _, s := range list {
						t.row(s.Ref, s.Owner, len(s.Live), ago(s.Created), remaining(s.ExpiresInMS))
					}
				})
			})
		},
	}
}
