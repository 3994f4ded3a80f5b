package lab

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fenced/fenced/examples/racelab/internal/ledger"
	"github.com/fenced/fenced/examples/racelab/internal/lock"
	"github.com/fenced/fenced/examples/racelab/internal/plan"
)

// A crew is the workers of one way. do blocks until the step is done; each worker is
// asked by one goroutine.
type crew interface {
	do(ctx context.Context, worker int, step plan.Step) error
	close() error
}

// contend takes the plan through one way and returns when every step is done.
func (r *run) contend(ctx context.Context, w Way) (*ledger.Ledger, error) {
	l := ledger.Open(r.stage.Pool, string(w), r.guardOf(w))
	if err := l.Create(ctx, r.config.Size); err != nil {
		return nil, err
	}
	c, err := r.newCrew(w, l)
	if err != nil {
		return nil, err
	}
	steps := plan.New(r.config.Seed, r.config.Size)
	var done atomic.Int64
	after := func() { r.config.progress(w.Title(), int(done.Add(1)), len(steps)) }
	stop := func() error { return nil }
	if w == RedlockRestart {
		stop = r.sabotage(ctx, &done, len(steps))
	}
	err = share(ctx, r.config.Workers, steps, func(ctx context.Context, worker int, step plan.Step) error {
		defer after()
		return c.do(ctx, worker, step)
	})
	return l, errors.Join(err, stop(), c.close())
}

// share hands out the steps in their order to n workers and ends at the first error.
func share(ctx context.Context, n int, steps []plan.Step, do func(context.Context, int, plan.Step) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var workers sync.WaitGroup
	for worker := range n {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(steps) {
					return
				}
				if err := do(ctx, worker, steps[i]); err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

func (r *run) newCrew(w Way, l *ledger.Ledger) (crew, error) {
	if r.config.Real {
		return r.hire(w)
	}
	return r.gather(w, l)
}

// goroutines is a crew within this process.
type goroutines []*worker

func (r *run) gather(w Way, l *ledger.Ledger) (_ crew, err error) {
	var all goroutines
	maker := r.endpoints.maker(w, r.config.TTL)
	for i := range r.config.Workers {
		gate := &lock.Gate{}
		one := &worker{name: workerName(i), prefix: string(w) + "/", ledger: l, stall: sleepBehind(gate)}
		if one.locker, err = maker(one.name, gate); err != nil {
			return nil, errors.Join(err, all.close())
		}
		all = append(all, one)
	}
	return all, nil
}

func workerName(i int) string { return fmt.Sprintf("w%02d", i+1) }

func (g goroutines) do(ctx context.Context, worker int, step plan.Step) error {
	return g[worker].do(ctx, step)
}

// close closes all at once: each may wait for its server.
func (g goroutines) close() error {
	errs := make([]error, len(g))
	var all sync.WaitGroup
	for i, w := range g {
		all.Go(func() { errs[i] = w.locker.Close() })
	}
	all.Wait()
	return errors.Join(errs...)
}
