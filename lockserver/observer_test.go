package lockserver_test

import (
	"sync"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver"
)

// told gathers what an observer is told.
type told struct {
	mu               sync.Mutex
	events           map[lockserver.EventKind]int
	queues           []int
	waited, handOver []time.Duration
	holds            map[lockserver.Lane]int
	lags             int
}

func (o *told) observer() lockserver.Observer {
	o.events, o.holds = map[lockserver.EventKind]int{}, map[lockserver.Lane]int{}
	with := func(f func()) { o.mu.Lock(); defer o.mu.Unlock(); f() }
	return lockserver.Observer{
		Event:  func(kind lockserver.EventKind) { with(func() { o.events[kind]++ }) },
		Queued: func(waiters int) { with(func() { o.queues = append(o.queues, waiters) }) },
		Granted: func(waited, handOver time.Duration) {
			with(func() { o.waited, o.handOver = append(o.waited, waited), append(o.handOver, handOver) })
		},
		Committed: func(lane lockserver.Lane, holds int, took time.Duration) { with(func() { o.holds[lane] += holds }) },
		Lagged:    func(time.Duration) { with(func() { o.lags++ }) },
	}
}

func TestServer_tells_its_observer(t *testing.T) {
	t.Parallel()
	var o told
	s, _ := etcdtest.Run(t, lockserver.Config{Client: etcdtest.Node(t).Client(), Alone: true, Observer: o.observer()})
	held := mustAcquire(t, s, try("lock"))
	next := make(chan *lockserver.Hold)
	for range 2 {
		go func() {
			h, err := s.Acquire(t.Context(), queueFor("lock", 20*time.Second))
			if err != nil {
				t.Error(err)
			}
			next <- h
		}()
	}
	waitQueue(t, s, "lock", 2)
	mustRelease(t, s, held)
	mustRelease(t, s, <-next)
	last := <-next
	if _, err := s.Break(t.Context(), lockserver.BreakRequest{Lock: "lock", Token: last.Token, Reason: "r"}); err != nil {
		t.Fatal(err)
	}

	o.mu.Lock()
	defer o.mu.Unlock()
	for kind, want := range map[lockserver.EventKind]int{
		lockserver.EventQueued: 2, lockserver.EventGranted: 3, lockserver.EventReleased: 2, lockserver.EventBroken: 1,
	} {
		if o.events[kind] != want {
			t.Errorf("told of %d holds %v, want %d", o.events[kind], kind, want)
		}
	}
	if len(o.queues) != 2 || o.queues[0] != 1 || o.queues[1] != 2 {
		t.Errorf("told of queues %v, want 1 and 2", o.queues)
	}
	if len(o.waited) != 2 {
		t.Errorf("told of %d waits, want 2", len(o.waited))
	}
	for i := range o.waited {
		if o.handOver[i] < 0 || o.handOver[i] > o.waited[i] {
			t.Errorf("a hand-over of %s in a wait of %s", o.handOver[i], o.waited[i])
		}
	}
	if o.holds[lockserver.PutLane] != 3 || o.holds[lockserver.DeleteLane] != 3 {
		t.Errorf("told of %v holds put and deleted, want 3 each", o.holds)
	}
	if o.lags < 3 {
		t.Errorf("told of %d lags", o.lags)
	}
}
