package main

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// sleeper is a client whose cycle takes d.
func sleeper(d time.Duration) func(context.Context) error {
	return func(context.Context) error { time.Sleep(d); return nil } // in a bubble: no time passes outside
}

func TestDrive(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		calls []func(context.Context) error
		rate  float64
		p50   float64
	}{
		{"each client counts", []func(context.Context) error{sleeper(10 * time.Millisecond), sleeper(20 * time.Millisecond)}, 150, 10_000},
		{"the last call counts with its part", []func(context.Context) error{sleeper(400 * time.Millisecond)}, 2.5, 400_000},
		{"a call longer than the round counts with its part", []func(context.Context) error{sleeper(4 * time.Second)}, 0.25, 4_000_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got, err := drive(t.Context(), time.Second, tt.calls)
				if err != nil {
					t.Fatal(err)
				}
				if math.Abs(got.rate-tt.rate) > 1e-9 || got.p50() != tt.p50 {
					t.Errorf("rate %v, p50 %v us; want %v, %v us", got.rate, got.p50(), tt.rate, tt.p50)
				}
			})
		})
	}
}

func TestDrive_ErrorEndsAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		var others atomic.Int64
		_, err := drive(t.Context(), time.Hour, []func(context.Context) error{
			func(context.Context) error { time.Sleep(time.Second); return broken }, // virtual
			func(ctx context.Context) error { others.Add(1); <-ctx.Done(); return ctx.Err() },
		})
		if !errors.Is(err, broken) || others.Load() != 1 {
			t.Errorf("error %v after %d calls of the other client; want %v after 1", err, others.Load(), broken)
		}
	})
}

func TestLocks_OwnAndOne(t *testing.T) {
	t.Parallel()
	names := make(chan string, 4)
	clients := []locker{namer{names}, namer{names}}
	for _, tt := range []struct {
		calls []func(context.Context) error
		same  bool
	}{{ownLocks(clients), false}, {oneLock(clients), true}} {
		for _, call := range tt.calls {
			if err := call(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if a, b := <-names, <-names; (a == b) != tt.same {
			t.Errorf("two clients use locks %q and %q; want the same one: %v", a, b, tt.same)
		}
	}
}

type namer struct{ names chan string }

func (n namer) cycle(_ context.Context, lock string) error { n.names <- lock; return nil }
func (namer) close()                                       {}

// Rounds of two measures take turns, and every other round runs backwards, so that
// a machine that slows down does not favour one of them.
func TestSuite_MeasureAll(t *testing.T) {
	t.Parallel()
	s := &suite{scale: scale{rounds: 3, round: time.Second}, report: newReport(true, 3, 1000)}
	order := ""
	turn := func(name string, value float64) measure {
		return measure{name, func(context.Context, time.Duration) (float64, error) {
			order += name
			return value + float64(len(order)), nil
		}}
	}
	got, err := s.measureAll(t.Context(), []measure{turn("a", 0), turn("b", 100)})
	if err != nil {
		t.Fatal(err)
	}
	if order != "abbaab" {
		t.Errorf("order %q, want abbaab", order)
	}
	if want := 4.0; got["a"].median() != want || float64(s.report.Figures["a"]) != want {
		t.Errorf("median of a: %v, in the report %v; want %v", got["a"].median(), s.report.Figures["a"], want)
	}
	fault := errors.New("fault")
	_, err = s.measureAll(t.Context(), []measure{{"c", func(context.Context, time.Duration) (float64, error) { return 0, fault }}})
	if !errors.Is(err, fault) {
		t.Errorf("error %v, want %v", err, fault)
	}
}

// idler is a client whose cycle takes a millisecond.
type idler struct{}

func (idler) cycle(context.Context, string) error { time.Sleep(time.Millisecond); return nil } // paces a loop
func (idler) close()                              {}
