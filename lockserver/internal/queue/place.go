package queue

import "time"

// Action is what a [Place] needs done.
type Action uint8

// The actions. None means that nothing is due before the time that comes with it.
const (
	None   Action = iota
	Renew         // keep the lease alive: somebody waits on this place
	Lapse         // nobody asks for it any more: delete it as cancelled
	Expire        // the holder did not renew in time: delete it as expired
)

// Place is what one server knows of a live hold beyond the store: who asks for
// it, and until when it may stand. The zero Place is a hold that nobody asked
// about here; nothing is ever due for it, its lease in the store ends it.
type Place struct {
	// Shared says that the lease is a session's, which renews and ends it.
	Shared bool
	// Asking counts the requests that are open on the hold here.
	Asking int
	// Answered is set once an answer said held.
	Answered bool
	// Deadline is when an answered hold ends: the sending of the last confirmed
	// renewal plus the TTL.
	Deadline time.Time
	// Grace is how long after the deadline the hold is ended: where several servers
	// share the store, another may have renewed it.
	Grace time.Duration
	// Lapses is when a hold that is not answered and that nobody asks for gives
	// its place up; zero while somebody asks.
	Lapses time.Time
	// Renewed is the sending of the last confirmed keep-alive; LeaseTTL is what it
	// brought.
	Renewed  time.Time
	LeaseTTL time.Duration
}

// Due returns what is to be done at now, or None and when to look again; the zero
// time means never.
func (p *Place) Due(now time.Time) (Action, time.Time) {
	if p.Shared && (p.Answered || p.Asking > 0) {
		return None, time.Time{}
	}
	if p.Answered {
		return at(Expire, p.Deadline.Add(p.Grace), now)
	}
	if p.Asking == 0 && p.Lapses.IsZero() {
		return None, time.Time{}
	}
	renew := p.Renewed.Add(p.LeaseTTL / 3)
	if !p.Shared && (p.Asking > 0 || renew.Before(p.Lapses)) {
		return at(Renew, renew, now)
	}
	return at(Lapse, p.Lapses, now)
}

func at(a Action, when, now time.Time) (Action, time.Time) {
	if now.Before(when) {
		return None, when
	}
	return a, now
}

// Ask counts a request in, so that the place stands.
func (p *Place) Ask() {
	p.Asking++
	p.Lapses = time.Time{}
}

// Leave counts a request out. When it was the last and no answer said held, the
// place stands until lapses.
func (p *Place) Leave(lapses time.Time) {
	p.Asking--
	if p.Asking == 0 && !p.Answered {
		p.Lapses = lapses
	}
}

// Confirm records that a grant or renewal sent at sent was confirmed, and reports
// false where it came too late to prove anything: after the deadline that it was
// to extend.
func (p *Place) Confirm(sent, now time.Time, ttl time.Duration) bool {
	if p.Answered && !p.Shared && !now.Before(p.Deadline) {
		return false
	}
	deadline := sent.Add(ttl)
	if !now.Before(deadline) {
		return false
	}
	p.Answered, p.Deadline, p.Lapses = true, deadline, time.Time{}
	return true
}
