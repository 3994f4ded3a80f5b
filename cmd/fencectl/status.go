package main

import (
	"cmp"
	"fmt"
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
	leader := cmp.Or(s.Leader, unknown)
	if s.Leads {
		leader += " (this server)"
	}
	t.row("server", s.Name, s.Version, s.Mode)
	t.row("build", cmp.Or(s.Build, unknown))
	t.row("ready", ready)
	t.row("cluster", s.Cluster)
	t.row("leader", leader)
	t.store(s)
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

// unknown is said where a server does not know, which is not the same as nothing.
const unknown = "unknown"

// store shows the store; what the server does not know is said to be unknown.
func (t *table) store(st *clientsdk.Status) {
	s := st.Store
	members, of, free, backup := unknown, unknown, unknown, unknown
	if s.Members > 0 {
		members = fmt.Sprint(s.Members)
	}
	if s.Bytes > 0 {
		of = size(s.Bytes) + " of " + size(s.QuotaBytes)
	}
	if s.DiskFree != nil {
		free = size(*s.DiskFree)
	}
	if s.LastBackup != nil {
		backup = ago(*s.LastBackup) + " ago"
	}
	t.row("members", members)
	t.row("etcd", cmp.Or(s.EtcdVersion, unknown))
	t.row("store size", of)
	t.row("disk free", free)
	t.row("last backup", backup)
	for _, fault := range s.Faults {
		t.row("fault", fault)
	}
}
