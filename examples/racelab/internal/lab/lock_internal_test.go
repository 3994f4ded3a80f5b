//go:build unix

package lab

import (
	"context"
	"testing"
	"time"

	"github.com/fenced/fenced/examples/racelab/internal/lock"
)

// What the lab's stalls rest on: in each way, a worker behind a closed gate loses its
// lock to another and does not disturb the newcomer when it comes back.
func TestEveryLockPassesOnBehindAClosedGate(t *testing.T) {
	const ttl = time.Second
	for _, w := range Ways() {
		if w == None || w.needsRedis() && servers.NoRedis != nil {
			continue
		}
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			make := newRun(servers, small()).endpoints.maker(w, ttl)
			gate := &lock.Gate{}
			a, b, c := locker(t, make, gate), locker(t, make, &lock.Gate{}), locker(t, make, &lock.Gate{})
			name := "gate/" + string(w)
			first := acquire(ctx, t, a, name)
			gate.Close()
			second := acquire(ctx, t, b, name)
			gate.Open()
			release(ctx, first)
			if w.Fenced() && second.Token() <= first.Token() {
				t.Errorf("tokens %d, then %d", first.Token(), second.Token())
			}
			// The release of the first must have left the second's lock in place.
			brief, stop := context.WithTimeout(ctx, ttl/3)
			defer stop()
			if h, err := c.Acquire(brief, name); err == nil {
				t.Error("a third worker got the lock beside the second")
				release(ctx, h)
			}
			release(ctx, second)
			release(ctx, acquire(ctx, t, c, name))
		})
	}
}

func locker(t *testing.T, make lock.Maker, gate *lock.Gate) lock.Locker {
	t.Helper()
	l, err := make(t.Name(), gate)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func acquire(ctx context.Context, t *testing.T, l lock.Locker, name string) lock.Hold {
	t.Helper()
	h, err := l.Acquire(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
