package sdktest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/tokens"
)

const (
	placeTimeout = 15 * time.Second
	maxHolds     = 1000 // a session
)

// table is the state of the fake. The server's mutex guards it.
type table struct {
	revision int64
	queues   map[string][]*hold // live holds of a lock, in the order of their tokens
	holds    map[string]*hold   // by id, also ended ones
	sessions map[string]*session
	history  map[string][]wire.Ended
	base     int64 // what is added to a revision to make a token
	log      eventLog
	started  time.Time
}

type hold struct {
	id, ref, key, lock, owner string
	metadata                  map[string]string
	ttl                       time.Duration
	session                   *session
	token                     tokens.Token
	previous                  *wire.Previous
	created                   time.Time

	held    bool // answered to somebody as held
	asking  int  // open requests
	until   time.Time
	timer   *time.Timer // expiry or lapse of the place
	ended   string      // how, or ""
	changed chan struct{}
}

type session struct {
	id, ref, owner string
	ttl            time.Duration
	created, until time.Time
	timer          *time.Timer
	ended          string
	changed        chan struct{} // closed when it or its holds change
}

func newTable() table {
	return table{
		revision: 1,
		queues:   make(map[string][]*hold),
		holds:    make(map[string]*hold),
		sessions: make(map[string]*session),
		history:  make(map[string][]wire.Ended),
		started:  time.Now(),
		log:      eventLog{fresh: make(chan struct{})},
	}
}

var idText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

func newID() string {
	var raw [16]byte
	rand.Read(raw[:])
	return idText.EncodeToString(raw[:])
}

// keyedID maps every repeat of an attempt to one hold.
func keyedID(lock, key string) string {
	sum := sha256.Sum256([]byte(lock + "\x00" + strings.ToLower(strings.ReplaceAll(key, "-", ""))))
	return idText.EncodeToString(sum[:16])
}

func refOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return idText.EncodeToString(sum[:16])
}

// put appends a new hold to the queue of its lock.
func (t *table) put(h *hold) {
	t.revision++
	h.ref, h.token, h.created, h.changed = refOf(h.id), tokens.Token(t.base+t.revision), time.Now(), make(chan struct{})
	t.holds[h.id] = h
	t.queues[h.lock] = append(t.queues[h.lock], h)
	if t.isHead(h) {
		t.emit(wire.EventGranted, h, h.token, "")
	} else {
		t.emit(wire.EventQueued, h, 0, "")
	}
	t.touch(h.session)
}

func (t *table) isHead(h *hold) bool {
	q := t.queues[h.lock]
	return len(q) > 0 && q[0] == h
}

// holder returns the hold that has lock, nil where it is free or not claimed yet.
func (t *table) holder(lock string) *hold {
	if q := t.queues[lock]; len(q) > 0 && q[0].held {
		return q[0]
	}
	return nil
}

// sessionHolds returns the live holds of ses.
func (t *table) sessionHolds(ses *session) []*hold {
	var all []*hold
	for _, q := range t.queues {
		for _, h := range q {
			if h.session == ses {
				all = append(all, h)
			}
		}
	}
	return all
}

// end takes h out of its queue and wakes who waits for it and who is next.
func (t *table) end(h *hold, how, reason string) {
	if h.ended != "" {
		return
	}
	t.revision++
	h.ended = how
	head, token := t.isHead(h), tokens.Token(0)
	if head {
		token = h.token
	}
	stop(h.timer)
	q := slices.DeleteFunc(t.queues[h.lock], func(o *hold) bool { return o == h })
	t.queues[h.lock] = q
	if len(q) == 0 {
		delete(t.queues, h.lock)
	}
	if h.held {
		now := time.Now()
		t.history[h.lock] = append(t.history[h.lock], wire.Ended{Ref: h.ref, Owner: h.owner, Token: h.token,
			Since: h.created, EndedAt: now, Ended: how, Reason: reason})
	}
	t.emit(how, h, token, reason)
	if head && len(q) > 0 {
		t.emit(wire.EventGranted, q[0], q[0].token, "")
	}
	t.touch(h.session)
	close(h.changed)
	h.changed = make(chan struct{})
	if len(q) > 0 {
		close(q[0].changed)
		q[0].changed = make(chan struct{})
	}
}

func (t *table) endSession(ses *session, how string) {
	if ses.ended != "" {
		return
	}
	ses.ended = how
	stop(ses.timer)
	t.touch(ses)
	for _, h := range t.sessionHolds(ses) {
		t.end(h, how, "")
	}
}

// touch wakes who waits for a change of ses, which may be nil.
func (t *table) touch(ses *session) {
	if ses != nil {
		close(ses.changed)
		ses.changed = make(chan struct{})
	}
}

// previousOf tells how the last held hold of lock ended.
func (t *table) previousOf(lock string) *wire.Previous {
	past := t.history[lock]
	if len(past) == 0 {
		return nil
	}
	e := past[len(past)-1]
	return &wire.Previous{Token: e.Token, Owner: e.Owner, Ref: e.Ref, Ended: e.Ended, EndedAt: &e.EndedAt}
}

func (t *table) stopTimers() {
	for _, h := range t.holds {
		stop(h.timer)
	}
	for _, ses := range t.sessions {
		stop(ses.timer)
	}
}

func stop(timer *time.Timer) {
	if timer != nil {
		timer.Stop()
	}
}
