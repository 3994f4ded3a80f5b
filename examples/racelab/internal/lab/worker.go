package lab

import (
	"context"
	"fmt"
	"time"

	"github.com/fenced/fenced/examples/racelab/internal/ledger"
	"github.com/fenced/fenced/examples/racelab/internal/lock"
	"github.com/fenced/fenced/examples/racelab/internal/plan"
)

const (
	// maxTries is how often a step is done over after a refusal. One more try is
	// what it takes; a guard that refuses for ever must not keep the lab.
	maxTries = 5

	releaseLimit = 5 * time.Second
)

// A worker does steps, one at a time.
type worker struct {
	name   string
	prefix string // of its locks' names
	ledger *ledger.Ledger
	locker lock.Locker
	// stall stands still for a time and returns the moment from which on nothing
	// left the worker.
	stall func(ctx context.Context, d time.Duration) (frozen time.Time, err error)
}

// do does a step, and does it over under a new hold where the store has refused it,
// without the stall.
func (w *worker) do(ctx context.Context, step plan.Step) error {
	for try := range maxTries {
		refused, err := w.attempt(ctx, step, try)
		if err != nil {
			return fmt.Errorf("worker %s, step %d: %w", w.name, step.N, err)
		}
		if !refused {
			return nil
		}
		step.Stall = 0
	}
	return nil // the count finds the step undone
}

// attempt takes the lock, reads, perhaps stalls, writes and releases.
func (w *worker) attempt(ctx context.Context, step plan.Step, try int) (refused bool, err error) {
	a := ledger.Access{Step: step, Worker: w.name, Hold: fmt.Sprintf("%s-%d-%d", w.name, step.N, try), Asked: time.Now()}
	hold, err := w.locker.Acquire(ctx, w.prefix+step.Lock())
	if err != nil {
		return false, err
	}
	defer release(ctx, hold)
	a.Granted, a.Token = time.Now(), hold.Token()
	return w.note(ctx, a, w.work(ctx, a, hold))
}

// note logs a refusal.
func (w *worker) note(ctx context.Context, a ledger.Access, err error) (refused bool, _ error) {
	if stale := ledger.AsStale(err); stale != nil {
		return true, w.ledger.Refused(ctx, a, stale)
	}
	return false, err
}

// work is what the lock is there for. It is the code that forgot: it never looks
// whether the hold is still held.
func (w *worker) work(ctx context.Context, a ledger.Access, hold lock.Hold) error {
	value, err := w.ledger.Read(ctx, a)
	if err != nil {
		return err
	}
	frozen := time.Now()
	if a.Step.Stall > 0 {
		if frozen, err = w.stall(ctx, a.Step.Stall); err != nil {
			return err
		}
		if err := w.ledger.Stalled(ctx, a, frozen, hold.Ends(frozen)); err != nil {
			return err
		}
	}
	switch {
	case a.Step.Kind == plan.Update:
		return w.ledger.Write(ctx, a, value+a.Step.Amount, hold.Ends(frozen))
	case value == 0:
		return w.ledger.Write(ctx, a, 1, hold.Ends(frozen))
	default:
		return nil // paid already
	}
}

// release gives the lock up. That it fails means most of all that the lease was over,
// which this worker does not care about; else the lease ends by itself.
func release(ctx context.Context, hold lock.Hold) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	_ = hold.Release(ctx)
}

// sleepBehind returns the stall of a worker that is a goroutine.
func sleepBehind(gate *lock.Gate) func(context.Context, time.Duration) (time.Time, error) {
	return func(ctx context.Context, d time.Duration) (time.Time, error) {
		gate.Close()
		defer gate.Open()
		frozen := time.Now()
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return frozen, nil
		case <-ctx.Done():
			return frozen, context.Cause(ctx)
		}
	}
}
