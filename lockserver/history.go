package lockserver

import (
	"time"

	"github.com/fenced/fenced/lockserver/internal/queue"
)

// historySize is how many ended holds of all locks one server remembers.
const historySize = 131072

// past is one ended hold. Granted says whether it ever was the holder.
type past struct {
	ref     queue.Ref
	lock    string
	owner   string
	token   int64
	granted bool
	since   time.Time
	ended   time.Time
	end     End
	by      string
	reason  string
	older   int64 // of a grant: sequence number of the lock's grant before, -1 where none
}

// history is the memory of the past: one ring for all locks, so that a free lock
// that it does not reach costs nothing. Entries have rising sequence numbers; an
// entry's place in the ring is its number modulo the size. The server's mutex
// guards it.
type history struct {
	ring  []past
	next  int64 // sequence number of the next entry
	byRef map[queue.Ref]int64
	last  map[string]int64 // newest grant of each lock
	// since is how far the memory reaches; whole says that nothing came before it.
	since time.Time
	whole bool
}

func newHistory(now time.Time) *history {
	return &history{byRef: make(map[queue.Ref]int64), last: make(map[string]int64), since: now}
}

func (h *history) add(p past) {
	p.older = -1
	if p.granted { // only grants are asked for by lock, and a crowd may have given up since the last
		if seq, ok := h.last[p.lock]; ok {
			p.older = seq
		}
		h.last[p.lock] = h.next
	}
	slot := h.next % historySize
	if h.next < historySize {
		h.ring = append(h.ring, p)
	} else {
		h.forget(h.next - historySize)
		h.ring[slot] = p
	}
	h.byRef[p.ref] = h.next
	h.next++
}

// forget drops the entry that is overwritten next.
func (h *history) forget(seq int64) {
	p := &h.ring[seq%historySize]
	if h.byRef[p.ref] == seq {
		delete(h.byRef, p.ref)
	}
	if h.last[p.lock] == seq {
		delete(h.last, p.lock)
	}
	h.since, h.whole = p.ended, false
}

// at returns the entry of a sequence number, nil where it is forgotten.
func (h *history) at(seq int64) *past {
	if seq < 0 || seq >= h.next || seq < h.next-historySize {
		return nil
	}
	return &h.ring[seq%historySize]
}

// find returns the ended hold of ref, nil where nobody remembers it.
func (h *history) find(ref queue.Ref) *past {
	if seq, ok := h.byRef[ref]; ok {
		return h.at(seq)
	}
	return nil
}

// grants returns up to most ended grants of a lock, newest first.
func (h *history) grants(lock string, most int) []Ended {
	var list []Ended
	seq, ok := h.last[lock]
	if !ok {
		return nil
	}
	for p := h.at(seq); p != nil && len(list) < most; p = h.at(p.older) {
		list = append(list, p.public())
	}
	return list
}

// previous returns how the lock's last grant ended: nil where there certainly was
// none, [EndUnknown] where the memory does not reach.
func (h *history) previous(lock string) *Ended {
	if list := h.grants(lock, 1); len(list) == 1 {
		return &list[0]
	}
	if h.whole {
		return nil
	}
	return &Ended{End: EndUnknown}
}

func (p *past) public() Ended {
	return Ended{
		Ref: refText(p.ref), Lock: p.lock, Owner: p.owner, Token: tokenOf(p.token),
		Since: p.since, EndedAt: p.ended, End: p.end, By: p.by, Reason: p.reason,
	}
}
