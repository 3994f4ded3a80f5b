package lockserver

import (
	"container/heap"
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/lockserver/internal/queue"
)

const (
	// expiryBatch, expiryPause and expiryFlights pace the deletes of holds that
	// expire together: the grant path must not feel them.
	expiryBatch   = 64
	expiryPause   = 8 * time.Millisecond
	expiryFlights = 1
	// keepers bounds the keep-alives of waiting holds that run at once.
	keepers = 32
)

// timer is a hold's place in the heap; index is -1-based so that the zero value
// is "not set".
type timer struct {
	when  time.Time
	index int // position in the heap plus one
}

// timers wakes holds when their places need something. set and drop are called
// with the server's mutex held.
type timers struct {
	server *Server
	heap   timerHeap
	kick   chan struct{}
	places chan *local // to renew, or perhaps to give up

	due     []*local      // holds past their deadline, in the order they fell due
	dueKick chan struct{} // holds one token while due is not empty
}

func newTimers(s *Server) *timers {
	return &timers{server: s, kick: make(chan struct{}, 1), places: make(chan *local), dueKick: make(chan struct{}, 1)}
}

// set moves the wake-up of l to when; the zero time drops it. A timer is never
// moved later: it looks again when it fires, so a renewal costs nothing.
func (t *timers) set(l *local, when time.Time) {
	switch {
	case when.IsZero():
		t.drop(l)
		return
	case l.timer.index > 0 && !when.Before(l.timer.when):
		return
	case l.timer.index > 0:
		l.timer.when = when
		heap.Fix(&t.heap, l.timer.index-1)
	default:
		l.timer.when = when
		heap.Push(&t.heap, l)
	}
	if l.timer.index == 1 {
		signal(t.kick)
	}
}

// signal leaves a token in a channel of size one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (t *timers) drop(l *local) {
	if l.timer.index > 0 {
		heap.Remove(&t.heap, l.timer.index-1)
	}
}

// run fires timers until ctx ends. Keep-alives and expiries go to goroutines of
// their own, so that a store that does not answer delays no other timer.
func (t *timers) run(ctx context.Context) {
	done := make(chan struct{})
	for range keepers {
		go func() { t.runPlaces(ctx); done <- struct{}{} }()
	}
	go func() { t.runExpire(ctx); done <- struct{}{} }()
	t.fire(ctx)
	for range keepers + 1 {
		<-done
	}
}

func (t *timers) fire(ctx context.Context) {
	wake := time.NewTimer(time.Hour)
	defer wake.Stop()
	for {
		l, action, next := t.next()
		if l != nil {
			t.act(ctx, l, action)
			continue
		}
		wake.Reset(next)
		select {
		case <-ctx.Done():
			return
		case <-t.kick:
		case <-wake.C:
		}
	}
}

// next pops the first hold that needs something now, or tells how long to sleep.
func (t *timers) next() (*local, queue.Action, time.Duration) {
	t.server.mu.Lock()
	defer t.server.mu.Unlock()
	for {
		if len(t.heap) == 0 {
			return nil, queue.None, time.Hour
		}
		now := time.Now()
		l := t.heap[0]
		if wait := l.timer.when.Sub(now); wait > 0 {
			return nil, queue.None, wait
		}
		heap.Pop(&t.heap)
		if l.end != NotEnded || !l.live {
			t.server.forgetLocked(l)
			continue
		}
		action, when := l.place.Due(now)
		if action != queue.None {
			return l, action, 0
		}
		t.set(l, when)
	}
}

func (t *timers) act(ctx context.Context, l *local, action queue.Action) {
	switch action {
	case queue.Renew, queue.Lapse:
		select {
		case t.places <- l:
		case <-ctx.Done():
		}
	case queue.Expire:
		t.server.mu.Lock()
		t.due = append(t.due, l)
		t.server.mu.Unlock()
		signal(t.dueKick)
	}
}

// runPlaces keeps the leases of waiting holds alive, and gives up places that nobody
// asks for.
func (t *timers) runPlaces(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case l := <-t.places:
			if t.server.lapsing(l) {
				t.server.lapse(ctx, l)
			} else {
				t.server.renewPlace(ctx, l)
			}
		}
	}
}

func (s *Server) lapsing(l *local) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lapsingLocked(l)
}

func (s *Server) lapsingLocked(l *local) bool {
	action, _ := l.place.Due(time.Now())
	return action == queue.Lapse && l.end == NotEnded
}

// lapse gives up a place that nobody asked for in time, here or at another server. A
// head is left to its lease where there are others: one of them may have said held,
// and its holder need not renew for a whole TTL.
func (s *Server) lapse(ctx context.Context, l *local) {
	s.mu.Lock()
	leased := l.lease.ID
	s.mu.Unlock()
	var renewed time.Time
	var err error
	if !s.config.Alone {
		told := s.renewals(ctx, leased)[0]
		renewed, err = told.first, told.err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.lapsingLocked(l): // somebody came meanwhile
	case err != nil && !errors.Is(err, errLeaseGone):
		s.timers.set(l, time.Now().Add(time.Second))
		return
	case !s.config.Alone && (l.place.AskedElsewhere(renewed) || s.table.IsHead(l.hold)):
		l.place.Forget()
	default:
		s.abandonLocked(l)
		return
	}
	s.dueLocked(l)
}

// renewPlace keeps the lease of one waiting hold alive and sets its next timer. A
// failure is tried again within a second: the lease has time to spare.
func (s *Server) renewPlace(ctx context.Context, l *local) {
	now, err := s.keepAlive(ctx, l)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && l.end == NotEnded {
		s.timers.set(l, now.Add(time.Second))
		return
	}
	s.dueLocked(l)
}

// keepAlive renews the lease of l and returns when it was done; R10 counts the
// call, so that the lease is not reused under it.
func (s *Server) keepAlive(ctx context.Context, l *local) (time.Time, error) {
	s.mu.Lock()
	l.calls++
	was := l.lease
	s.mu.Unlock()
	renewed, err := s.store.keepAlive(ctx, was)
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	l.calls--
	if err == nil && renewed.Sent.After(l.lease.Sent) {
		l.lease = renewed
		l.place.Renewed, l.place.LeaseTTL = renewed.Sent, renewed.TTL
	}
	s.dropLocked(l)
	return now, err
}

// runExpire deletes holds that are past their deadline, in paced batches. It waits
// for a batch only when expiryFlights later ones are on their way.
func (t *timers) runExpire(ctx context.Context) {
	var open [][]*deletion
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.dueKick:
		}
		for more := true; more; {
			var batch []*local
			batch, more = t.takeDue()
			open = append(open, t.server.expire(ctx, batch))
			if len(open) > expiryFlights {
				if !answered(ctx, open[0]) {
					return
				}
				open = open[1:]
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(expiryPause):
			}
		}
	}
}

// answered waits until the store has taken the deletions; false says that ctx has
// ended before.
func answered(ctx context.Context, deletions []*deletion) bool {
	for _, d := range deletions {
		select {
		case <-d.done:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// takeDue returns the next holds that are due, and whether there are more.
func (t *timers) takeDue() (batch []*local, more bool) {
	t.server.mu.Lock()
	defer t.server.mu.Unlock()
	n := min(len(t.due), expiryBatch)
	batch, t.due = t.due[:n:n], t.due[n:]
	if len(t.due) == 0 {
		t.due = nil
	}
	return batch, t.due != nil
}

// expire sends the deletes of those holds that are still past their deadline.
func (s *Server) expire(ctx context.Context, batch []*local) []*deletion {
	if !s.config.Alone {
		s.askRenewed(ctx, batch)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var sent []*deletion
	for _, l := range batch {
		if l.end != NotEnded || !s.expiredLocked(l) {
			continue
		}
		d := &deletion{ref: l.hold.Ref, entry: endEntry{End: Expired}, done: make(chan struct{})}
		if !s.config.Alone {
			d.again = func() { s.expireAgain(l) }
		}
		s.deletes.add(d)
		sent = append(sent, d)
	}
	return sent
}

// expireAgain has the end of a hold decided anew, because the store did not answer its
// delete: until it does, the hold may be renewed through another server.
func (s *Server) expireAgain(l *local) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookAgainLocked(l)
	s.dueLocked(l)
}

// askRenewed asks the store when the leases of the batch were last renewed, so
// that a renewal through another server moves the deadline here too. Where the
// store does not answer, the hold stays and is looked at again in a second.
func (s *Server) askRenewed(ctx context.Context, batch []*local) {
	ids := make([]clientv3.LeaseID, len(batch))
	s.mu.Lock()
	for i, l := range batch {
		ids[i] = l.lease.ID
	}
	s.mu.Unlock()
	told := s.renewals(ctx, ids...)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range batch {
		switch t := told[i]; {
		case t.err == nil:
			if deadline := t.last.Add(l.hold.TTL - queue.Grace); deadline.After(l.place.Deadline) {
				l.place.Deadline = deadline
			}
		case !errors.Is(t.err, errLeaseGone):
			s.lookAgainLocked(l)
		}
	}
}

// lookAgainLocked puts the decision about a hold that is past its deadline off.
func (s *Server) lookAgainLocked(l *local) {
	l.place.Deadline = time.Now().Add(time.Second - queue.Grace)
}

// expiredLocked looks once more: a renewal may have come since the timer fired.
func (s *Server) expiredLocked(l *local) bool {
	if action, _ := l.place.Due(time.Now()); action == queue.Expire {
		return true
	}
	s.dueLocked(l)
	return false
}

// timerHeap orders locals by wake-up; it is only used through container/heap.
type timerHeap []*local

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].timer.when.Before(h[j].timer.when) }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].timer.index, h[j].timer.index = i+1, j+1
}
func (h *timerHeap) Push(x any) {
	l := x.(*local)
	*h = append(*h, l)
	l.timer.index = len(*h)
}
func (h *timerHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	l.timer.index = 0
	return l
}
