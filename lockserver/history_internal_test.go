package lockserver

import (
	"testing"
	"time"

	"github.com/fenced/fenced/lockserver/internal/queue"
)

// TestHistory_ACrowdThatGaveUpIsNotWalked has every answer about a lock look for its last
// grant, with the server's mutex held, behind all who have given up since.
func TestHistory_ACrowdThatGaveUpIsNotWalked(t *testing.T) {
	t.Parallel()
	h := newHistory(time.Now())
	h.whole = true
	add := func(n int, lock string, granted bool) {
		h.add(past{ref: queue.Ref{byte(n), byte(n >> 8), byte(n >> 16), 1}, lock: lock, token: int64(n), granted: granted, end: Released})
	}
	add(1, "a", true)
	add(2, "a", true)
	for n := range historySize - 3 {
		add(n+3, "a", false)
	}
	if got := h.grants("a", MaxHistoryShown); len(got) != 2 || got[0].Token != 2 || got[1].Token != 1 {
		t.Fatalf("the grants are %+v", got)
	}
	if !h.at(h.last["a"]).granted {
		t.Error("the last grant stands behind what was none")
	}
	if add(historySize, "b", false); h.previous("b") != nil {
		t.Errorf("a lock that was never granted has %+v before it", h.previous("b"))
	}
	add(historySize+1, "b", true) // the ring is full: the first grant is forgotten
	if got := h.grants("a", MaxHistoryShown); len(got) != 1 || got[0].Token != 2 {
		t.Fatalf("the grants are %+v", got)
	}
	add(historySize+2, "b", true)
	if got := h.previous("a"); got == nil || got.End != EndUnknown {
		t.Errorf("what the memory does not reach is told as %+v", got)
	}
	if _, known := h.last["a"]; known {
		t.Error("a lock without a grant in memory is remembered")
	}
}
