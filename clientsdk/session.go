package clientsdk

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
)

// maxHolds is how many holds a server lets a session have.
const maxHolds = 1000

// reasonTime is how long a loss that is certain may wait for its reason.
const reasonTime = time.Second

// A session is a lease that holds share. It ends when nobody has needed it for
// one TTL.
type session struct {
	*lease
	id, ref string

	mu sync.Mutex
	// pins counts the attempts under way, which count like holds.
	pins int
	full bool // the server said so
	// needed is when the session was last seen with a hold or an attempt.
	needed time.Time
	// strays release holds that could not be released, or of which no answer told; they
	// are tried again with each renewal, because the session would keep them alive.
	strays []func()
}

// sessionSlot has the sessions of one TTL. Its semaphore lets one attempt at a
// time look for a session or make one.
type sessionSlot struct {
	sem      chan struct{}
	sessions []*session
}

// pinSession returns a session of that TTL with room for a hold, and pins it. Its time
// counts from the call: where no server answers, those who stand behind the one that
// tries must not each begin anew.
func (c *Client) pinSession(ctx context.Context, ttl time.Duration) (*session, error) {
	ctx, cancel := forAnswer(ctx, c.cfg.RetryFor, callTimeout)
	defer cancel()
	slot := c.slot(ttl)
	select {
	case slot.sem <- struct{}{}:
		defer func() { <-slot.sem }()
	case <-ctx.Done():
		return nil, fmt.Errorf("open session: %w", context.Cause(ctx))
	}
	slot.sessions = slices.DeleteFunc(slot.sessions, func(s *session) bool { return s.expired() })
	for _, s := range slot.sessions {
		if s.pin() {
			return s, nil
		}
	}
	s, err := c.openSession(ctx, ttl)
	if err != nil {
		return nil, err
	}
	slot.sessions = append(slot.sessions, s)
	s.pin()
	return s, nil
}

func (c *Client) slot(ttl time.Duration) *sessionSlot {
	c.mu.Lock()
	defer c.mu.Unlock()
	slot, ok := c.slots[ttl]
	if !ok {
		slot = &sessionSlot{sem: make(chan struct{}, 1)}
		c.slots[ttl] = slot
	}
	return slot
}

// openSession makes a session. When its answer is lost and the call is repeated,
// the first session has no holds and ends by itself.
func (c *Client) openSession(ctx context.Context, ttl time.Duration) (*session, error) {
	var out wire.Session
	r := request{op: "open session", method: http.MethodPost, path: "/v1/sessions",
		body:  wire.SessionRequest{Owner: c.cfg.Owner, TTL: ttl.String()},
		check: func() error { return soundSession(out, ttl) }}
	s := &session{lease: &lease{c: c, ttl: ttl}, needed: time.Now()}
	err := c.t.retry(ctx, c.cfg.RetryFor, func(ctx context.Context) error {
		sent, err := c.t.exchange(ctx, r, &out)
		s.confirmed = sent
		return err
	})
	if err != nil {
		return nil, err
	}
	s.id, s.ref = out.Session, out.Ref
	s.lease.renew, s.lease.end, s.lease.idle = s.renew, s.end, s.idle
	s.start(s.confirmed, promised(out.ExpiresInMS))
	return s, nil
}

func soundSession(got wire.Session, ttl time.Duration) error {
	switch {
	case got.Session == "" || got.Ref == "":
		return fmt.Errorf("answer names no session")
	case got.TTLMS != ttl.Milliseconds():
		return fmt.Errorf("answer is for a session of %d ms, not %d", got.TTLMS, ttl.Milliseconds())
	}
	return nil
}

func (s *session) pin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full || s.pins+s.size() >= maxHolds || s.expired() {
		return false
	}
	s.pins++
	return true
}

func (s *session) unpin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pins--
	s.needed = time.Now()
}

// retire keeps further attempts away.
func (s *session) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = true
}

// idle reports that the session has had nothing to keep for one TTL, and retires it
// then.
func (s *session) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pins+s.size()+len(s.strays) > 0 {
		s.needed = time.Now()
	}
	if time.Since(s.needed) < s.ttl {
		return false
	}
	s.full = true
	return true
}

// renew renews the session once and compares the server's list of its holds with
// ours.
func (s *session) renew(ctx context.Context) error {
	confirmed := s.snapshot()
	var out wire.Session
	sent, err := s.c.t.exchange(ctx, request{
		op: "renew session", method: http.MethodPost, path: "/v1/sessions/" + s.id + "/renew",
		timeout: attemptTimeout(s.ttl), renewal: true,
		check: func() error {
			if out.Ref != s.ref {
				return errForeign("session", out.Ref, s.ref)
			}
			if promised(out.ExpiresInMS) <= 0 {
				return fmt.Errorf("answer promises no time")
			}
			return nil
		},
	}, &out)
	if err != nil {
		return err
	}
	if s.confirm(sent, promised(out.ExpiresInMS)) {
		s.reconcile(ctx, confirmed, out)
		s.retryStrays()
	}
	return nil
}

// reconcile ends the holds of confirmed that the server no longer has. A list that
// stands for a revision before a hold's own says nothing about it.
func (s *session) reconcile(ctx context.Context, confirmed []*Hold, got wire.Session) {
	var lookups sync.WaitGroup
	for _, h := range confirmed {
		if got.Revision < h.revision || slices.Contains(got.Live, h.ref) {
			continue
		}
		s.remove(h)
		lookups.Go(func() { h.finish(h.lostError(s.whyGone(ctx, h))) })
	}
	lookups.Wait()
}

// whyGone asks once for the reason; that the hold is gone is certain already, and whoever
// works under it must not hear of it much later.
func (s *session) whyGone(ctx context.Context, h *Hold) Reason {
	_, err := s.c.t.exchange(ctx, request{
		op: fmt.Sprintf("look up %q", h.lock), method: http.MethodGet, path: "/v1/holds/" + h.id,
		timeout: min(attemptTimeout(s.ttl), reasonTime), renewal: true,
	}, &wire.Hold{})
	ended, ok := gone(err)
	if !ok {
		return LostUnknown
	}
	return lostReason(err, ended)
}

// end tells the server that the session is over.
func (s *session) end() {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	r := request{op: "end session", method: http.MethodDelete, path: "/v1/sessions/" + s.id,
		timeout: releaseTimeout / 3, renewal: true}
	err := s.c.t.retry(ctx, releaseTimeout, func(ctx context.Context) error {
		_, err := s.c.t.exchange(ctx, r, nil)
		return err
	})
	if err != nil && apierr.CodeOf(err) != apierr.SessionGone {
		s.c.log.Warn("session not ended; its lease will end it", "session", s.ref, "err", err)
	}
}

func (s *session) addStray(release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strays = append(s.strays, release)
}

// retryStrays releases again what could not be released before, in the background
// so that renewals keep their pace.
func (s *session) retryStrays() {
	s.mu.Lock()
	strays := s.strays
	s.strays = nil
	s.mu.Unlock()
	for _, release := range strays {
		s.c.spawn(release)
	}
}
