package sdktest

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/tokens"
)

const maxWait = 30 * time.Second

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, h := range map[Op]handler{
		Acquire:            s.acquire,
		Await:              s.getHold,
		Renew:              s.renewHold,
		Release:            s.releaseHold,
		OpenSession:        s.openSession,
		RenewSession:       s.renewSession,
		EndSession:         s.deleteSession,
		"GET /v1/sessions": s.listSessions,
		"GET /v1/locks":    s.listLocks,
		"GET /v1/lock":     s.getLock,
		"POST /v1/check":   s.check,
		"POST /v1/break":   s.breakHold,
		"GET /v1/status":   s.status,
		"GET /readyz":      s.ready,
		"GET /healthz":     s.ready,
	} {
		mux.Handle(string(pattern), h)
	}
	return mux
}

// handler writes its answer, or returns the error to answer with.
type handler func(http.ResponseWriter, *http.Request) error

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	err := checkKey(r)
	if err == nil {
		err = h(w, r)
	}
	if err == nil {
		return
	}
	p := wire.Problem{Code: apierr.CodeOf(err), Detail: err.Error()}
	var full *problem
	var ended *gone
	var coded *apierr.Error
	switch {
	case errors.As(err, &full):
		p = full.Problem
	case errors.As(err, &ended):
		p.Ended = ended.ended
	case errors.As(err, &coded):
		p.Detail, p.Field, p.Limit = coded.Detail, coded.Field, coded.Limit
	}
	writeProblem(w, p)
}

func writeProblem(w http.ResponseWriter, p wire.Problem) {
	info := p.Code.Info()
	p.Type, p.Title, p.Status = "about:blank", info.Meaning, info.Status
	w.Header().Set("Content-Type", "application/problem+json")
	if info.Retryable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(info.Status)
	json.NewEncoder(w).Encode(p)
}

func refuse(w http.ResponseWriter, code string) {
	writeProblem(w, wire.Problem{Code: apierr.Code(code)})
}

// problem is an error with a body of its own.
type problem struct{ wire.Problem }

func (p *problem) Error() string { return string(p.Code) }

func (p *problem) Unwrap() error { return apierr.New(p.Code, "") }

// gone says how a hold or a session ended.
type gone struct {
	code  apierr.Code
	ended string
}

func (g *gone) Error() string { return "gone: " + g.ended }

func (g *gone) Code() apierr.Code { return g.code }

func answer(w http.ResponseWriter, status int, body any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(body)
}

func decode(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return apierr.New(apierr.Malformed, "the body cannot be read")
	}
	return nil
}

func checkKey(r *http.Request) error {
	key := r.Header.Get(wire.IdempotencyKey)
	if key == "" {
		return nil
	}
	if raw, err := hex.DecodeString(strings.ReplaceAll(key, "-", "")); err != nil || len(raw) != 16 {
		return apierr.New(apierr.BadIdempotencyKey, "")
	}
	return nil
}

func bounds(req wire.AcquireRequest) (ttl, wait time.Duration, err error) {
	switch {
	case req.Lock == "" || len(req.Lock) > 512:
		return 0, 0, apierr.Bounds("lock", "1 to 512 bytes")
	case req.Owner == "" || len(req.Owner) > 128:
		return 0, 0, apierr.Bounds("owner", "1 to 128 bytes")
	}
	if ttl, err = parseTTL(req.TTL); err != nil {
		return 0, 0, err
	}
	wait, err = parseWait(req.Wait)
	return ttl, wait, err
}

func parseTTL(text string) (time.Duration, error) {
	if text == "" {
		return 15 * time.Second, nil
	}
	ttl, err := time.ParseDuration(text)
	if err != nil || ttl < time.Second || ttl > time.Hour || ttl%time.Millisecond != 0 {
		return 0, apierr.Bounds("ttl", "1s to 1h in whole milliseconds")
	}
	return ttl, nil
}

func parseWait(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 || wait > maxWait || wait%time.Millisecond != 0 {
		return 0, apierr.Bounds("wait", "0 to 30s in whole milliseconds")
	}
	return wait, nil
}

func (s *Server) listSessions(w http.ResponseWriter, _ *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := wire.SessionList{Sessions: []wire.Session{}}
	for _, ses := range s.sessions {
		if ses.ended == "" {
			b := s.sessionBody(ses)
			b.Session = ""
			list.Sessions = append(list.Sessions, b)
		}
	}
	return answer(w, http.StatusOK, list)
}

func (s *Server) summary(lock string) wire.LockSummary {
	sum := wire.LockSummary{Lock: lock, State: wire.StateFree}
	if q := s.queues[lock]; len(q) > 0 {
		sum.State, sum.Holder, sum.Waiters = wire.StateHeld, holderBody(q[0]), len(q)-1
	}
	return sum
}

func (s *Server) listLocks(w http.ResponseWriter, r *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := wire.LockList{Locks: []wire.LockSummary{}, Revision: s.revision}
	for lock := range s.queues {
		if strings.HasPrefix(lock, r.URL.Query().Get("prefix")) {
			list.Locks = append(list.Locks, s.summary(lock))
		}
	}
	slices.SortFunc(list.Locks, func(a, b wire.LockSummary) int { return strings.Compare(a.Lock, b.Lock) })
	return answer(w, http.StatusOK, list)
}

func (s *Server) getLock(w http.ResponseWriter, r *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.URL.Query().Get("name")
	out := wire.Lock{LockSummary: s.summary(name), Queue: []wire.Waiter{}, History: []wire.Ended{},
		HistorySince: s.started.UTC(), Revision: s.revision}
	for i, h := range s.queues[name] {
		if i > 0 {
			out.Queue = append(out.Queue, wire.Waiter{Position: i, Ref: h.ref, Owner: h.owner, Since: h.created.UTC()})
		}
	}
	for _, e := range slices.Backward(s.history[name]) {
		out.History = append(out.History, e)
	}
	return answer(w, http.StatusOK, out)
}

func (s *Server) check(w http.ResponseWriter, r *http.Request) error {
	var items []wire.CheckItem
	if err := decode(r, &items); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out wire.CheckList
	status := http.StatusOK
	for _, item := range items {
		res := s.verdict(item)
		if res.Result != "valid" {
			status = http.StatusPreconditionFailed
		}
		out.Results = append(out.Results, res)
	}
	return answer(w, status, out)
}

func (s *Server) verdict(item wire.CheckItem) wire.CheckResult {
	res := wire.CheckResult{Lock: item.Lock, Token: item.Token, Result: "unknown"}
	h, past := s.holder(item.Lock), s.history[item.Lock]
	switch {
	case h != nil:
		res.Current = h.token
	case len(past) > 0:
		res.Current = past[len(past)-1].Token
	}
	switch {
	case res.Current == 0 || item.Token > res.Current:
	case item.Token < res.Current:
		res.Result = "stale"
	case h == nil:
		res.Result = "ended"
	default:
		res.Result = "valid"
	}
	return res
}

func (s *Server) breakHold(w http.ResponseWriter, r *http.Request) error {
	var req wire.BreakRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holder(req.Lock)
	if h == nil || h.token != req.Token {
		return apierr.New(apierr.HolderChanged, "another hold has the lock")
	}
	s.end(h, "broken", req.Reason)
	past := s.history[req.Lock]
	return answer(w, http.StatusOK, past[len(past)-1])
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := wire.Status{Name: "fake", Version: "sdktest", Mode: "embedded", Ready: true, Cluster: "fake",
		Revision: s.revision, Highest: tokens.Token(s.revision), Floor: "unprotected", Locks: len(s.queues), Started: s.started.UTC(),
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
