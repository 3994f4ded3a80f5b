package lockserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/lockserver/internal/queue"
)

// sessionScan is how often deadlines of sessions are looked at: there are few.
const sessionScan = 100 * time.Millisecond

// session is one lease that the holds of one process share, as this server sees
// it. deadline is set on the server that made or renewed it last. The server's
// mutex guards it.
type session struct {
	ref      queue.Ref
	owner    string
	ttl      time.Duration
	created  time.Time
	lease    lease
	deadline time.Time
	holds    map[queue.Ref]bool
	coming   map[queue.Ref]bool // holds whose puts are on their way here
	ending   bool
	changed  chan struct{}
}

// overdue reports whether the session is past its deadline here.
func (o *session) overdue(now time.Time) bool {
	return !o.deadline.IsZero() && !now.Before(o.deadline)
}

func (o *session) sees(h *queue.Hold) {
	delete(o.coming, h.Ref)
	if !o.holds[h.Ref] {
		o.holds[h.Ref] = true
		o.notify()
	}
}

func (o *session) loses(h *queue.Hold) {
	delete(o.holds, h.Ref)
	o.notify()
}

func (o *session) notify() {
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

func (o *session) watch() <-chan struct{} {
	if o.changed == nil {
		o.changed = make(chan struct{})
	}
	return o.changed
}

// CreateSession makes a session with a lease of its own; ttl has the bounds of a
// hold's, 0 means [DefaultTTL]. Errors: codes out_of_bounds, no_quorum, behind and
// outcome_unknown; a session whose answer was lost ends with its lease.
func (s *Server) CreateSession(ctx context.Context, owner string, ttl time.Duration) (*Session, error) {
	if ttl == 0 {
		ttl = min(DefaultTTL, s.config.MaxTTL)
	}
	if err := errors.Join(ValidateOwner(owner), validateTTL(ttl, s.config.MaxTTL)); err != nil {
		return nil, err
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	granted, err := s.leaseFor(ctx, ttl)
	if err != nil {
		return nil, err
	}
	id := newID()
	ref := refOf(id)
	rev, err := s.storeSession(ctx, ref, owner, ttl, granted)
	if err != nil {
		return nil, err
	}
	if err := s.caughtUp(ctx, rev); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.sessions[ref]
	if o == nil {
		return nil, s.sessionGoneLocked(ref)
	}
	o.lease, o.deadline = granted, granted.Sent.Add(ttl)
	return s.sessionLocked(o, id), nil
}

func (s *Server) storeSession(ctx context.Context, ref queue.Ref, owner string, ttl time.Duration, l lease) (int64, error) {
	value, err := json.Marshal(sessionValue{
		Version: formatVersion, Owner: owner, TTLMS: ttl.Milliseconds(), Server: s.config.Name,
		Created: time.Now().UnixMilli(),
	})
	if err != nil {
		return 0, fmt.Errorf("session value: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	resp, err := s.store.client.Put(ctx, s.keys.session(ref), string(value), clientv3.WithLease(l.ID))
	switch {
	case err == nil:
		return resp.Header.Revision, nil
	case refused(err):
		return 0, unavailable(err)
	}
	return 0, outcomeUnknown(err)
}

// caughtUp waits until the mirror has reached a revision.
func (s *Server) caughtUp(ctx context.Context, rev int64) error {
	done := make(chan error, 1)
	s.reached(rev, func(late error) { done <- late })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// RenewSession gives a session its full TTL again and returns the refs of its
// holds that exist at the answer's revision. Errors are those of [Server.Renew],
// with code session_gone.
func (s *Server) RenewSession(ctx context.Context, id string) (*Session, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	o, err := s.findSession(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := s.sessionRenewable(ctx, o); err != nil {
		return nil, err
	}
	if err := s.renewSession(ctx, o); err != nil {
		if errors.Is(err, errLeaseGone) {
			err = &GoneError{Ref: refText(o.ref), End: EndUnknown, Session: true}
		}
		return nil, err
	}
	if !s.config.Alone { // another server may have told its end already
		if o, err = s.readSession(ctx, o.ref); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[o.ref] != o {
		return nil, s.sessionGoneLocked(o.ref)
	}
	return s.sessionLocked(o, id), nil
}

func (s *Server) sessionRenewable(ctx context.Context, o *session) error {
	alive, err := s.sessionAlive(ctx, o)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.ending || !alive {
		return &GoneError{Ref: refText(o.ref), End: Expired, Session: true}
	}
	return nil
}

// renewSession renews the lease of a session, of which the caller knows that it is within
// its deadline. An answer after that proves nothing (R9).
func (s *Server) renewSession(ctx context.Context, o *session) error {
	s.mu.Lock()
	was := o.lease
	s.mu.Unlock()
	renewed, err := s.store.keepAlive(ctx, was)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if o.ending || o.overdue(now) {
		return errLeaseGone
	}
	if renewed.Sent.After(o.lease.Sent) {
		o.lease, o.deadline = renewed, renewed.Sent.Add(o.ttl)
	}
	if o.overdue(now) {
		return errLeaseGone
	}
	return nil
}

// Session returns the state of a session and changes nothing.
func (s *Server) Session(ctx context.Context, id string) (*Session, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	o, err := s.findSession(ctx, id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessionLocked(o, id), nil
}

// AwaitSession returns at the next change of the session's holds, or its state
// when wait (0 to [MaxWait]) is over. Its end is an error with code session_gone.
func (s *Server) AwaitSession(ctx context.Context, id string, wait time.Duration) (*Session, error) {
	if err := ValidateWait(wait); err != nil {
		return nil, err
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	o, err := s.findSession(ctx, id)
	if err != nil {
		return nil, err
	}
	changed, err := s.watchSession(o)
	if err != nil {
		return nil, err
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	select {
	case <-changed:
	case <-over.C:
		err = s.sameSession(ctx, o.ref)
	case <-s.stopping:
		err = shuttingDown()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[o.ref] != o {
		return nil, s.sessionGoneLocked(o.ref)
	}
	return s.sessionLocked(o, id), nil
}

// watchSession returns a channel that is closed at the next change of a session. One that
// has ended has no more of them.
func (s *Server) watchSession(o *session) (<-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[o.ref] != o {
		return nil, s.sessionGoneLocked(o.ref)
	}
	return o.watch(), nil
}

// sameSession makes sure, before an answer says that nothing has changed, that this
// server would have heard of a change.
func (s *Server) sameSession(ctx context.Context, ref queue.Ref) error {
	if s.config.Alone {
		return nil
	}
	_, err := s.readSession(ctx, ref)
	return err
}

// EndSession ends a session and its holds, which end as released. It returns nil
// when all are gone. Errors: codes session_gone and outcome_unknown.
func (s *Server) EndSession(ctx context.Context, id string) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	o, err := s.findSession(ctx, id)
	if err != nil {
		return releasedBefore(err)
	}
	s.mu.Lock()
	batch := s.startEndLocked(o, Released)
	s.mu.Unlock()
	for _, d := range batch { // more than one transaction may be on their way at once
		if err := d.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// startEndLocked deletes the holds of a session and its key. A hold whose put is on its
// way is deleted when it shows. The lease lapses by itself: nothing is attached to it
// any more, and a revoke costs the store more than it saves.
func (s *Server) startEndLocked(o *session, how End) []*deletion {
	o.ending = true
	batch := make([]*deletion, 0, len(o.holds)+1)
	for ref := range o.holds {
		batch = append(batch, &deletion{ref: ref, entry: endEntry{End: how}, done: make(chan struct{})})
	}
	batch = append(batch, &deletion{ref: o.ref, session: true, entry: endEntry{End: how}, done: make(chan struct{})})
	s.deletes.add(batch...)
	return batch
}

// Sessions lists the live sessions in the order of their refs, without their ids.
func (s *Server) Sessions(context.Context) ([]Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Session, 0, len(s.sessions))
	for _, o := range s.sessions {
		list = append(list, *s.sessionLocked(o, ""))
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Ref < list[j].Ref })
	return list, nil
}

// expireSessions ends sessions at their deadlines until ctx ends.
func (s *Server) expireSessions(ctx context.Context) {
	tick := time.NewTicker(sessionScan)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, o := range s.overdueSessions(now) {
				s.expireSession(ctx, o, now)
			}
		}
	}
}

func (s *Server) overdueSessions(now time.Time) []*session {
	if !s.config.Alone {
		now = now.Add(-queue.Grace)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []*session
	for _, o := range s.sessions {
		if !o.ending && o.overdue(now) {
			due = append(due, o)
		}
	}
	return due
}

// expireSession ends a session unless another server has renewed it.
func (s *Server) expireSession(ctx context.Context, o *session, now time.Time) {
	if !s.config.Alone {
		s.mu.Lock()
		leased := o.lease.ID
		s.mu.Unlock()
		told := s.renewals(ctx, leased)[0]
		if told.err != nil && !errors.Is(told.err, errLeaseGone) {
			return // looked at again at the next scan
		}
		if told.err == nil && told.last.Add(o.ttl).After(now) {
			s.mu.Lock()
			if deadline := told.last.Add(o.ttl - queue.Grace); deadline.After(o.deadline) {
				o.deadline = deadline
			}
			s.mu.Unlock()
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.overdue(time.Now()) { // nobody has renewed it meanwhile
		s.startEndLocked(o, Expired)
	}
}

// joinable finds a session for an acquire, because another server may have made it just
// now, or renewed it.
func (s *Server) joinable(ctx context.Context, id string) error {
	o, err := s.findSession(ctx, id)
	if err != nil {
		return err
	}
	_, err = s.sessionAlive(ctx, o) // joinSessionLocked looks at the deadline
	return err
}

// joinSessionLocked finds the session that a request names and checks that it has
// room.
func (s *Server) joinSessionLocked(req *AcquireRequest) (*session, error) {
	if !canonicalID(req.Session) {
		return nil, apierr.Bounds("session", "an id that POST /v1/sessions returned")
	}
	ref := refOf(req.Session)
	o := s.sessions[ref]
	switch {
	case o == nil:
		return nil, s.sessionGoneLocked(ref)
	case o.ending || o.overdue(time.Now()):
		return nil, &GoneError{Ref: refText(ref), End: Expired, Session: true}
	case req.TTL != 0 && req.TTL != o.ttl:
		return nil, apierr.Bounds("ttl", fmt.Sprintf("the session's, %s, or absent", o.ttl))
	case len(o.holds)+len(o.coming) >= MaxHoldsPerSession:
		return nil, &apierr.Error{
			ErrCode: apierr.SessionFull, Field: "session", Limit: fmt.Sprintf("at most %d holds", MaxHoldsPerSession),
			Detail: fmt.Sprintf("a session has at most %d holds; use another session", MaxHoldsPerSession),
		}
	}
	return o, nil
}

// findSession returns the live session of id; where other servers share the store
// its key is read before the answer says "gone".
func (s *Server) findSession(ctx context.Context, id string) (*session, error) {
	if !canonicalID(id) {
		return nil, &apierr.Error{
			ErrCode: apierr.Malformed, Field: "session", Limit: "26 characters of a to z and 2 to 7",
			Detail: "session must be an id that POST /v1/sessions returned",
		}
	}
	ref := refOf(id)
	s.mu.Lock()
	o := s.sessions[ref]
	s.mu.Unlock()
	if o != nil {
		return o, nil
	}
	if !s.config.Alone {
		return s.readSession(ctx, ref)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return nil, s.sessionGoneLocked(ref)
}

// sessionGoneLocked says how a session ended that is not there.
func (s *Server) sessionGoneLocked(ref queue.Ref) error {
	gone := &GoneError{Ref: refText(ref), End: EndUnknown, Session: true}
	if p := s.history.find(ref); p != nil {
		gone.End = p.end
	}
	return gone
}

// readSession reads a session's key and waits for the mirror to show it, or its end.
func (s *Server) readSession(ctx context.Context, ref queue.Ref) (*session, error) {
	readCtx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	resp, err := s.store.client.Get(readCtx, s.keys.session(ref))
	if err != nil {
		return nil, unavailable(err)
	}
	if len(resp.Kvs) == 0 {
		ended := func() bool { return s.sessions[ref] == nil }
		if err := s.mirrorShows(ctx, behindTimeout, ended); err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return nil, s.sessionGoneLocked(ref)
	}
	if err := s.caughtUp(ctx, resp.Kvs[0].CreateRevision); err != nil {
		return nil, behind()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.sessions[ref]; o != nil {
		return o, nil
	}
	return nil, s.sessionGoneLocked(ref)
}

// putSession takes a session's key into the mirror.
func (s *Server) putSession(ref queue.Ref, kv *mvccpb.KeyValue) error {
	if s.sessions[ref] != nil {
		return nil
	}
	var v sessionValue
	if err := decodeValue(kv.Value, &v, &v.Version); err != nil {
		return err
	}
	ttl := time.Duration(v.TTLMS) * time.Millisecond
	if ttl < MinTTL || ttl > MaxTTL {
		return fmt.Errorf("session value: ttl of %d ms", v.TTLMS)
	}
	o := &session{
		ref: ref, owner: v.Owner, ttl: ttl, created: time.UnixMilli(v.Created).UTC(),
		lease: lease{ID: clientv3.LeaseID(kv.Lease), TTL: leaseTTL(ttl)},
		holds: make(map[queue.Ref]bool), coming: make(map[queue.Ref]bool),
	}
	s.sessions[ref] = o
	return nil
}

// endSession drops a session whose key is gone, and remembers how it ended. Holds that
// are left of it came while it was ended: nobody can renew them.
func (s *Server) endSession(ref queue.Ref, how End, now time.Time) {
	if how == NotEnded {
		how = EndUnknown
	}
	s.history.add(past{ref: ref, end: how, ended: now})
	o := s.sessions[ref]
	if o == nil {
		return
	}
	delete(s.sessions, ref)
	o.ending = true
	for hold := range o.holds {
		s.deletes.add(&deletion{ref: hold, entry: endEntry{End: how}})
	}
	o.notify()
}

func (s *Server) sessionLocked(o *session, id string) *Session {
	live := make([]string, 0, len(o.holds))
	for ref := range o.holds {
		live = append(live, refText(ref))
	}
	view := &Session{
		ID: id, Ref: refText(o.ref), Owner: o.owner, TTL: o.ttl, Created: o.created,
		Live: live, Revision: s.mirror.rev,
	}
	if !o.deadline.IsZero() {
		view.ExpiresIn, view.ExpiryKnown = max(0, time.Until(o.deadline)), true
	}
	return view
}
