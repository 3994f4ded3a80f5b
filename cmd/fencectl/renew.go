package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
)

func (a *app) renewCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "renew [HOLD]",
		Short: "Renew a hold of \"fencectl acquire\" (default: that of FENCED_HOLD)",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := a.holdID(args)
			if err != nil {
				return err
			}
			return a.with(func(c *clientsdk.Client) error {
				h, err := c.RenewID(cmd.Context(), id)
				if err != nil {
					return err
				}
				return a.print(h, func(t *table) {
					t.row("lock", h.Lock)
					t.row("token", h.Token)
					t.row("lasts", time.Duration(h.TTLMS)*time.Millisecond)
				})
			})
		},
	}
}

// holdID is the id given, or that of the environment: a command line can be seen by
// every user of the machine.
func (a *app) holdID(args []string) (string, error) {
	if len(args) > 0 {
		if args[0] == "" {
			return "", usage("the id of the hold is empty")
		}
		return args[0], nil
	}
	if id := a.getenv("FENCED_HOLD"); id != "" {
		return id, nil
	}
	return "", usage("no hold is named: give its id or set FENCED_HOLD, as \"fencectl acquire\" prints it")
}
