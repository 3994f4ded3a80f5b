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
	// Elsewhere says that other servers share the store: a request that is not open
	// here may be open there.
	Elsewhere bool
	// Asking counts the requests that are open on the hold here.
	Asking int
	// Answered is set once an answer said held.
	Answered bool
	// Deadline is when an answered hold ends: the sending of the last confirmed
	// renewal plus the TTL.
	Deadline time.Time
	// Lapses is when a hold that is not answered and that nobody asks for gives
	// its place up; zero while somebody asks.
	Lapses time.Time
	// Renewed is the sending of the last confirmed keep-alive; LeaseTTL is what it
	// brought.
	Renewed  time.Time
	LeaseTTL time.Duration
}

const (
	// Grace is how long after its deadline a hold is ended where another server may
	// have renewed it.
	Grace = time.Second
	// askedEvery is how often at least a place that is asked for is renewed where
	// others watch, so that they notice.
	askedEvery = 5 * time.Second
	// unasked is how much longer than that they look: the store tells the time of a
	// renewal to the second, and knows of it later than who sent it.
	unasked = 3 * time.Second
)

// Due returns what is to be done at now, or None and when to look again; the zero
// time means never.
//
// Where other servers share the store, a place that nobody asks for here lapses only
// when it has not been renewed here for so long that any server where somebody asks
// would have: what is to be done then, the store must be asked. One with a session's
// lease, whose renewals tell nothing of the place, never lapses.
func (p *Place) Due(now time.Time) (Action, time.Time) {
	if p.Shared && (p.Answered || p.Asking > 0 || p.Elsewhere) {
		return None, time.Time{}
	}
	if p.Answered {
		return at(Expire, p.Deadline.Add(p.grace()), now)
	}
	if p.Asking == 0 && p.Lapses.IsZero() {
		return None, time.Time{}
	}
	renew := p.Renewed.Add(p.interval())
	if !p.Shared && (p.Asking > 0 || renew.Before(p.Lapses)) {
		return at(Renew, renew, now)
	}
	if silent := renew.Add(unasked); p.Elsewhere && silent.After(p.Lapses) {
		return at(Lapse, silent, now)
	}
	return at(Lapse, p.Lapses, now)
}

// interval is the time between two renewals of a place.
func (p *Place) interval() time.Duration {
	if p.Elsewhere {
		return min(p.LeaseTTL/3, askedEvery)
	}
	return p.LeaseTTL / 3
}

func (p *Place) grace() time.Duration {
	if p.Elsewhere {
		return Grace
	}
	return 0
}

// AskedElsewhere tells whether a renewal, which the store knows to be no older than
// renewed, was another server's: there the place is asked for.
func (p *Place) AskedElsewhere(renewed time.Time) bool {
	return renewed.After(p.Renewed.Add(time.Second))
}

// Forget leaves the place to the other servers and to its lease.
func (p *Place) Forget() { p.Lapses = time.Time{} }

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
