package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenced/fenced/tokens"
)

// Redis returns the way of one Redis server at addr: SET with NX and PX, tried again
// until it succeeds, and a release that deletes the key only where it still holds
// the value of this hold. There is no renewal: the lease is ttl.
func Redis(addr string, ttl time.Duration) Maker {
	return func(string, *Gate) (Locker, error) {
		return &redisLocker{db: newRedis(addr), ttl: ttl}, nil
	}
}

// newRedis keeps to the contexts that it is given and leaves retries to the caller,
// who must know when a SET was sent.
func newRedis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, PoolSize: 64, DisableIdentity: true,
	})
}

// releaseScript deletes a key only where it holds the caller's value: another
// holder's lock stays.
var releaseScript = redis.NewScript(`
if redis.call("GET", KEYS[1]) == ARGV[1] then
	return redis.call("DEL", KEYS[1])
end
return 0`)

type redisLocker struct {
	db  *redis.Client
	ttl time.Duration
}

// Acquire implements Locker.
func (l *redisLocker) Acquire(ctx context.Context, name string) (Hold, error) {
	value := rand.Text()
	for {
		err := l.db.SetArgs(ctx, name, value, redis.SetArgs{Mode: "NX", TTL: l.ttl}).Err()
		switch {
		case err == nil:
			// The server's clock began no later than now.
			return &redisHold{l: l, name: name, value: value, ends: time.Now().Add(l.ttl)}, nil
		case !errors.Is(err, redis.Nil): // Nil: another has it
			return nil, err
		case !pause(ctx):
			return nil, context.Cause(ctx)
		}
	}
}

// Close implements Locker.
func (l *redisLocker) Close() error { return l.db.Close() }

type redisHold struct {
	l           *redisLocker
	name, value string
	ends        time.Time
}

func (*redisHold) Token() tokens.Token        { return 0 }
func (h *redisHold) Ends(time.Time) time.Time { return h.ends }
func (h *redisHold) Release(ctx context.Context) error {
	return releaseScript.Run(ctx, h.l.db, []string{h.name}, h.value).Err()
}
