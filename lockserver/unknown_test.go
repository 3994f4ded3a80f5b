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
	switch u.rand.IntN(11) {
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
	case 8:
		if h := draw(u.rand, u.held); h != nil {
			_, _ = u.server.Renew(ctx, h.ID)
		}
	case 9:
		if s := draw(u.rand, u.joined); s != nil {
			_, _ = u.server.RenewSession(ctx, s.ID)
		}
	case 10:
		if u.rand.IntN(10) == 0 { // it ends all that the others have
			_, _ = u.server.RaiseFloor(ctx, 0)
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
	faults.onLease(func() error {
		if rand.IntN(5) == 0 {
			return errLost
		}
		return nil
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
	faults.onLease(nil)

	bound := time.Now().Add(max(lockserver.PlaceTimeout, 7*time.Second) + time.Second)
	for st := status(t, s); st.Holds+st.Sessions > 0; st = status(t, s) {
		if time.Now().After(bound) {
			t.Fatalf("%d holds and %d sessions outlive the bound", st.Holds, st.Sessions)
		}
		time.Sleep(50 * time.Millisecond) // sessions end without an event
	}
	bound = time.Now().Add(7*time.Second + time.Second) // one of 1 s stands 6 s in the store, and a look more
	for len(leaseIDs(t, node.Client())) > 0 {
		if time.Now().After(bound) {
			t.Fatalf("%d leases outlive the bound", len(leaseIDs(t, node.Client())))
		}
		time.Sleep(50 * time.Millisecond) // the store tells nobody of their end
	}
	stop()
	if locks := <-judged; locks != 4 {
		t.Fatalf("grants on %d locks, want 4", locks)
	}
}

// repeated are calls that are made again, and what is live afterwards; before, there is
// one hold and one session.
var repeated = []struct {
	name            string
	call            func(ctx context.Context, s *lockserver.Server, h *lockserver.Hold, o *lockserver.Session) error
	holds, sessions int
}{
	{"renew", func(ctx context.Context, s *lockserver.Server, h *lockserver.Hold, _ *lockserver.Session) error {
		renewed, err := s.Renew(ctx, h.ID)
		if err == nil && renewed.Token != h.Token {
			err = fmt.Errorf("token %d after %d", renewed.Token, h.Token)
		}
		return err
	}, 1, 1},
	{"renew a session", func(ctx context.Context, s *lockserver.Server, _ *lockserver.Hold, o *lockserver.Session) error {
		_, err := s.RenewSession(ctx, o.ID)
		return err
	}, 1, 1},
	{"create a session", func(ctx context.Context, s *lockserver.Server, _ *lockserver.Hold, _ *lockserver.Session) error {
		_, err := s.CreateSession(ctx, "worker", 0)
		return err
	}, 1, 2},
	{"acquire", func(ctx context.Context, s *lockserver.Server, h *lockserver.Hold, _ *lockserver.Session) error {
		req := try("b")
		req.IdempotencyKey = fmt.Sprintf("%032x", 1)
		next, err := s.Acquire(ctx, req)
		if err == nil && (next.State != lockserver.Held || next.Token <= h.Token) {
			err = fmt.Errorf("%v with token %d after %d", next.State, next.Token, h.Token)
		}
		return err
	}, 2, 1},
	{"raise the floor", func(ctx context.Context, s *lockserver.Server, _ *lockserver.Hold, _ *lockserver.Session) error {
		base, err := s.RaiseFloor(ctx, 0)
		if st, _ := s.Status(ctx); err == nil && st.Base != base {
			err = fmt.Errorf("base %d after a raise to %d", st.Base, base)
		}
		return err
	}, 0, 0},
}

// TestR8_ARepeatAfterALostAnswerIsHarmless loses the answer of one call that has had its
// effect, and makes the call again.
func TestR8_ARepeatAfterALostAnswerIsHarmless(t *testing.T) {
	t.Parallel()
	for _, c := range repeated {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			node := etcdtest.Node(t)
			faults := spoil(node.Client())
			s, _ := etcdtest.Run(t, lockserver.Config{Client: node.Client(), Alone: true})
			h := mustAcquire(t, s, try("a"))
			o, err := s.CreateSession(t.Context(), "worker", 0)
			if err != nil {
				t.Fatal(err)
			}
			faults.onLease(func() error { return errLost })
			if c.name == "raise the floor" {
				faults.onWrite(lose)
			}
			if err := c.call(t.Context(), s, h, o); !errors.Is(err, errLost) {
				t.Fatalf("the answer was lost, and the call says %v", err)
			}
			faults.onLease(nil)
			faults.onWrite(nil)
			if err := c.call(t.Context(), s, h, o); err != nil {
				t.Fatalf("the repeat: %v", err)
			}
			st := status(t, s)
			if st.Holds != c.holds || st.Sessions != c.sessions || st.Floor == lockserver.Closed {
				t.Errorf("%d holds and %d sessions, want %d and %d; the floor is %v", st.Holds, st.Sessions, c.holds, c.sessions, st.Floor)
			}
			if next := mustAcquire(t, s, try("c")); next.Token <= h.Token || next.Token <= st.Highest {
				t.Errorf("token %d after %d", next.Token, st.Highest)
			}
		})
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
