package main

import (
	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
)

func (a *app) releaseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "release [HOLD]",
		Short: "Release a hold of \"fencectl acquire\" (default: that of FENCED_HOLD)",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := a.holdID(args)
			if err != nil {
				return err
			}
			return a.with(func(c *clientsdk.Client) error { return c.ReleaseID(cmd.Context(), id) })
		},
	}
}
