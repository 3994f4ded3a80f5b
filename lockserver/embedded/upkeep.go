package embedded

import (
	"context"
	"log/slog"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// How the store is kept small: little and often, and never closer to the present
// than a mirror could be behind.
const (
	compactEvery = 10 * time.Second
	compactKeep  = time.Minute
	// fullPercent is how much of its quota a file has before it is made smaller.
	fullPercent = 80
)

// mark is the revision of one moment.
type mark struct {
	when time.Time
	rev  int64
}

// Upkeep runs until ctx ends. On the node that leads it drops history older than a
// minute every 10 s and makes voters of learners that have caught up; on every
// other it only remembers revisions, so that it can go on where the leader fails.
// Every node sees to it that its own file does not stay full of what is free.
// revision tells the engine's present revision. What goes wrong is logged and
// tried again: the store grows meanwhile, nothing else suffers.
func (n *Node) Upkeep(ctx context.Context, revision func() int64, log *slog.Logger) {
	tick := time.NewTicker(compactEvery)
	defer tick.Stop()
	past := history{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			n.keep(ctx, &past, mark{now, revision()}, log)
		}
	}
}

// history is what Upkeep remembers of the store's.
type history struct {
	marks     []mark
	due, done int64 // what is to be dropped, and was
}

// keep does what is due once in compactEvery.
func (n *Node) keep(ctx context.Context, past *history, present mark, log *slog.Logger) {
	past.add(present)
	n.mendFull(ctx, time.Now(), log)
	if _, leads := n.Leader(); !leads {
		return
	}
	if err := n.Promote(ctx); err != nil {
		log.Warn("a new member does not vote yet", "error", err)
	}
	if past.due <= past.done {
		return
	}
	if err := n.Compact(ctx, past.due); err != nil {
		log.Warn("the store was not compacted", "revision", past.due, "error", err)
		return
	}
	past.done = past.due
}

// mendFull makes the node's file smaller where it has most of its quota and half of
// that is free: history that was dropped leaves the file as large as it was, and a file
// of the whole quota takes no writes, for ever. It also lifts the alarm of that, which
// does not go by itself. The node stands still while what is in use is copied; the
// members of a cluster do it in turn.
func (n *Node) mendFull(ctx context.Context, now time.Time, log *slog.Logger) {
	quota := n.etcd.Server.Config().QuotaBackendBytes
	before := n.etcd.Server.Backend().Size()
	if before > quota/100*fullPercent && n.inUse() < before/2 && n.turn(now) {
		if err := n.etcd.Server.Defragment(); err != nil {
			log.Warn("the store's file is nearly full and was not made smaller", "bytes", before, "error", err)
			return
		}
		log.Warn("the store's file was nearly full and is smaller now", "bytes", n.etcd.Server.Backend().Size(), "before", before, "took", time.Since(now))
	}
	if n.etcd.Server.Backend().Size() > quota/100*fullPercent {
		return
	}
	for _, alarm := range n.etcd.Server.Alarms() {
		if alarm.Alarm != etcdserverpb.AlarmType_NOSPACE || alarm.MemberID != uint64(n.etcd.Server.MemberID()) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, compactEvery)
		_, err := n.client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(alarm))
		cancel()
		if err != nil {
			log.Warn("the store has room again and still says that it is full", "error", err)
		}
	}
}

// inUse returns how many bytes of the file are in use. Pages that a transaction freed
// count as free after two more that write, and only once no reader looks at them; a
// file that takes no writes would say for ever that all of it is used. So these two are
// made here: they ask for a bucket that has always been there and change nothing.
func (n *Node) inUse() int64 {
	backend := n.etcd.Server.Backend()
	for range 2 {
		tx := backend.BatchTx()
		tx.LockOutsideApply()
		tx.UnsafeCreateBucket(schema.Meta)
		tx.Unlock()
		backend.ForceCommit()
	}
	return backend.SizeInUse()
}

// turn reports whether it is this node's turn among the members, which changes with
// each look of Upkeep: not all of them may stand still at once.
func (n *Node) turn(now time.Time) bool {
	members := n.etcd.Server.Cluster().Members() // in the order of their ids
	if len(members) == 0 {
		return false
	}
	turn := now.Unix() / int64(compactEvery.Seconds()) % int64(len(members))
	return members[turn].ID == n.etcd.Server.MemberID()
}

// add remembers the present and finds what has become old enough to be dropped.
func (h *history) add(present mark) {
	h.marks = append(h.marks, present)
	var rev int64
	if rev, h.marks = oldest(h.marks, present.when); rev > h.due {
		h.due = rev
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
