package sdktest

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/apikey"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/tokens"
)

func (s *Server) status(w http.ResponseWriter, _ *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := wire.Status{Name: "fake", Version: "sdktest", Mode: "embedded", Ready: true, Cluster: "fake",
		Revision: s.revision, Highest: tokens.Token(s.base + s.revision), Base: s.base, Leader: "fake", Leads: true, Floor: "protected", Locks: len(s.queues), Started: s.started.UTC(),
		HistorySince: s.started.UTC()}
	for _, q := range s.queues {
		out.Holds++
		out.Waiters += len(q) - 1
	}
	for _, ses := range s.sessions {
		if ses.ended == "" {
			out.Sessions++
		}
	}
	return answer(w, http.StatusOK, out)
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) error {
	w.WriteHeader(http.StatusOK)
	return nil
}

// raiseFloor ends all holds and sessions, and makes every token to come higher.
func (s *Server) raiseFloor(w http.ResponseWriter, r *http.Request) error {
	var req wire.FloorRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	if err := s.permit(r, apikey.Admin, ""); err != nil {
		return err
	}
	if req.Above > maxFloor {
		return apierr.Bounds("above", fmt.Sprintf("an integer from 1 to %d", int64(maxFloor)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ses := range s.sessions {
		s.endSession(ses, "unknown")
	}
	for _, q := range s.queues {
		for _, h := range slices.Clone(q) {
			s.end(h, "unknown", "")
		}
	}
	s.base = max(s.base, int64(req.Above)-s.revision) + 1
	return answer(w, http.StatusOK, wire.Floor{Base: s.base})
}

// maxFloor leaves room for the tokens to come.
const maxFloor = 1 << 52
