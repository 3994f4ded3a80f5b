package main

import (
	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
)

func (a *app) historyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "history LOCK",
		Short: "Show how the last grants of a lock ended, the newest first",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(func(c *clientsdk.Client) error {
				info, err := c.Lock(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.print(info.History, func(t *table) {
					t.history(info)
					t.row()
					t.row("what ended before " + info.HistorySince.Local().Format("2006-01-02 15:04:05") + " is not remembered")
				})
			})
		},
	}
}

func (t *table) history(info *clientsdk.LockInfo) {
	t.row("TOKEN", "OWNER", "HELD FOR", "ENDED", "AGO", "REASON")
	for _, e := range info.History {
		t.row(dash(e.Token), e.Owner, short(e.EndedAt.Sub(e.Since)), e.Ended, ago(e.EndedAt), dash(e.Reason))
	}
}
