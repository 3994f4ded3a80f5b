package clientsdk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/fenced/fenced/clientsdk/internal/clock"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
)

const (
	// maxAsk is how long one request waits in the queue. It is well under the
	// minute at which proxies cut, and bounds how long a dead connection is trusted.
	maxAsk = 10 * time.Second
	// minAsk is the least that a wait shrinks to behind a proxy that cuts early.
	minAsk = 500 * time.Millisecond
	// restartPause keeps an attempt whose place vanished from spinning.
	restartPause = 100 * time.Millisecond
	// lastAnswer is how long a call may go on when its wait is over, for the answer to
	// its last question.
	lastAnswer = time.Second
	// leastTime is how long a call may take however short its wait is. A server whose
	// store has just lost its quorum needs 2 s to find that out.
	leastTime = 3 * time.Second
)

// AcquireOptions says how to acquire. nil means the defaults.
type AcquireOptions struct {
	// Owner names this worker for people. Defaults to the client's.
	Owner string
	// TTL is as in [Config]. Defaults to the client's.
	TTL time.Duration
	// Wait bounds the time in the queue, and with it the call: it ends a second later
	// at most, or after 3 s where that is longer, also where no server answers.
	// Defaults to 0, which means until the context ends; [Client.TryAcquire] does not
	// wait, and takes 3 s at most.
	Wait time.Duration
	// Metadata is shown to people beside host, pid, program and build: with these
	// at most 16 entries and 1 KiB.
	Metadata map[string]string
	// PerHold gives the hold a lease of its own instead of a share in the client's
	// session. It costs a renewal of its own, and the hold outlives Close until its
	// TTL is over.
	PerHold bool
	_       struct{}
}

// Acquire waits for the lock and returns it as a [Hold] that renews itself. The
// queue is first come, first served, and survives lost connections and restarts of
// servers.
//
// It waits until the lock is granted, opts.Wait is over ([*HeldError]), ctx or the
// client ends (the cause of ctx, [ErrClosed]), a server refuses ([*APIError]), or
// none has answered for Config.RetryFor or to the end of opts.Wait ([ErrUnavailable]).
// After an error nothing is held: what may have been left behind is removed in the
// background.
//
// Locks are not re-entrant: a second Acquire of the same lock waits behind the first.
func (c *Client) Acquire(ctx context.Context, lock string, opts *AcquireOptions) (*Hold, error) {
	return c.acquire(ctx, context.WithoutCancel(ctx), lock, opts, false)
}

// TryAcquire takes the lock if it is free and returns a [*HeldError] at once if it
// is not, and [ErrUnavailable] where no server has answered for 3 s. Otherwise it is
// like [Client.Acquire]; opts.Wait must be 0.
func (c *Client) TryAcquire(ctx context.Context, lock string, opts *AcquireOptions) (*Hold, error) {
	if opts != nil && opts.Wait != 0 {
		return nil, bounds(fmt.Sprintf("acquire %q", lock), "Wait", fmt.Sprintf("0 for TryAcquire, not %s", opts.Wait))
	}
	return c.acquire(ctx, context.WithoutCancel(ctx), lock, opts, true)
}

// within returns ctx with an end to it where o or try say how long to wait: without that
// the wait is as long as ctx.
func (o AcquireOptions) within(ctx context.Context, try bool) (context.Context, context.CancelFunc) {
	if o.Wait == 0 && !try {
		return ctx, func() {}
	}
	return forAnswer(ctx, max(o.Wait, leastTime-lastAnswer), lastAnswer)
}

// errStartOver ends an attempt whose hold or session ended before anybody was told
// of a grant.
var errStartOver = errors.New("the place in the queue is gone")

// acquire makes attempts, each under a key of its own, until one is decided. The
// hold's context descends from parent.
func (c *Client) acquire(ctx, parent context.Context, lock string, opts *AcquireOptions, try bool) (*Hold, error) {
	o, err := c.options(fmt.Sprintf("acquire %q", lock), opts)
	if err == nil {
		err = checkText(fmt.Sprintf("acquire %q", lock), "lock", lock)
	}
	if err != nil {
		return nil, err
	}
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("acquire %q: %w", lock, err)
	}
	defer end()
	ctx, cancel := o.within(ctx, try)
	defer cancel()
	begun := c.t.now()
	for {
		a := &attempt{c: c, parent: parent, lock: lock, opts: o, begun: begun, try: try, key: newKey(), chunk: maxAsk}
		h, err := a.run(ctx)
		if !errors.Is(err, errStartOver) {
			return h, err
		}
		if !sleep(ctx, restartPause) {
			return nil, fmt.Errorf("acquire %q: %w", lock, context.Cause(ctx))
		}
	}
}

// options fills in the defaults of opts.
func (c *Client) options(op string, opts *AcquireOptions) (AcquireOptions, error) {
	var o AcquireOptions
	if opts != nil {
		o = *opts
	}
	if o.Owner == "" {
		o.Owner = c.cfg.Owner
	}
	if o.TTL == 0 {
		o.TTL = c.cfg.TTL
	}
	meta := processMetadata()
	maps.Copy(meta, o.Metadata)
	o.Metadata = meta
	switch {
	case o.Wait < 0:
		return o, bounds(op, "Wait", fmt.Sprintf("0 or more, not %s", o.Wait))
	case !validTTL(o.TTL):
		return o, bounds(op, "TTL", fmt.Sprintf("%s, not %s", ttlLimit, o.TTL))
	}
	return o, checkText(op, "Owner", o.Owner)
}

// An attempt is one hold asked for under one idempotency key, from the first
// request to the grant or the cleaning up.
type attempt struct {
	c       *Client
	parent  context.Context
	lock    string
	opts    AcquireOptions
	begun   clock.Instant
	try     bool
	key     string
	session *session // nil with PerHold

	// chunk is how long one request waits: less than maxAsk once something between
	// here and the server has cut a longer one.
	chunk time.Duration
	// id and ref are known from the first answer on.
	id, ref string
	// exposed: a server may have a hold of this attempt.
	exposed bool
}

// run asks until the attempt is decided.
func (a *attempt) run(ctx context.Context) (*Hold, error) {
	if !a.opts.PerHold {
		s, err := a.c.pinSession(ctx, a.opts.TTL)
		if err != nil {
			return nil, fmt.Errorf("acquire %q: %w", a.lock, err)
		}
		a.session = s
		defer s.unpin()
	}
	for {
		asked := a.c.t.now()
		wait := a.waitLeft()
		got, sent, err := a.ask(ctx, wait)
		switch {
		case err != nil:
			return nil, a.fail(err)
		case got.State == wire.StateHeld:
			return a.take(ctx, got, sent)
		}
		// A server that answers "queued" before its time must not be asked in a
		// tight loop.
		if early := min(wait, a.chunk) - a.c.t.now().Sub(asked); early > minPause {
			sleep(ctx, minPause)
		}
	}
}

// waitLeft is the time to stand in the queue yet, 0 for the last request.
func (a *attempt) waitLeft() time.Duration {
	switch {
	case a.try:
		return 0
	case a.opts.Wait == 0:
		return maxAsk
	}
	return max(0, a.opts.Wait-a.c.t.now().Sub(a.begun)).Truncate(time.Millisecond)
}

// ask makes one request, again and again until one is answered. It waits up to
// wait or less; the answer is the state of this attempt's hold.
func (a *attempt) ask(ctx context.Context, wait time.Duration) (got wire.Hold, sent clock.Instant, err error) {
	err = a.c.t.retry(ctx, a.c.cfg.RetryFor, func(try context.Context) (err error) {
		wait := answerable(ctx, try, min(wait, a.chunk))
		r := a.request(wait)
		r.check = func() error { return a.sound(got) }
		begun := a.c.t.now()
		sent, err = a.c.t.exchange(try, r, &got)
		if !OutcomeKnown(err) {
			a.exposed = true
			if took := a.c.t.now().Sub(begun); took < wait && took >= minAsk {
				a.chunk = max(minAsk, (took * 3 / 4).Truncate(time.Millisecond))
			}
		}
		return err
	})
	if err == nil {
		a.exposed = true
		a.ref = got.Ref
		if got.Hold != "" {
			a.id = got.Hold
		}
		got.Hold = a.id
	}
	return got, sent, err
}

// answerable is wait, or less where try is a share of the time of ctx, so that the
// answer comes in it. It is never 0, with which a request gives its place up.
func answerable(ctx, try context.Context, wait time.Duration) time.Duration {
	whole, _ := ctx.Deadline()
	if share, ok := try.Deadline(); ok && share.Before(whole) && wait > 0 {
		return min(wait, max(time.Millisecond, (time.Until(share)*3/4).Truncate(time.Millisecond)))
	}
	return wait
}

// request is a POST while the id is unknown and for the last try, which gives the
// place up if it is not granted; a GET keeps an existing place.
func (a *attempt) request(wait time.Duration) request {
	r := request{op: fmt.Sprintf("acquire %q", a.lock), timeout: wait + callTimeout}
	if a.id != "" && wait > 0 {
		r.method, r.path = http.MethodGet, "/v1/holds/"+a.id+"?wait="+wait.String()
		return r
	}
	body := wire.AcquireRequest{Lock: a.lock, Owner: a.opts.Owner, Metadata: a.opts.Metadata}
	if wait > 0 {
		body.Wait, body.KeepPlace = wait.String(), true
	}
	if a.session != nil {
		body.Session = a.session.id
	} else {
		body.TTL = a.opts.TTL.String()
	}
	r.method, r.path, r.key, r.body = http.MethodPost, "/v1/holds", a.key, body
	return r
}

// sound refuses an answer that is not about this attempt's hold.
func (a *attempt) sound(got wire.Hold) error {
	switch {
	case got.Lock != a.lock:
		return errForeign("lock", got.Lock, a.lock)
	case a.id == "" && got.Hold == "", got.Ref == "":
		return errors.New("answer names no hold")
	case a.id != "" && (got.Ref != a.ref || got.Hold != "" && got.Hold != a.id):
		return errForeign("hold", got.Ref, a.ref)
	case got.State == wire.StateQueued:
		return nil
	case got.State != wire.StateHeld:
		return fmt.Errorf("answer has the state %q", got.State)
	case !got.Token.Valid():
		return errors.New("answer grants without a token")
	case got.TTLMS != a.opts.TTL.Milliseconds():
		return fmt.Errorf("answer is for a TTL of %d ms, not %d", got.TTLMS, a.opts.TTL.Milliseconds())
	}
	return nil
}

// take makes a Hold of a grant. Unless most of the TTL is left, counted from the
// sending of the request, it renews once first.
func (a *attempt) take(ctx context.Context, got wire.Hold, sent clock.Instant) (*Hold, error) {
	l, err := a.leaseOf(ctx, got, sent)
	if err != nil {
		return nil, a.fail(err)
	}
	h := newHold(a.parent, a.c, got, l, a.session)
	switch {
	case !l.add(h):
		err = errStartOver
	case a.session != nil:
		err = l.fresh(ctx)
	}
	if err == nil && h.Err() != nil {
		err = errStartOver
	}
	if err != nil {
		h.finish(ErrReleased)
		h.drop()
		return nil, a.fail(err)
	}
	return h, nil
}

func (a *attempt) leaseOf(ctx context.Context, got wire.Hold, sent clock.Instant) (*lease, error) {
	if a.session != nil {
		return a.session.lease, nil
	}
	return a.c.startPerHold(ctx, got, sent)
}

// fail ends the attempt: it turns the server's words into this package's errors and
// removes what may be left.
func (a *attempt) fail(err error) error {
	var api *APIError
	_, ended := gone(err)
	switch errors.As(err, &api); {
	case errors.Is(err, errStartOver):
		a.abandon()
		return err
	case ended:
		if api.Code() == apierr.SessionGone && a.session != nil {
			a.session.lose(LostSession)
		}
		return errStartOver
	case api != nil && api.Code() == apierr.LockHeld:
		if a.id == "" {
			a.abandon() // a try before this one may be on its way yet
		}
		return a.heldError(api)
	case api != nil && api.Code() == apierr.SessionFull && a.session != nil:
		a.session.retire()
		a.abandon()
		return errStartOver
	}
	a.abandon()
	return err
}

func (a *attempt) heldError(api *APIError) error {
	return &HeldError{Lock: a.lock, Holder: api.problem.Holder, Waiters: api.problem.Waiters,
		Waited: a.c.t.now().Sub(a.begun)}
}

// abandon removes what a server may have of this attempt, in the background.
func (a *attempt) abandon() {
	switch {
	case !a.exposed:
	case a.id != "":
		a.c.spawn(func() { a.c.discard(context.Background(), a.session, a.lock, a.id) })
	default:
		a.c.spawn(a.recall)
	}
}

// recall learns the id of a hold whose every answer was lost, by asking once more
// under the same key without waiting, and deletes it. It asks to keep the place: a
// plain refusal would not tell the id of one that an earlier request of this attempt,
// whose end the server has not seen yet, leaves in the queue. The order closes the
// gap: a request that is still on its way finds its key used up.
func (a *attempt) recall() {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	ask := a.request(0)
	body := ask.body.(wire.AcquireRequest)
	body.KeepPlace = true
	ask.body = body
	var got wire.Hold
	err := a.c.t.retry(ctx, releaseTimeout, func(ctx context.Context) error {
		_, err := a.c.t.exchange(ctx, ask, &got)
		return err
	})
	switch {
	case err == nil && got.Hold != "":
		a.c.discard(ctx, a.session, a.lock, got.Hold)
	case a.session != nil && (errors.Is(err, ErrUnavailable) || !OutcomeKnown(err)):
		a.session.addStray(a.recall)
	}
}

// discard releases a hold that nobody will use. What cannot be released now is left
// to its lease or to the next renewal of its session.
func (c *Client) discard(ctx context.Context, s *session, lock, id string) {
	err := c.deleteHold(ctx, lock, id)
	if _, ended := gone(err); err == nil || ended {
		return
	}
	c.log.Warn("hold not released; its lease will end it", "lock", lock, "err", err)
	if s != nil {
		s.addStray(func() { c.discard(context.Background(), s, lock, id) })
	}
}
