package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/examples/racelab/internal/ledger"
)

// A moment is one row of a sequence picture and of the table of steps: something
// that a worker did, or that happened to it.
type moment struct {
	At time.Time
	// Lane is 0 for the worker that stalls, A, and 1 for the other, B.
	Lane int
	Kind kind
	// Text is what happened, Store what the database says to it; "" where it is not
	// asked.
	Text, Store string
	// Token is the pill beside the worker; 0 for none.
	Token int64
}

// A kind says how a moment is drawn.
type kind string

const (
	asks    kind = "ask"     // for the lock
	granted kind = "grant"   // the lock
	reads   kind = "read"    // an arrow to the database
	stalls  kind = "stall"   // begins to stand still
	wakes   kind = "wake"    // goes on
	writes  kind = "write"   // an arrow, taken
	again   kind = "double"  // an arrow, taken although it should not
	refused kind = "refused" // an arrow that comes back
)

// tell turns the log of one reward into moments. step is the step that stalled; with
// fencing, the tokens are told too.
func tell(events []ledger.Event, step int, fenced bool) []moment {
	t := teller{step: step, fenced: fenced, seen: make(map[string]bool), stalled: make(map[string]bool)}
	for _, e := range events {
		t.add(e)
	}
	slices.SortStableFunc(t.moments, func(a, b moment) int { return a.At.Compare(b.At) })
	return t.moments
}

type teller struct {
	step     int
	fenced   bool
	highest  int64 // token that the store has seen
	payments int
	seen     map[string]bool // holds
	stalled  map[string]bool // holds that stood still
	moments  []moment
}

func (t *teller) add(e ledger.Event) {
	m := moment{At: e.At, Token: int64(e.Token)}
	if e.Step != t.step {
		m.Lane = 1
	}
	if !t.seen[e.Hold] {
		t.seen[e.Hold] = true
		t.grant(e, m)
	}
	switch e.What {
	case "read":
		t.highest = max(t.highest, m.Token)
		m.Kind, m.Text, m.Store = reads, "is it paid?", t.answer(e)
		t.put(m)
	case "stall":
		m.Kind, m.At, m.Text = stalls, *e.Frozen, "stands still for "+seconds(e.At.Sub(*e.Frozen))
		t.put(m)
		m.Kind, m.At, m.Text = wakes, e.At, "wakes up and notices nothing"
		t.put(m)
		t.stalled[e.Hold] = true
	case "write":
		t.write(e, m)
	case "refused":
		m.Kind, m.Text = refused, "pays "+coins(e.Amount)
		m.Store = fmt.Sprintf("REFUSED: %d is less than %d", e.Token, e.Fence)
		t.put(m)
	}
}

// grant tells of asking where there was a wait, and of the grant.
func (t *teller) grant(e ledger.Event, m moment) {
	const worthTelling = 20 * time.Millisecond
	if e.Granted.Sub(e.Asked) > worthTelling {
		ask := m
		ask.At, ask.Kind, ask.Text, ask.Token = e.Asked, asks, "asks for the lock, waits", 0
		t.put(ask)
	}
	m.At, m.Kind, m.Text = e.Granted, granted, "gets the lock"
	if t.retry(e) {
		m.Text = "asks anew, gets the lock"
	}
	t.put(m)
}

// retry reports whether e belongs to a hold of A that came after its refusal.
func (t *teller) retry(e ledger.Event) bool {
	return e.Step == t.step && slices.ContainsFunc(t.moments, func(m moment) bool { return m.Kind == refused })
}

func (t *teller) answer(e ledger.Event) string {
	say := "not paid"
	if e.Value > 0 {
		say = "paid: nothing to do"
	}
	if t.fenced {
		say += fmt.Sprintf("; highest token: %d", t.highest)
	}
	return say
}

func (t *teller) write(e ledger.Event, m moment) {
	t.payments++
	m.Kind, m.Text, m.Store = writes, "pays "+coins(e.Amount), "paid once"
	if t.payments > 1 {
		m.Kind, m.Store = again, "PAID TWICE"
	}
	t.put(m)
}

func (t *teller) put(m moment) { t.moments = append(t.moments, m) }

func coins(n int64) string { return thousands(n) + " coins" }

func thousands(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
