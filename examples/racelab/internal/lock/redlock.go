package lock

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/fenced/fenced/tokens"
)

// Redlock returns the way of the Redlock algorithm over the servers at addrs, as
// redsync implements it. There is no renewal: the lease is ttl, less what redsync
// subtracts for drift.
func Redlock(addrs []string, ttl time.Duration) Maker {
	return func(string, *Gate) (Locker, error) {
		l := &redlockLocker{ttl: ttl}
		var pools []redsyncredis.Pool
		for _, addr := range addrs {
			db := newRedis(addr)
			l.dbs = append(l.dbs, db)
			pools = append(pools, goredis.NewPool(db))
		}
		l.sync = redsync.New(pools...)
		return l, nil
	}
}

type redlockLocker struct {
	dbs  []*redis.Client
	sync *redsync.Redsync
	ttl  time.Duration
}

// Acquire implements Locker. redsync pauses between its tries, gives up after some,
// and is asked again then.
func (l *redlockLocker) Acquire(ctx context.Context, name string) (Hold, error) {
	m := l.sync.NewMutex(name, redsync.WithExpiry(l.ttl))
	for {
		err := m.LockContext(ctx)
		if err == nil {
			return &redlockHold{m: m}, nil
		}
		if ctx.Err() != nil {
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
}

// Close implements Locker.
func (l *redlockLocker) Close() error {
	var err error
	for _, db := range l.dbs {
		err = errors.Join(err, db.Close())
	}
	return err
}

type redlockHold struct{ m *redsync.Mutex }

func (*redlockHold) Token() tokens.Token        { return 0 }
func (h *redlockHold) Ends(time.Time) time.Time { return h.m.Until() }
func (h *redlockHold) Release(ctx context.Context) error {
	_, err := h.m.UnlockContext(ctx)
	return err
}
