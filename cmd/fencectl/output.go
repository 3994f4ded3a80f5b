package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// print writes v as JSON, or else as the table that f fills.
func (a *app) print(v any, f func(t *table)) error {
	if a.output == "json" {
		e := json.NewEncoder(a.out)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	t := &table{w: tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)}
	f(t)
	return t.w.Flush()
}

// table writes aligned rows.
type table struct{ w *tabwriter.Writer }

func (t *table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = safe(fmt.Sprint(c))
	}
	io.WriteString(t.w, strings.Join(texts, "\t")+"\n")
}

// safe quotes text that could move the cursor or look like something else: names are
// other people's input.
func safe(s string) string {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

// ago is the age of t in two units at most.
func ago(t time.Time) string { return short(max(0, time.Since(t))) }

func short(d time.Duration) string {
	switch {
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// size is a number of bytes in the unit that leaves two or three digits before the point.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	if i == 0 {
		return fmt.Sprint(n, " B")
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// remaining is a time left that the server may not know.
func remaining(ms *int64) string {
	if ms == nil {
		return "?"
	}
	return short(time.Duration(*ms) * time.Millisecond)
}

// dash stands for a value that is not there.
func dash[T comparable](v T) string {
	var zero T
	if v == zero {
		return "-"
	}
	return fmt.Sprint(v)
}
