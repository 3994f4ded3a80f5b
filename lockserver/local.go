package lockserver

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/lockserver/internal/queue"
)

// local is what this server knows of one hold beyond the store. It exists from
// before the put is sent, so that the put's event always finds it, until the hold
// has ended and no call on its lease is open. The server's mutex guards it.
type local struct {
	hold  *queue.Hold
	value []byte // what was put; nil once it is seen, or when another server put it
	place queue.Place
	keyed bool

	lease   lease
	owned   bool // the lease came from this server's pool and serves this hold alone
	session *session
	calls   int // open calls on the lease (R10)

	live    bool  // its put was seen
	queued  bool  // it was not the holder at once
	end     End   // set when its delete was seen
	err     error // why the put failed
	unsure  bool  // the put's outcome is unknown
	existed bool  // its key was there before its put: the hold of an earlier try
	unsaid  bool  // given up: its delete is on the way, or follows its put; never granted
	changed chan struct{}

	timer timer
}

// watch returns a channel that is closed at the next change of the hold.
func (l *local) watch() <-chan struct{} {
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

// notify wakes whoever watches.
func (l *local) notify() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

func (s *Server) newPlace() queue.Place { return queue.Place{Elsewhere: !s.config.Alone} }

// localLocked returns the local of a live hold, making it where this server had
// nothing to do with the hold so far.
func (s *Server) localLocked(h *queue.Hold) *local {
	l := s.locals[h.Ref]
	if l == nil {
		l = &local{
			hold: h, live: true, keyed: true,
			lease: lease{ID: clientv3.LeaseID(h.Lease), TTL: leaseTTL(h.TTL)},
			place: s.newPlace(),
		}
		if h.Session != (queue.Ref{}) {
			l.session, l.place.Shared = s.sessions[h.Session], true
		}
		s.locals[h.Ref] = l
	}
	return l
}

// adoptLocked takes over what the server before this one left in the store, where
// no other server looks after it. A waiter has as long to come again as after the
// end of its request. A holder may have been answered just before the end: it has
// its whole TTL to renew.
func (s *Server) adoptLocked(now time.Time) {
	for _, o := range s.sessions {
		o.deadline = now.Add(o.ttl)
	}
	s.table.All(func(h *queue.Hold) {
		l := s.localLocked(h)
		if s.table.IsHead(h) {
			l.place.Answered, l.place.Deadline = true, now.Add(h.TTL)
		} else {
			l.place.Lapses = now.Add(PlaceTimeout)
		}
		s.dueLocked(l)
	})
}

// dueLocked sets the timer of l to when its place needs something.
func (s *Server) dueLocked(l *local) {
	if l.end != NotEnded {
		s.timers.drop(l)
		return
	}
	if !l.live {
		return // its put is on the way, or has failed: then its timer forgets it
	}
	action, when := l.place.Due(time.Now())
	if action != queue.None {
		when = time.Now()
	}
	s.timers.set(l, when)
}

// dropLocked forgets l when nothing can refer to it any more, and gives its lease
// back to the pool where that is safe: the put's outcome is known, the key is
// gone, and no call on the lease is open.
func (s *Server) dropLocked(l *local) {
	if l.end == NotEnded || l.calls > 0 {
		return
	}
	s.timers.drop(l)
	if s.locals[l.hold.Ref] == l {
		delete(s.locals, l.hold.Ref)
	}
	if l.owned && !l.unsure {
		l.owned = false
		s.pool.put(l.lease)
	}
}
