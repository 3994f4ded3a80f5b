package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
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
		Long: `Compare the rewards of FILE with the ledger, and with everything that the item server
has granted where --items is given, row by row. FILE must hold all rewards owed.
Exits with 1 unless each was paid exactly once with its amount and nothing else was,
the inbox is settled and the outbox drained; the last line says what is not.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := given(cmd, "items"); err != nil {
				return err
			}
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

func verify(ctx context.Context, w io.Writer, pool *pgxpool.Pool, items string, owed []rewards.Reward) error {
	v, err := rewards.Verify(ctx, pool, owed)
	if err != nil {
		return err
	}
	problems := v.Problems()
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "messages\t%d (%d repeats dropped, %d waiting, %d dead)\n", v.Messages, v.Dropped, v.Waiting, v.Dead)
	for _, l := range v.Lines() {
		fmt.Fprintf(table, "%s\t%s\n", l.What, l.How)
	}
	fmt.Fprintf(table, "outbox drained\t%s\n", drained(v))
	if items != "" {
		granted, err := rewards.VerifyItems(ctx, &http.Client{Timeout: 10 * time.Second}, items, owed)
		if err != nil {
			return err
		}
		for _, l := range granted.Lines() {
			fmt.Fprintf(table, "item server: %s\t%s\n", l.What, l.How)
		}
		for _, p := range granted.Problems() {
			problems = append(problems, "item server: "+p)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(problems) > 0 {
		return errors.New("not as it is owed: " + strings.Join(problems, "; "))
	}
	return nil
}

func drained(v rewards.Verdict) string {
	if v.Drained() {
		return "yes"
	}
	return fmt.Sprintf("NO: %d unpublished, %d dead", v.Unpublished, v.DeadLetters)
}
