package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fenced/fenced/examples/rewards"
)

func verifyCmd(open openFunc) *cobra.Command {
	var items string
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Compare the rewards of an NDJSON file with the ledger, row by row",
		Long:  "Compare the rewards of FILE with the ledger, and with the item server where --items is given,\nrow by row. Exits with 1 unless each was paid exactly once with its amount.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			deliveries, err := readFile(args[0])
			if err != nil {
				return err
			}
			owed, _, err := rewards.Distinct(deliveries)
			if err != nil {
				return err
			}
			pool, err := open(cmd.Context())
			if err != nil {
				return err
			}
			defer pool.Close()
			return verify(cmd.Context(), cmd.OutOrStdout(), pool, items, owed)
		},
	}
	cmd.Flags().StringVar(&items, "items", "", "base URL of the item server, to be compared too")
	return cmd
}

var errWrong = errors.New("the ledger is not what is owed")

func verify(ctx context.Context, w io.Writer, pool *pgxpool.Pool, items string, owed []rewards.Reward) error {
	v, err := rewards.Verify(ctx, pool, owed)
	if err != nil {
		return err
	}
	ok := v.OK()
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "messages\t%d (%d repeats dropped, %d waiting, %d dead)\n", v.Messages, v.Dropped, v.Waiting, v.Dead)
	for _, l := range v.Lines() {
		fmt.Fprintf(table, "%s\t%s\n", l.What, l.How)
	}
	if items != "" {
		granted, err := rewards.VerifyItems(ctx, &http.Client{Timeout: 10 * time.Second}, items, owed)
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "outbox\t%d unpublished, %d dead\n", v.Unpublished, v.DeadLetters)
		for _, l := range granted.Lines() {
			fmt.Fprintf(table, "item server: %s\t%s\n", l.What, l.How)
		}
		ok = ok && granted.OK() && v.Unpublished == 0 && v.DeadLetters == 0
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if !ok {
		return errWrong
	}
	return nil
}
