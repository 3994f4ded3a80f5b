package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver"
	"github.com/fenced/fenced/tokens"
)

const problemType = "application/problem+json"

// writeProblem answers with err. It is the only place that writes an error.
func writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	code := apierr.CodeOf(err)
	rec := recorderOf(w)
	if clientGone(r, err) {
		// Nobody reads the answer. Half-closed connections still could, and an
		// empty 200 is what net/http would send them.
		rec.status = statusClientGone
		panic(http.ErrAbortHandler)
	}
	if code == apierr.Internal {
		rec.logFault(r.Context(), err)
	}
	p := problemOf(err)
	p.RequestID = rec.id
	rec.code = p.Code
	if p.Code == apierr.Unauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if after := retryAfter(p.Code, err); after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	}
	if err := writeJSON(w, p.Status, problemType, &p); err != nil {
		panic(err)
	}
}

// errClientGone is what a handler returns when its client left before the answer.
var errClientGone = errors.New("client is gone")

// clientGone reports whether err is only that the client ended its request.
func clientGone(r *http.Request, err error) bool {
	return errors.Is(err, errClientGone) ||
		r.Context().Err() != nil && apierr.CodeOf(err) == apierr.Internal && errors.Is(err, context.Canceled)
}

// problemOf turns err into its answer. Errors without a code, and all causes,
// keep their text to themselves.
func problemOf(err error) wire.Problem {
	code := apierr.CodeOf(err)
	if !code.Known() {
		code = apierr.Internal
	}
	info := code.Info()
	p := wire.Problem{Type: "/docs#" + string(code), Title: info.Meaning, Status: info.Status, Code: code}

	var plain *apierr.Error
	var held *lockserver.HeldError
	var gone *lockserver.GoneError
	var stale *tokens.StaleError
	var check *checkError
	switch {
	case errors.As(err, &held):
		addHeld(&p, held)
	case errors.As(err, &gone):
		p.Ended = gone.End.String()
	case errors.As(err, &check):
		p.Results = check.results
	case errors.As(err, &stale):
		p.Resource, p.Presented, p.Current = stale.Resource, stale.Presented, stale.Current
	case errors.As(err, &plain):
		p.Detail, p.Field, p.Limit = plain.Detail, plain.Field, plain.Limit
	}
	return p
}

func addHeld(p *wire.Problem, held *lockserver.HeldError) {
	waited := held.Waited.Milliseconds()
	p.Waiters, p.WaitedMS = held.Waiters, &waited
	// The holder may have left between the refusal and its description.
	if held.Holder.Token.Valid() {
		holder := wireHolder(&held.Holder)
		p.Holder = &holder
	}
}

// retryAfter is what the client should wait before it repeats the call, 0 where a
// repeat cannot help.
func retryAfter(code apierr.Code, err error) time.Duration {
	var plain *apierr.Error
	switch {
	case !code.Info().Retryable:
		return 0
	case errors.As(err, &plain) && plain.RetryAfter > 0:
		return plain.RetryAfter
	case code.Info().Status == http.StatusServiceUnavailable:
		return 2 * time.Second
	}
	return time.Second
}
