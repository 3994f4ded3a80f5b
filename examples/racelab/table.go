package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/fenced/fenced/examples/racelab/internal/lab"
)

// writeTable prints the table, and below it what it means.
func writeTable(w io.Writer, res *lab.Result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "way\ttransactions\tstalls\tlate writes\tlost updates\tpaid twice\trefused\tcorruption\tper s\tp50 ms\tp99 ms\tverdict\t")
	for _, row := range append(res.Ways[:len(res.Ways):len(res.Ways)], res.RedlockRestart) {
		writeRow(t, row)
	}
	_ = t.Flush()
	writeNotes(w, res)
}

func writeRow(w io.Writer, r *lab.Row) {
	if r.Skipped != "" {
		fmt.Fprintf(w, "%s\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t%s\t\n", r.Way.Title(), r.Verdict())
		return
	}
	p50, p99 := "-", "-"
	if r.Samples > 0 {
		p50, p99 = fmt.Sprintf("%.1f", r.P50MS), fmt.Sprintf("%.1f", r.P99MS)
	}
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%.2f%%\t%.0f\t%s\t%s\t%s\t\n",
		r.Way.Title(), r.Transactions, r.Stalls, r.WritesAfterLease, r.LostUpdates, r.DoublePayments, r.Refused,
		100*r.CorruptionRate, r.PerSecond, p50, p99, r.Verdict())
}

func writeNotes(w io.Writer, res *lab.Result) {
	fmt.Fprintf(w, "\nseed %d, %d workers, TTL %d ms; counted in the database afterwards.\n", res.Seed, res.Workers, res.TTLMS)
	fmt.Fprintln(w, "late writes: took effect after the writer's lease was over. Behind a guard one can only do so while nobody newer has come.")
	if res.P99Ratio > 0 {
		fmt.Fprintf(w, "p99 of fenced + guard table is %.2f times that of Redis (at most %.2f is the aim).\n", res.P99Ratio, lab.MaxP99Ratio)
	}
	if r := res.RedlockRestart; r.WithinLease > 0 {
		fmt.Fprintf(w, "%s: %d of its %d corruptions happened while every lease was good: two held one lock.\n",
			r.Way.Title(), r.WithinLease, r.LostUpdates+r.DoublePayments)
	}
	skipped := ""
	for _, r := range res.Ways {
		if r.Skipped != "" {
			skipped = r.Skipped
		}
	}
	if skipped != "" {
		fmt.Fprintln(w, "not run:", skipped)
	}
	for _, p := range res.Problems {
		fmt.Fprintln(w, "FAILED:", p)
	}
}
