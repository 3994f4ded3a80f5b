package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// writeTable writes the report for people, in Markdown.
func (r *report) writeTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Measured\n\n%d CPUs, %s, %s, etcd %s; %d rounds of %d ms a measure, %.0f s in all. "+
		"Every ratio is the median of the ratios of the rounds, with the lowest and the highest beside it. "+
		"How it measures stands in [doc.go](doc.go).\n\n",
		r.Machine.CPUs, r.Machine.OS, r.Machine.Go, r.Machine.Etcd, r.Rounds, r.RoundMS, r.Seconds)
	b.WriteString("| work | key | to reach | measured | lowest to highest | |\n| --- | --- | --- | --- | --- | --- |\n")
	r.rows(&b, r.Ratios, ratioRows)
	r.rows(&b, r.Figures, figureRows)
	b.WriteString("\n## The measures behind them\n\nCycles of acquire and release a second; names with `_us` are microseconds.\n\n" +
		"| measure | median | lowest to highest |\n| --- | --- | --- |\n")
	for _, key := range slices.Sorted(maps.Keys(r.Figures)) {
		if !slices.ContainsFunc(figureRows, func(row row) bool { return row.key == key }) {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", key, show(float64(r.Figures[key])), r.span(key))
		}
	}
	if len(r.Left) > 0 {
		b.WriteString("\n## Left out\n\n")
	}
	for _, line := range r.Left {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *report) rows(b *strings.Builder, m map[string]number, rows []row) {
	for _, row := range rows {
		sign := "<="
		if row.least {
			sign = ">="
		}
		v := float64(m[row.key])
		fmt.Fprintf(b, "| %s | `%s` | %s %s | %s | %s | %s |\n",
			row.work, row.key, sign, show(row.bound), show(v), r.span(row.key), verdict(row, v))
	}
}

func verdict(row row, v float64) string {
	switch {
	case math.IsNaN(v):
		return "not measured"
	case row.met(v):
		return "reached"
	case row.least:
		return fmt.Sprintf("**missed** by %.0f %%", 100*(1-v/row.bound))
	}
	return fmt.Sprintf("**missed** by %.0f %%", 100*(v/row.bound-1))
}

func (r *report) span(key string) string {
	s, ok := r.Spread[key]
	if !ok {
		return ""
	}
	return show(s.Min) + " to " + show(s.Max)
}

// show prints three digits or the whole number.
func show(v float64) string {
	switch {
	case math.IsNaN(v):
		return "null"
	case math.Abs(v) >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
