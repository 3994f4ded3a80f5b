package lockserver

import (
	"context"
	"errors"
	"maps"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/lockserver/internal/queue"
)

// Hold returns the state of a live hold and changes nothing. Errors: [*GoneError]
// for one that has ended or never was; codes no_quorum and behind.
func (s *Server) Hold(ctx context.Context, id string) (*Hold, error) {
	l, done, err := s.begin(ctx, id)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := s.still(ctx, l, leaseTimeout); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.end != NotEnded {
		return nil, &GoneError{Ref: refText(l.hold.Ref), End: l.end}
	}
	hold := s.holdLocked(l)
	hold.ID = id
	return hold, nil
}

// AwaitHold says "I am here" for a hold: it keeps the place of a queued one for
// up to wait and answers at the grant, and renews a held one. A queued hold comes
// back queued when the wait is over. wait is 0 to [MaxWait]. Errors are those of
// [Server.Acquire] and [Server.Renew].
func (s *Server) AwaitHold(ctx context.Context, id string, wait time.Duration) (*Hold, error) {
	if err := ValidateWait(wait); err != nil {
		return nil, err
	}
	start := time.Now()
	l, done, err := s.begin(ctx, id)
	if err != nil {
		return nil, err
	}
	defer done()
	s.mu.Lock()
	l.place.Ask()
	s.dueLocked(l)
	s.mu.Unlock()
	defer s.close(l)
	hold, waited, err := s.here(ctx, l, start.Add(wait))
	if err != nil {
		return nil, err
	}
	if waited && hold.State == Held {
		s.config.Observer.Granted(time.Since(start), time.Since(l.hold.Since))
	}
	hold.ID = id
	return hold, nil
}

// here answers a request that said "I am here": queued, or held and renewed. It reports
// whether the hold had to queue.
func (s *Server) here(ctx context.Context, l *local, until time.Time) (hold *Hold, waited bool, err error) {
	waited, err = s.turn(ctx, l, until)
	if errors.Is(err, errWaitOver) {
		if hold, err = s.keptPlace(ctx, l); !errors.Is(err, errTurnCame) {
			return hold, waited, err
		}
		err = nil
	}
	if err == nil && !waited { // it was held before: this renews it
		err = s.still(ctx, l, leaseTimeout)
	}
	if err == nil {
		hold, err = s.grant(ctx, l, 0)
	}
	return hold, waited, err
}

// Renew gives a held hold its full TTL again, counted from now. It never makes
// anything anew: a hold past its deadline is over, even while its key is still
// there. Errors: [*GoneError]; codes not_held, no_quorum and behind, after
// which the old deadline stands.
func (s *Server) Renew(ctx context.Context, id string) (*Hold, error) {
	l, done, err := s.begin(ctx, id)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := s.renewable(ctx, l); err != nil {
		return nil, err
	}
	if err := s.renewLease(ctx, l); err != nil {
		return nil, err
	}
	if err := s.still(ctx, l, leaseTimeout); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	hold, err := s.answerLocked(ctx, l, s.leaseLocked(l).Sent, time.Now())
	if err != nil {
		return nil, err
	}
	hold.ID = id
	return hold, nil
}

// Release ends a hold, queued or held. It returns nil also where the hold was
// released before. Errors: [*GoneError] where it ended in another way, code
// outcome_unknown where the store did not answer: repeat it.
func (s *Server) Release(ctx context.Context, id string) error {
	l, done, err := s.begin(ctx, id)
	if err != nil {
		return releasedBefore(err)
	}
	defer done()
	d := &deletion{ref: l.hold.Ref, entry: endEntry{End: Released}, done: make(chan struct{})}
	s.deletes.add(d)
	if err := d.wait(ctx); err != nil || d.deleted {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return releasedBefore(s.goneLocked(l.hold.Ref))
}

// releasedBefore turns "gone: released" into success.
func releasedBefore(err error) error {
	var gone *GoneError
	if errors.As(err, &gone) && gone.End == Released {
		return nil
	}
	return err
}

// begin counts a request in and finds its hold; done ends both.
func (s *Server) begin(ctx context.Context, id string) (l *local, done func(), err error) {
	if err := s.enter(); err != nil {
		return nil, nil, err
	}
	if l, err = s.find(ctx, id); err != nil {
		s.leave()
		return nil, nil, err
	}
	return l, func() { s.unpin(l); s.leave() }, nil
}

// find pins the local of the live hold of id; unpin must follow. It changes
// nothing about the hold's place. It
// waits for a put that is on its way here, and where other servers share the
// store it reads the key before it says "gone".
func (s *Server) find(ctx context.Context, id string) (*local, error) {
	if !canonicalID(id) {
		return nil, &apierr.Error{
			ErrCode: apierr.Malformed, Field: "hold", Limit: "26 characters of a to z and 2 to 7",
			Detail: "hold must be an id that an acquire returned",
		}
	}
	ref := refOf(id)
	for asked := false; ; asked = true {
		s.mu.Lock()
		l := s.pinLocked(ref)
		gone := s.history.find(ref) != nil
		s.mu.Unlock()
		if l != nil {
			if err := s.landed(ctx, l); err != nil {
				s.unpin(l)
				return nil, err
			}
			return l, nil
		}
		if !gone && !asked {
			if _, err := s.confirm(ctx, ref); err != nil {
				return nil, err
			}
			continue
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return nil, s.goneLocked(ref)
	}
}

// pinLocked returns the local of a hold that is live or on its way, pinned.
func (s *Server) pinLocked(ref queue.Ref) *local {
	l := s.locals[ref]
	if h := s.table.Get(ref); h != nil {
		l = s.localLocked(h)
	}
	if l != nil && (l.live || l.err == nil) {
		l.calls++
		return l
	}
	return nil
}

// landed waits until the put of l has been seen, or has failed.
func (s *Server) landed(ctx context.Context, l *local) error {
	for {
		s.mu.Lock()
		done, err, changed := l.live || l.end != NotEnded, l.err, l.watch()
		s.mu.Unlock()
		if done {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// unpin undoes find: the local may be dropped, and its lease reused.
func (s *Server) unpin(l *local) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.calls--
	s.dropLocked(l)
}

// goneLocked says how a hold ended that is not there.
func (s *Server) goneLocked(ref queue.Ref) error {
	gone := &GoneError{Ref: refText(ref), End: EndUnknown}
	if p := s.history.find(ref); p != nil {
		gone.End, gone.Lock = p.end, p.lock
		if p.granted {
			gone.Token = tokenOf(p.token)
		}
	}
	return gone
}

// still makes sure of a hold before an answer says that it is there: where servers
// share the store, the mirror may not have heard yet of an end that another has told.
// within bounds the read of the store.
func (s *Server) still(ctx context.Context, l *local, within time.Duration) error {
	if s.config.Alone {
		return nil
	}
	there, err := s.confirmWithin(ctx, l.hold.Ref, within)
	if err != nil || there {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.goneLocked(l.hold.Ref)
}

// confirm reads the key of a hold at one linearizable revision, waits until the
// mirror agrees, and reports whether the hold is there. A server that is alone
// with its store knows from its mirror: every write it answered is in it.
func (s *Server) confirm(ctx context.Context, ref queue.Ref) (bool, error) {
	return s.confirmWithin(ctx, ref, leaseTimeout)
}

func (s *Server) confirmWithin(ctx context.Context, ref queue.Ref, within time.Duration) (bool, error) {
	if s.config.Alone {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.table.Get(ref) != nil, nil
	}
	readCtx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	before := s.mirrorRev()
	resp, err := s.store.client.Get(readCtx, s.keys.hold(ref))
	if err != nil {
		return false, unavailable(err)
	}
	s.checkAnswer(before, resp.Header.Revision, false)
	there := len(resp.Kvs) > 0
	return there, s.agree(ctx, ref, there)
}

// agree waits until the mirror shows a hold, or its end, as the store does.
func (s *Server) agree(ctx context.Context, ref queue.Ref, there bool) error {
	return s.mirrorShows(ctx, behindTimeout, func() bool {
		return (s.table.Get(ref) != nil) == there || there && s.history.find(ref) != nil
	})
}

// mirrorShows waits until what it asks, with the server's mutex held, is so; it asks
// at each move of the mirror.
func (s *Server) mirrorShows(ctx context.Context, within time.Duration, is func() bool) error {
	late := time.NewTimer(within)
	defer late.Stop()
	for {
		s.mu.Lock()
		so, moved := is(), s.movedLocked()
		s.mu.Unlock()
		if so {
			return nil
		}
		select {
		case <-moved:
		case <-late.C:
			return behind()
		case <-s.stopping:
			return shuttingDown()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// syncRevision reads the store's present revision and waits for the mirror to
// reach it. Where other keys share the store, only a progress notice tells that
// nothing of ours is between.
func (s *Server) syncRevision(ctx context.Context) error {
	rev, _, err := s.readQuorum(ctx)
	if err != nil {
		return unavailable(err)
	}
	s.mu.Lock()
	there := s.mirror.rev >= rev
	s.mu.Unlock()
	if there {
		return nil
	}
	if err := s.config.Watch.RequestProgress(clientv3.WithRequireLeader(ctx)); err != nil {
		return unavailable(err)
	}
	if err := s.caughtUp(ctx, rev); err != nil {
		return behind()
	}
	return nil
}

// movedLocked returns a channel that is closed when the mirror moves next.
func (s *Server) movedLocked() <-chan struct{} {
	if s.mirror.moved == nil {
		s.mirror.moved = make(chan struct{})
	}
	return s.mirror.moved
}

// renewable refuses to renew what is not held or past its deadline.
func (s *Server) renewable(ctx context.Context, l *local) error {
	s.mu.Lock()
	end, head := l.end, s.table.IsHead(l.hold)
	s.mu.Unlock()
	switch {
	case end != NotEnded:
		return &GoneError{Ref: refText(l.hold.Ref), End: end}
	case !head:
		return &apierr.Error{ErrCode: apierr.NotHeld, RetryAfter: time.Second, Detail: "the hold is still queued"}
	}
	return s.unexpired(ctx, l, true)
}

// renewLease renews the lease behind l: its own or its session's.
func (s *Server) renewLease(ctx context.Context, l *local) error {
	var err error
	if o := l.session; o != nil {
		err = s.renewSession(ctx, o)
	} else {
		_, err = s.keepAlive(ctx, l)
	}
	if errors.Is(err, errLeaseGone) {
		return &GoneError{Ref: refText(l.hold.Ref), End: EndUnknown}
	}
	return err
}

// leaseLocked returns the lease behind l as it was last confirmed.
func (s *Server) leaseLocked(l *local) lease {
	if l.session != nil {
		return l.session.lease
	}
	return l.lease
}

// overdueLocked reports whether the hold is past its deadline here.
func (s *Server) overdueLocked(l *local, now time.Time) bool {
	if l.session != nil {
		return l.session.overdue(now)
	}
	return l.place.Answered && !now.Before(l.place.Deadline)
}

// holdLocked describes a live hold to its owner.
func (s *Server) holdLocked(l *local) *Hold {
	h := l.hold
	hold := &Hold{
		Ref: refText(h.Ref), Lock: h.Lock, Owner: h.Owner, Session: refText(h.Session),
		Metadata: maps.Clone(h.Metadata), TTL: h.TTL, Created: h.Created, Revision: s.mirror.rev, State: Queued,
	}
	if s.table.IsHead(h) {
		hold.State, hold.Token = Held, tokenOf(h.Token)
		hold.ExpiresIn, hold.ExpiryKnown = s.leftLocked(h)
		hold.Previous = s.history.previous(h.Lock)
		return hold
	}
	hold.Position = s.table.Position(h)
	return hold
}

// holderLocked describes the holder of a lock to everybody.
func (s *Server) holderLocked(h *queue.Hold) Holder {
	holder := Holder{
		Ref: refText(h.Ref), Owner: h.Owner, Token: tokenOf(h.Token), Session: refText(h.Session),
		Metadata: maps.Clone(h.Metadata), TTL: h.TTL, Since: h.Since,
	}
	holder.ExpiresIn, holder.ExpiryKnown = s.leftLocked(h)
	return holder
}

// leftLocked returns how long a held hold has left, where this server knows it.
func (s *Server) leftLocked(h *queue.Hold) (time.Duration, bool) {
	deadline := time.Time{}
	if o := s.sessions[h.Session]; o != nil {
		deadline = o.deadline
	} else if l := s.locals[h.Ref]; l != nil && l.place.Answered {
		deadline = l.place.Deadline
	}
	if deadline.IsZero() {
		return 0, false
	}
	return max(0, time.Until(deadline)), true
}
