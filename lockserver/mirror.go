package lockserver

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/lockserver/internal/queue"
)

const (
	// behindTimeout is how long an answer waits for the mirror.
	behindTimeout = time.Second
	// relistBehind is how many revisions a watch may be behind before a fresh list
	// is cheaper for the store than the catch-up (R12).
	relistBehind = 5000
	listPage     = 5000
	listTimeout  = 10 * time.Second
)

// mirrorState is what the server knows of the store as a whole.
type mirrorState struct {
	// complete is set once a list was applied; rev is the revision up to which the
	// table is exact. It moves by the last event's revision or by a progress
	// notice, never by another header (R5).
	complete bool
	rev      int64
	first    EventID // where this server's events begin
	base     int64
	cluster  string
	closed   string // why granting is closed, "" when it is open
	told     int64  // the highest token of the store's closure, notTold where there is none
	err      error  // why the store could not be read
	quorum   error  // why the store did not answer last
	refuses  bool   // it refused a write since
	badKeys  int
	// differences counts the audits that found the mirror unlike the store.
	differences int
	moved       chan struct{} // closed when the mirror moves; nil while nobody waits

	stopWatch context.CancelFunc // makes follow read the store anew
}

// notTold is below every highest token.
const notTold = -1

// revisionWait is an answer that waits until the mirror has reached its revision.
type revisionWait struct {
	rev   int64
	since time.Time
	done  func(late error)
}

// reached calls done once the mirror is at rev, or with an error after
// behindTimeout. done runs with the server's mutex held and must not block.
func (s *Server) reached(rev int64, done func(late error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mirror.rev >= rev {
		s.config.Observer.Lagged(0)
		done(nil)
		return
	}
	s.waiting = append(s.waiting, revisionWait{rev: rev, since: time.Now(), done: done})
}

// wakeLocked answers those whose revision is there, and those who waited too long.
func (s *Server) wakeLocked(now time.Time) {
	kept := s.waiting[:0]
	for _, w := range s.waiting {
		switch {
		case w.rev <= s.mirror.rev:
			s.config.Observer.Lagged(now.Sub(w.since))
			w.done(nil)
		case now.Sub(w.since) >= behindTimeout:
			w.done(outcomeUnknown(behind()))
		default:
			kept = append(kept, w)
		}
	}
	clear(s.waiting[len(kept):])
	s.waiting = kept
}

// watchLag times out answers while no event comes.
func (s *Server) watchLag(ctx context.Context) {
	tick := time.NewTicker(behindTimeout / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.mu.Lock()
			s.wakeLocked(now)
			s.mu.Unlock()
		}
	}
}

// lagLocked returns how long the oldest answer has waited for the mirror.
func (s *Server) lagLocked(now time.Time) time.Duration {
	if len(s.waiting) == 0 {
		return 0
	}
	return now.Sub(s.waiting[0].since)
}

// follow keeps the mirror exact until ctx ends: list, watch from there, and start
// over whenever the watch ends or falls too far behind.
func (s *Server) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.relist(ctx)
		if err == nil {
			err = s.watch(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if untouchable(err) {
			s.fail(err)
			return
		}
		s.mu.Lock()
		s.mirror.err = err
		s.mu.Unlock()
		s.log.Warn("the store is read anew", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
}

// relist reads the whole prefix at one linearizable revision and brings the table
// there in one step.
func (s *Server) relist(ctx context.Context) error {
	if err := s.claim(ctx); err != nil {
		return err
	}
	var kvs []*mvccpb.KeyValue
	var rev int64
	from, end := s.keys.prefix, clientv3.GetPrefixRangeEnd(s.keys.prefix)
	for {
		resp, err := s.page(ctx, from, end, rev)
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		if rev == 0 {
			rev = resp.Header.Revision // every further page is pinned to it
		}
		kvs = append(kvs, resp.Kvs...)
		if !resp.More {
			return s.applyList(kvs, rev)
		}
		from = string(kvs[len(kvs)-1].Key) + "\x00"
	}
}

// page reads up to listPage keys from the given one on, at revision rev, or at the
// present one where rev is 0.
func (s *Server) page(ctx context.Context, from, end string, rev int64, more ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	options := append(more, clientv3.WithRange(end), clientv3.WithLimit(listPage), clientv3.WithRev(rev))
	return s.store.client.Get(ctx, from, options...)
}

// applyList turns a full list into the events that are missing here.
func (s *Server) applyList(kvs []*mvccpb.KeyValue, rev int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.mirror
	gap := before.complete && rev != before.rev
	s.mirror.rev, s.mirror.base, s.mirror.told = rev, 0, notTold
	r := &revision{server: s, rev: rev, listed: true}
	seen := make(map[queue.Ref]bool, len(kvs))
	sort.Slice(kvs, func(i, j int) bool { return kvs[i].CreateRevision < kvs[j].CreateRevision })
	for _, kv := range kvs {
		kind, ref := s.keys.parse(kv.Key)
		if kind == baseKey {
			r.put(kind, ref, kv)
		}
		seen[ref] = true
	}
	s.judge(before, kvs, rev)
	s.findRisen(before, kvs)
	for _, kv := range kvs {
		if kind, ref := s.keys.parse(kv.Key); kind != baseKey && kind != endsKey {
			r.put(kind, ref, kv)
		}
	}
	s.table.All(func(h *queue.Hold) {
		if !seen[h.Ref] {
			r.ops = append(r.ops, queue.Op{Ref: h.Ref})
		}
	})
	for ref := range s.sessions {
		if !seen[ref] {
			r.endedSessions = append(r.endedSessions, ref)
		}
	}
	if !s.mirror.complete {
		s.mirror.first = EventID{Revision: rev}
	}
	if gap {
		s.events.gap(rev)
		s.history.whole = false
	}
	s.mirror.complete, s.mirror.err = true, nil
	s.finishRevision(r)
	if s.mirror.closed != "" {
		signal(s.tellClosed) // what could not be told of a store that was not read yet
	}
	if !before.complete && s.config.Alone {
		s.adoptLocked(time.Now())
	}
	s.wakeLocked(time.Now())
	return nil
}

// judge compares a list with what was seen before it: a store that is below that
// was rolled back. One whose base was raised meanwhile is above it again.
func (s *Server) judge(before mirrorState, kvs []*mvccpb.KeyValue, rev int64) {
	switch {
	case !before.complete:
		s.compareIssued(kvs, rev)
	case s.mirror.base+rev < before.base+before.rev || s.mirror.base < before.base:
		s.closeLocked(fmt.Sprintf("the store is at revision %d with base %d, after revision %d with base %d had been seen",
			rev, s.mirror.base, before.rev, before.base))
	case s.mirror.base > before.base:
		s.openLocked(rev)
	}
}

// watch applies events until the watch ends or is too far behind.
func (s *Server) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	s.mu.Lock()
	from := s.mirror.rev + 1
	s.mirror.stopWatch = cancel
	s.mu.Unlock()
	// The client queues responses without bound, so this goroutine never makes the
	// store's watcher fall behind.
	responses := s.config.Watch.Watch(ctx, s.keys.prefix, clientv3.WithPrefix(), clientv3.WithRev(from),
		clientv3.WithProgressNotify(), clientv3.WithFragment())
	for resp := range responses {
		if err := resp.Err(); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		last := s.applyWatch(resp)
		if !resp.IsProgressNotify() && resp.Header.Revision-last > relistBehind {
			return errors.New("watch: too far behind")
		}
	}
	return errors.New("watch: closed")
}

// applyWatch applies one response, revision by revision, and returns where the
// mirror is then.
func (s *Server) applyWatch(resp clientv3.WatchResponse) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := resp.Events
	for len(events) > 0 {
		n, rev := 1, events[0].Kv.ModRevision
		for n < len(events) && events[n].Kv.ModRevision == rev {
			n++
		}
		if rev > s.mirror.rev { // R6: what was seen is not seen again
			s.applyEvents(rev, events[:n])
		}
		events = events[n:]
	}
	if resp.IsProgressNotify() && resp.Header.Revision > s.mirror.rev {
		s.mirror.rev = resp.Header.Revision
	}
	s.wakeLocked(time.Now())
	return s.mirror.rev
}

// applyEvents takes all events of one revision as a unit (R4).
func (s *Server) applyEvents(rev int64, events []*clientv3.Event) {
	r := &revision{server: s, rev: rev}
	for _, ev := range events {
		kind, ref := s.keys.parse(ev.Kv.Key)
		if ev.Type == clientv3.EventTypePut {
			r.put(kind, ref, ev.Kv)
			continue
		}
		r.del(kind, ref)
	}
	s.finishRevision(r)
}

// revision gathers what one revision of the log does.
type revision struct {
	server        *Server
	rev           int64
	ops           []queue.Op
	ends          map[queue.Ref]endEntry
	endedSessions []queue.Ref
	listed        bool // made from a list: no events come of it
}

func (r *revision) put(kind keyKind, ref queue.Ref, kv *mvccpb.KeyValue) {
	s := r.server
	var err error
	switch kind {
	case holdKey:
		if h := s.table.Get(ref); h != nil && h.Rev != kv.CreateRevision {
			r.ops = append(r.ops, queue.Op{Ref: ref}) // it was put anew after an end that was missed
		}
		var h *queue.Hold
		if h, err = s.readHold(ref, kv); h != nil {
			r.ops = append(r.ops, queue.Op{Put: h})
		}
	case sessionKey:
		err = s.putSession(ref, kv)
	case endsKey:
		r.ends, err = decodeEnds(kv.Value)
	case baseKey:
		var base int64
		if base, err = strconv.ParseInt(string(kv.Value), 10, 64); err == nil {
			if r.listed {
				s.mirror.base = base // judge compares it as a whole
			} else {
				s.setBase(base, r.rev)
			}
		}
	case clusterKey:
		s.mirror.cluster = string(kv.Value)
	case formatKey:
		s.seeFormat(kv.Value)
	case closedKey:
		s.seeClosed(kv.Value)
	case vouchKey:
		err = s.seeVouch(string(kv.Key), kv.Value)
	case restoredKey, clockKey:
	default:
		err = errors.New("the key is of no known kind")
	}
	if err != nil {
		s.mirror.badKeys++
		s.fault("a key does not parse and is ignored", "revision", r.rev, "error", err)
	}
}

func (r *revision) del(kind keyKind, ref queue.Ref) {
	switch kind {
	case holdKey:
		r.ops = append(r.ops, queue.Op{Ref: ref})
	case sessionKey:
		r.endedSessions = append(r.endedSessions, ref)
	case baseKey:
		r.server.setBase(0, r.rev)
	case closedKey:
		r.server.mirror.told = notTold
	}
}

// readHold makes a hold from its key. A hold that this server put is known and
// needs no decoding.
func (s *Server) readHold(ref queue.Ref, kv *mvccpb.KeyValue) (*queue.Hold, error) {
	if h := s.table.Get(ref); h != nil && h.Rev == kv.CreateRevision {
		if kv.Version != 1 && kv.ModRevision > s.mirror.rev {
			return nil, fmt.Errorf("hold %s was written again (version %d)", refText(ref), kv.Version) // R1
		}
		return nil, nil
	}
	if kv.Version != 1 {
		return nil, fmt.Errorf("hold %s is of version %d, not 1", refText(ref), kv.Version) // R1
	}
	var h *queue.Hold
	if l := s.locals[ref]; l != nil && l.value != nil && string(l.value) == string(kv.Value) {
		h = l.hold
	} else {
		var err error
		if h, err = decodeHold(ref, kv.Value); err != nil {
			return nil, err
		}
	}
	h.Lease = kv.Lease
	h.Rev = kv.CreateRevision
	h.Token = s.mirror.base + kv.CreateRevision
	return h, nil
}

// finishRevision applies what was gathered and moves the mirror.
func (s *Server) finishRevision(r *revision) {
	now := time.Now()
	s.mirror.rev = max(s.mirror.rev, r.rev)
	if s.issued != nil {
		s.issued.raise(s.mirror.base + s.mirror.rev)
	}
	index := 0
	for _, c := range s.table.Apply(r.ops) {
		e := s.change(c, r, now)
		if !r.listed {
			e.ID, e.Time = EventID{Revision: r.rev, Index: index}, now
			s.events.add(e)
			s.observe(e)
			index++
		}
	}
	for _, ref := range r.endedSessions {
		s.endSession(ref, r.ends[ref].End, now)
	}
	s.events.flush()
	if s.mirror.moved != nil {
		close(s.mirror.moved)
		s.mirror.moved = nil
	}
}

func (s *Server) observe(e Event) {
	s.config.Observer.Event(e.Kind)
	if e.Kind == EventQueued {
		s.config.Observer.Queued(s.table.Waiters(e.Lock))
	}
}

// change carries one decision of the table out and returns the event that tells
// of it.
func (s *Server) change(c queue.Change, r *revision, now time.Time) Event {
	h := c.Hold
	e := Event{Lock: h.Lock, Ref: refText(h.Ref), Owner: h.Owner}
	switch c.Kind {
	case queue.Queued:
		e.Kind = EventQueued
		if l := s.locals[h.Ref]; l != nil {
			l.queued = true
		}
		s.seen(h)
	case queue.Granted:
		e.Kind, e.Token = EventGranted, tokenOf(h.Token)
		h.Since = now
		if r.listed {
			h.Since = h.Created
		}
		s.seen(h)
	case queue.Ended:
		entry := r.ends[h.Ref]
		if entry.End == NotEnded {
			entry.End = EndUnknown
		}
		s.ended(h, c.Head, entry, now)
		e.Kind, e.Reason = eventOf(entry.End), entry.Reason
		if c.Head {
			e.Token = tokenOf(h.Token)
		}
	}
	return e
}

// seen tells the requests of this server that a hold's put, or its turn, has come.
func (s *Server) seen(h *queue.Hold) {
	if o := s.sessions[h.Session]; o != nil {
		o.sees(h)
	}
	if s.history.find(h.Ref) != nil || s.history.find(h.Session) != nil {
		// A late copy of a put whose hold has ended must not come back, and one that
		// comes after the end of its session nobody can renew.
		s.cancelLocked(h.Ref)
	}
	l := s.locals[h.Ref]
	if l == nil {
		return
	}
	if l.lease.ID != clientv3.LeaseID(h.Lease) {
		// Another server, or an earlier try of this one, put it on its own lease.
		l.lease, l.owned = lease{ID: clientv3.LeaseID(h.Lease), TTL: leaseTTL(h.TTL)}, false
		l.place.Renewed, l.existed = time.Time{}, true
	}
	if l.hold != h { // once it is live, requests read the pointer without the mutex
		l.hold = h
	}
	l.value, l.live, l.unsure = nil, true, false
	l.notify()
	if l.unsaid {
		s.cancelLocked(h.Ref)
		return
	}
	s.dueLocked(l)
}

// cancelLocked deletes a hold that nobody may have, without waiting.
func (s *Server) cancelLocked(ref queue.Ref) {
	s.deletes.add(&deletion{ref: ref, entry: endEntry{End: Cancelled}})
}

// ended remembers a hold that is over and tells the requests of this server.
func (s *Server) ended(h *queue.Hold, head bool, entry endEntry, now time.Time) {
	s.history.add(past{
		ref: h.Ref, lock: h.Lock, owner: h.Owner, token: h.Token, granted: head, since: h.Since,
		ended: now, end: entry.End, by: entry.By, reason: entry.Reason,
	})
	if o := s.sessions[h.Session]; o != nil {
		o.loses(h)
	}
	if l := s.locals[h.Ref]; l != nil {
		l.end = entry.End
		l.notify()
		s.dropLocked(l)
	}
}
