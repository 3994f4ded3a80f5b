package unit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenced/fenced/tokens"
)

// tardy is a context whose deadline has passed and whose end comes a moment later, as
// it does where the network's timer for the same deadline is the first to ring.
type tardy struct {
	context.Context
	deadline time.Time
}

func (c tardy) Deadline() (time.Time, bool) { return c.deadline, true }

// newTardy returns one that ends 10 ms after the call, of the cause that Run gives.
func newTardy(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, errLeaseOver)
	t.Cleanup(cancel)
	return tardy{Context: ctx, deadline: time.Now()}
}

// dialTimeouts are what package net answers at a deadline: the first where it looks at
// the clock, the second where its own timer rang.
func dialTimeouts(t *testing.T) map[string]error {
	_, looked := (&net.Dialer{Deadline: time.Unix(1, 0)}).DialContext(t.Context(), "tcp", "127.0.0.1:1")
	return map[string]error{
		"by the clock": looked,
		"by the timer": &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded},
	}
}

func TestNotThrough(t *testing.T) {
	t.Parallel()
	living, cancelled := t.Context(), cancelledContext()
	for name, err := range dialTimeouts(t) {
		for _, tt := range []struct {
			state string
			ctx   context.Context
			want  error
		}{
			{"time over, and ctx late to say so", newTardy(t), tokens.ErrBusy},
			{"a limit of the driver's own", living, tokens.ErrRetryable},
			{"cancelled", cancelled, nil},
		} {
			got := NotThrough(tt.ctx, err)
			if !errors.Is(got, err) || tt.want != nil && !errors.Is(got, tt.want) || tt.want == nil && Classified(got) {
				t.Errorf("%s, %s: %v, want %v", name, tt.state, got, tt.want)
			}
		}
	}
	other := errors.New("other")
	if got := NotThrough(newTardy(t), other); got != other {
		t.Errorf("%v, want the error as it is", got)
	}
}

func cancelledContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// The function's last statement meets the deadline before ctx does.
func TestExplain_SettlesTheEnd(t *testing.T) {
	t.Parallel()
	last := fmt.Errorf("kept waiting: %w", tokens.ErrBusy)
	err := Work{}.explain(newTardy(t), context.DeadlineExceeded, last)
	if !errors.Is(err, tokens.ErrBusy) || !errors.Is(err, errLeaseOver) {
		t.Errorf("%v, want the lease's end and the last try", err)
	}
}

// What a function said of the end stays in the error.
func TestExplain_KeepsTheFunctionsError(t *testing.T) {
	t.Parallel()
	odd := errors.New("odd")
	err := Work{}.explain(newTardy(t), fmt.Errorf("%w: %w", context.DeadlineExceeded, odd), nil)
	if !errors.Is(err, odd) || !errors.Is(err, errLeaseOver) {
		t.Errorf("%v, want the lease's end and the function's error", err)
	}
}

// COMMIT has a limit of its own beyond the lease, and its end by that limit is an
// unknown outcome, not the end of the lease before anything was written.
func TestRun_CommitWithoutAnAnswerStaysUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		w := Work{Claim: tokens.Claim{Resource: "a", Token: 1}, Limit: time.Second}
		w.Once = func(context.Context, tokens.Claim) error {
			calls++
			commit, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			<-commit.Done()
			return fmt.Errorf("commit: %w: %w", tokens.ErrUnknownOutcome, commit.Err())
		}
		if err := w.Run(t.Context()); !errors.Is(err, tokens.ErrUnknownOutcome) || calls != 1 {
			t.Errorf("%v after %d calls, want ErrUnknownOutcome after one", err, calls)
		}
	})
}
