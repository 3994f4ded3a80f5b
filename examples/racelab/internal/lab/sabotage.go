package lab

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// sabotage does to Redlock, when a third of the steps is done, what it is said to
// survive: two of five servers do not answer for a while. As they come back, a third
// server restarts without its data. Whoever got the lock from the three that were
// left then has two votes, and a newcomer can get three. The returned function waits
// until all of it is over.
func (r *run) sabotage(ctx context.Context, done *atomic.Int64, total int) (wait func() error) {
	finished := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		const look = 5 * time.Millisecond
		for done.Load() < int64(total/3) {
			if !sleep(ctx, look) {
				finished <- nil
				return
			}
		}
		finished <- r.outage(ctx)
	}()
	return func() error {
		// The steps are done, or have failed before a third of them was.
		defer cancel()
		if done.Load() < int64(total/3) {
			cancel()
		}
		return <-finished
	}
}

// outage lasts so long that some hold is granted by three servers and some worker
// that has such a hold stalls.
func (r *run) outage(ctx context.Context) error {
	servers := r.stage.Redlock
	err := errors.Join(servers[0].Pause(), servers[1].Pause())
	sleep(ctx, r.config.TTL)
	err = errors.Join(err, servers[2].Wipe(ctx))
	return errors.Join(err, servers[0].Resume(), servers[1].Resume())
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
