package httpapi

import (
	"context"

	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver"
)

// sessions serves /v1/sessions.
type sessions struct {
	engine SessionService
	quotas *quotas
}

func (s sessions) routes(a *api) {
	handle(a, createSessionOp, s.create)
	handle(a, listSessionsOp, s.list)
	handle(a, getSessionOp, s.get)
	handle(a, renewSessionOp, s.renew)
	handle(a, endSessionOp, s.end)
}

func (s sessions) create(ctx context.Context, c *call, in *wire.SessionRequest) (*wire.Session, error) {
	lifetime, err := ttl(in.TTL)
	if err != nil {
		return nil, err
	}
	if lifetime == 0 {
		lifetime = lockserver.DefaultTTL
	}
	session, err := s.engine.CreateSession(ctx, in.Owner, lifetime)
	if err != nil {
		return nil, err
	}
	c.record.ref = session.Ref
	c.w.Header()["Location"] = []string{"/v1/sessions/" + session.ID}
	return wireSession(session), nil
}

func (s sessions) list(ctx context.Context, _ *call, _ *none) (*wire.SessionList, error) {
	all, err := s.engine.Sessions(ctx)
	if err != nil {
		return nil, err
	}
	out := &wire.SessionList{Sessions: make([]wire.Session, len(all))}
	for i := range all {
		all[i].ID = "" // a list is for everybody
		out.Sessions[i] = *wireSession(&all[i])
	}
	return out, nil
}

// get shows the session; with a wait it answers at its next change.
func (s sessions) get(ctx context.Context, c *call, _ *none) (*wire.Session, error) {
	wait, given, err := c.wait()
	if err != nil {
		return nil, err
	}
	if !given {
		return foundSession(s.engine.Session(ctx, c.path("session")))
	}
	waited, err := s.quotas.waitFor(c.key, wait)
	if err != nil {
		return nil, err
	}
	defer waited()
	c.allowFor(wait)
	session, err := s.engine.AwaitSession(ctx, c.path("session"), wait)
	if err == nil {
		err = c.again(keys.Lock)
	}
	return foundSession(session, err)
}

func (s sessions) renew(ctx context.Context, c *call, _ *none) (*wire.Session, error) {
	return foundSession(s.engine.RenewSession(ctx, c.path("session")))
}

func (s sessions) end(ctx context.Context, c *call, _ *none) (*none, error) {
	id := c.path("session")
	c.record.ref = refOf(id)
	return nil, s.engine.EndSession(ctx, id)
}

func foundSession(session *lockserver.Session, err error) (*wire.Session, error) {
	if err != nil {
		return nil, err
	}
	return wireSession(session), nil
}
