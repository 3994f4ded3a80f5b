package lockserver

import (
	"time"

	"github.com/fenced/fenced/tokens"
)

// Bounds that hold for every server.
const (
	DefaultTTL = 15 * time.Second
	MinTTL     = time.Second
	// MaxTTL is the default of [Config.MaxTTL] and the most it may be.
	MaxTTL = time.Hour
	// MaxWait bounds one request; callers ask again and keep their place.
	MaxWait = 30 * time.Second
	// PlaceTimeout is how long a queued hold with an idempotency key keeps its
	// place after its last request ended.
	PlaceTimeout = 15 * time.Second

	MaxLockName        = 512  // bytes
	MaxOwner           = 128  // bytes
	MaxMetadata        = 16   // entries
	MaxMetadataBytes   = 1024 // keys and values together
	MaxHoldsPerSession = 1000
	MaxReason          = 256 // bytes
	MaxLocksPerPage    = 1000
)

// State is where a live hold stands.
type State uint8

// The states of a live hold.
const (
	Queued State = iota + 1
	Held
)

// String returns the wire name.
func (s State) String() string {
	switch s {
	case Queued:
		return "queued"
	case Held:
		return "held"
	}
	return "invalid"
}

// End is how a hold ended.
type End uint8

// The ways a hold ends. EndUnknown is a key that vanished unseen: treat it like
// the crash of its owner.
const (
	NotEnded End = iota
	Released
	Expired
	Broken
	Cancelled
	EndUnknown
)

// String returns the wire name, "" for NotEnded.
func (e End) String() string {
	return [...]string{"", "released", "expired", "broken", "cancelled", "unknown"}[e]
}

// AcquireRequest asks for one hold.
type AcquireRequest struct {
	// Lock is the lock's name: 1 to [MaxLockName] bytes of UTF-8 in NFC, without
	// control, format, surrogate, private-use, unassigned or separator characters
	// of lines and paragraphs.
	Lock string
	// Owner names the worker for people: 1 to [MaxOwner] bytes.
	Owner string
	// TTL is [MinTTL] to the server's maximum, in whole milliseconds. 0 means
	// [DefaultTTL], or the session's TTL where Session is set; a hold of a session
	// can have no other TTL than the session's.
	TTL time.Duration
	// Wait is how long this request may queue, 0 to [MaxWait]. 0 tries once and
	// leaves nothing behind.
	Wait time.Duration
	// KeepPlace answers with a queued hold when Wait is over, instead of giving
	// the place up. It needs IdempotencyKey.
	KeepPlace bool
	// Session is the secret id of the session whose lease the hold shares, or "".
	Session string
	// Metadata is shown to people: at most [MaxMetadata] entries.
	Metadata map[string]string
	// IdempotencyKey names this attempt: a UUID or 32 hex digits, or "". A repeat
	// with the same key and lock finds the same hold.
	IdempotencyKey string
}

// Hold is the state of one live hold at Revision.
type Hold struct {
	ID       string // secret: the capability to renew and release
	Ref      string
	Lock     string
	Owner    string
	Session  string // ref, or ""
	Metadata map[string]string
	State    State
	Token    tokens.Token // 0 while queued
	TTL      time.Duration
	// ExpiresIn is the time left, counted from the sending of the last confirmed
	// renewal; valid only where ExpiryKnown is set.
	ExpiresIn   time.Duration
	ExpiryKnown bool
	Position    int // 1 is next in line; 0 when held
	// Previous is how the hold before this one ended; nil where there was none.
	Previous *Ended
	Created  time.Time
	Revision int64
	// Replayed is set where an idempotency key found a hold that was there.
	Replayed bool
}

// Ended is a hold that is over. Where nobody remembers it, only End is set, to
// [EndUnknown].
type Ended struct {
	Ref     string
	Lock    string
	Owner   string
	Token   tokens.Token
	Since   time.Time // of its grant, as in [Holder]
	EndedAt time.Time
	End     End
	By      string // who broke it
	Reason  string // why it was broken
}

// Holder is the public side of a held hold.
type Holder struct {
	Ref      string
	Owner    string
	Token    tokens.Token
	Session  string // ref, or ""
	Metadata map[string]string
	TTL      time.Duration
	// Since is when this server saw the grant, or when the hold was asked for where
	// it did not.
	Since       time.Time
	ExpiresIn   time.Duration
	ExpiryKnown bool
}

// Waiter is one place in a lock's queue; Position 1 is next.
type Waiter struct {
	Position int
	Ref      string
	Owner    string
	Since    time.Time
}

// LockSummary is one lock: its holder, nil when free, and how many wait.
type LockSummary struct {
	Name    string
	Holder  *Holder
	Waiters int
}

// LockInfo is all that a server knows of one lock.
type LockInfo struct {
	LockSummary
	// Queue has the first [MaxQueueShown] waiters.
	Queue []Waiter
	// History has the last grants that ended, newest first.
	History []Ended
	// HistorySince is how far this server's memory of ended holds reaches.
	HistorySince time.Time
	Revision     int64
}

// MaxQueueShown and MaxHistoryShown bound a [LockInfo].
const (
	MaxQueueShown   = 1000
	MaxHistoryShown = 100
)

// LocksQuery asks for one page of locks in name order.
type LocksQuery struct {
	// Prefix keeps locks whose names start with it; a filter for people, never a
	// namespace.
	Prefix string
	// After is the name after which the page starts; "" is the first page.
	After string
	// Limit is 1 to [MaxLocksPerPage]; 0 means 100.
	Limit int
}

// LockPage is one page of locks. More says that another follows the last one.
type LockPage struct {
	Locks    []LockSummary
	More     bool
	Revision int64
}

// Pair is a token that somebody presents for a lock.
type Pair struct {
	Lock  string
	Token tokens.Token
}

// Verdict is what a server can say of a [Pair] at one moment.
type Verdict uint8

// The verdicts. Valid is the live holder's token; Stale is lower than the newest
// grant's; EndedVerdict is the newest grant's, whose hold is over; UnknownVerdict
// is one that this server cannot place.
const (
	Valid Verdict = iota + 1
	Stale
	EndedVerdict
	UnknownVerdict
)

// String returns the wire name.
func (v Verdict) String() string {
	return [...]string{"invalid", "valid", "stale", "ended", "unknown"}[v]
}

// CheckResult is the verdict on one pair. Current is the newest token of the
// lock, 0 where not known.
type CheckResult struct {
	Pair
	Verdict Verdict
	Current tokens.Token
}

// BreakRequest ends a live hold against its owner's will.
type BreakRequest struct {
	Lock   string
	Token  tokens.Token // the token seen, so that a newcomer is never hit
	Reason string       // 1 to MaxReason bytes
	By     string       // who, for the record
}

// Session is the state of one session at Revision.
type Session struct {
	ID        string // secret; empty in lists
	Ref       string
	Owner     string
	TTL       time.Duration
	ExpiresIn time.Duration
	// ExpiryKnown is false on servers that neither made nor renewed the session.
	ExpiryKnown bool
	Created     time.Time
	Live        []string // refs of its holds, in no particular order
	Revision    int64
}

// Status describes one server.
type Status struct {
	Name         string
	Cluster      string
	Revision     int64 // of the mirror
	Base         int64
	Highest      tokens.Token  // highest token that could have been issued
	Lag          time.Duration // how long the oldest answer has waited for the mirror
	Holds        int
	Waiters      int
	Locks        int
	Sessions     int
	Floor        FloorState
	HistorySince time.Time
	Started      time.Time
	BadKeys      int // keys under the prefix that do not parse
	Differences  int // audits that found the mirror unlike the store
}

// FloorState tells whether an issued-token file protects this server from a store
// that was rolled back.
type FloorState uint8

// The floor states.
const (
	Unprotected FloorState = iota
	Protected
	Closed // granting is closed until the floor is raised
)

// String returns the wire name.
func (f FloorState) String() string {
	return [...]string{"unprotected", "protected", "closed"}[f]
}

// EventKind says what happened to a hold.
type EventKind uint8

// The kinds of events.
const (
	EventQueued EventKind = iota + 1
	EventGranted
	EventReleased
	EventExpired
	EventBroken
	EventCancelled
	EventUnknown
)

// String returns the wire name.
func (k EventKind) String() string {
	return [...]string{"invalid", "queued", "granted", "released", "expired", "broken", "cancelled", "unknown"}[k]
}

// EventID orders events; it is equal on all servers.
type EventID struct {
	Revision int64
	Index    int
}

// Event is one change of one hold.
type Event struct {
	ID    EventID
	Kind  EventKind
	Lock  string
	Ref   string
	Owner string
	// Token is 0 for a hold that was never granted.
	Token  tokens.Token
	Reason string
	Time   time.Time // this server's clock; for people
}
