package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
)

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the server that answers and its view of the store",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(func(c *clientsdk.Client) error {
				s, err := c.Status(cmd.Context())
				if err != nil {
					return err
				}
				return a.print(s, func(t *table) { t.status(s) })
			})
		},
	}
}

func (t *table) status(s *clientsdk.Status) {
	ready := "yes"
	if !s.Ready {
		ready = "no: " + s.NotReady
	}
	t.row("server", s.Name, s.Version, s.Mode)
	t.row("ready", ready)
	t.row("cluster", s.Cluster)
	t.row("leader", dash(s.Leader))
	t.row("revision", s.Revision)
	t.row("token base", s.Base)
	t.row("highest token", s.Highest)
	t.row("token floor", s.Floor)
	t.row("mirror lag", time.Duration(s.LagMS)*time.Millisecond)
	t.row("locks", s.Locks)
	t.row("holds", s.Holds)
	t.row("waiters", s.Waiters)
	t.row("sessions", s.Sessions)
	t.row("up for", ago(s.Started))
}
