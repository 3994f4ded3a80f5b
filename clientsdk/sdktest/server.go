package sdktest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/clientsdk/internal/clock"
	"github.com/fenced/fenced/internal/apikey"
	"github.com/fenced/fenced/tokens"
)

// Server is a fake lock server. Make it with [New].
type Server struct {
	mux  *http.ServeMux
	life context.Context
	kill context.CancelFunc

	mu     sync.Mutex
	faults map[Op][]Fault
	calls  map[Op]int
	keys   apikey.Set
	cut    chan struct{} // closed by CutEvents
	table
}

// An Op is one call of the API.
type Op string

// The calls that faults can be set for.
const (
	Acquire      Op = "POST /v1/holds"
	Await        Op = "GET /v1/holds/{hold}"
	Renew        Op = "POST /v1/holds/{hold}/renew"
	Release      Op = "DELETE /v1/holds/{hold}"
	OpenSession  Op = "POST /v1/sessions"
	RenewSession Op = "POST /v1/sessions/{session}/renew"
	EndSession   Op = "DELETE /v1/sessions/{session}"
	AwaitSession Op = "GET /v1/sessions/{session}"
	// Events is a stream: its answer cannot be delayed or dropped; see
	// [Server.CutEvents].
	Events Op = "GET /v1/events"
)

// A Fault is what goes wrong with one call. The zero value is no fault; several
// fields combine.
type Fault struct {
	// Delay passes before the call takes effect. A caller that gives up in that
	// time has had none.
	Delay time.Duration
	// DropRequest cuts the connection before the call takes effect.
	DropRequest bool
	// Code refuses the call with that error code, such as "no_quorum".
	Code string
	// Status, where it is not 0, answers the call with Status and Body, without effect.
	Status int
	Body   string
	// DelayAnswer passes after the effect and before the answer.
	DelayAnswer time.Duration
	// DropAnswer cuts the connection after the effect.
	DropAnswer bool
	_          struct{}
}

// New returns a running fake server.
func New() *Server {
	s := &Server{
		faults: make(map[Op][]Fault),
		calls:  make(map[Op]int),
		keys:   make(apikey.Set),
		cut:    make(chan struct{}),
		table:  newTable(),
	}
	s.life, s.kill = context.WithCancel(context.Background())
	s.mux = s.routes()
	return s
}

// Close ends all open requests and stops the server's timers.
func (s *Server) Close() {
	s.kill()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopTimers()
}

// Config returns what [clientsdk.New] needs to talk to s. Change its other fields
// freely.
func (s *Server) Config() clientsdk.Config {
	return clientsdk.Config{
		Endpoints:  []string{"http://fake.invalid"},
		HTTPClient: &http.Client{Transport: s.Transport()},
		Logger:     slog.New(slog.DiscardHandler),
	}
}

// On makes the next calls of op fail, one after the other in the order of faults.
func (s *Server) On(op Op, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[op] = append(s.faults[op], faults...)
}

// Calls returns how many calls of op have arrived.
func (s *Server) Calls(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

// Expire ends the hold of lock's holder as if its lease had run out, and reports
// whether there was one. The holder finds out at its next renewal.
func (s *Server) Expire(lock string) bool { return s.endHolder(lock, "expired", "") }

// Break ends the hold of lock's holder as a person would, and reports whether there
// was one. The holder finds out at its next renewal.
func (s *Server) Break(lock, reason string) bool { return s.endHolder(lock, "broken", reason) }

func (s *Server) endHolder(lock, how, reason string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holder(lock)
	if h != nil {
		s.end(h, how, reason)
	}
	return h != nil
}

// Supersede makes the token of lock's holder stale: its lease runs out, and who waits
// gets the lock, or else somebody who releases it at once. It returns the token of that
// one, which a store under test should have seen, and false where there was no holder.
// The old holder finds out at its next renewal.
func (s *Server) Supersede(lock string) (tokens.Token, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.holder(lock)
	if old == nil {
		return 0, false
	}
	s.end(old, "expired", "")
	if q := s.queues[lock]; len(q) > 0 {
		return q[0].token, true
	}
	h := &hold{id: newID(), lock: lock, owner: "somebody else", ttl: old.ttl, held: true}
	s.put(h)
	s.end(h, "released", "")
	return h.token, true
}

// EndSessions ends all sessions as if their leases had run out, and their holds with
// them.
func (s *Server) EndSessions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ses := range s.sessions {
		s.endSession(ses, "expired")
	}
}

// Holder returns the token of lock's holder, and false where it is free.
func (s *Server) Holder(lock string) (tokens.Token, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.holder(lock); h != nil {
		return h.token, true
	}
	return 0, false
}

// Live returns how many holds, held or queued, lock has.
func (s *Server) Live(lock string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queues[lock])
}

// ServeHTTP serves the API, faults included; it lets [httptest.NewServer] put the
// fake behind a socket.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, pattern := s.mux.Handler(r)
	f := s.next(Op(pattern))
	if !s.pause(r.Context(), f.Delay) || f.DropRequest {
		panic(http.ErrAbortHandler)
	}
	if Op(pattern) == Events && f.Code == "" && f.Status == 0 {
		s.mux.ServeHTTP(w, r)
		return
	}
	answer := httptest.NewRecorder()
	switch {
	case f.Code != "":
		refuse(answer, f.Code)
	case f.Status != 0:
		answer.WriteHeader(f.Status)
		answer.WriteString(f.Body)
	default:
		s.mux.ServeHTTP(answer, r)
	}
	if !s.pause(r.Context(), f.DelayAnswer) || f.DropAnswer {
		panic(http.ErrAbortHandler)
	}
	replay(w, answer)
}

// next counts the call and takes its fault.
func (s *Server) next(op Op) (f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[op]++
	if fs := s.faults[op]; len(fs) > 0 {
		f, s.faults[op] = fs[0], fs[1:]
	}
	return f
}

// pause returns false when the request or the server ended first.
func (s *Server) pause(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-s.life.Done():
	}
	return false
}

// Transport returns a transport that reaches s through memory.
func (s *Server) Transport() http.RoundTripper { return &transport{s} }

type transport struct{ s *Server }

var _ clock.Source = (*transport)(nil)

// LeaseClock makes the SDK count in the time of the test: Go's own clock, which is
// virtual in a bubble.
func (t *transport) LeaseClock() clock.Instant { return clock.Go() }

var errCut = errors.New("connection cut")

// RoundTrip runs the handler beside the caller, so that the end of the request's
// context ends the exchange like a cut connection.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if r.URL.Path == "/v1/events" {
		return t.streamed(r)
	}
	served, err := serverRequest(r)
	if err != nil {
		return nil, err
	}
	answer := httptest.NewRecorder()
	done := make(chan error, 1)
	go func() {
		err := errCut
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				panic(p)
			}
			done <- err
		}()
		t.s.ServeHTTP(answer, served)
		err = nil
	}()
	select {
	case err := <-done:
		if err != nil {
			return nil, err
		}
		resp := answer.Result()
		resp.Request = r
		return resp, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// serverRequest is r as a server sees it. The body is read first: the handler may
// outlive the caller.
func serverRequest(r *http.Request) (*http.Request, error) {
	served := r.Clone(r.Context())
	served.RequestURI = r.URL.RequestURI()
	served.Host = r.URL.Host
	served.Body = http.NoBody
	if r.Body == nil {
		return served, nil
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	served.Body = io.NopCloser(bytes.NewReader(body))
	return served, nil
}
