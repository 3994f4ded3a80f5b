package httpapi

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/apierr"
)

// sweepInterval is how often, at most, a key that is at its limit of held holds
// has them looked up to find those that ended by themselves.
const sweepInterval = time.Second

// quotas counts what each key uses on this server.
type quotas struct {
	engine HoldService
	now    func() time.Time

	mu  sync.Mutex
	use map[string]*usage // by key id; keys are few, and known
}

// usage is what one key uses.
type usage struct {
	credit   float64 // requests that may be made now, up to a second's worth
	credited time.Time
	waiting  int
	pending  int               // acquires that may still become holds
	held     map[string]string // ids of holds, with the attempt that made each
	attempts map[string]bool   // attempts whose hold is in held
	swept    time.Time
}

func newQuotas(engine HoldService) *quotas {
	return &quotas{engine: engine, now: time.Now, use: map[string]*usage{}}
}

// of returns the usage of k; the caller has the mutex.
func (q *quotas) of(k *keys.Key) *usage {
	u := q.use[k.ID]
	if u == nil {
		u = &usage{credit: float64(k.Quota.PerSecond), credited: q.now(), held: map[string]string{}, attempts: map[string]bool{}}
		q.use[k.ID] = u
	}
	return u
}

// request counts one request of k against its rate.
func (q *quotas) request(k *keys.Key) error {
	if k == nil || k.Quota.PerSecond == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	u, now, rate := q.of(k), q.now(), float64(k.Quota.PerSecond)
	u.credit = min(rate, u.credit+now.Sub(u.credited).Seconds()*rate)
	u.credited = now
	if u.credit < 1 {
		return overQuota("requests_per_second", k.Quota.PerSecond, "requests a second")
	}
	u.credit--
	return nil
}

// waitFor counts a request of k that may wait for d until done is called.
func (q *quotas) waitFor(k *keys.Key, d time.Duration) (done func(), err error) {
	if d == 0 {
		return func() {}, nil
	}
	return q.wait(k)
}

// wait counts a waiting request or an event stream of k until done is called.
func (q *quotas) wait(k *keys.Key) (done func(), err error) {
	if k == nil || k.Quota.Waiting == 0 {
		return func() {}, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.of(k)
	if u.waiting >= k.Quota.Waiting {
		return nil, overQuota("waiting", k.Quota.Waiting, "waiting requests and event streams at a time")
	}
	u.waiting++
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		u.waiting--
	}, nil
}

// hold reserves room for one more hold of k. The caller says with done which hold
// took it, "" for none. An attempt is what an idempotency key names, "" where
// there is none; its repeat needs no room, since it finds the hold it made.
func (q *quotas) hold(ctx context.Context, k *keys.Key, attempt string) (done func(id string), err error) {
	if k == nil || k.Quota.Held == 0 {
		return func(string) {}, nil
	}
	if !q.reserve(k, attempt) && !(q.sweep(ctx, k) && q.reserve(k, attempt)) {
		return nil, overQuota("held", k.Quota.Held, "holds at a time")
	}
	return func(id string) {
		q.mu.Lock()
		defer q.mu.Unlock()
		u := q.of(k)
		u.pending--
		if id != "" {
			u.held[id] = attempt
			u.attempts[attempt] = attempt != ""
		}
	}, nil
}

func (q *quotas) reserve(k *keys.Key, attempt string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.of(k)
	if len(u.held)+u.pending >= k.Quota.Held && !u.attempts[attempt] {
		return false
	}
	u.pending++
	return true
}

// sweep forgets holds that ended without a release through this server. It asks
// the engine's memory, not its store.
func (q *quotas) sweep(ctx context.Context, k *keys.Key) bool {
	q.mu.Lock()
	u := q.of(k)
	due := q.now().Sub(u.swept) >= sweepInterval
	ids := make([]string, 0, len(u.held))
	if due {
		u.swept = q.now()
		for id := range u.held {
			ids = append(ids, id)
		}
	}
	q.mu.Unlock()
	for _, id := range ids {
		if _, err := q.engine.Hold(ctx, id); apierr.CodeOf(err) == apierr.HoldGone {
			q.ended(k, id)
		}
	}
	return due
}

// ended forgets one hold of k.
func (q *quotas) ended(k *keys.Key, id string) {
	if k == nil || k.Quota.Held == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.of(k)
	delete(u.attempts, u.held[id])
	delete(u.held, id)
}

func overQuota(field string, limit int, what string) error {
	return &apierr.Error{
		ErrCode: apierr.Quota, Field: field, Limit: fmt.Sprintf("at most %d", limit),
		Detail: fmt.Sprintf("the key may have at most %d %s on one server", limit, what),
	}
}
