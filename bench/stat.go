package main

import (
	"math"
	"slices"
	"time"
)

// series has the value of one measure in each round. A nil series was not
// measured.
type series []float64

// over divides two series round by round, so that what disturbed a whole round
// falls out. It is nil where one of them is.
func (s series) over(other series) series {
	n := min(len(s), len(other))
	if n == 0 {
		return nil
	}
	ratios := make(series, n)
	for i := range ratios {
		ratios[i] = s[i] / other[i]
	}
	return ratios
}

// median returns the middle value, or the mean of the two middle ones; NaN where
// there is none.
func (s series) median() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// spread is the lowest and the highest value over the rounds.
type spread struct {
	Min float64 `json:"min"`
	Max float64 `json:"max"`
}

func (s series) spread() spread { return spread{slices.Min(s), slices.Max(s)} }

// quantile returns the smallest duration that a share q of all does not exceed, 0
// where there is none. It sorts d.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	rank := int(math.Ceil(q*float64(len(d)))) - 1
	return d[min(max(rank, 0), len(d)-1)]
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
