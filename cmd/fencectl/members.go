package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
)

func (a *app) membersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "members",
		Short: "List the members of the cluster that keeps the locks",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(func(c *clientsdk.Client) error {
				all, err := c.Members(cmd.Context())
				if err != nil {
					return err
				}
				return a.printMembers(all)
			})
		},
	}
	cmd.AddCommand(a.memberAddCommand(), a.memberRemoveCommand())
	return cmd
}

func (a *app) memberAddCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "add PEER_URL",
		Short: "Announce a new member by the URL at which the others will reach it",
		Long: `Announce a new member, and then start its server. It votes once it has started and
caught up, so an address that nobody starts costs no quorum.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(func(c *clientsdk.Client) error {
				m, err := c.AddMember(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.printMembers([]clientsdk.Member{*m})
			})
		},
	}
}

func (a *app) memberRemoveCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "remove ID",
		Short: "Take a member out of the cluster for good",
		Long:  "Take a member out of the cluster. Its data directory is worth nothing afterwards.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.confirm(fmt.Sprintf("remove member %s for good?", safe(args[0])), yes); err != nil {
				return err
			}
			return a.with(func(c *clientsdk.Client) error { return c.RemoveMember(cmd.Context(), args[0]) })
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) printMembers(all []clientsdk.Member) error {
	return a.print(all, func(t *table) {
		t.row("ID", "NAME", "ROLE", "PEER URLS")
		for _, m := range all {
			role := "voter"
			switch {
			case m.Leader:
				role = "leader"
			case !m.Voter:
				role = "no vote yet"
			}
			t.row(m.ID, dash(m.Name), role, strings.Join(m.PeerURLs, ","))
		}
	})
}
