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

// Upkeep runs until ctx ends. On the node that leads it drops history older than a
// minute every 10 s and makes voters of learners that have caught up; on every
// other it only remembers revisions, so that it can go on where the leader fails.
// revision tells the engine's present revision. What goes wrong is logged and
// tried again: the store grows meanwhile, nothing else suffers.
func (n *Node) Upkeep(ctx context.Context, revision func() int64, log *slog.Logger) {
	tick := time.NewTicker(compactEvery)
	defer tick.Stop()
	var marks []mark
	var due, done int64
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			marks = append(marks, mark{now, revision()})
			var rev int64
			if rev, marks = oldest(marks, now); rev > due {
				due = rev
			}
		}
		if _, leads := n.Leader(); !leads {
			continue
		}
		if err := n.Promote(ctx); err != nil {
			log.Warn("a new member does not vote yet", "error", err)
		}
		if due <= done {
			continue
		}
		if err := n.Compact(ctx, due); err != nil {
			log.Warn("the store was not compacted", "revision", due, "error", err)
			continue
		}
		done = due
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
