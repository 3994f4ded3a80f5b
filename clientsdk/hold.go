package clientsdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/fenced/fenced/clientsdk/internal/clock"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/tokens"
)

// Hold is a lock that this process owns. It renews itself until it is released or
// lost. Its methods may be called from any number of goroutines.
//
// A Hold tells the truth as this process can know it: a paused process learns of
// the loss when it runs again, and what it sent before is for the fence to refuse.
type Hold struct {
	c        *Client
	id       string
	ref      string
	lock     string
	owner    string
	token    tokens.Token
	revision int64 // at which the hold is known to exist
	previous *Previous
	lease    *lease
	session  *session // nil where the lease is the hold's own
	ctx      context.Context
	cancel   context.CancelCauseFunc
	done     chan struct{}

	release sync.Once
	result  error // of Release

	mu  sync.Mutex
	err error // why it ended; nil while held
}

// newHold makes a hold of a confirmed answer; its context has the values of parent.
func newHold(parent context.Context, c *Client, w wire.Hold, l *lease, s *session) *Hold {
	h := &Hold{
		c: c, id: w.Hold, ref: w.Ref, lock: w.Lock, owner: w.Owner, token: w.Token,
		revision: w.Revision, previous: w.Previous, lease: l, session: s, done: make(chan struct{}),
	}
	inner, cancel := context.WithCancelCause(tokens.NewContext(parent, w.Lock, w.Token))
	h.ctx, h.cancel = &holdContext{Context: inner, h: h}, cancel
	return h
}

// holdContext looks at the clock whenever it is asked. After a pause the runtime
// may run the caller before it runs the timer that would end the context, and the
// first thing the caller sees must be the loss.
type holdContext struct {
	context.Context
	h *Hold
}

func (c *holdContext) Err() error {
	c.h.look()
	return c.Context.Err()
}

func (c *holdContext) Done() <-chan struct{} {
	c.h.look()
	return c.Context.Done()
}

// look ends the hold where its lease is over. Whoever has ended the lease may not have
// come to this hold yet, and who asks must not be told that all is well meanwhile.
func (h *Hold) look() {
	if h.lease.expired() {
		h.finish(h.lease.why(h))
	}
}

// ID returns the secret id: whoever has it can renew and release the hold. Log
// [Hold.Ref] instead.
func (h *Hold) ID() string { return h.id }

// Ref returns the public name of the hold, as lists and logs show it.
func (h *Hold) Ref() string { return h.ref }

// Lock returns the name of the lock.
func (h *Hold) Lock() string { return h.lock }

// Owner returns the name of the worker that the hold was taken for.
func (h *Hold) Owner() string { return h.owner }

// Token returns the fencing token to send with every write.
func (h *Hold) Token() tokens.Token { return h.token }

// Previous returns how the lock's hold before this one ended; nil where there was
// none. A predecessor that did not end as "released" may have left work half done.
func (h *Hold) Previous() *Previous { return h.previous }

// Context returns a context that ends with the hold: a margin of a tenth of the TTL
// before the lease can have ended by this machine's clock, or as soon as the server
// says that the hold is gone. Its cause is a [*LostError], [ErrReleased] or
// [ErrClosed]. It carries the token for [tokens.FromContext] and the values of the
// context that Acquire was given, but not that context's end.
func (h *Hold) Context() context.Context { return h.ctx }

// Done returns a channel that is closed when the hold has ended.
func (h *Hold) Done() <-chan struct{} {
	h.look()
	return h.done
}

// Err returns nil while the hold is held, then a [*LostError], [ErrReleased] or
// [ErrClosed].
func (h *Hold) Err() error {
	h.look()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// Deadline returns when the hold will count as lost unless a renewal is confirmed
// before: a tenth of the TTL before the lease can have ended. Each confirmed
// renewal moves it.
func (h *Hold) Deadline() time.Time { return time.Now().Add(h.lease.left()) }

// LogValue shows lock, ref and token, and never the secret id.
func (h *Hold) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("lock", h.lock),
		slog.String("ref", h.ref),
		slog.Int64("token", int64(h.token)),
	)
}

// String shows what [Hold.LogValue] does.
func (h *Hold) String() string {
	return fmt.Sprintf("hold %s of %q with token %d", h.ref, h.lock, int64(h.token))
}

// GoString keeps the secret id out of %#v.
func (h *Hold) GoString() string { return h.String() }

// Release gives the lock up. It works for up to 5 s of its own, also when ctx is
// done already; ctx lends its values only. Further calls return the first one's
// result.
//
// It returns nil when the hold ended here, and a [*LostError] when it had ended
// before: then part of the work was done without the lock. With [ErrUnavailable]
// the lock may stay taken until the lease ends; nothing more needs to be done.
func (h *Hold) Release(ctx context.Context) error {
	h.release.Do(func() { h.result = h.doRelease(ctx) })
	return h.result
}

func (h *Hold) doRelease(ctx context.Context) error {
	h.look()
	h.finish(ErrReleased)
	h.drop()
	err := h.Err()
	if !errors.Is(err, ErrReleased) && !errors.Is(err, ErrLost) {
		return err // closed: the session's end took the hold along
	}
	ctx, end, beginErr := h.c.begin(context.WithoutCancel(ctx))
	if beginErr != nil {
		return beginErr
	}
	defer end()
	sent := h.c.deleteHold(ctx, h.lock, h.id)
	if errors.Is(err, ErrLost) {
		return err
	}
	if ended, ok := gone(sent); ok {
		return h.lostError(lostReason(sent, ended))
	}
	if sent != nil && h.session != nil {
		h.session.addStray(func() { h.c.discard(context.Background(), h.session, h.lock, h.id) })
	}
	return sent
}

// drop takes h from under its lease; a lease of its own ends with it.
func (h *Hold) drop() {
	if h.session != nil {
		h.lease.remove(h)
		return
	}
	h.lease.finish(func(*Hold) error { return ErrReleased })
}

// deleteHold deletes by id, within releaseTimeout.
func (c *Client) deleteHold(ctx context.Context, lock, id string) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	r := request{op: fmt.Sprintf("release %q", lock), method: http.MethodDelete, path: "/v1/holds/" + id,
		timeout: releaseTimeout / 3, renewal: true}
	repeated := false
	err := c.t.retry(ctx, releaseTimeout, func(ctx context.Context) error {
		_, err := c.t.exchange(ctx, r, nil)
		if ended, ok := gone(err); ok && repeated && lostReason(err, ended) == LostUnknown {
			return nil // by the try before this one, whose answer was lost
		}
		repeated = repeated || !OutcomeKnown(err)
		return err
	})
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnavailable) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// finish ends the hold; only the first cause counts. When it returns, whoever ended the
// hold, Err, Context and Done all tell of the end. The mutex is held meanwhile: ending
// the context may ask that of an outer hold for its end, and takes that one's mutex.
func (h *Hold) finish(cause error) {
	h.mu.Lock()
	first := h.err == nil
	if first {
		h.err = cause
		h.cancel(cause)
		close(h.done)
	}
	h.mu.Unlock()
	if first && errors.Is(cause, ErrLost) {
		h.c.log.Warn("lock lost", "hold", h, "err", cause)
	}
}

// lostError is h's loss for reason r.
func (h *Hold) lostError(r Reason) error {
	return &LostError{Lock: h.lock, Ref: h.ref, Token: h.token, Reason: r}
}

// startPerHold makes the lease of a single hold from the answer w to a request sent
// at sent. Unless two thirds of the TTL are left, counted from there, it renews once
// first: w may have been waited for.
func (c *Client) startPerHold(ctx context.Context, w wire.Hold, sent clock.Instant) (*lease, error) {
	l := &lease{c: c, ttl: time.Duration(w.TTLMS) * time.Millisecond}
	left := promised(w.ExpiresInMS)
	if used := c.t.now().Sub(sent) + l.ttl - left; used > l.ttl/3 {
		err := c.t.retry(ctx, c.cfg.RetryFor, func(ctx context.Context) (err error) {
			sent, left, err = c.renewHold(ctx, w, l.ttl)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	l.renew = func(ctx context.Context) error {
		sent, left, err := c.renewHold(ctx, w, l.ttl)
		if err == nil {
			l.confirm(sent, left)
		}
		return err
	}
	l.start(sent, left)
	return l, nil
}

// renewHold renews once; left counts from sent.
func (c *Client) renewHold(ctx context.Context, w wire.Hold, ttl time.Duration) (sent clock.Instant, left time.Duration, err error) {
	var out wire.Hold
	sent, err = c.t.exchange(ctx, request{
		op: fmt.Sprintf("renew %q", w.Lock), method: http.MethodPost, path: "/v1/holds/" + w.Hold + "/renew",
		timeout: attemptTimeout(ttl), renewal: true,
		check: func() error { return sameHold(out, w) },
	}, &out)
	return sent, promised(out.ExpiresInMS), err
}

// sameHold refuses an answer that does not confirm the hold want.
func sameHold(got, want wire.Hold) error {
	switch {
	case got.Ref != want.Ref:
		return errForeign("hold", got.Ref, want.Ref)
	case got.State != wire.StateHeld || got.Token != want.Token:
		return fmt.Errorf("answer says %s with token %d, not held with token %d", got.State, int64(got.Token), int64(want.Token))
	case promised(got.ExpiresInMS) <= 0:
		return errors.New("answer promises no time")
	}
	return nil
}
