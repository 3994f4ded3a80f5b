package lockserver

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/lockserver/internal/queue"
)

// Writes go into two lanes, because a refused put must never stop a delete
// (R11). Each lane groups what has arrived while its transactions were on their
// way: a lone write leaves at once, a crowd shares the cost of the log.
const (
	maxBatch    = 100 // operations a transaction, where the store takes as many
	putFlights  = 4   // transactions of puts on their way at once
	killFlights = 2   // transactions of deletes
	retryPause  = 200 * time.Millisecond
)

// work runs n workers that each take a batch and send it until ctx ends, and
// returns when the last batch is answered. While all of them are busy the next
// batch grows. Workers are kept, because the store's calls go deep: each would
// have to grow a new stack.
func work[T any](ctx context.Context, n int, kick chan struct{}, take func() (batch []T, more bool), send func(context.Context, []T)) {
	var crew sync.WaitGroup
	for range n {
		crew.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-kick:
				}
				batch, more := take()
				if more {
					signal(kick)
				}
				if len(batch) > 0 {
					send(ctx, batch)
				}
			}
		})
	}
	crew.Wait()
}

// put is one put on its way: what is sent cannot change under the sender, while
// the local may.
type put struct {
	local      *local
	lock       string
	key, value string
	lease      clientv3.LeaseID
	queued     time.Time
}

// putLane batches puts of holds. Two holds of one lock never share a transaction:
// they would get one revision, and so one token (R3).
type putLane struct {
	server *Server
	kick   chan struct{}

	mu       sync.Mutex
	locks    []string         // locks with puts that wait, each once, in turn
	queue    map[string][]put // by lock, oldest first
	answered time.Time        // when the store last answered
}

func newPutLane(s *Server) *putLane {
	return &putLane{server: s, kick: make(chan struct{}, 1), queue: make(map[string][]put)}
}

// add queues a put; the result shows in its local.
func (p *putLane) add(next put) {
	next.queued = time.Now()
	p.mu.Lock()
	if len(p.queue[next.lock]) == 0 {
		p.locks = append(p.locks, next.lock)
	}
	p.queue[next.lock] = append(p.queue[next.lock], next)
	p.mu.Unlock()
	signal(p.kick)
}

// take returns the next batch and whether there is more. Where the store has not answered
// for as long as an answer may take, what has waited so long is not sent: each put of a
// lock would wait for those before it to run into their time limits.
func (p *putLane) take() (batch []put, more bool) {
	batch, late, more := p.next(time.Now().Add(-writeTimeout))
	if len(late) > 0 {
		p.server.putLate(late)
	}
	return batch, more
}

// next takes puts out of the queue: a batch with at most one of each lock, and, from a
// store that has not answered since oldest, those that were queued before.
func (p *putLane) next(oldest time.Time) (batch, late []put, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	silent := p.answered.Before(oldest)
	n := min(len(p.locks), maxBatch, p.server.config.MaxOps)
	batch = make([]put, 0, n)
	turn := p.locks[:n]
	p.locks = p.locks[n:]
	for _, name := range turn {
		waiting := p.queue[name]
		for silent && len(waiting) > 0 && waiting[0].queued.Before(oldest) {
			late, waiting = append(late, waiting[0]), waiting[1:]
		}
		if len(waiting) > 0 {
			batch, waiting = append(batch, waiting[0]), waiting[1:]
		}
		if len(waiting) == 0 {
			delete(p.queue, name)
			continue
		}
		p.queue[name] = waiting
		p.locks = append(p.locks, name)
	}
	return batch, late, len(p.locks) > 0
}

func (p *putLane) run(ctx context.Context) { work(ctx, putFlights, p.kick, p.take, p.send) }

// send commits one batch. A batch that is refused as a whole is tried singly: one
// dead lease must not fail its neighbours.
func (p *putLane) send(ctx context.Context, batch []put) {
	before := p.server.mirrorRev()
	sent := time.Now()
	rev, taken, err := p.commit(ctx, batch)
	p.server.config.Observer.Committed(PutLane, len(batch), time.Since(sent))
	if err == nil || refused(err) {
		p.hasAnswered()
	}
	if err == nil {
		p.server.checkAnswer(before, rev, taken)
	}
	switch {
	case err == nil && taken:
		p.server.putDone(batch, rev)
	case len(batch) > 1 && (err == nil || refused(err)):
		for i := range batch {
			p.send(ctx, batch[i:i+1])
		}
	case err == nil:
		p.server.putExists(batch[0].local, rev)
	default:
		p.server.putFailed(batch, err)
	}
}

func (p *putLane) hasAnswered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answered = time.Now()
}

// commit puts the keys of a batch where none of them is there, and returns the
// revision of the answer and whether the store took them.
func (p *putLane) commit(ctx context.Context, batch []put) (rev int64, taken bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if len(batch) == 1 && !batch[0].local.keyed {
		return p.commitFresh(ctx, batch[0])
	}
	missing := make([]clientv3.Cmp, 0, len(batch))
	puts := make([]clientv3.Op, 0, len(batch))
	for _, b := range batch {
		if b.local.keyed {
			missing = append(missing, absent(b.key))
		}
		puts = append(puts, clientv3.OpPut(b.key, b.value, clientv3.WithLease(b.lease)))
	}
	resp, err := p.server.store.client.Txn(ctx).If(missing...).Then(puts...).Commit()
	if err != nil {
		return 0, false, err
	}
	return resp.Header.Revision, resp.Succeeded, nil
}

// commitFresh puts one key that was drawn at random for this put: it needs no
// comparison, and a put alone costs the store two thirds of a transaction.
func (p *putLane) commitFresh(ctx context.Context, b put) (rev int64, taken bool, err error) {
	resp, err := p.server.store.client.Put(ctx, b.key, b.value, clientv3.WithLease(b.lease))
	if err != nil {
		return 0, false, err
	}
	return resp.Header.Revision, true, nil
}

// deletion asks for the end of one hold or session. done, where set, is closed
// when the store has answered for good and the mirror has caught up; the other
// fields hold the result then.
type deletion struct {
	ref     queue.Ref
	session bool
	entry   endEntry
	done    chan struct{}
	// again, where set, is called in place of a repeat: the end must be decided anew.
	again func()

	answered bool
	deleted  bool  // this deletion removed the key
	err      error // the outcome is not known; the deletion is tried on regardless
}

// wait blocks until the deletion is answered, ctx ends, or so long that the store answers
// nothing: it may stand behind others that are repeated. It goes on regardless.
func (d *deletion) wait(ctx context.Context) error {
	late := time.NewTimer(writeTimeout + behindTimeout)
	defer late.Stop()
	select {
	case <-d.done:
		return d.err
	case <-late.C:
		return outcomeUnknown(errors.New("the store does not answer"))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// deleteLane batches deletes with the entries that say why. What it has taken it
// repeats until the store answers: an end that was decided must come.
type deleteLane struct {
	server *Server
	kick   chan struct{}

	mu    sync.Mutex
	queue []*deletion
	open  int
	idle  *sync.Cond
}

func newDeleteLane(s *Server) *deleteLane {
	d := &deleteLane{server: s, kick: make(chan struct{}, 1)}
	d.idle = sync.NewCond(&d.mu)
	return d
}

func (d *deleteLane) add(deletions ...*deletion) {
	d.mu.Lock()
	d.queue = append(d.queue, deletions...)
	d.open += len(deletions)
	d.mu.Unlock()
	signal(d.kick)
}

// flush waits until everything that was added is answered.
func (d *deleteLane) flush() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.open > 0 {
		d.idle.Wait()
	}
}

func (d *deleteLane) finish(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open -= n
	if d.open == 0 {
		d.idle.Broadcast()
	}
}

func (d *deleteLane) take() (batch []*deletion, more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(len(d.queue), maxBatch, d.server.config.MaxOps-1) // one is for the reasons
	batch, d.queue = d.queue[:n:n], d.queue[n:]
	return batch, len(d.queue) > 0
}

// run serves until ctx ends; nobody answers for what is queued then.
func (d *deleteLane) run(ctx context.Context) {
	work(ctx, killFlights, d.kick, d.take, d.send)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = 0
	d.idle.Broadcast()
}

// send commits one batch, again and again until the store answers. A full store
// still takes a transaction that only deletes.
func (d *deleteLane) send(ctx context.Context, batch []*deletion) {
	full := false
	before := d.server.mirrorRev()
	resp, err := d.commit(ctx, batch, full)
	for err != nil {
		if !full && errors.Is(err, rpctypes.ErrNoSpace) {
			full = true
		} else {
			d.answer(batch, outcomeUnknown(err))
			if batch = d.withdraw(batch); len(batch) == 0 {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(retryPause):
			}
		}
		before = d.server.mirrorRev()
		resp, err = d.commit(ctx, batch, full)
	}
	// A transaction that says why has changed at least that key; one that only
	// deletes may have found nothing, and then answers at the revision before it.
	d.server.checkAnswer(before, resp.Header.Revision, !full)
	d.server.reached(resp.Header.Revision, func(late error) {
		for i, del := range batch {
			if !del.answered {
				del.deleted = resp.Responses[i].GetResponseDeleteRange().Deleted > 0
			}
		}
		d.answer(batch, late)
		d.finish(len(batch))
	})
}

// withdraw takes those out that are not to be repeated.
func (d *deleteLane) withdraw(batch []*deletion) []*deletion {
	kept := make([]*deletion, 0, len(batch))
	for _, del := range batch {
		if del.again == nil {
			kept = append(kept, del)
			continue
		}
		del.again()
		d.finish(1)
	}
	return kept
}

// answer wakes those who wait and have not been answered yet.
func (d *deleteLane) answer(batch []*deletion, err error) {
	for _, del := range batch {
		if del.answered {
			continue
		}
		del.answered, del.err = true, err
		if del.done != nil {
			close(del.done)
		}
	}
}

func (d *deleteLane) commit(ctx context.Context, batch []*deletion, full bool) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	ops := make([]clientv3.Op, 0, len(batch)+1)
	entries := make([]endEntry, 0, len(batch))
	for _, del := range batch {
		key := d.server.keys.hold(del.ref)
		if del.session {
			key = d.server.keys.session(del.ref)
		}
		ops = append(ops, clientv3.OpDelete(key))
		del.entry.Ref = refText(del.ref)
		entries = append(entries, del.entry)
	}
	if !full {
		ops = append(ops, clientv3.OpPut(d.server.keys.ends(), string(encodeEnds(entries))))
	}
	sent := time.Now()
	resp, err := d.server.store.client.Txn(ctx).Then(ops...).Commit()
	d.server.config.Observer.Committed(DeleteLane, len(batch), time.Since(sent))
	return resp, err
}
