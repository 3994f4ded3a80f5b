package clientsdk

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/clientsdk/internal/clock"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
)

const (
	callTimeout = 5 * time.Second // one exchange, beside the wait asked for
	maxAnswer   = 8 << 20         // bytes

	minPause = 50 * time.Millisecond
	maxPause = time.Second
)

// transport makes single exchanges with one of the endpoints, and remembers which
// of them answers.
type transport struct {
	endpoints []string
	current   atomic.Uint32
	apiKey    string
	now       clock.Func
	// calls carries the waits, renewals have connections of their own: however
	// many waits are open, a renewal never queues behind them.
	calls, renewals *http.Client
	// own are the transports made here, to be closed here.
	own []*http.Transport
}

func newTransport(cfg Config) *transport {
	t := &transport{apiKey: cfg.APIKey, now: clock.System}
	for _, e := range cfg.Endpoints {
		t.endpoints = append(t.endpoints, strings.TrimRight(e, "/"))
	}
	if cfg.HTTPClient == nil {
		t.calls, t.renewals = t.ownClient(baseTransport(cfg)), t.ownClient(baseTransport(cfg))
		return t
	}
	t.calls, t.renewals = noRedirects(*cfg.HTTPClient), noRedirects(*cfg.HTTPClient)
	switch rt := cfg.HTTPClient.Transport.(type) {
	case nil:
		t.renewals = t.ownClient(baseTransport(cfg))
	case *http.Transport:
		t.renewals = t.ownClient(rt.Clone())
	case clock.Source:
		t.now = rt.LeaseClock
	}
	return t
}

// baseTransport speaks HTTP/1.1 only: there a request that times out takes its
// dead connection with it, where HTTP/2 would send the next one down the same hole.
func baseTransport(cfg Config) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: callTimeout}).DialContext,
		TLSClientConfig:     cfg.TLS,
		TLSHandshakeTimeout: callTimeout,
		MaxIdleConnsPerHost: 100,
		IdleConnTimeout:     90 * time.Second,
		Protocols:           &protocols,
	}
}

func (t *transport) ownClient(rt *http.Transport) *http.Client {
	t.own = append(t.own, rt)
	return noRedirects(http.Client{Transport: rt})
}

// noRedirects makes a redirect an answer like any other: following one would turn
// a POST into a GET and send the key of one host to another.
func noRedirects(hc http.Client) *http.Client {
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &hc
}

func (t *transport) close() {
	for _, rt := range t.own {
		rt.CloseIdleConnections()
	}
}

// endpoint is the one to ask now, and its number, from which the next one counts.
func (t *transport) endpoint() (n uint32, url string) {
	n = t.current.Load()
	return n, t.endpoints[int(n)%len(t.endpoints)]
}

// request is one exchange to make.
type request struct {
	op, method, path string
	key              string // Idempotency-Key
	header           http.Header
	body             any
	timeout          time.Duration // 0 means callTimeout
	renewal          bool
	reads            bool // it changes nothing, so that nothing can have been done
	answer           int  // a status that carries an answer beside the usual ones
	// check refuses an answer that is well-formed but not an answer to this
	// request, such as a cached one.
	check func() error
}

// exchange makes r once and decodes the answer into out, which may be nil. It
// returns when the request was sent: what the answer confirms counts from there.
// Errors are an [*APIError], an *unavailableError, or an *endedError.
func (t *transport) exchange(ctx context.Context, r request, out any) (sent clock.Instant, err error) {
	n, endpoint := t.endpoint()
	timeout := r.timeout
	if timeout == 0 {
		timeout = callTimeout
	}
	attempt, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := t.newRequest(attempt, endpoint, r)
	if err != nil {
		return sent, err
	}
	var way wayOut
	sent = t.now()
	err = t.roundTrip(way.watch(req), r, out)
	switch {
	case err == nil:
		return sent, nil
	case ctx.Err() != nil && context.Cause(ctx) != errNoAnswer:
		return sent, &endedError{op: r.op, cause: context.Cause(ctx), reads: r.reads}
	}
	var api *APIError
	if !errors.As(err, &api) {
		err = &unavailableError{op: r.op, endpoint: endpoint, cause: err, sent: !r.reads && !way.shut(err)}
	}
	// Another server may take what this one refuses of a hold that there is, such as a
	// key that this one has not read yet.
	if _, ended := gone(err); passing(err) || r.renewal && !ended {
		t.current.CompareAndSwap(n, n+1)
	}
	return sent, err
}

// stream makes r once and returns the body of a 200, whose type is accept, to be read
// for as long as ctx lasts. Errors are as those of exchange.
func (t *transport) stream(ctx context.Context, r request, accept string) (io.ReadCloser, error) {
	n, endpoint := t.endpoint()
	body, err := t.openStream(ctx, endpoint, r, accept)
	if err == nil {
		return body, nil
	}
	var api *APIError
	if !errors.As(err, &api) {
		err = &unavailableError{op: r.op, endpoint: endpoint, cause: err}
	}
	if passing(err) {
		t.current.CompareAndSwap(n, n+1)
	}
	return nil, err
}

func (t *transport) openStream(ctx context.Context, endpoint string, r request, accept string) (io.ReadCloser, error) {
	req, err := t.newRequest(ctx, endpoint, r)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept+", application/problem+json")
	resp, err := t.calls.Do(req)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK && kind == accept {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK { // a proxy's page: it would pass for a short stream
		return nil, fmt.Errorf("answer of the type %q where %s was due", kind, accept)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	return nil, decodeProblem(resp, b, r.op)
}

func (t *transport) newRequest(ctx context.Context, endpoint string, r request) (*http.Request, error) {
	var body io.Reader
	if r.body != nil {
		b, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.op, err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, endpoint+r.path, body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.op, err)
	}
	req.Header.Set("Accept", "application/json, application/problem+json")
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(req.Header, r.header)
	if r.key != "" {
		req.Header.Set(wire.IdempotencyKey, r.key)
	}
	if t.apiKey != "" {
		req.Header.Set("Authorization", "Bearer "+t.apiKey)
	}
	return req, nil
}

func (t *transport) roundTrip(req *http.Request, r request, out any) error {
	hc := t.calls
	if r.renewal {
		hc = t.renewals
	}
	resp, err := hc.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("answer broke off: %w", err)
	}
	switch resp.StatusCode {
	case r.answer, http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent:
		return decodeAnswer(resp.StatusCode, body, r, out)
	}
	return decodeProblem(resp, body, r.op)
}

func decodeAnswer(status int, body []byte, r request, out any) error {
	if out == nil {
		// A call without an answer body is a DELETE; any other 2xx comes from
		// something between here and the server.
		if status != http.StatusNoContent {
			return fmt.Errorf("answer %d where 204 was due", status)
		}
		return nil
	}
	reflect.ValueOf(out).Elem().SetZero() // of what a try before has left: JSON leaves out what is empty
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("answer %d cannot be read: %w", status, err)
	}
	if r.check != nil {
		return r.check()
	}
	return nil
}

// decodeProblem rebuilds an error from its code. A body without a code is not from
// a fenced server, whatever its status says.
func decodeProblem(resp *http.Response, body []byte, op string) error {
	var p wire.Problem
	if err := json.Unmarshal(body, &p); err != nil || p.Code == "" {
		if resp.StatusCode == http.StatusBadRequest && resp.TLS == nil && bytes.Contains(body, []byte("HTTPS")) {
			return errors.New("answer 400: the server wants https, and the address is http")
		}
		return fmt.Errorf("answer %d without an error code", resp.StatusCode)
	}
	return &APIError{
		Op: op, Status: resp.StatusCode, ErrCode: string(p.Code), Detail: p.Detail,
		Field: p.Field, Limit: p.Limit, RetryAfter: retryAfter(resp), problem: p,
	}
}

func retryAfter(resp *http.Response) time.Duration {
	n, err := strconv.ParseInt(resp.Header.Get("Retry-After"), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return min(time.Duration(n), math.MaxInt64/time.Second) * time.Second
}

// wayOut tells whether a request can have left. It is told by an *http.Transport, which
// may send twice what has a key: that its last connection was refused says nothing.
type wayOut struct{ asked, open atomic.Bool }

func (w *wayOut) watch(req *http.Request) *http.Request {
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { w.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { w.open.Store(true) },
	}))
}

// shut reports whether no byte of the request, which has ended with err, can have left.
func (w *wayOut) shut(err error) bool {
	if w.asked.Load() {
		return !w.open.Load()
	}
	return neverSent(err) // some other round tripper
}

// neverSent reports whether err arose before a byte of the request could leave: while
// the connection was made, or while TLS made sure of the server.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || unverified(err)
}

// unverified reports whether this process made sure of the server and did not find
// what it was told to expect.
func unverified(err error) bool {
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate) || errors.Is(err, http.ErrSchemeMismatch)
}

// misfit reports whether the two sides cannot agree on how to talk, which lies in how
// they are set up: a certificate that is not trusted or not given, https to a server
// of http.
func misfit(err error) bool {
	var alert *net.OpError // crypto/tls says so where the other side ends a handshake
	return unverified(err) || errors.As(err, &alert) && alert.Op == "remote error"
}

// retry calls try until it succeeds, fails for good, or has failed in passing
// ways for as long as limit, or until ctx ends; for good is also where no endpoint fits.
// The error is that of the last try, whose outcome is unknown where that of any try is.
func (t *transport) retry(ctx context.Context, limit time.Duration, try func(ctx context.Context) error) error {
	var first clock.Instant
	var word error // the last refusal by a server
	unknown, misfits := false, 0
	for n := 0; ; n++ {
		err := t.tryOnce(ctx, n, try)
		if err == nil || !passing(err) {
			return err
		}
		unknown = unknown || !OutcomeKnown(err)
		if !errors.Is(err, ErrUnavailable) {
			word = err
		}
		if !misfit(err) {
			misfits = 0
		} else if misfits++; misfits == len(t.endpoints) {
			return giveUp(err, unknown)
		}
		if n == 0 {
			first = t.now()
		}
		pause := t.pause(n, err)
		if t.now().Add(pause).Sub(first) >= limit {
			return giveUp(err, unknown)
		}
		if !sleep(ctx, pause) {
			return endOf(ctx, giveUp(err, unknown), giveUp(cmp.Or(word, err), unknown))
		}
	}
}

// minShare is the least time that a try has, where there is as much: enough for two
// ways to and fro, and for TLS, on a slow line.
const minShare = time.Second

// tryOnce gives the try with number n what ctx has left of time, and no more than a fair
// share of it while others of the endpoints have not been asked.
func (t *transport) tryOnce(ctx context.Context, n int, try func(ctx context.Context) error) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		return try(ctx)
	}
	left := time.Until(deadline)
	share := max(minShare, left/time.Duration(len(t.endpoints)-n%len(t.endpoints)))
	if share >= left {
		return try(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, share, errNoAnswer)
	defer cancel()
	return try(ctx)
}

// endOf is the error of a call whose context has ended in a try that failed with last.
// Where that was for want of an answer, what a server has said before says more.
func endOf(ctx context.Context, last, word error) error {
	if cause := context.Cause(ctx); cause != errNoAnswer {
		return fmt.Errorf("%w: %w", cause, last)
	}
	return word
}

// giveUp makes ErrUnavailable of err, with which a call that would go on has ended.
func giveUp(err error, unknown bool) error {
	var last *unavailableError
	unknown = unknown && OutcomeKnown(err) // else err says so itself
	switch {
	case errors.As(err, &last) && unknown:
		sent := *last
		sent.sent = true
		return &sent
	case errors.Is(err, ErrUnavailable):
		return err
	}
	return &gaveUpError{err, unknown}
}

// pause is the time before the next try: none while there are endpoints not asked
// yet, then longer from round to round, at random so that clients spread.
func (t *transport) pause(n int, err error) time.Duration {
	round := n / len(t.endpoints)
	if (n+1)%len(t.endpoints) != 0 {
		return 0
	}
	d := min(minPause<<min(round, 10), maxPause)
	var api *APIError
	if errors.As(err, &api) && api.RetryAfter > 0 && api.Code() != apierr.OutcomeUnknown {
		d = max(d, min(api.RetryAfter, maxPause))
	}
	return d/2 + rand.N(d/2+1)
}

// sleep returns false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
