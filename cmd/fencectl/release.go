package main

import (
	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/internal/apierr"
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
			return a.with(func(c *clientsdk.Client) error { return ended(c.ReleaseID(cmd.Context(), id)) })
		},
	}
}

// ended gives a release of what is no more a hint of its own: there is no lock to want
// back.
func ended(err error) error {
	if apierr.CodeOf(err) == apierr.HoldGone {
		return &exitError{apierr.ExitLost, `nothing is left to release; is it the id that "fencectl acquire" has printed?`, err}
	}
	return err
}
