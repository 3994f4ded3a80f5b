package itemserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/fenced/fenced/tokens"
)

// problem is an answer in the form of RFC 9457.
type problem struct {
	Status    int          `json:"status"`
	Code      string       `json:"code"`
	Detail    string       `json:"detail"`
	Resource  string       `json:"resource,omitempty"`
	Presented tokens.Token `json:"presented,omitempty"`
	Current   tokens.Token `json:"current,omitempty"`
}

func (p problem) Error() string { return p.Detail }

func malformed(detail string) problem {
	return problem{Status: http.StatusBadRequest, Code: "malformed", Detail: detail}
}

// problemOf maps an error to its answer. Only a stale token is 412: a caller that
// hears it stops, and must not stop because the database was busy.
func problemOf(err error) problem {
	var p problem
	var stale *tokens.StaleError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &stale):
		return problem{Status: http.StatusPreconditionFailed, Code: "stale_token", Detail: "a newer grant has written",
			Resource: stale.Resource, Presented: stale.Presented, Current: stale.Current}
	case errors.Is(err, tokens.ErrMissing):
		return problem{Status: http.StatusPreconditionRequired, Code: "token_missing", Detail: "the header " + tokens.Header + " is required"}
	case errors.Is(err, tokens.ErrInvalid):
		return malformed(err.Error())
	default:
		// The database did not answer, or not in time. Whether the grant was made
		// is unknown here; the same key asks again. Its words are not for callers.
		return problem{Status: http.StatusServiceUnavailable, Code: "unavailable", Detail: "repeat with the same key"}
	}
}

func (s *Server) refuse(w http.ResponseWriter, err error) {
	p := problemOf(err)
	if p.Status == http.StatusServiceUnavailable && !errors.Is(err, context.Canceled) { // nobody waits for an answer then
		s.cfg.Log.Warn("the database did not answer", "error", err)
	}
	if p.Status == http.StatusConflict || p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	reply(w, p.Status, "application/problem+json", p)
}

func reply(w http.ResponseWriter, status int, media string, body any) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a caller that is gone asks again
}
