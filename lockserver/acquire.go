package lockserver

import (
	"context"
	"errors"
	"maps"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/lockserver/internal/queue"
)

// errWaitOver says that the hold is still queued and its request may wait no longer.
var errWaitOver = errors.New("the wait is over")

// errTurnCame says that the hold became the head while it was to be given up.
var errTurnCame = errors.New("the turn has come")

// Acquire asks for one hold and blocks until it is held, refused, or the wait is
// over; the end of ctx ends the wait too.
//
// It returns a held hold, or a queued one where [AcquireRequest.KeepPlace] is set
// and the wait is over. Errors: [*HeldError] when the wait is over; [*GoneError]
// when the hold ended, also where an idempotency key names a hold that has ended;
// codes out_of_bounds, bad_idempotency_key, idempotency_key_reused, session_full,
// session_gone, no_quorum, behind, token_floor and shutting_down, after which
// nothing is left behind but a place that was to be kept; outcome_unknown, after which a repeat with the same
// idempotency key finds the hold, and a hold without key is deleted on sight.
func (s *Server) Acquire(ctx context.Context, req AcquireRequest) (*Hold, error) {
	start := time.Now()
	if err := req.normalize(s.config.MaxTTL); err != nil {
		return nil, err
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	id, ref := req.identity()
	if req.Wait == 0 && !req.KeepPlace && !s.knows(ref) {
		if err := s.tryHead(ctx, req.Lock); err != nil {
			return nil, err
		}
	}
	if canonicalID(req.Session) && !s.knows(ref) {
		if err := s.joinable(ctx, req.Session); err != nil {
			return nil, err
		}
	}
	l, replayed, err := s.open(ctx, ref, &req)
	if err != nil {
		return nil, err
	}
	defer s.close(l)
	hold, err := s.await(ctx, l, start, &req, replayed)
	if err != nil {
		return nil, err
	}
	hold.ID, hold.Replayed = id, replayed || s.existed(l)
	return hold, nil
}

// tryHead refuses a try at once where the lock has a live hold: nothing is
// written, so nothing is left behind.
func (s *Server) tryHead(ctx context.Context, lock string) error {
	for {
		s.mu.Lock()
		head := s.table.Head(lock)
		s.mu.Unlock()
		if head == nil {
			return nil
		}
		there, err := s.confirm(ctx, head.Ref)
		if err != nil {
			return err
		}
		if there {
			return s.heldError(lock, 0)
		}
	}
}

// identity returns the secret id of the attempt and its ref: derived where there
// is an idempotency key, else fresh.
func (r *AcquireRequest) identity() (string, queue.Ref) {
	id := newID()
	if r.IdempotencyKey != "" {
		id = keyedID(r.Lock, r.IdempotencyKey)
	}
	return id, refOf(id)
}

// knows reports whether the hold of ref is live or on its way here.
func (s *Server) knows(ref queue.Ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.Get(ref) != nil || s.locals[ref] != nil
}

// open binds the request to its hold: the one that its idempotency key names, if
// there is one, else a new one, whose put is on its way when open returns. Where
// it returns a local, close must follow.
func (s *Server) open(ctx context.Context, ref queue.Ref, req *AcquireRequest) (l *local, replayed bool, err error) {
	s.mu.Lock()
	if l, err = s.repeatLocked(ref, req); l != nil || err != nil {
		s.mu.Unlock()
		return l, true, err
	}
	l, err = s.newLocalLocked(ref, req)
	if err != nil {
		s.mu.Unlock()
		return nil, false, err
	}
	h := l.hold
	s.mu.Unlock()
	// The attempt is not this request's alone: a repeat under its key may join.
	s.send(context.WithoutCancel(ctx), l, h)
	return l, false, nil
}

// repeatLocked finds the hold that an idempotency key names; nil where this server
// knows of none.
func (s *Server) repeatLocked(ref queue.Ref, req *AcquireRequest) (*local, error) {
	var l *local
	if h := s.table.Get(ref); h != nil {
		l = s.localLocked(h)
	} else if sent := s.locals[ref]; sent != nil && sent.err == nil {
		l = sent
	}
	if l == nil {
		if p := s.history.find(ref); p != nil {
			return nil, &GoneError{Ref: refText(ref), End: p.end}
		}
		return nil, nil
	}
	if !req.asks(l.hold) {
		return nil, &apierr.Error{
			ErrCode: apierr.IdempotencyKeyReused, Field: "Idempotency-Key",
			Detail: "the key was used with another owner, ttl, session or metadata; use a fresh key for each attempt",
		}
	}
	l.place.Ask()
	s.dueLocked(l)
	return l, nil
}

// asks reports whether h is what the request asks for.
func (r *AcquireRequest) asks(h *queue.Hold) bool {
	var session queue.Ref
	if r.Session != "" {
		session = refOf(r.Session)
	}
	return r.Owner == h.Owner && (r.TTL == h.TTL || r.TTL == 0) && session == h.Session &&
		maps.Equal(r.Metadata, h.Metadata)
}

// newLocalLocked registers a hold before its put is sent: the put's event may come
// before its answer, and a put whose answer never comes is found by it (R8).
func (s *Server) newLocalLocked(ref queue.Ref, req *AcquireRequest) (*local, error) {
	l := &local{keyed: req.IdempotencyKey != "", owned: true, unsure: true, place: s.newPlace()}
	h := &queue.Hold{
		Ref: ref, Lock: req.Lock, Owner: req.Owner, Metadata: maps.Clone(req.Metadata), TTL: req.TTL,
		Server: s.config.Name, Created: time.Now().UTC().Truncate(time.Millisecond),
	}
	if req.Session != "" {
		o, err := s.joinSessionLocked(req)
		if err != nil {
			return nil, err
		}
		h.Session, h.TTL = o.ref, o.ttl
		o.coming[ref] = true
		l.session, l.lease, l.owned, l.place.Shared = o, o.lease, false, true
	}
	l.hold = h
	l.place.Asking = 1
	s.locals[ref] = l
	return l, nil
}

// send finds a lease for h, the hold of l as it was asked for, and queues its put. What
// goes wrong shows in l.
func (s *Server) send(ctx context.Context, l *local, h *queue.Hold) {
	value := encodeHold(h)
	var granted lease
	var err error
	if l.session == nil {
		granted, err = s.leaseFor(ctx, h.TTL)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		l.owned = false
		s.failLocked(l, err, true)
		return
	case l.live:
		// Another server, or an earlier try, has put it meanwhile: that one's lease counts.
		l.existed = true
		if l.session == nil {
			s.pool.put(granted)
		}
		return
	case l.session == nil:
		l.lease = granted
		l.place.Renewed, l.place.LeaseTTL = granted.Sent, granted.TTL
	}
	l.value = value
	s.puts.add(put{local: l, lock: h.Lock, key: s.keys.hold(h.Ref), value: string(value), lease: l.lease.ID})
}

// freshFor returns how long ago a lease may have been confirmed to count as
// confirmed just now for a hold of ttl: what the holder is told to have left is
// shorter by as much.
func freshFor(ttl time.Duration) time.Duration { return min(time.Second, ttl/10) }

// leaseFor returns a lease that was confirmed just now.
func (s *Server) leaseFor(ctx context.Context, ttl time.Duration) (lease, error) {
	for {
		s.mu.Lock()
		idle, ok := s.pool.take(leaseTTL(ttl), time.Now())
		s.mu.Unlock()
		if !ok {
			return s.store.grantLease(ctx, leaseTTL(ttl))
		}
		if time.Since(idle.Sent) < freshFor(ttl) {
			return idle, nil
		}
		renewed, err := s.store.keepAlive(ctx, idle)
		if !errors.Is(err, errLeaseGone) {
			return renewed, err
		}
	}
}

// putDone is called with a batch that the store has taken.
func (s *Server) putDone(batch []put, rev int64) {
	s.reached(rev, func(late error) {
		for _, p := range batch {
			l := p.local
			if late != nil && !l.live && l.end == NotEnded {
				s.failLocked(l, late, false)
			}
		}
	})
}

// putExists is called with a hold whose key was there before this put.
func (s *Server) putExists(l *local, rev int64) {
	s.reached(rev, func(late error) {
		l.existed = true
		if l.owned {
			l.owned = false
			s.pool.put(l.lease)
		}
		if !l.live && l.end == NotEnded {
			if late == nil {
				late = &GoneError{Ref: refText(l.hold.Ref), End: EndUnknown}
			}
			s.failLocked(l, late, true)
		}
	})
}

// putFailed is called with a batch that was refused, or whose outcome is unknown.
func (s *Server) putFailed(batch []put, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range batch {
		l := p.local
		switch {
		case l.live || l.end != NotEnded: // the event came first
		case !refused(err):
			s.failLocked(l, outcomeUnknown(err), false)
		case l.session != nil && errors.Is(err, rpctypes.ErrLeaseNotFound):
			s.failLocked(l, &GoneError{Ref: refText(l.session.ref), End: EndUnknown, Session: true}, true)
		default:
			l.owned = false
			s.failLocked(l, unavailable(err), true)
		}
	}
}

// putLate is called with puts that were not sent.
func (s *Server) putLate(late []put) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range late {
		l := p.local
		if l.live || l.end != NotEnded {
			continue // another server's put, or that of an earlier try, came meanwhile
		}
		if l.owned {
			l.owned = false
			s.pool.put(l.lease)
		}
		s.failLocked(l, unavailable(errors.New("the puts before it are not answered")), true)
	}
}

// failLocked ends an attempt whose put did not come. Where that is certain it is
// forgotten; else it is remembered until its lease must be gone.
func (s *Server) failLocked(l *local, err error, certain bool) {
	s.noteRefusalLocked(err)
	l.err = err
	l.notify()
	if certain {
		s.forgetLocked(l)
		return
	}
	l.owned = false
	l.unsaid = !l.keyed
	s.timers.set(l, time.Now().Add(l.lease.TTL+writeTimeout))
}

// forgetLocked drops a local whose put was never seen.
func (s *Server) forgetLocked(l *local) {
	if l.session != nil && !l.live {
		delete(l.session.coming, l.hold.Ref)
	}
	if !l.live && s.locals[l.hold.Ref] == l {
		delete(s.locals, l.hold.Ref)
	}
}

// close ends one request on l. When it was the last and no answer said held, a
// hold without idempotency key goes at once and one with a key keeps its place for
// a while.
func (s *Server) close(l *local) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.place.Leave(time.Now().Add(PlaceTimeout))
	if l.place.Asking > 0 || l.place.Answered || l.end != NotEnded {
		return
	}
	if l.keyed {
		s.dueLocked(l)
		return
	}
	s.abandonLocked(l)
}

// abandonLocked deletes a hold that nobody will ask for, now or when its put shows.
func (s *Server) abandonLocked(l *local) {
	if l.unsaid {
		return
	}
	l.unsaid = true
	if l.live {
		s.cancelLocked(l.hold.Ref)
	}
}

// await brings a hold that a request is bound to to its answer. What a repeat finds may
// have been held before, and ended through another server.
func (s *Server) await(ctx context.Context, l *local, start time.Time, req *AcquireRequest, replayed bool) (*Hold, error) {
	waited, err := s.turn(ctx, l, start.Add(req.Wait))
	if err == nil && !waited && (replayed || s.existed(l)) {
		err = s.still(ctx, l, leaseTimeout)
	}
	if errors.Is(err, errWaitOver) && req.KeepPlace {
		var hold *Hold
		if hold, err = s.keptPlace(ctx, l); err == nil {
			return hold, nil
		}
	} else if errors.Is(err, errWaitOver) {
		if err = s.giveUp(ctx, l); err == nil {
			return nil, s.heldError(l.hold.Lock, time.Since(start))
		}
	}
	if err != nil && !errors.Is(err, errTurnCame) {
		return nil, err
	}
	age := l.hold.TTL / 3
	if waited {
		age = freshFor(l.hold.TTL)
	}
	hold, err := s.grant(ctx, l, age)
	if err == nil && waited {
		s.config.Observer.Granted(time.Since(start), time.Since(l.hold.Since))
	}
	return hold, err
}

// existed reports whether the key of l was there before its put.
func (s *Server) existed(l *local) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.existed
}

// keptPlace describes a hold that is still queued at the end of a wait. A server without
// a quorum would say so for ever, whatever becomes of the hold: who waits there must hear
// of it, and may go on at another server. The error is errTurnCame where it is the head.
func (s *Server) keptPlace(ctx context.Context, l *local) (*Hold, error) {
	if err := s.still(ctx, l, behindTimeout); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case l.end != NotEnded:
		return nil, &GoneError{Ref: refText(l.hold.Ref), End: l.end}
	case s.table.IsHead(l.hold):
		return nil, errTurnCame
	}
	return s.holdLocked(l), nil
}

// turn waits until the hold is the head of its lock, and reports whether it had
// to queue for it.
func (s *Server) turn(ctx context.Context, l *local, until time.Time) (waited bool, err error) {
	var over <-chan time.Time
	for slept := false; ; slept = true {
		changed, queued, err := s.look(l)
		if err != nil || changed == nil {
			return waited || slept && queued, err // it may have slept through its time in the queue
		}
		if queued {
			waited = true
			left := time.Until(until)
			if left <= 0 {
				return waited, errWaitOver
			}
			if over == nil {
				timer := time.NewTimer(left)
				defer timer.Stop()
				over = timer.C
			}
		}
		select {
		case <-changed:
		case <-over:
		case <-s.stopping:
			return waited, shuttingDown()
		case <-ctx.Done():
			return waited, context.Cause(ctx)
		}
	}
}

// look returns a nil channel when it is the hold's turn and whether it had queued for
// it, else the channel that is closed at its next change and whether it is queued.
func (s *Server) look(l *local) (changed <-chan struct{}, queued bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case l.err != nil && (l.unsaid || !l.live):
		return nil, false, l.err
	case l.end != NotEnded:
		return nil, false, &GoneError{Ref: refText(l.hold.Ref), End: l.end}
	case l.live && !l.unsaid && s.table.IsHead(l.hold):
		return nil, l.queued, nil
	}
	return l.watch(), l.live, nil
}

// maxRenewals bounds the keep-alives of one grant: a store that takes longer than
// a third of the TTL each time is no store to grant from.
const maxRenewals = 3

// grant makes the answer "held" true: the lease was confirmed, by a leader with a
// quorum (R9), at most age ago, and the key is there (R7). A request that has ended
// is never granted.
func (s *Server) grant(ctx context.Context, l *local, age time.Duration) (*Hold, error) {
	if err := s.unexpired(ctx, l, false); err != nil {
		return nil, err
	}
	for range maxRenewals {
		hold, stale, err := s.tryGrant(ctx, l, age)
		if !stale {
			return hold, err
		}
		if err := s.renewLease(ctx, l); err != nil {
			return nil, err
		}
		age = l.hold.TTL / 3
	}
	hold, stale, err := s.tryGrant(ctx, l, age)
	if stale {
		return nil, unavailable(errors.New("keep-alives take longer than a third of the TTL"))
	}
	return hold, err
}

// tryGrant answers unless the lease must be renewed first.
func (s *Server) tryGrant(ctx context.Context, l *local, age time.Duration) (hold *Hold, stale bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.overdueLocked(l, now) {
		return nil, false, &GoneError{Ref: refText(l.hold.Ref), End: Expired}
	}
	sent := s.leaseLocked(l).Sent
	if now.Sub(sent) > age {
		return nil, true, nil
	}
	hold, err = s.answerLocked(ctx, l, sent, now)
	return hold, false, err
}

// answerLocked says held.
func (s *Server) answerLocked(ctx context.Context, l *local, sent, now time.Time) (*Hold, error) {
	switch {
	case l.end != NotEnded:
		return nil, &GoneError{Ref: refText(l.hold.Ref), End: l.end}
	case l.unsaid || l.session != nil && l.session.ending: // its delete is on the way
		return nil, &GoneError{Ref: refText(l.hold.Ref), End: Cancelled}
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case !s.table.IsHead(l.hold):
		return nil, &apierr.Error{ErrCode: apierr.NotHeld, Detail: "the hold is still queued"}
	}
	if err := s.readyLocked(); err != nil {
		return nil, err
	}
	if !l.place.Confirm(sent, now, l.hold.TTL) {
		return nil, &GoneError{Ref: refText(l.hold.Ref), End: Expired}
	}
	s.dueLocked(l)
	return s.holdLocked(l), nil
}

// giveUp withdraws a hold whose wait is over and waits until it is gone, for a
// store without a quorum no longer than for the mirror: nobody is granted it any
// more, so nothing has happened. Where another request is bound to the hold, it
// stays.
func (s *Server) giveUp(ctx context.Context, l *local) error {
	d := &deletion{ref: l.hold.Ref, entry: endEntry{End: Cancelled}, done: make(chan struct{})}
	s.mu.Lock()
	if s.table.IsHead(l.hold) {
		s.mu.Unlock()
		return errTurnCame
	}
	if l.place.Asking > 1 || l.end != NotEnded {
		s.mu.Unlock()
		return nil
	}
	l.unsaid = true
	s.deletes.add(d)
	s.mu.Unlock()
	late := time.NewTimer(behindTimeout)
	defer late.Stop()
	select {
	case <-d.done:
		return d.err
	case <-late.C:
		return unavailable(errors.New("the place is not withdrawn yet"))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// heldError describes who stands in the way.
func (s *Server) heldError(lock string, waited time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &HeldError{Lock: lock, Waited: waited, Waiters: max(0, s.table.Waiters(lock))}
	if h := s.table.Head(lock); h != nil {
		e.Holder = s.holderLocked(h)
	}
	return e
}
