package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver"
	"github.com/fenced/fenced/tokens"
)

// takeBackTimeout bounds the release of a hold that was granted to nobody; after
// it, the hold's TTL ends it.
const takeBackTimeout = 5 * time.Second

// holds serves /v1/holds.
type holds struct {
	engine HoldService
	quotas *quotas
}

func (s holds) routes(a *api) {
	handle(a, acquireOp, s.acquire)
	handle(a, getHoldOp, s.get)
	handle(a, renewHoldOp, s.renew)
	handle(a, releaseHoldOp, s.release)
}

// acquire answers 201 with a held hold, or 202 with a queued one whose place is
// kept.
func (s holds) acquire(ctx context.Context, c *call, in *wire.AcquireRequest) (*wire.Hold, error) {
	c.record.lock = in.Lock
	req, err := acquireRequest(c.r.Header, in)
	if err != nil {
		return nil, err
	}
	if err := c.permit(keys.Lock, req.Lock); err != nil {
		return nil, err
	}
	hold, err := s.withinQuota(ctx, c, req)
	if err != nil {
		return nil, err
	}
	c.w.Header()["Location"] = []string{"/v1/holds/" + hold.ID}
	if hold.State == lockserver.Queued {
		c.status = http.StatusAccepted
	}
	return answerHold(c, hold), nil
}

// withinQuota acquires with room for one more hold and one more waiter of the key.
func (s holds) withinQuota(ctx context.Context, c *call, req lockserver.AcquireRequest) (hold *lockserver.Hold, err error) {
	waited, err := s.quotas.waitFor(c.key, req.Wait)
	if err != nil {
		return nil, err
	}
	defer waited()
	took, err := s.quotas.hold(ctx, c.key, attempt(req))
	if err != nil {
		return nil, err
	}
	id := ""
	defer func() { took(id) }()
	if hold, err = s.granted(ctx, c, req); hold != nil {
		id = hold.ID
		c.record.ref, c.record.token = hold.Ref, hold.Token
	}
	return hold, err
}

// attempt is what the idempotency key names: it is one attempt for one lock.
func attempt(req lockserver.AcquireRequest) string {
	if req.IdempotencyKey == "" {
		return ""
	}
	return req.IdempotencyKey + " " + req.Lock
}

// granted acquires, and takes the grant back where the client has left. A hold beside an
// error is one that stays.
func (s holds) granted(ctx context.Context, c *call, req lockserver.AcquireRequest) (*lockserver.Hold, error) {
	c.allowFor(req.Wait)
	hold, err := s.engine.Acquire(ctx, req)
	if err != nil {
		return nil, err
	}
	if req.Wait > 0 {
		if err := c.stillAllowed(keys.Lock); err != nil {
			s.takeBack(ctx, hold)
			return nil, err
		}
	}
	if ctx.Err() != nil || req.Wait > 0 && peerLeft(ctx) {
		// A hold with an idempotency key stays: its caller may ask for it again, and
		// would find it gone otherwise.
		if req.IdempotencyKey != "" {
			return hold, errClientGone
		}
		s.takeBack(ctx, hold)
		return nil, errClientGone
	}
	return hold, nil
}

// takeBack gives up a hold that nobody was told of.
func (s holds) takeBack(ctx context.Context, hold *lockserver.Hold) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackTimeout)
	defer cancel()
	_ = s.engine.Release(ctx, hold.ID) // its TTL ends it otherwise
}

func acquireRequest(h http.Header, in *wire.AcquireRequest) (lockserver.AcquireRequest, error) {
	req := lockserver.AcquireRequest{
		Lock: in.Lock, Owner: in.Owner, KeepPlace: in.KeepPlace, Session: in.Session, Metadata: in.Metadata,
	}
	var err error
	if req.TTL, err = ttl(in.TTL); err != nil {
		return req, err
	}
	if req.Wait, err = duration("wait", in.Wait); err != nil {
		return req, err
	}
	if err = lockserver.ValidateWait(req.Wait); err != nil {
		return req, err
	}
	req.IdempotencyKey, err = idempotencyKey(h)
	return req, err
}

// idempotencyKey returns the key, "" where there is none. The engine checks its
// form; an empty or repeated header never reaches it.
func idempotencyKey(h http.Header) (string, error) {
	values := h[wire.IdempotencyKey]
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) == 1 && values[0] != "":
		return values[0], nil
	}
	return "", &apierr.Error{
		ErrCode: apierr.BadIdempotencyKey, Detail: "the header must be given once and not be empty",
		Field: wire.IdempotencyKey, Limit: "a UUID or 32 hex digits",
	}
}

// get shows the hold. With a wait it says "I am here", which keeps a place and
// renews what is held.
func (s holds) get(ctx context.Context, c *call, _ *none) (*wire.Hold, error) {
	wait, here, err := c.wait()
	if err != nil {
		return nil, err
	}
	if !here {
		return found(c)(s.engine.Hold(ctx, c.path("hold")))
	}
	waited, err := s.quotas.waitFor(c.key, wait)
	if err != nil {
		return nil, err
	}
	defer waited()
	c.allowFor(wait)
	hold, err := s.engine.AwaitHold(ctx, c.path("hold"), wait)
	if err == nil {
		if err = c.again(keys.Lock); err != nil {
			s.takeBack(ctx, hold)
		}
	}
	return found(c)(hold, err)
}

func (s holds) renew(ctx context.Context, c *call, _ *none) (*wire.Hold, error) {
	return found(c)(s.engine.Renew(ctx, c.path("hold")))
}

func (s holds) release(ctx context.Context, c *call, _ *none) (*none, error) {
	id := c.path("hold")
	c.record.ref = refOf(id)
	err := s.engine.Release(ctx, id)
	if err == nil || apierr.CodeOf(err) == apierr.HoldGone {
		s.quotas.ended(c.key, id)
		s.recordGone(ctx, c, id)
	}
	return nil, err
}

// recordGone notes for the audit log of which lock and token an ended hold was, as far
// as the engine remembers.
func (s holds) recordGone(ctx context.Context, c *call, id string) {
	if !c.audited {
		return
	}
	var gone *lockserver.GoneError
	if _, err := s.engine.Hold(ctx, id); errors.As(err, &gone) {
		c.record.lock, c.record.token = gone.Lock, gone.Token
	}
}

// found turns what the engine returns into an answer.
func found(c *call) func(*lockserver.Hold, error) (*wire.Hold, error) {
	return func(hold *lockserver.Hold, err error) (*wire.Hold, error) {
		if err != nil {
			return nil, err
		}
		return answerHold(c, hold), nil
	}
}

// answerHold sets the headers that go with a hold.
func answerHold(c *call, hold *lockserver.Hold) *wire.Hold {
	c.record.lock, c.record.ref, c.record.token = hold.Lock, hold.Ref, hold.Token
	if hold.Token.Valid() {
		c.w.Header()[tokens.Header] = []string{hold.Token.String()}
	}
	if hold.Replayed {
		c.w.Header()[wire.IdempotentReplay] = []string{"true"}
	}
	return wireHold(hold)
}
