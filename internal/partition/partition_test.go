//go:build linux

package partition_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/wire"
)

// patience bounds a test that takes half a minute.
const patience = 3 * time.Minute

// TestPartition_TheMinorityGrantsNothingAndTheMajorityGoesOn cuts off the machine of
// the leader, and then one of a follower, each with a holder on it:
//
//   - a call that began on the minority side after the cut is never granted,
//   - the holder there is told "lost" before its successor is granted on the other side,
//   - the majority goes on, and
//   - when the cut is healed, the tokens that the minority side gets are above all.
func TestPartition_TheMinorityGrantsNothingAndTheMajorityGoesOn(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	w := newNetwork(t, ctx, 3)
	w.cluster()
	leader := w.leader()
	highest := w.cutOff(leader, "the leader", 0)
	w.cutOff(w.others(w.leader())[0], "a follower", highest)
}

// cutOff plays the whole with one machine and returns the highest token it saw.
func (w *network) cutOff(lost *machine, who string, above int64) (highest int64) {
	t := w.t
	t.Helper()
	far := w.others(lost)[0]
	lock := "cut off: " + who
	held := func(e event) bool { return e.What == "held" }
	holder := lost.act("hold", lost.urls(), lock)
	first := holder.wait("the holder has the lock", held)
	if first.Token <= above {
		t.Errorf("%s: token %d after %d", who, first.Token, above)
	}
	minority := lost.act("try", lost.url(), "free on the minority side of "+who)
	majority := far.act("try", far.url(), "free on the majority side of "+who)
	minority.wait("a grant before the cut", held)
	successor := far.act("hold", far.urls(), lock)
	far.queued()

	lost.cut()
	cut := time.Now()
	next := successor.wait("the majority grants the lock to the next", held)
	told := holder.wait("the holder is told", func(e event) bool { return e.What == "lost" })
	if told.Text != "true" || !told.At.Before(next.At) {
		t.Errorf("%s: the holder was told at %v that it has lost the lock (%s), its successor was granted at %v", who, told.At, told.Text, next.At)
	}
	if next.Token <= first.Token {
		t.Errorf("%s: token %d after %d", who, next.Token, first.Token)
	}
	goesOn := majority.wait("the majority goes on", func(e event) bool { return held(e) && e.Began.After(next.At) })
	minority.wait("a refusal on the minority side", func(e event) bool { return e.What == "refused" && e.Began.After(next.At) })
	healed := time.Now()
	lost.heal()
	lost.ready()
	again := minority.wait("the minority side is served again", func(e event) bool { return held(e) && e.Began.After(healed) })
	for _, e := range minority.all() {
		if held(e) && e.Began.After(cut) && e.At.Before(healed) {
			t.Errorf("%s: a server that was cut off has granted: %+v", who, e)
		}
	}
	// Tokens of different locks cannot be compared by callers, but all come from one
	// log: what is granted after the healing comes after all that was granted before.
	if again.Token <= goesOn.Token || again.Token <= next.Token {
		t.Errorf("%s: after the healing token %d was granted; %d and %d were before", who, again.Token, goesOn.Token, next.Token)
	}
	t.Logf("%s was cut off: its holder was told %v before the next grant; %d tries were refused there",
		who, next.At.Sub(told.At).Round(time.Millisecond), refusals(minority))
	return again.Token
}

func refusals(p *process) (n int) {
	for _, e := range p.all() {
		if e.What == "refused" {
			n++
		}
	}
	return n
}

// get asks a server, from its own machine, for a path of its API.
func (m *machine) get(path string, into any) {
	m.net.t.Helper()
	out, err := m.command(m.net.ctx, "curl", "-sf", "-m", "5", m.url()+path).Output()
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		m.net.t.Fatalf("%s%s: %v", m.url(), path, err)
	}
}

// leader returns the machine whose server leads.
func (w *network) leader() *machine {
	w.t.Helper()
	for w.ctx.Err() == nil {
		for _, m := range w.machines {
			var st wire.Status
			if m.get("/v1/status", &st); st.Leads {
				return m
			}
		}
	}
	w.t.Fatal("nobody leads")
	return nil
}

// queued waits until the machine's server sees a hold that waits.
func (m *machine) queued() {
	m.net.t.Helper()
	for m.net.ctx.Err() == nil {
		var st wire.Status
		if m.get("/v1/status", &st); st.Waiters > 0 {
			return
		}
	}
	m.net.t.Fatal("nobody waits")
}
