package queue

import (
	"bytes"
	"time"

	"github.com/google/btree"
)

// Ref is the public name of a hold or session: 128 bits of a digest.
type Ref [16]byte

// Hold is one live key of the store. All fields but the links are set before it
// goes into a [Table] and never change afterwards.
type Hold struct {
	Ref      Ref
	Lock     string
	Owner    string
	Metadata map[string]string
	Session  Ref // zero without a session
	TTL      time.Duration
	Server   string // the server that put it
	Created  time.Time
	Lease    int64
	Rev      int64 // create revision: its place in the queue
	Token    int64 // base + Rev
	// Since is when the caller saw the hold become the holder; the table neither
	// reads nor writes it.
	Since time.Time

	line       *line
	prev, next *Hold
}

// line is the queue of one lock: a list, because keys arrive in revision order
// and leave from anywhere.
type line struct {
	name        string
	first, last *Hold
	size        int
}

// Kind says what a revision did to a hold.
type Kind uint8

// The kinds of changes. A hold that is put at the head of its lock is Granted at
// once and never Queued.
const (
	Queued Kind = iota + 1
	Granted
	Ended
)

// Change is one decision. Head says of an ended hold whether it had been granted.
type Change struct {
	Kind Kind
	Hold *Hold
	Head bool
}

// Op is one event of the store on a hold's key: a put where Put is set, else the
// delete of Ref.
type Op struct {
	Put *Hold
	Ref Ref
}

// Table is the set of live holds. The zero value is not usable; call [NewTable].
type Table struct {
	holds map[Ref]*Hold
	lines map[string]*line
	names *btree.BTreeG[string]
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{
		holds: make(map[Ref]*Hold),
		lines: make(map[string]*line),
		names: btree.NewOrderedG[string](32),
	}
}

// Apply takes all events of one revision as a unit and returns what they changed:
// first queued and ended holds in event order, then the grants. A put of a key
// that is there, or a delete of one that is not, changes nothing.
func (t *Table) Apply(ops []Op) []Change {
	var changes []Change
	var touched []*line
	before := make(map[*line]*Hold, 1)
	touch := func(l *line) {
		if _, seen := before[l]; !seen {
			before[l] = l.first
			touched = append(touched, l)
		}
	}
	for _, op := range ops {
		if op.Put != nil {
			if _, there := t.holds[op.Put.Ref]; there {
				continue
			}
			touch(t.line(op.Put.Lock))
			t.insert(op.Put)
			changes = append(changes, Change{Kind: Queued, Hold: op.Put})
			continue
		}
		if h := t.holds[op.Ref]; h != nil {
			touch(h.line)
			head := before[h.line] == h
			t.remove(h)
			changes = append(changes, Change{Kind: Ended, Hold: h, Head: head})
		}
	}
	return t.grants(changes, touched, before)
}

// grants appends a Granted change for each new head, whose Queued change goes, and
// drops lines that are empty.
func (t *Table) grants(changes []Change, touched []*line, before map[*line]*Hold) []Change {
	kept := changes[:0]
	for _, c := range changes {
		if c.Kind != Queued || !t.IsHead(c.Hold) {
			kept = append(kept, c)
		}
	}
	for _, l := range touched {
		switch l.first {
		case nil:
			delete(t.lines, l.name)
			t.names.Delete(l.name)
		case before[l]:
		default:
			kept = append(kept, Change{Kind: Granted, Hold: l.first})
		}
	}
	return kept
}

// Get returns the live hold of ref, nil where there is none.
func (t *Table) Get(ref Ref) *Hold { return t.holds[ref] }

// Head returns the holder of the lock, nil where it is free.
func (t *Table) Head(lock string) *Hold {
	if l := t.lines[lock]; l != nil {
		return l.first
	}
	return nil
}

// IsHead reports whether h is live and the holder of its lock.
func (t *Table) IsHead(h *Hold) bool { return h.line != nil && h.line.first == h }

// Waiters returns how many holds of the lock are queued.
func (t *Table) Waiters(lock string) int {
	if l := t.lines[lock]; l != nil {
		return l.size - 1
	}
	return 0
}

// Position returns 0 for the holder, 1 for the next in line; it walks the line.
func (t *Table) Position(h *Hold) int {
	n := 0
	for p := h.prev; p != nil; p = p.prev {
		n++
	}
	return n
}

// Next returns the hold behind h in its line, nil at the end.
func (h *Hold) Next() *Hold { return h.next }

// Holds returns the number of live holds.
func (t *Table) Holds() int { return len(t.holds) }

// Locks returns the number of locks with a holder.
func (t *Table) Locks() int { return len(t.lines) }

// Queued returns the number of holds that wait, over all locks.
func (t *Table) Queued() int { return len(t.holds) - len(t.lines) }

// Names calls f with the names of locks that have a holder, in byte order, from
// the first that is not below from, until f returns false.
func (t *Table) Names(from string, f func(name string) bool) {
	t.names.AscendGreaterOrEqual(from, f)
}

// All calls f with every live hold, in no particular order.
func (t *Table) All(f func(*Hold)) {
	for _, h := range t.holds {
		f(h)
	}
}

func (t *Table) line(name string) *line {
	l := t.lines[name]
	if l == nil {
		l = &line{name: name}
		t.lines[name] = l
		t.names.ReplaceOrInsert(name)
	}
	return l
}

// insert puts h behind every hold of its lock that is older. Keys arrive in
// revision order, so the walk from the end is over at once; keys of one revision,
// which a correct batch never has, are ordered by ref on every server alike.
func (t *Table) insert(h *Hold) {
	l := t.line(h.Lock)
	after := l.last
	for after != nil && older(h, after) {
		after = after.prev
	}
	h.line, h.prev = l, after
	if after == nil {
		h.next, l.first = l.first, h
	} else {
		h.next, after.next = after.next, h
	}
	if h.next == nil {
		l.last = h
	} else {
		h.next.prev = h
	}
	l.size++
	t.holds[h.Ref] = h
}

func (t *Table) remove(h *Hold) {
	l := h.line
	if h.prev == nil {
		l.first = h.next
	} else {
		h.prev.next = h.next
	}
	if h.next == nil {
		l.last = h.prev
	} else {
		h.next.prev = h.prev
	}
	h.line, h.prev, h.next = nil, nil, nil
	l.size--
	delete(t.holds, h.Ref)
}

func older(a, b *Hold) bool {
	if a.Rev != b.Rev {
		return a.Rev < b.Rev
	}
	return bytes.Compare(a.Ref[:], b.Ref[:]) < 0
}
