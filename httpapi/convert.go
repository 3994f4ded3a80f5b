package httpapi

import (
	"time"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver"
)

// msLeft is the time left in whole milliseconds, rounded down, nil where nobody
// here knows it.
func msLeft(d time.Duration, known bool) *int64 {
	if !known {
		return nil
	}
	ms := max(d, 0).Milliseconds()
	return &ms
}

func wireHold(h *lockserver.Hold) *wire.Hold {
	return &wire.Hold{
		Hold:        h.ID,
		Ref:         h.Ref,
		Lock:        h.Lock,
		Owner:       h.Owner,
		State:       h.State.String(),
		Session:     h.Session,
		Metadata:    h.Metadata,
		Token:       h.Token,
		TTLMS:       h.TTL.Milliseconds(),
		ExpiresInMS: msLeft(h.ExpiresIn, h.ExpiryKnown && h.State == lockserver.Held),
		Position:    h.Position,
		Revision:    h.Revision,
		Previous:    wirePrevious(h.Previous),
		Created:     h.Created.UTC(),
	}
}

func wirePrevious(e *lockserver.Ended) *wire.Previous {
	if e == nil {
		return nil
	}
	p := &wire.Previous{Token: e.Token, Owner: e.Owner, Ref: e.Ref, Ended: e.End.String()}
	if !e.EndedAt.IsZero() {
		at := e.EndedAt.UTC()
		p.EndedAt = &at
	}
	return p
}

func wireSession(s *lockserver.Session) *wire.Session {
	live := s.Live
	if live == nil {
		live = []string{}
	}
	return &wire.Session{
		Session:     s.ID,
		Ref:         s.Ref,
		Owner:       s.Owner,
		TTLMS:       s.TTL.Milliseconds(),
		ExpiresInMS: msLeft(s.ExpiresIn, s.ExpiryKnown),
		Created:     s.Created.UTC(),
		Live:        live,
		Revision:    s.Revision,
	}
}

func wireHolder(h *lockserver.Holder) wire.Holder {
	return wire.Holder{
		Ref:         h.Ref,
		Owner:       h.Owner,
		Token:       h.Token,
		Session:     h.Session,
		Metadata:    h.Metadata,
		TTLMS:       h.TTL.Milliseconds(),
		Since:       h.Since.UTC(),
		ExpiresInMS: msLeft(h.ExpiresIn, h.ExpiryKnown),
	}
}

func wireSummary(s *lockserver.LockSummary) wire.LockSummary {
	out := wire.LockSummary{Lock: s.Name, State: wire.StateFree, Waiters: s.Waiters}
	if s.Holder != nil {
		holder := wireHolder(s.Holder)
		out.State, out.Holder = wire.StateHeld, &holder
	}
	return out
}

func wireLock(l *lockserver.LockInfo) *wire.Lock {
	out := &wire.Lock{
		LockSummary:  wireSummary(&l.LockSummary),
		Queue:        make([]wire.Waiter, len(l.Queue)),
		History:      make([]wire.Ended, len(l.History)),
		HistorySince: l.HistorySince.UTC(),
		Revision:     l.Revision,
	}
	for i, w := range l.Queue {
		out.Queue[i] = wire.Waiter{Position: w.Position, Ref: w.Ref, Owner: w.Owner, Since: w.Since.UTC()}
	}
	for i := range l.History {
		out.History[i] = wireEnded(&l.History[i])
	}
	return out
}

func wireEnded(e *lockserver.Ended) wire.Ended {
	return wire.Ended{
		Ref:     e.Ref,
		Owner:   e.Owner,
		Token:   e.Token,
		Since:   e.Since.UTC(),
		EndedAt: e.EndedAt.UTC(),
		Ended:   e.End.String(),
		Reason:  e.Reason,
	}
}

func wireEvent(e *lockserver.Event) wire.Event {
	return wire.Event{Lock: e.Lock, Ref: e.Ref, Owner: e.Owner, Token: e.Token, Reason: e.Reason, Time: e.Time.UTC()}
}
