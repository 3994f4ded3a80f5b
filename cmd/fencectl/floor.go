package main

import (
	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/tokens"
)

func (a *app) floorCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "floor", Short: "Keep tokens from going backwards after a restore"}
	cmd.AddCommand(a.floorRaiseCommand())
	return cmd
}

func (a *app) floorRaiseCommand() *cobra.Command {
	var above string
	var yes bool
	cmd := &cobra.Command{
		Use:   "raise",
		Short: "Make every token to come higher than all before, and end all holds",
		Long: `Make every token to come higher than all that the server knows to have been issued. It
ends all holds and sessions, and opens granting where the server has closed it because
its store was rolled back.

After a restore by other means than "fenced restore", give with --above the highest
token that any store has seen, such as the highest fence in the database.

On a terminal it asks first.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var n tokens.Token
			if above != "" {
				var err error
				if n, err = tokens.Parse(above); err != nil {
					return usage("--above: %v", err)
				}
			}
			if err := a.confirm("raise the floor? It ends all holds and sessions.", yes); err != nil {
				return err
			}
			return a.with(func(c *clientsdk.Client) error { return a.raiseFloor(cmd, c, n) })
		},
	}
	cmd.Flags().StringVar(&above, "above", "", "a token below all that are to come (default: the highest that the server knows)")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) raiseFloor(cmd *cobra.Command, c *clientsdk.Client, above tokens.Token) error {
	base, err := c.RaiseFloor(cmd.Context(), above)
	if err != nil {
		return err
	}
	return a.print(map[string]int64{"base": base}, func(t *table) { t.row("token base", base) })
}
