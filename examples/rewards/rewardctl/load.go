package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/examples/rewards"
)

func loadCmd(open openFunc) *cobra.Command {
	return &cobra.Command{
		Use:   "load FILE",
		Short: "Install the tables and deliver the rewards of an NDJSON file to the inbox",
		Long:  "Install the tables where they are missing and deliver the rewards of FILE (- for stdin)\nto the inbox, all or none. Loading a file again is a second delivery, and pays nobody twice.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			deliveries, err := readFile(args[0])
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			pool, err := open(ctx)
			if err != nil {
				return err
			}
			defer pool.Close()
			if err := rewards.Install(ctx, pool); err != nil {
				return err
			}
			if err := rewards.Deliver(ctx, pool, deliveries); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d messages delivered\n", len(deliveries))
			return nil
		},
	}
}
