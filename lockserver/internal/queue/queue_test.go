package queue_test

import (
	"fmt"
	"sort"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fenced/fenced/lockserver/internal/queue"
)

func ref(n int) queue.Ref {
	return queue.Ref{byte(n >> 8), byte(n)}
}

func put(n int, lock string, rev int64) queue.Op {
	return queue.Op{Put: &queue.Hold{Ref: ref(n), Lock: lock, Rev: rev, Token: rev}}
}

func del(n int) queue.Op { return queue.Op{Ref: ref(n)} }

func show(changes []queue.Change) string {
	text := ""
	for _, c := range changes {
		text += fmt.Sprintf("%s%d ", [...]string{"", "queued", "granted", "ended"}[c.Kind], c.Hold.Rev)
	}
	return text
}

func TestTable_Apply(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		ops  [][]queue.Op
		want string // changes of the last revision
	}{
		{"the first of a lock is granted at once", [][]queue.Op{{put(1, "a", 1)}}, "granted1 "},
		{"the second waits", [][]queue.Op{{put(1, "a", 1)}, {put(2, "a", 2)}}, "queued2 "},
		{"the end of the head grants the next", [][]queue.Op{{put(1, "a", 1)}, {put(2, "a", 2)}, {del(1)}}, "ended1 granted2 "},
		{"the end of a waiter grants nobody", [][]queue.Op{{put(1, "a", 1)}, {put(2, "a", 2)}, {del(2)}}, "ended2 "},
		{"head and next end in one revision", [][]queue.Op{{put(1, "a", 1)}, {put(2, "a", 2)}, {put(3, "a", 3)}, {del(1), del(2)}}, "ended1 ended2 granted3 "},
		{"release and put in one revision", [][]queue.Op{{put(1, "a", 1)}, {put(2, "a", 2), del(1)}}, "ended1 granted2 "},
		{"put and delete of one key in one revision", [][]queue.Op{{put(1, "a", 1), del(1)}}, "queued1 ended1 "},
		{"a second put of a key changes nothing (R1)", [][]queue.Op{{put(1, "a", 1)}, {put(2, "a", 2)}, {put(1, "a", 3)}}, ""},
		{"a delete of nothing changes nothing", [][]queue.Op{{del(7)}}, ""},
		{"R3: keys of one lock in one revision are ordered by ref on every server", [][]queue.Op{{put(2, "a", 5), put(1, "a", 5)}, {del(1)}}, "ended5 granted5 "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			table := queue.NewTable()
			got := ""
			for _, revision := range tt.ops {
				got = show(table.Apply(revision))
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestTable_Model compares the table with the plainest model there is: a sorted
// slice of live holds.
func TestTable_Model(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table := queue.NewTable()
		model := map[int]queue.Op{}
		granted := map[string]int64{}
		for rev := int64(1); rev <= int64(rapid.IntRange(1, 60).Draw(t, "revisions")); rev++ {
			ops := drawRevision(t, rev)
			for _, op := range ops {
				applyToModel(model, op)
			}
			for _, c := range table.Apply(ops) {
				if c.Kind != queue.Granted {
					continue
				}
				if c.Hold.Token <= granted[c.Hold.Lock] {
					t.Fatalf("token %d of %q granted after %d", c.Hold.Token, c.Hold.Lock, granted[c.Hold.Lock])
				}
				granted[c.Hold.Lock] = c.Hold.Token
			}
			compare(t, table, model)
		}
	})
}

// drawRevision never puts two holds of one lock into one revision, as the batcher
// never does (R3).
func drawRevision(t *rapid.T, rev int64) []queue.Op {
	var ops []queue.Op
	locks := map[string]bool{}
	for range rapid.IntRange(1, 4).Draw(t, "ops") {
		n := rapid.IntRange(0, 20).Draw(t, "n")
		lock := rapid.SampledFrom([]string{"a", "a/b", "b"}).Draw(t, "lock")
		if rapid.Bool().Draw(t, "put") && !locks[lock] {
			locks[lock] = true
			ops = append(ops, put(n, lock, rev))
		} else {
			ops = append(ops, del(n))
		}
	}
	return ops
}

func applyToModel(model map[int]queue.Op, op queue.Op) {
	if op.Put == nil {
		delete(model, int(op.Ref[0])<<8|int(op.Ref[1]))
		return
	}
	n := int(op.Put.Ref[0])<<8 | int(op.Put.Ref[1])
	if _, there := model[n]; !there {
		model[n] = op
	}
}

func compare(t *rapid.T, table *queue.Table, model map[int]queue.Op) {
	lines := map[string][]int64{}
	for _, op := range model {
		lines[op.Put.Lock] = append(lines[op.Put.Lock], op.Put.Rev)
	}
	for _, lock := range []string{"a", "a/b", "b"} {
		want := lines[lock]
		sort.Slice(want, func(i, j int) bool { return want[i] < want[j] })
		var got []int64
		for h := table.Head(lock); h != nil; h = h.Next() {
			if table.Position(h) != len(got) {
				t.Fatalf("position %d of hold %d", table.Position(h), len(got))
			}
			got = append(got, h.Rev)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("lock %q: got %v, want %v", lock, got, want)
		}
		if len(want) > 0 && table.Waiters(lock) != len(want)-1 {
			t.Fatalf("waiters %d of %d holds", table.Waiters(lock), len(want))
		}
	}
	if table.Holds() != len(model) || table.Locks() != len(lines) || table.Queued() != len(model)-len(lines) {
		t.Fatalf("counts %d/%d/%d, want %d/%d", table.Holds(), table.Locks(), table.Queued(), len(model), len(lines))
	}
	var names []string
	table.Names("", func(name string) bool { names = append(names, name); return true })
	if len(names) != len(lines) || !sort.StringsAreSorted(names) {
		t.Fatalf("names %v of %d locks", names, len(lines))
	}
}

func TestPlace_Due(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	s := time.Second
	tests := []struct {
		name  string
		place queue.Place
		want  queue.Action
		when  time.Time
	}{
		{"a hold that nobody asked about", queue.Place{}, queue.None, time.Time{}},
		{"an answered hold before its deadline", queue.Place{Answered: true, Deadline: now.Add(s)}, queue.None, now.Add(s)},
		{"an answered hold at its deadline", queue.Place{Answered: true, Deadline: now}, queue.Expire, now},
		{"a waiter whose lease is fresh", queue.Place{Asking: 1, Renewed: now, LeaseTTL: 30 * s}, queue.None, now.Add(10 * s)},
		{"a waiter whose lease is old", queue.Place{Asking: 1, Renewed: now.Add(-11 * s), LeaseTTL: 30 * s}, queue.Renew, now},
		{"a place kept for a while renews first", queue.Place{Lapses: now.Add(15 * s), Renewed: now.Add(-3 * s), LeaseTTL: 9 * s}, queue.Renew, now},
		{"a hold in a cluster, which another server may have renewed", queue.Place{Answered: true, Deadline: now, Elsewhere: true}, queue.None, now.Add(s)},
		{"a waiter in a cluster shows that it is there", queue.Place{Asking: 1, Renewed: now, LeaseTTL: 30 * s, Elsewhere: true}, queue.None, now.Add(5 * s)},
		{"and with a short lease in a third of it", queue.Place{Asking: 1, Renewed: now, LeaseTTL: 6 * s, Elsewhere: true}, queue.None, now.Add(2 * s)},
		{"a kept place in a cluster is renewed until its lapse", queue.Place{Lapses: now.Add(6 * s), Renewed: now, LeaseTTL: 30 * s, Elsewhere: true}, queue.None, now.Add(5 * s)},
		{"then other servers have their time to renew it", queue.Place{Lapses: now, Renewed: now.Add(-4 * s), LeaseTTL: 30 * s, Elsewhere: true}, queue.None, now.Add(4 * s)},
		{"and after it, it lapses", queue.Place{Lapses: now.Add(-4 * s), Renewed: now.Add(-8 * s), LeaseTTL: 30 * s, Elsewhere: true}, queue.Lapse, now},
		{"a place in a session of a cluster is the session's", queue.Place{Shared: true, Lapses: now.Add(-s), Elsewhere: true}, queue.None, time.Time{}},
		{"a place at its lapse", queue.Place{Lapses: now, Renewed: now.Add(-s), LeaseTTL: 30 * s}, queue.Lapse, now},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, when := tt.place.Due(now)
			if got != tt.want || !when.Equal(tt.when) {
				t.Errorf("got %v at %v, want %v at %v", got, when, tt.want, tt.when)
			}
		})
	}
}

func TestPlace_ConfirmIsNeverLateOrShort(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base := time.Unix(0, 0)
		var p queue.Place
		now := base
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			sent := now.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "idle")) * time.Millisecond)
			now = sent.Add(time.Duration(rapid.IntRange(0, 150).Draw(t, "latency")) * time.Millisecond)
			before := p
			ok := p.Confirm(sent, now, 100*time.Millisecond)
			if ok && before.Answered && !now.Before(before.Deadline) {
				t.Fatal("R9: an answer after the old deadline extended it")
			}
			if ok && (!now.Before(p.Deadline) || p.Deadline != sent.Add(100*time.Millisecond)) {
				t.Fatal("a deadline must count from the sending and lie ahead")
			}
			if !ok && p != before {
				t.Fatal("a refused confirmation changed the place")
			}
		}
	})
}

// TestPlace_LeaveKeepsAnOpenRequest pins that the end of one request does not
// count while another is bound to the hold.
func TestPlace_LeaveKeepsAnOpenRequest(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	p := queue.Place{Renewed: now, LeaseTTL: 30 * time.Second}
	p.Ask()
	p.Ask()
	p.Leave(now)
	if !p.Lapses.IsZero() {
		t.Fatal("the place lapses although a request is open")
	}
	p.Leave(now.Add(time.Second))
	if got, _ := p.Due(now.Add(time.Second)); got != queue.Lapse {
		t.Fatalf("got %v, want Lapse", got)
	}
	p.Ask()
	if got, _ := p.Due(now.Add(time.Second)); got != queue.None {
		t.Fatalf("got %v after a new request, want None", got)
	}
}

// TestPlace_AnAskedPlaceIsNeverSilent plays two servers with one lease: where somebody
// asks at one of them, the other never finds, when its place is to lapse, that nobody
// else has renewed it, though the store tells whole seconds, rounded down.
func TestPlace_AnAskedPlaceIsNeverSilent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ms := func(low, high int, what string) time.Duration {
			return time.Duration(rapid.IntRange(low, high).Draw(t, what)) * time.Millisecond
		}
		begin := time.Unix(1000, 0)
		ttl := time.Duration(rapid.IntRange(6, 3605).Draw(t, "lease")) * time.Second
		left := queue.Place{Elsewhere: true, LeaseTTL: ttl, Renewed: begin, Lapses: begin.Add(15 * time.Second)}
		asked := queue.Place{Elsewhere: true, LeaseTTL: ttl, Asking: 1}
		last, since := begin, begin.Add(ms(0, 14_000, "since"))
		late, slow, own := ms(1, 300, "late"), ms(0, 300, "latency"), ms(0, 300, "own latency")
		for now := begin; ; now = now.Add(late) {
			if a, _ := asked.Due(now); a == queue.Renew && now.After(since) {
				asked.Renewed = now
				last = now.Add(slow)
			}
			switch a, _ := left.Due(now); a {
			case queue.Renew:
				left.Renewed = now
				last = now.Add(own)
			case queue.Lapse:
				told := last.Add(-ms(0, 999, "rounding"))
				if !left.AskedElsewhere(told) {
					t.Fatalf("at %v: renewed there at %v, here at %v, and the store tells %v",
						now.Sub(begin), asked.Renewed.Sub(begin), left.Renewed.Sub(begin), told.Sub(begin))
				}
				return
			}
		}
	})
}
