//go:build unix

package lab

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fenced/fenced/examples/racelab/internal/ledger"
	"github.com/fenced/fenced/examples/racelab/internal/plan"
)

// The whole experiment: what is guarded stays whole, what is not breaks.
func TestRun(t *testing.T) {
	config := small()
	res, err := Run(t.Context(), servers, config)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Problems) > 0 {
		t.Errorf("problems: %q", res.Problems)
	}
	var ways []Way
	for _, row := range res.Ways {
		ways = append(ways, row.Way)
		if row.Skipped != "" {
			continue
		}
		if row.Stalls != config.Size.Stalls || row.Samples != config.Workers {
			t.Errorf("%s: %d stalls and %d latencies, want %d and %d", row.Way, row.Stalls, row.Samples, config.Size.Stalls, config.Workers)
		}
		if row.Way.Fenced() == row.Corrupted() {
			t.Errorf("%s: %d lost updates, %d double payments", row.Way, row.LostUpdates, row.DoublePayments)
		}
		// No lock that works has two holders, so whoever did harm was late.
		if row.Way != None && (row.WithinLease > 0 || row.Corrupted() && row.WritesAfterLease == 0) {
			t.Errorf("%s: %d writes after a lease, %d corruptions within all", row.Way, row.WritesAfterLease, row.WithinLease)
		}
		if row.Way.Fenced() == (row.Refused == 0) {
			t.Errorf("%s: %d writes refused", row.Way, row.Refused)
		}
	}
	if diff := cmp.Diff(Ways(), ways); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	checkStory(t, res.Story)
}

// The story must show the two outcomes of one step.
func checkStory(t *testing.T, s *Story) {
	t.Helper()
	if s == nil {
		t.Fatal("the run has no reward that was paid twice without and refused with the guard")
	}
	paid := 0
	for _, e := range s.Alone {
		if e.What == "write" {
			paid++
		}
	}
	if paid < 2 || !refusedStep(s.Guarded, s.Step) {
		t.Errorf("the story has %d payments, refusal %t", paid, refusedStep(s.Guarded, s.Step))
	}
}

// One seed stalls the same steps, in every way and in every run.
func TestContend_SameSeedSameStalls(t *testing.T) {
	config := small()
	config.Size.StallMin, config.Size.StallMax = time.Millisecond, 50*time.Millisecond
	stalled := func(seed uint64, w Way) []int {
		config.Seed = seed
		l, err := newRun(servers, config).contend(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		steps, err := l.StalledSteps(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return steps
	}
	var planned []int
	for _, s := range plan.New(3, config.Size) {
		if s.Stall > 0 {
			planned = append(planned, s.N)
		}
	}
	for _, w := range []Way{None, FencedGuard, None} {
		if diff := cmp.Diff(planned, stalled(3, w)); diff != "" {
			t.Errorf("%s: stalled steps (-plan +database):\n%s", w, diff)
		}
	}
	if slices.Equal(planned, stalled(4, None)) {
		t.Error("two seeds stall the same steps")
	}
}

// Workers that are processes and are stopped by a signal come to the same end.
func TestContend_RealProcesses(t *testing.T) {
	config := small()
	config.Real, config.Workers = true, 6
	config.Size.Updates, config.Size.Payments, config.Size.Stalls = 30, 30, 8
	r := newRun(servers, config)
	for _, w := range []Way{FencedUnguarded, FencedGuard} {
		l, err := r.contend(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		got := count(t, l, w, config)
		if got.Stalls != 8 || (w == FencedGuard) == (got.Corrupted() > 0) {
			t.Errorf("%s: %+v", w, got)
		}
	}
}

func count(t *testing.T, l *ledger.Ledger, w Way, config Config) ledger.Counts {
	t.Helper()
	c, err := l.Count(t.Context(), config.TTL, w.exclusive())
	if err != nil {
		t.Fatal(err)
	}
	return c
}
