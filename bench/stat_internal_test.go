package main

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSeries_Median(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		s    series
		want float64
	}{
		{"one value", series{7}, 7},
		{"odd count, out of order", series{9, 1, 5}, 5},
		{"even count is the mean of the middle", series{4, 1, 100, 2}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := append(series{}, tt.s...)
			if got := tt.s.median(); got != tt.want {
				t.Errorf("median of %v = %v, want %v", tt.s, got, tt.want)
			}
			if d := cmp.Diff(before, tt.s); d != "" {
				t.Errorf("median changed the order of the rounds (-want +got):\n%s", d)
			}
		})
	}
	if got := (series)(nil).median(); !math.IsNaN(got) {
		t.Errorf("median of nothing = %v, want NaN", got)
	}
}

func TestSeries_Over(t *testing.T) {
	t.Parallel()
	a, b := series{10, 2, 30}, series{5, 1, 10}
	if d := cmp.Diff(series{2, 2, 3}, a.over(b)); d != "" {
		t.Errorf("round by round (-want +got):\n%s", d)
	}
	// The second round was disturbed as a whole: the ratio of the medians would be
	// 1.5, that of the rounds is not moved.
	if got := (series{20, 3, 30}).over(series{10, 1.5, 15}).median(); got != 2 {
		t.Errorf("median of ratios = %v, want 2", got)
	}
	if got := a.over(nil); got != nil {
		t.Errorf("ratio to a peer that is missing = %v, want nil", got)
	}
	if got := series(nil).over(b); got != nil {
		t.Errorf("ratio of a peer that is missing = %v, want nil", got)
	}
}

func TestSeries_Spread(t *testing.T) {
	t.Parallel()
	if got, want := (series{3, 1, 2}).spread(), (spread{1, 3}); got != want {
		t.Errorf("spread = %v, want %v", got, want)
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	var hundred []time.Duration
	for i := 100; i >= 1; i-- {
		hundred = append(hundred, time.Duration(i))
	}
	for _, tt := range []struct {
		d    []time.Duration
		q    float64
		want time.Duration
	}{
		{hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 1, 100}, {hundred, 0, 1},
		{[]time.Duration{8}, 0.99, 8}, {[]time.Duration{1, 2}, 0.5, 1}, {nil, 0.5, 0},
	} {
		if got := quantile(tt.d, tt.q); got != tt.want {
			t.Errorf("quantile of %d values at %v = %d, want %d", len(tt.d), tt.q, got, tt.want)
		}
	}
}
