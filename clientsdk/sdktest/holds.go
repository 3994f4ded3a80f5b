package sdktest

import (
	"context"
	"maps"
	"net/http"
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/apikey"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/tokens"
)

func (s *Server) acquire(w http.ResponseWriter, r *http.Request) error {
	var req wire.AcquireRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	ttl, wait, err := bounds(req)
	if err != nil {
		return err
	}
	key := r.Header.Get(wire.IdempotencyKey)
	if req.KeepPlace && key == "" {
		return apierr.Bounds("keep_place", "used with an Idempotency-Key")
	}
	if err := s.permit(r, apikey.Lock, req.Lock); err != nil {
		return err
	}
	begun := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	h, repeated, err := s.find(req, ttl, key)
	if err != nil {
		return err
	}
	if repeated {
		w.Header().Set(wire.IdempotentReplay, "true")
	}
	err = s.await(r.Context(), h, wait)
	switch {
	case err != nil:
		return err
	case h.held:
		tokens.SetHeader(w.Header(), h.token)
		w.Header().Set("Location", "/v1/holds/"+h.id)
		return answer(w, http.StatusCreated, s.holdBody(h))
	case req.KeepPlace:
		return answer(w, http.StatusAccepted, s.holdBody(h))
	}
	held := s.heldProblem(h, time.Since(begun))
	s.end(h, "cancelled", "")
	return held
}

// find returns the hold of the request: the one that its key names, or a new one.
func (s *Server) find(req wire.AcquireRequest, ttl time.Duration, key string) (h *hold, repeated bool, err error) {
	id := newID()
	if key != "" {
		id = keyedID(req.Lock, key)
	}
	ses := s.sessions[req.Session]
	if req.Session != "" && (ses == nil || ses.ended != "") {
		return nil, false, &gone{apierr.SessionGone, "expired"}
	}
	if ses != nil {
		ttl = ses.ttl
	}
	if h := s.holds[id]; h != nil {
		switch {
		case h.ended != "":
			return nil, true, &gone{apierr.HoldGone, h.ended}
		case h.owner != req.Owner || h.ttl != ttl || h.session != ses || !maps.Equal(h.metadata, req.Metadata):
			return nil, true, apierr.New(apierr.IdempotencyKeyReused, "the key was used with another body")
		}
		return h, true, nil
	}
	if ses != nil && len(s.sessionHolds(ses)) >= maxHolds {
		return nil, false, apierr.New(apierr.SessionFull, "the session has %d holds", maxHolds)
	}
	h = &hold{id: id, key: key, lock: req.Lock, owner: req.Owner, metadata: req.Metadata, ttl: ttl, session: ses}
	s.put(h)
	return h, false, nil
}

// await binds the request to h until h is held, gone, or the time is over. A held
// hold is confirmed anew. The mutex is held before and after, not meanwhile.
func (s *Server) await(ctx context.Context, h *hold, wait time.Duration) error {
	h.asking++
	if !h.held {
		stop(h.timer)
	}
	defer s.leave(h)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for h.ended == "" {
		if s.isHead(h) {
			return s.grant(h)
		}
		if wait == 0 {
			return nil
		}
		changed := h.changed
		s.mu.Unlock()
		var over bool
		select {
		case <-changed:
		case <-timer.C:
			over = true
		case <-ctx.Done():
			over = true
		case <-s.life.Done():
			over = true
		}
		s.mu.Lock()
		if over && h.ended == "" {
			return ctx.Err()
		}
	}
	return &gone{apierr.HoldGone, h.ended}
}

// leave ends a request; a place that nobody asks for lapses.
func (s *Server) leave(h *hold) {
	h.asking--
	if h.held || h.ended != "" || h.asking > 0 {
		return
	}
	if h.key == "" {
		s.end(h, "cancelled", "")
		return
	}
	h.timer = time.AfterFunc(placeTimeout, func() { s.lapse(h) })
}

func (s *Server) lapse(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !h.held && h.asking == 0 {
		s.end(h, "cancelled", "")
	}
}

// grant confirms h, its session included, from now on.
func (s *Server) grant(h *hold) error {
	if !h.held {
		h.held = true
		h.previous = s.previousOf(h.lock)
	}
	if h.session != nil {
		s.confirmSession(h.session)
		return nil
	}
	stop(h.timer)
	h.until = time.Now().Add(h.ttl)
	h.timer = time.AfterFunc(h.ttl, func() { s.expire(h) })
	return nil
}

func (s *Server) expire(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !time.Now().Before(h.until) {
		s.end(h, "expired", "")
	}
}

// hold returns the live hold of the path.
func (s *Server) hold(r *http.Request) (*hold, error) {
	h := s.holds[r.PathValue("hold")]
	switch {
	case h == nil:
		return nil, &gone{apierr.HoldGone, "unknown"}
	case h.ended != "":
		return nil, &gone{apierr.HoldGone, h.ended}
	}
	return h, nil
}

func (s *Server) getHold(w http.ResponseWriter, r *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := s.hold(r)
	if err != nil {
		return err
	}
	if text := r.URL.Query().Get("wait"); text != "" {
		wait, err := parseWait(text)
		if err != nil {
			return err
		}
		if err := s.await(r.Context(), h, wait); err != nil {
			return err
		}
	}
	return answer(w, http.StatusOK, s.holdBody(h))
}

func (s *Server) renewHold(w http.ResponseWriter, r *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := s.hold(r)
	if err != nil {
		return err
	}
	if !h.held {
		return apierr.New(apierr.NotHeld, "the hold is still queued")
	}
	s.grant(h)
	return answer(w, http.StatusOK, s.holdBody(h))
}

func (s *Server) releaseHold(w http.ResponseWriter, r *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := s.hold(r)
	if g, ok := err.(*gone); ok && g.ended == "released" {
		err = nil
	}
	if err != nil {
		return err
	}
	if h != nil {
		s.end(h, "released", "")
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) holdBody(h *hold) wire.Hold {
	b := wire.Hold{
		Hold: h.id, Ref: h.ref, Lock: h.lock, Owner: h.owner, Metadata: h.metadata, TTLMS: h.ttl.Milliseconds(),
		State: wire.StateQueued, Revision: s.revision, Created: h.created.UTC(),
	}
	until := h.until
	if h.session != nil {
		b.Session, until = h.session.ref, h.session.until
	}
	if !h.held {
		b.Position = s.position(h)
		return b
	}
	left := time.Until(until).Milliseconds()
	b.State, b.Token, b.Previous, b.ExpiresInMS = wire.StateHeld, h.token, h.previous, &left
	return b
}

func (s *Server) position(h *hold) int {
	for i, o := range s.queues[h.lock] {
		if o == h {
			return max(i, 1)
		}
	}
	return 0
}

func (s *Server) heldProblem(h *hold, waited time.Duration) error {
	ms := waited.Milliseconds()
	p := &problem{wire.Problem{Code: apierr.LockHeld, WaitedMS: &ms}}
	for i, o := range s.queues[h.lock] {
		if i > 0 && o != h { // h may have left the queue already
			p.Waiters++
		}
	}
	if head := s.queues[h.lock][0]; head != h {
		p.Holder = holderBody(head)
	}
	return p
}

func holderBody(h *hold) *wire.Holder {
	b := &wire.Holder{Ref: h.ref, Owner: h.owner, Token: h.token, Metadata: h.metadata,
		TTLMS: h.ttl.Milliseconds(), Since: h.created.UTC()}
	until := h.until
	if h.session != nil {
		b.Session, until = h.session.ref, h.session.until
	}
	left := time.Until(until).Milliseconds()
	b.ExpiresInMS = &left
	return b
}
