package lock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fenced/fenced/tokens"
)

// A Locker takes locks in one way.
type Locker interface {
	// Acquire waits for the lock, until ctx ends.
	Acquire(ctx context.Context, name string) (Hold, error)
	// Close gives up what the Locker keeps. Holds end with it or by themselves.
	Close() error
}

// A Hold is a lock that was granted.
type Hold interface {
	// Token is the fencing token; 0 where the way has none.
	Token() tokens.Token
	// Ends returns when the lease is over at the latest if the worker sends nothing
	// from frozen on; the zero time where there is no lease.
	Ends(frozen time.Time) time.Time
	// Release gives the lock up. It changes nothing where the lease is over.
	Release(ctx context.Context) error
}

// A Maker makes the Locker of a worker. It does not wait for a server.
type Maker func(worker string, gate *Gate) (Locker, error)

// None takes no lock at all.
func None(string, *Gate) (Locker, error) { return none{}, nil }

type none struct{}

func (none) Acquire(ctx context.Context, _ string) (Hold, error) { return none{}, ctx.Err() }
func (none) Close() error                                        { return nil }
func (none) Token() tokens.Token                                 { return 0 }
func (none) Ends(time.Time) time.Time                            { return time.Time{} }
func (none) Release(context.Context) error                       { return nil }

// Bounds of the pause between two tries of a client that has to poll: those that
// redsync has by default, so that both ways of Redis poll alike.
const (
	minRetry = 50 * time.Millisecond
	maxRetry = 250 * time.Millisecond
)

// pause waits for one retry pause and reports whether ctx lasted.
func pause(ctx context.Context) bool {
	timer := time.NewTimer(minRetry + rand.N(maxRetry-minRetry))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
