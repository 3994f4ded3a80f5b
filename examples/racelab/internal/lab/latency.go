package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/examples/racelab/internal/ledger"
	"github.com/fenced/fenced/examples/racelab/internal/lock"
	"github.com/fenced/fenced/examples/racelab/internal/plan"
)

// lane is one way in the latency pass: one client, as a program has one, shared by
// all workers.
type lane struct {
	way     Way
	workers []*worker
	locker  lock.Locker
	took    []time.Duration
}

// warmUp is the round before those that count.
const warmUp = -1

// latencies runs the latency pass: each worker updates an account of its own, which
// nobody else touches, at a pace that every way keeps up with. A latency is the time
// from the call to acquire to the answer of the commit.
func (r *run) latencies(ctx context.Context, ways []Way) (_ map[Way][]time.Duration, err error) {
	var lanes []*lane
	defer func() {
		for _, l := range lanes {
			err = errors.Join(err, l.locker.Close())
		}
	}()
	for _, w := range ways {
		l, err := r.newLane(ctx, w)
		if err != nil {
			return nil, err
		}
		lanes = append(lanes, l)
	}
	total := r.config.Rounds * len(lanes)
	for round := warmUp; round < r.config.Rounds; round++ {
		for i := range lanes {
			l := lanes[(i+max(round, 0))%len(lanes)]
			pace := r.config.Pace
			if round == warmUp {
				pace = 0 // all at once, so that every connection is opened and has its statements
			}
			took, err := r.round(ctx, l, round, pace)
			if err != nil {
				return nil, fmt.Errorf("latency of %s: %w", l.way, err)
			}
			if round != warmUp {
				l.took = append(l.took, took...)
				r.config.progress("latency", round*len(lanes)+i+1, total)
			}
		}
	}
	all := make(map[Way][]time.Duration)
	for _, l := range lanes {
		slices.Sort(l.took)
		all[l.way] = l.took
	}
	return all, nil
}

func (r *run) newLane(ctx context.Context, w Way) (*lane, error) {
	schema := "latency_" + string(w)
	book := ledger.Open(r.stage.Pool, schema, r.guardOf(w))
	if err := book.Create(ctx, plan.Size{Accounts: r.config.Workers}); err != nil {
		return nil, err
	}
	locker, err := r.endpoints.maker(w, r.config.TTL)("latency", &lock.Gate{})
	if err != nil {
		return nil, err
	}
	l := &lane{way: w, locker: locker}
	for i := range r.config.Workers {
		l.workers = append(l.workers, &worker{name: workerName(i), prefix: schema + "/", ledger: book, locker: locker})
	}
	return l, nil
}

// round has every worker of a lane do its transactions, each at its own times, which
// are spread evenly.
func (r *run) round(ctx context.Context, l *lane, round int, pace time.Duration) ([]time.Duration, error) {
	n := len(l.workers)
	took, errs := make([][]time.Duration, n), make([]error, n)
	begin := time.Now()
	var all sync.WaitGroup
	for i, w := range l.workers {
		all.Go(func() {
			for k := range r.config.PerRound {
				at := time.Duration(k)*pace + time.Duration(i)*pace/time.Duration(n)
				if !sleep(ctx, time.Until(begin.Add(at))) {
					errs[i] = context.Cause(ctx)
					return
				}
				d, err := w.timed(ctx, plan.Step{N: round*r.config.PerRound + k, Kind: plan.Update, Key: i, Amount: 1})
				if err != nil {
					errs[i] = err
					return
				}
				took[i] = append(took[i], d)
			}
		})
	}
	all.Wait()
	return slices.Concat(took...), errors.Join(errs...)
}

// timed does a step once and returns the time from the call to acquire to the
// answer of the commit; the release is not in it.
func (w *worker) timed(ctx context.Context, step plan.Step) (time.Duration, error) {
	asked := time.Now()
	hold, err := w.locker.Acquire(ctx, w.prefix+step.Lock())
	if err != nil {
		return 0, err
	}
	defer release(ctx, hold)
	a := ledger.Access{Step: step, Worker: w.name, Hold: fmt.Sprintf("%s-%d", w.name, step.N), Asked: asked, Granted: time.Now(), Token: hold.Token()}
	err = w.work(ctx, a, hold)
	return time.Since(asked), err
}

// quantile returns the q-quantile of sorted latencies in milliseconds: the smallest
// that at least that share is not above. 0 where there are none.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := min(int(q*float64(len(sorted))), len(sorted)-1)
	return float64(sorted[i].Microseconds()) / 1000
}
