package sdktest

import (
	"context"
	"net/http"
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/names"
	"github.com/fenced/fenced/internal/wire"
)

func (s *Server) openSession(w http.ResponseWriter, r *http.Request) error {
	var req wire.SessionRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	ttl, err := parseTTL(req.TTL)
	if err != nil {
		return err
	}
	if err := names.Check("owner", req.Owner, 1, 128); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := newID()
	ses := &session{id: id, ref: refOf(id), owner: req.Owner, ttl: ttl, created: time.Now(), changed: make(chan struct{})}
	s.revision++
	s.sessions[id] = ses
	s.confirmSession(ses)
	w.Header().Set("Location", "/v1/sessions/"+id)
	return answer(w, http.StatusCreated, s.sessionBody(ses))
}

func (s *Server) confirmSession(ses *session) {
	stop(ses.timer)
	ses.until = time.Now().Add(ses.ttl)
	ses.timer = time.AfterFunc(ses.ttl, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !time.Now().Before(ses.until) {
			s.endSession(ses, "expired")
		}
	})
}

func (s *Server) session(r *http.Request) (*session, error) {
	ses := s.sessions[r.PathValue("session")]
	switch {
	case ses == nil:
		return nil, &gone{apierr.SessionGone, "unknown"}
	case ses.ended != "":
		return nil, &gone{apierr.SessionGone, ses.ended}
	}
	return ses, nil
}

func (s *Server) renewSession(w http.ResponseWriter, r *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses, err := s.session(r)
	if err != nil {
		return err
	}
	s.confirmSession(ses)
	return answer(w, http.StatusOK, s.sessionBody(ses))
}

// getSession shows a session; with a wait, at its next change.
func (s *Server) getSession(w http.ResponseWriter, r *http.Request) error {
	wait, err := parseWait(r.URL.Query().Get("wait"))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ses, err := s.session(r)
	if err != nil {
		return err
	}
	if wait > 0 {
		changed := ses.changed
		s.mu.Unlock()
		s.awaitChange(r.Context(), changed, wait)
		s.mu.Lock()
		if ses, err = s.session(r); err != nil {
			return err
		}
	}
	return answer(w, http.StatusOK, s.sessionBody(ses))
}

func (s *Server) awaitChange(ctx context.Context, changed <-chan struct{}, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	case <-s.life.Done():
	}
}

func (s *Server) deleteSession(w http.ResponseWriter, r *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses, err := s.session(r)
	if g, ok := err.(*gone); ok && g.ended == "released" {
		err = nil
	}
	if err != nil {
		return err
	}
	if ses != nil {
		s.endSession(ses, "released")
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) sessionBody(ses *session) wire.Session {
	left := time.Until(ses.until).Milliseconds()
	b := wire.Session{Session: ses.id, Ref: ses.ref, Owner: ses.owner, TTLMS: ses.ttl.Milliseconds(),
		ExpiresInMS: &left, Created: ses.created.UTC(), Live: []string{}, Revision: s.revision}
	for _, h := range s.sessionHolds(ses) {
		b.Live = append(b.Live, h.ref)
	}
	return b
}
