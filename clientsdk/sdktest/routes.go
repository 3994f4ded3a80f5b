package sdktest

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/apikey"
	"github.com/fenced/fenced/internal/names"
	"github.com/fenced/fenced/internal/wire"
)

const maxWait = 30 * time.Second

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	read, lock, admin := apikey.Read, apikey.Lock, apikey.Admin
	for pattern, h := range map[Op]handler{
		Acquire:            s.only(lock, s.acquire),
		Await:              s.only(lock, s.getHold),
		Renew:              s.only(lock, s.renewHold),
		Release:            s.only(lock, s.releaseHold),
		OpenSession:        s.only(lock, s.openSession),
		RenewSession:       s.only(lock, s.renewSession),
		EndSession:         s.only(lock, s.deleteSession),
		AwaitSession:       s.only(lock, s.getSession),
		Events:             s.only(read, s.streamEvents),
		"GET /v1/sessions": s.only(read, s.listSessions),
		"GET /v1/locks":    s.only(read, s.listLocks),
		"GET /v1/lock":     s.only(read, s.getLock),
		"POST /v1/check":   s.only(read, s.check),
		"POST /v1/break":   s.only(admin, s.breakHold),
		"GET /v1/status":   s.only(read, s.status),
		"GET /v1/whoami":   s.only(read, s.whoami),
		"GET /readyz":      s.ready,
		"GET /healthz":     s.ready,

		"GET /v1/members":    s.only(admin, noStore),
		"POST /v1/members":   s.only(admin, noStore),
		"DELETE /v1/members": s.only(admin, noStore),
		"GET /v1/snapshot":   s.only(admin, noStore),
		"POST /v1/compact":   s.only(admin, noStore),
		"POST /v1/floor":     s.only(admin, s.raiseFloor),
		"/":                  noRoute,
	} {
		mux.Handle(string(pattern), h)
	}
	return mux
}

// noStore answers as a server does whose etcd is somebody else's.
func noStore(http.ResponseWriter, *http.Request) error {
	return apierr.New(apierr.Forbidden, "the fake has no store")
}

func noRoute(http.ResponseWriter, *http.Request) error {
	return apierr.New(apierr.NotFound, "the fake has no such route")
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
	if err := names.Check("lock", req.Lock, 1, 512); err != nil {
		return 0, 0, err
	}
	if err := names.Check("owner", req.Owner, 1, 128); err != nil {
		return 0, 0, err
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
	q := r.URL.Query()
	if err := s.permit(r, apikey.Read, q.Get("prefix")); err != nil {
		return err
	}
	limit, after, err := page(q)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := wire.LockList{Locks: []wire.LockSummary{}, Revision: s.revision}
	for _, lock := range slices.Sorted(maps.Keys(s.queues)) {
		switch {
		case !strings.HasPrefix(lock, q.Get("prefix")) || lock <= after:
		case len(list.Locks) == limit:
			list.Cursor = hex.EncodeToString([]byte(list.Locks[limit-1].Lock))
			return answer(w, http.StatusOK, list)
		default:
			list.Locks = append(list.Locks, s.summary(lock))
		}
	}
	return answer(w, http.StatusOK, list)
}

// page reads where a page starts and how many locks it has. A cursor is the last name
// of the page before.
func page(q url.Values) (limit int, after string, err error) {
	limit = 100
	if text := q.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > 1000 {
			return 0, "", apierr.Bounds("limit", "an integer from 1 to 1000")
		}
	}
	last, err := hex.DecodeString(q.Get("cursor"))
	if err != nil {
		return 0, "", &apierr.Error{ErrCode: apierr.Malformed, Detail: "cursor is not one that a page gave", Field: "cursor"}
	}
	return limit, string(last), nil
}

func (s *Server) getLock(w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("name")
	if err := names.Check("name", name, 1, 512); err != nil {
		return err
	}
	if err := s.permit(r, apikey.Read, name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
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
	for i, item := range items {
		if err := names.Check(fmt.Sprintf("[%d].lock", i), item.Lock, 1, 512); err != nil {
			return err
		}
		if err := s.permit(r, apikey.Read, item.Lock); err != nil {
			return err
		}
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
	if err := names.Check("lock", req.Lock, 1, 512); err != nil {
		return err
	}
	if err := names.Check("reason", req.Reason, 1, 256); err != nil {
		return err
	}
	if err := s.permit(r, apikey.Admin, req.Lock); err != nil {
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
