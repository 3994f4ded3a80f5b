package lockserver

import "time"

// Observer is told, in numbers, what a server does. A nil function is not called.
// They run on the path of every grant, some with the server's mutex held: they must
// return at once, and must not call the server.
type Observer struct {
	// Event is told each change of a hold that this server saw happen, its own or
	// another server's.
	Event func(EventKind)
	// Queued is told how many holds wait for a lock when one more has queued for it.
	Queued func(waiters int)
	// Granted is told of each request that had to queue and was answered held: how
	// long it waited, and how much of that came after this server had seen the hold
	// before it end.
	Granted func(waited, handOver time.Duration)
	// Committed is told each transaction, how many holds it was about and how long
	// the store took to answer or to fail.
	Committed func(lane Lane, holds int, took time.Duration)
	// Lagged is told of each transaction that was answered how long the mirror took
	// from then to show it.
	Lagged func(time.Duration)
}

// Lane is one of the two ways by which writes go into the store.
type Lane uint8

// The lanes.
const (
	PutLane Lane = iota + 1
	DeleteLane
)

// String returns "put" or "delete".
func (l Lane) String() string {
	return [...]string{"invalid", "put", "delete"}[l]
}

// withDefaults returns o without nil functions.
func (o Observer) withDefaults() Observer {
	if o.Event == nil {
		o.Event = func(EventKind) {}
	}
	if o.Queued == nil {
		o.Queued = func(int) {}
	}
	if o.Granted == nil {
		o.Granted = func(_, _ time.Duration) {}
	}
	if o.Committed == nil {
		o.Committed = func(Lane, int, time.Duration) {}
	}
	if o.Lagged == nil {
		o.Lagged = func(time.Duration) {}
	}
	return o
}
