package lockserver_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver"
	"github.com/fenced/fenced/tokens"
)

// unlucky makes every kind of write; any answer may be lost after the effect, and
// any caller may leave at any instant.
type unlucky struct {
	server *lockserver.Server
	rand   *rand.Rand
	n      int
	key    string
	held   []*lockserver.Hold
	joined []*lockserver.Session
}

func (u *unlucky) call(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(u.rand.IntN(6000))*time.Microsecond)
	defer cancel()
	u.n++
	switch u.rand.IntN(8) {
	case 0, 1, 2:
		u.acquire(ctx)
	case 3, 4:
		if h := draw(u.rand, u.held); h != nil {
			_ = u.server.Release(ctx, h.ID)
		}
	case 5:
		if h := draw(u.rand, u.held); h != nil {
			_, _ = u.server.Break(ctx, lockserver.BreakRequest{Lock: h.Lock, Token: h.Token, Reason: "test"})
		}
	case 6:
		if s, err := u.server.CreateSession(ctx, "worker", time.Second); err == nil {
			u.joined = append(u.joined, s)
		}
	case 7:
		if s := draw(u.rand, u.joined); s != nil {
			_ = u.server.EndSession(ctx, s.ID)
		}
	}
}

func (u *unlucky) acquire(ctx context.Context) {
	req := try(fmt.Sprint("lock", u.rand.IntN(4)))
	req.TTL, req.Wait = time.Second, time.Duration(u.rand.IntN(4))*time.Millisecond
	if s := draw(u.rand, u.joined); s != nil && u.rand.IntN(3) == 0 {
		req.Session, req.Owner, req.TTL = s.ID, "worker", 0
	}
	if u.rand.IntN(2) == 0 { // a new attempt, or the repeat of the one before
		u.key = fmt.Sprintf("%016x%016x", u.rand.Uint64(), u.n)
	}
	req.IdempotencyKey = u.key
	if u.rand.IntN(2) == 0 {
		req.IdempotencyKey = ""
	}
	if h, err := u.server.Acquire(ctx, req); err == nil {
		u.held = append(u.held, h)
	}
}

func draw[T any](r *rand.Rand, from []*T) *T {
	if len(from) == 0 {
		return nil
	}
	return from[r.IntN(len(from))]
}

// TestR8_LostAnswersLeaveNoOrphansAndNoEqualTokens drives every kind of write while
// a fifth of the answers is lost. Nothing outlives the bound that doc.go states.
func TestR8_LostAnswersLeaveNoOrphansAndNoEqualTokens(t *testing.T) {
	t.Parallel()
	const workers, calls = 8, 150
	node := etcdtest.Node(t)
	faults := spoil(node.Client())
	s, _ := etcdtest.Run(t, lockserver.Config{Client: node.Client(), Alone: true})
	watching, stop := context.WithCancel(t.Context())
	judged := make(chan int, 1)
	sub := subscribe(t, s).sub
	go func() { judged <- judgeGrants(watching, t, sub) }()
	faults.onWrite(func(resp *clientv3.TxnResponse, err error) (*clientv3.TxnResponse, error) {
		if rand.IntN(5) == 0 {
			return nil, errors.Join(errLost, err)
		}
		return resp, err
	})
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			u := &unlucky{server: s, rand: rand.New(rand.NewPCG(1, uint64(w)))}
			for range calls {
				u.call(t)
			}
		})
	}
	wg.Wait()
	faults.onWrite(nil)

	bound := time.Now().Add(max(lockserver.PlaceTimeout, 7*time.Second) + time.Second)
	for st := status(t, s); st.Holds+st.Sessions > 0; st = status(t, s) {
		if time.Now().After(bound) {
			t.Fatalf("%d holds and %d sessions outlive the bound", st.Holds, st.Sessions)
		}
		time.Sleep(50 * time.Millisecond) // sessions end without an event
	}
	stop()
	if locks := <-judged; locks != 4 {
		t.Fatalf("grants on %d locks, want 4", locks)
	}
}

func status(t *testing.T, s *lockserver.Server) lockserver.Status {
	t.Helper()
	st, err := s.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// judgeGrants wants rising tokens in the grants of each lock until ctx ends, and
// returns how many locks there were.
func judgeGrants(ctx context.Context, t *testing.T, sub *lockserver.Subscription) int {
	last := map[string]tokens.Token{}
	for {
		events, err := sub.Next(ctx)
		if err != nil {
			return len(last)
		}
		for _, e := range events {
			if e.Kind != lockserver.EventGranted {
				continue
			}
			if e.Token <= last[e.Lock] {
				t.Errorf("%q: token %d granted after %d", e.Lock, e.Token, last[e.Lock])
			}
			last[e.Lock] = e.Token
		}
	}
}
