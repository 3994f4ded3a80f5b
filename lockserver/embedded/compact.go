package embedded

import (
	"context"
	"log/slog"
	"time"
)

// How the store is kept small: little and often, and never closer to the present
// than a mirror could be behind.
const (
	compactEvery = 10 * time.Second
	compactKeep  = time.Minute
)

// mark is the revision of one moment.
type mark struct {
	when time.Time
	rev  int64
}

// KeepCompact drops history older than a minute every 10 s until ctx ends.
// revision tells the engine's present revision. What goes wrong is logged and
// tried again: the store grows meanwhile, nothing else suffers.
func (n *Node) KeepCompact(ctx context.Context, revision func() int64, log *slog.Logger) {
	tick := time.NewTicker(compactEvery)
	defer tick.Stop()
	var marks []mark
	var done int64
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			marks = append(marks, mark{now, revision()})
			var rev int64
			if rev, marks = oldest(marks, now); rev <= done {
				continue
			}
			if err := n.Compact(ctx, rev); err != nil {
				log.Warn("the store was not compacted", "revision", rev, "error", err)
				continue
			}
			done = rev
		}
	}
}

// oldest returns the newest revision that is at least compactKeep old, 0 where
// there is none, and the marks that are still needed.
func oldest(marks []mark, now time.Time) (int64, []mark) {
	var rev int64
	for len(marks) > 0 && now.Sub(marks[0].when) >= compactKeep {
		rev, marks = marks[0].rev, marks[1:]
	}
	return rev, marks
}
