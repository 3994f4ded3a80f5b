package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
)

func (a *app) watchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "watch [PREFIX]",
		Short: "Print what happens to locks, as it happens; with -o json one object a line",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts := &clientsdk.EventsOptions{}
			if len(args) > 0 {
				opts.Prefix = args[0]
			}
			return a.with(func(c *clientsdk.Client) error {
				for ev, err := range c.Events(cmd.Context(), opts) {
					if err == nil {
						err = a.printEvent(ev)
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

func (a *app) printEvent(ev clientsdk.Event) error {
	if a.output == "json" {
		return json.NewEncoder(a.out).Encode(ev)
	}
	if ev.Lock == "" {
		_, err := fmt.Fprintln(a.out, safe(ev.Kind)+": events were lost; list the locks again")
		return err
	}
	text := fmt.Sprintf("%s  %-9s  %s  token %s  %s", ev.Time.Local().Format("15:04:05.000"), safe(ev.Kind),
		safe(ev.Lock), dash(ev.Token), safe(ev.Owner))
	if ev.Reason != "" {
		text += "  (" + safe(ev.Reason) + ")"
	}
	_, err := fmt.Fprintln(a.out, text)
	return err
}
