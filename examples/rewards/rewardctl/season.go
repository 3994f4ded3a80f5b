package main

import (
	"bytes"
	"os"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/examples/rewards"
)

func seasonCmd() *cobra.Command {
	var week, players int
	var out string
	cmd := &cobra.Command{
		Use:   "season",
		Short: "Make the deliveries of a season's week, a fifth of them twice",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var b bytes.Buffer
			if err := rewards.Write(&b, rewards.Season(week, players)); err != nil {
				return err
			}
			if out == "-" {
				_, err := b.WriteTo(cmd.OutOrStdout())
				return err
			}
			return os.WriteFile(out, b.Bytes(), 0o644)
		},
	}
	cmd.Flags().IntVar(&week, "week", 34, "week of the season")
	cmd.Flags().IntVar(&players, "players", 180, "number of players, three rewards each")
	cmd.Flags().StringVar(&out, "out", "-", "file to write, - for stdout")
	return cmd
}
