package clientsdk

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fenced/fenced/clientsdk/internal/clock"
)

const (
	// watchEvery bounds how late a passed deadline is noticed by those who only
	// wait: Go's timers stand still while the machine sleeps, the lease does not.
	watchEvery = 500 * time.Millisecond

	minLeasePause = 50 * time.Millisecond
	maxLeasePause = time.Second
)

// A lease is one promise of time by the server: that of a session, shared by its
// holds, or that of a single hold. It is renewed every third of its TTL, and it is
// over, once and for all, when the server says so, when the local clock has passed
// its deadline, or when its owner lets it go:
//
//	confirmed --- renewal confirmed ---> confirmed
//	    |
//	    +--- deadline passed | gone | released | closed ---> over
//
// The mutexes of client and lease are never held while another is taken; session.mu may
// be held while lease.mu is taken, and that of a hold while those of a hold around it
// and of its lease are.
type lease struct {
	c   *Client
	ttl time.Duration
	// renew asks the server once and confirms the lease from its answer.
	renew func(ctx context.Context) error
	// end tells the server that the lease is over; nil where that is the business
	// of the hold.
	end func()
	// idle reports that nobody needs the lease any more; nil means never.
	idle func() bool

	mu        sync.Mutex
	confirmed clock.Instant // sending of the last request that confirmed it
	until     clock.Instant // deadline: a margin before it can have ended
	over      bool
	cause     func(*Hold) error // why it is over
	stop      context.CancelFunc
	holds     map[string]*Hold // by ref
}

// margin is what a hold gives up at its end for clocks that run at different
// rates and for the time between noticing and stopping.
func margin(ttl time.Duration) time.Duration { return ttl / 10 }

// attemptTimeout leaves a dead connection while there is time for two more tries.
func attemptTimeout(ttl time.Duration) time.Duration { return ttl / 5 }

// start begins with what the request sent at sent has confirmed, and keeps the
// lease until it is over. left is the time that the server promised from then on.
func (l *lease) start(sent clock.Instant, left time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	l.holds = make(map[string]*Hold)
	l.stop = stop
	l.set(sent, left)
	l.c.mu.Lock()
	closed := l.c.closed
	if !closed {
		l.c.leases[l] = struct{}{}
	}
	l.c.mu.Unlock()
	if closed {
		l.finish(func(*Hold) error { return ErrClosed })
		if l.end != nil {
			l.c.spawn(l.end)
		}
		return
	}
	l.c.spawn(func() { l.watch(ctx) })
	l.c.spawn(func() { l.keep(ctx) })
}

func (l *lease) set(sent clock.Instant, left time.Duration) {
	l.confirmed = sent
	l.until = sent.Add(min(left, l.ttl) - margin(l.ttl))
}

// confirm notes a confirmed renewal. It returns false when the lease is over: an
// answer that comes after the deadline revives nothing, because this process may
// have acted on the loss already.
func (l *lease) confirm(sent clock.Instant, left time.Duration) bool {
	if l.expired() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if sent.Sub(l.confirmed) > 0 {
		l.set(sent, left)
	}
	return !l.over
}

// expired compares the deadline with the clock, and ends the lease when it has
// passed. It reports whether the lease is over.
func (l *lease) expired() bool {
	now := l.c.t.now()
	l.mu.Lock()
	over, passed := l.over, now.Sub(l.until) >= 0
	l.mu.Unlock()
	if passed && !over {
		l.lose(LostExpired)
	}
	return over || passed
}

// left is the time to the deadline; 0 or below when it has passed.
func (l *lease) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.c.t.now().Until(l.until)
}

// why is the cause of h's end; the lease must be over.
func (l *lease) why(h *Hold) error {
	l.mu.Lock()
	cause := l.cause
	l.mu.Unlock()
	return cause(h)
}

func (l *lease) lose(r Reason) {
	l.finish(func(h *Hold) error { return h.lostError(r) })
}

// finish ends the lease and all its holds, each with its own cause.
func (l *lease) finish(cause func(*Hold) error) {
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return
	}
	l.over, l.cause = true, cause
	l.stop()
	holds := l.holds
	l.holds = nil
	l.mu.Unlock()

	l.c.mu.Lock()
	delete(l.c.leases, l)
	l.c.mu.Unlock()
	for _, h := range holds {
		h.finish(cause(h))
	}
}

// add puts h under the lease. It returns false when the lease is over.
func (l *lease) add(h *Hold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	l.holds[h.ref] = h
	return true
}

func (l *lease) remove(h *Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.holds, h.ref)
}

// snapshot returns the holds under the lease now.
func (l *lease) snapshot() []*Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*Hold, 0, len(l.holds))
	for _, h := range l.holds {
		all = append(all, h)
	}
	return all
}

// size is the number of holds under the lease.
func (l *lease) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.holds)
}

// fresh renews once unless two thirds of the TTL are left, so that a caller starts
// with time that is really his.
func (l *lease) fresh(ctx context.Context) error {
	l.mu.Lock()
	used := l.c.t.now().Sub(l.until.Add(margin(l.ttl) - l.ttl))
	l.mu.Unlock()
	if used <= l.ttl/3 {
		return nil
	}
	return l.c.t.retry(ctx, l.c.cfg.RetryFor, l.renewOnce)
}

func (l *lease) renewOnce(ctx context.Context) error {
	err := l.renew(ctx)
	if ended, ok := gone(err); ok {
		l.lose(lostReason(err, ended))
	}
	return err
}

// watch ends the lease at its deadline.
func (l *lease) watch(ctx context.Context) {
	for sleep(ctx, min(l.left(), watchEvery)) {
		l.expired()
	}
}

// keep renews until the lease is over. Failures pass as long as the deadline has
// not: only the server's "gone" or the clock ends a lease.
func (l *lease) keep(ctx context.Context) {
	pause := l.untilRenewal()
	for l.rest(ctx, pause) {
		if l.idle != nil && l.idle() {
			l.finish(func(*Hold) error { return ErrReleased })
			l.end()
			return
		}
		begun := time.Now()
		err := l.renewOnce(ctx)
		switch {
		case err == nil:
			pause = l.untilRenewal()
		case time.Since(begun) >= attemptTimeout(l.ttl):
			pause = 0
		default:
			d := max(minLeasePause, min(l.ttl/20, maxLeasePause))
			pause = d/2 + rand.N(d/2)
		}
	}
}

// rest sleeps for d by the clock of leases, and returns false when ctx ended first. Timers
// stand still while the machine sleeps, and a renewal that is due then must not wait as
// long again.
func (l *lease) rest(ctx context.Context, d time.Duration) bool {
	for due := l.c.t.now().Add(d); d > watchEvery; d = l.c.t.now().Until(due) {
		if !sleep(ctx, watchEvery) {
			return false
		}
	}
	return sleep(ctx, d)
}

func (l *lease) untilRenewal() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.c.t.now().Until(l.confirmed.Add(l.ttl / 3))
}

// promised is the time that an answer promises, 0 where it names none.
func promised(expiresInMS *int64) time.Duration {
	if expiresInMS == nil {
		return 0
	}
	return time.Duration(*expiresInMS) * time.Millisecond
}

// errForeign is a well-formed answer about something else, as a cache or a
// mixed-up proxy gives it. It confirms nothing.
func errForeign(what, got, want string) error {
	return fmt.Errorf("answer is for %s %q, not %q", what, got, want)
}
