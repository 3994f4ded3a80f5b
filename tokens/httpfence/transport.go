package httpfence

import (
	"fmt"
	"net/http"

	"github.com/fenced/fenced/tokens"
)

// Transport is an http.RoundTripper that sends, with each request, the token that
// the request's context carries for its lock.
type Transport struct {
	// Base sends the requests. Defaults to http.DefaultTransport.
	Base http.RoundTripper

	// Lock names the lock of a request, as the server's [Config] does; "" means
	// that the request needs no token. Required.
	Lock func(r *http.Request) (string, error)

	_ struct{}
}

// RoundTrip sends r with its token. Where the context carries no token for the
// lock, nothing is sent and the error wraps [tokens.ErrMissing]; a token of another
// lock is never sent instead. A Fencing-Token header that is set already is left
// alone.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	fenced, err := t.withToken(r)
	if err != nil {
		if r.Body != nil {
			r.Body.Close() // a RoundTripper owes this also when it fails
		}
		return nil, err
	}
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	return base.RoundTrip(fenced)
}

func (t *Transport) withToken(r *http.Request) (*http.Request, error) {
	if len(r.Header.Values(tokens.Header)) > 0 {
		return r, nil
	}
	if t.Lock == nil {
		return nil, fmt.Errorf("httpfence: Transport.Lock is nil: %w", tokens.ErrInvalid)
	}
	lock, err := t.Lock(r)
	if err != nil || lock == "" {
		return r, err
	}
	token, ok := tokens.FromContext(r.Context(), lock)
	if !ok {
		return nil, fmt.Errorf("the context carries no token of lock %q: %w", lock, tokens.ErrMissing)
	}
	r = r.Clone(r.Context()) // a RoundTripper must not change the caller's request
	tokens.SetHeader(r.Header, token)
	return r, nil
}
