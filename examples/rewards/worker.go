package rewards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/tokens"
)

// WorkerConfig says how a [Worker] works.
type WorkerConfig struct {
	// Pool leads to the primary with the reward tables. Required.
	Pool *pgxpool.Pool
	// Locks is the lock service. Required.
	Locks *clientsdk.Client
	// TTL of the lock of a reward. Defaults to 15 s.
	TTL time.Duration
	// LockWait is how long to stand in line behind another worker that pays the
	// same reward before the message is given back. Defaults to 2 x TTL.
	LockWait time.Duration
	// Visibility is how long a taken message is hidden from other workers; then
	// it is delivered again. Defaults to LockWait + 2 x TTL.
	Visibility time.Duration
	// Poll is how long an idle worker waits before it looks again. Defaults to
	// 250 ms.
	Poll time.Duration
	// Concurrency is the number of messages worked on at once. Defaults to 4.
	Concurrency int
	// Drain makes Run return once no message is left to settle.
	Drain bool
	// ForgetHold makes the write outlive the hold, as code does that passes some
	// other context to the database. For demonstrations: the fence must then
	// refuse what the lease can no longer stop.
	ForgetHold bool
	// Report is called after each attempt at a message, from several goroutines
	// at once. Defaults to nothing.
	Report func(Attempt)
	// At is called at each [Step] of each message, from several goroutines at
	// once. It is the seam at which faults are injected. Defaults to nothing.
	At func(Step, Reward, tokens.Token)
	// Log is told when the database cannot be reached, and when it can again. nil logs
	// nothing.
	Log *slog.Logger

	_ struct{}
}

func (c WorkerConfig) withDefaults() (WorkerConfig, error) {
	if c.Pool == nil || c.Locks == nil {
		return c, errors.New("worker: Pool and Locks are required")
	}
	for name, d := range map[string]time.Duration{
		"TTL": c.TTL, "LockWait": c.LockWait, "Visibility": c.Visibility, "Poll": c.Poll} {
		if d < 0 {
			return c, fmt.Errorf("worker: %s is %v, must not be negative", name, d)
		}
	}
	if c.Concurrency < 0 {
		return c, fmt.Errorf("worker: Concurrency is %d, must not be negative", c.Concurrency)
	}
	c.TTL = orElse(c.TTL, 15*time.Second)
	c.LockWait = orElse(c.LockWait, 2*c.TTL)
	c.Visibility = orElse(c.Visibility, c.LockWait+2*c.TTL)
	c.Poll = orElse(c.Poll, 250*time.Millisecond)
	c.Concurrency = orElse(c.Concurrency, 4)
	if c.Report == nil {
		c.Report = func(Attempt) {}
	}
	if c.At == nil {
		c.At = func(Step, Reward, tokens.Token) {}
	}
	c.Log = orElse(c.Log, slog.New(slog.DiscardHandler))
	return c, nil
}

// A Step names a place in the work on one message.
type Step string

// The steps, in order.
const (
	Taken  Step = "taken"  // the message is taken, no lock is held
	Held   Step = "held"   // the lock is held
	Looked Step = "looked" // the last look at the hold was good; the write is next
	Paid   Step = "paid"   // the ledger has the reward, the message is not settled
	Done   Step = "done"   // the message is settled, the lock is still held
)

// Steps are all steps in order.
var Steps = []Step{Taken, Held, Looked, Paid, Done}

// An Attempt is what became of one attempt at one message.
type Attempt struct {
	Reward  Reward
	Token   tokens.Token // 0 where the lock was not held
	Outcome Outcome      // "" where the reward was not paid
	Err     error        // also where it was paid and the message not settled
}

// A Worker pays the rewards of the inbox. Any number of workers may share one.
type Worker struct {
	cfg       WorkerConfig
	announcer announcer // of what is paid, to the publishers
	database  outage
}

// NewWorker returns a worker; nothing runs before Run. The error names the field
// that cannot be used.
func NewWorker(cfg WorkerConfig) (*Worker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Worker{cfg: cfg, announcer: newAnnouncer(), database: outage{log: cfg.Log, what: "the database"}}, nil
}

// Run works until ctx ends, or until the inbox holds nothing to settle if
// Drain is set, and returns when all its goroutines are gone: nil after a drain,
// else the cause of ctx. A database or a lock service that does not answer is no
// reason to return: a message that could not be paid comes back.
func (w *Worker) Run(ctx context.Context) error {
	var lanes, announcing sync.WaitGroup
	paid := make(chan struct{})
	announcing.Go(func() { w.announcer.run(context.WithoutCancel(ctx), w.cfg.Pool, paid) })
	for range w.cfg.Concurrency {
		lanes.Go(func() {
			for w.next(ctx) {
			}
		})
	}
	lanes.Wait()
	close(paid)
	announcing.Wait()
	return context.Cause(ctx)
}

// next works on one message, or waits where none is due. It reports whether there
// is reason to go on.
func (w *Worker) next(ctx context.Context) bool {
	m, ok, err := take(ctx, w.cfg.Pool, w.cfg.Visibility)
	w.database.note(ctx, err)
	if ok {
		w.cfg.Report(w.attempt(ctx, m))
		return ctx.Err() == nil
	}
	if err == nil && w.cfg.Drain {
		if n, err := ready(ctx, w.cfg.Pool); err == nil && n == 0 {
			return false
		}
	}
	return pause(ctx, backoff(1, w.cfg.Poll, w.cfg.Poll)) == nil
}

// attempt pays the reward of m under its lock and settles m, in this order: a
// message is done only after the reward is in the ledger. Whatever goes wrong,
// the message comes back, at the latest when its visibility is over.
func (w *Worker) attempt(ctx context.Context, m message) Attempt {
	a := Attempt{Reward: m.Reward}
	w.cfg.At(Taken, m.Reward, 0)
	hold, err := w.lock(ctx, m.Reward)
	if err == nil {
		a.Token = hold.Token()
		a.Outcome, err = w.pay(ctx, hold, m.Reward)
	}
	// What has been done is written down also while the worker is being stopped.
	marking, cancel := context.WithTimeout(context.WithoutCancel(ctx), markTimeout)
	defer cancel()
	if err == nil {
		w.announcer.paid()
		w.cfg.At(Paid, m.Reward, a.Token)
		err = settle(marking, w.cfg.Pool, m, "DONE", a.Outcome, nil)
		w.cfg.At(Done, m.Reward, a.Token)
	} else {
		err = errors.Join(err, w.refuse(marking, m, err))
	}
	if hold != nil {
		// A release that fails costs the next worker the rest of the TTL, no more.
		_ = hold.Release(ctx)
	}
	a.Err = err
	return a
}

// lock takes the lock of r. What is no reward has none: its name may be one that the
// lock service refuses, and the message would come back for ever.
func (w *Worker) lock(ctx context.Context, r Reward) (*clientsdk.Hold, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return w.cfg.Locks.Acquire(ctx, r.Lock(), &clientsdk.AcquireOptions{TTL: w.cfg.TTL, Wait: w.cfg.LockWait})
}

// pay is the work that the lock is for. The look at the hold saves a round trip
// where the lease is over; it proves nothing about the moment after it. That the
// write is refused then is what the token is for.
func (w *Worker) pay(ctx context.Context, hold *clientsdk.Hold, r Reward) (Outcome, error) {
	w.cfg.At(Held, r, hold.Token())
	if err := hold.Err(); err != nil {
		return "", err
	}
	w.cfg.At(Looked, r, hold.Token())
	writing := hold.Context()
	if w.cfg.ForgetHold {
		writing = ctx
	}
	return Apply(writing, w.cfg.Pool, r, hold.Token())
}

// refuse puts m aside: for good where no retry can help, else to come back soon.
func (w *Worker) refuse(ctx context.Context, m message, reason error) error {
	if errors.Is(reason, ErrMismatch) || errors.Is(reason, ErrReward) || errors.Is(reason, ErrEventID) {
		return settle(ctx, w.cfg.Pool, m, "DEAD", "", reason)
	}
	return giveBack(ctx, w.cfg.Pool, m, backoff(m.attempts, firstPause, w.cfg.TTL), reason)
}

// orElse returns v, or other where v is the zero value.
func orElse[T comparable](v, other T) T {
	var zero T
	if v == zero {
		return other
	}
	return v
}
