package lockserver

import (
	"context"
	"errors"
	"strings"
)

// eventsKept is how many events a server can replay to a subscriber that comes
// back.
const eventsKept = 65536

// ErrResync says that events between the one asked for and now are gone: read the
// locks anew and subscribe without an id.
var ErrResync = errors.New("events: history is gone, read the locks anew")

// eventLog keeps the last events in a ring; subscribers read from it at their own
// pace, so a slow one delays nobody. The server's mutex guards it.
type eventLog struct {
	ring   []Event
	next   int64 // sequence number of the next event
	oldest EventID
	gaps   int           // how often the store was read anew
	fresh  chan struct{} // closed when events come; nil while nobody waits
}

func newEventLog() *eventLog { return &eventLog{} }

func (l *eventLog) add(e Event) {
	if l.next < eventsKept {
		l.ring = append(l.ring, e)
	} else {
		l.oldest = l.ring[l.next%eventsKept].ID
		l.ring[l.next%eventsKept] = e
	}
	l.next++
}

// flush wakes subscribers, once a revision.
func (l *eventLog) flush() {
	if l.fresh != nil {
		close(l.fresh)
		l.fresh = nil
	}
}

// gap records that events up to rev may be missing: a subscriber that stands
// before it must read anew.
func (l *eventLog) gap(rev int64) {
	l.ring, l.next = nil, 0
	l.gaps++
	l.oldest = EventID{Revision: rev, Index: 1 << 30}
}

func (l *eventLog) at(seq int64) *Event { return &l.ring[seq%eventsKept] }

func (l *eventLog) first() int64 { return max(0, l.next-eventsKept) }

// after returns the sequence number of the first event behind id.
func (l *eventLog) after(id EventID) int64 {
	low, high := l.first(), l.next
	for low < high {
		mid := (low + high) / 2
		if !id.before(l.at(mid).ID) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// before reports whether a comes before b.
func (a EventID) before(b EventID) bool {
	return a.Revision < b.Revision || a.Revision == b.Revision && a.Index < b.Index
}

// Subscription reads events in order. It is for one goroutine and needs no close.
type Subscription struct {
	server *Server
	prefix string
	last   EventID
	gaps   int
}

// Subscribe returns the events of locks whose names start with prefix: those
// after the given id, or those to come where it is nil. It blocks for an id that
// another server has told and this one does not know of yet, for 1 s at most.
// Errors: [ErrResync]; code no_quorum before the mirror is complete.
func (s *Server) Subscribe(ctx context.Context, prefix string, after *EventID) (*Subscription, error) {
	if prefix != "" {
		if err := validateText("prefix", prefix, 1, MaxLockName); err != nil {
			return nil, err
		}
	}
	if after != nil {
		s.arrived(ctx, after.Revision)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readyLocked(); err != nil {
		return nil, err
	}
	sub := &Subscription{
		server: s, prefix: prefix, last: EventID{Revision: s.mirror.rev, Index: 1 << 30}, gaps: s.events.gaps,
	}
	if after == nil {
		return sub, nil
	}
	if s.lostLocked(*after) || sub.last.before(*after) {
		return nil, ErrResync
	}
	sub.last = *after
	return sub, nil
}

// arrived waits until the mirror is at rev, behindTimeout at most. Unlike reached it
// takes the word of a caller for that revision, and so says nothing of a lag.
func (s *Server) arrived(ctx context.Context, rev int64) {
	_ = s.mirrorShows(ctx, behindTimeout, func() bool { return s.mirror.rev >= rev })
}

// lostLocked reports whether events after id are gone.
func (s *Server) lostLocked(id EventID) bool {
	return id.before(s.events.oldest) || id.before(s.mirror.first)
}

// Last is the id after which Next continues.
func (sub *Subscription) Last() EventID { return sub.last }

// Next blocks until there are events and returns them, oldest first. It returns
// [ErrResync] when the subscriber was too slow, code shutting_down when the
// server ends, and the cause of ctx when that ends.
func (sub *Subscription) Next(ctx context.Context) ([]Event, error) {
	for {
		events, fresh, err := sub.read()
		if err != nil || len(events) > 0 {
			return events, err
		}
		select {
		case <-fresh:
		case <-sub.server.stopping:
			return nil, shuttingDown()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// maxEventsRead bounds what one Next returns, and so how long it holds the mutex.
const maxEventsRead = 1000

func (sub *Subscription) read() ([]Event, <-chan struct{}, error) {
	s := sub.server
	s.mu.Lock()
	defer s.mu.Unlock()
	// Behind a rollback events begin again below the last id.
	if s.lostLocked(sub.last) || sub.gaps != s.events.gaps {
		return nil, nil, ErrResync
	}
	var events []Event
	seq := s.events.after(sub.last)
	for ; seq < s.events.next && len(events) < maxEventsRead; seq++ {
		e := s.events.at(seq)
		sub.last = e.ID
		if strings.HasPrefix(e.Lock, sub.prefix) {
			events = append(events, *e)
		}
	}
	if s.events.fresh == nil {
		s.events.fresh = make(chan struct{})
	}
	return events, s.events.fresh, nil
}

func eventOf(end End) EventKind {
	switch end {
	case Released:
		return EventReleased
	case Expired:
		return EventExpired
	case Broken:
		return EventBroken
	case Cancelled:
		return EventCancelled
	}
	return EventUnknown
}
