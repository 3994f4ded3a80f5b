package lock

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/fenced/fenced/tokens"
)

// etcdLag is how long after its end etcd may find a lease, and so may fenced on it: it
// looks twice a second.
const etcdLag = 500 * time.Millisecond

// EtcdMutex returns the way of etcd's own mutex, concurrency.Mutex, on a session of
// the worker's that renews itself. ttl must be whole seconds, as etcd's are.
func EtcdMutex(endpoint string, ttl time.Duration) Maker {
	return func(_ string, gate *Gate) (Locker, error) {
		client, err := clientv3.New(clientv3.Config{
			Endpoints: []string{endpoint}, Logger: zap.NewNop(),
			DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(gateStreams(gate))},
		})
		if err != nil {
			return nil, fmt.Errorf("etcd client: %w", err)
		}
		return &etcdLocker{client: client, ttl: ttl}, nil
	}
}

type etcdLocker struct {
	client *clientv3.Client
	ttl    time.Duration

	mu      sync.Mutex
	session *concurrency.Session
}

// Acquire implements Locker. A worker whose session has ended, for example while it
// stood still, goes on with a new one.
func (l *etcdLocker) Acquire(ctx context.Context, name string) (Hold, error) {
	for {
		s, err := l.live(ctx)
		if err != nil {
			return nil, err
		}
		m := concurrency.NewMutex(s, "/"+name)
		if err = m.Lock(ctx); err == nil {
			return &etcdHold{m: m, ttl: l.ttl}, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		l.drop(s)
		if !pause(ctx) {
			return nil, context.Cause(ctx)
		}
	}
}

// live returns the session, a new one where there is none or it has ended.
func (l *etcdLocker) live(ctx context.Context) (*concurrency.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != nil {
		select {
		case <-l.session.Done():
		default:
			return l.session, nil
		}
	}
	// The session's own context is the client's: it must outlive this call.
	lease, err := l.client.Grant(ctx, int64(l.ttl/time.Second))
	if err != nil {
		return nil, err
	}
	l.session, err = concurrency.NewSession(l.client, concurrency.WithLease(lease.ID))
	return l.session, err
}

// drop forgets a session that has turned out to be useless.
func (l *etcdLocker) drop(s *concurrency.Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Orphan()
	if l.session == s {
		l.session = nil
	}
}

// Close implements Locker. The session is left to its lease.
func (l *etcdLocker) Close() error { return l.client.Close() }

type etcdHold struct {
	m   *concurrency.Mutex
	ttl time.Duration
}

func (*etcdHold) Token() tokens.Token                 { return 0 }
func (h *etcdHold) Ends(frozen time.Time) time.Time   { return frozen.Add(h.ttl + etcdLag) }
func (h *etcdHold) Release(ctx context.Context) error { return h.m.Unlock(ctx) }
