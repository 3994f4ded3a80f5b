package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver"
)

// do sends one request to handler as a client on the same machine.
func do(t *testing.T, handler http.Handler, method, target, body string) *http.Response {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, badInput{method: method, target: target, body: body}.request())
	return w.Result()
}

// decode reads the body of an answer with the given status.
func decode[T any](t *testing.T, resp *http.Response, status int) T {
	t.Helper()
	defer resp.Body.Close()
	var v T
	if resp.StatusCode != status {
		var text bytes.Buffer
		_, _ = text.ReadFrom(resp.Body)
		t.Fatalf("status %d, want %d: %s", resp.StatusCode, status, text.String())
	}
	dec := json.NewDecoder(resp.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("decode: %v", err)
	}
	return v
}

func TestAcquire_passes_the_request_on(t *testing.T) {
	t.Parallel()
	var got lockserver.AcquireRequest
	handler := newHandler(t, &fakeEngine{acquire: func(_ context.Context, req lockserver.AcquireRequest) (*lockserver.Hold, error) {
		got = req
		return heldHold(req), nil
	}})
	r := badInput{body: `{"lock":"a/b","owner":"w","ttl":"1500ms","wait":"2s","session":"s","metadata":{"k":"v"}}`}.request()
	r.Header.Set(wire.IdempotencyKey, "9f1c8c3e0a9b4d6f8e2b7a5d4c3b2a19")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)

	want := lockserver.AcquireRequest{
		Lock: "a/b", Owner: "w", TTL: 1500 * time.Millisecond, Wait: 2 * time.Second, Session: "s",
		Metadata: map[string]string{"k": "v"}, IdempotencyKey: "9f1c8c3e0a9b4d6f8e2b7a5d4c3b2a19",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	hold := decode[wire.Hold](t, w.Result(), http.StatusCreated)
	if hold.Token != 7341 || hold.State != wire.StateHeld || hold.ExpiresInMS == nil || *hold.ExpiresInMS != 14998 {
		t.Errorf("got %+v", hold)
	}
	if got := w.Header().Get("Fencing-Token"); got != "7341" {
		t.Errorf("Fencing-Token %q", got)
	}
	if got := w.Header().Get("Location"); got != "/v1/holds/"+hold.Hold {
		t.Errorf("Location %q", got)
	}
	if got := w.Header().Get("Idempotent-Replay"); got != "" {
		t.Errorf("Idempotent-Replay %q on a first answer", got)
	}
}

func TestAcquire_refuses_odd_idempotency_headers(t *testing.T) {
	t.Parallel()
	handler := newHandler(t, &fakeEngine{})
	for name, values := range map[string][]string{"empty": {""}, "twice": {"a", "a"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := badInput{body: `{"lock":"a","owner":"b"}`}.request()
			r.Header[wire.IdempotencyKey] = values
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			checkProblem(t, w.Result(), apierr.BadIdempotencyKey)
		})
	}
}

func TestAcquire_answers_202_for_a_place_that_is_kept(t *testing.T) {
	t.Parallel()
	handler := newHandler(t, &fakeEngine{acquire: func(_ context.Context, req lockserver.AcquireRequest) (*lockserver.Hold, error) {
		hold := heldHold(req)
		hold.State, hold.Token, hold.Position, hold.Replayed = lockserver.Queued, 0, 3, true
		return hold, nil
	}})
	resp := do(t, handler, "POST", "/v1/holds", `{"lock":"a","owner":"b","keep_place":true}`)
	hold := decode[wire.Hold](t, resp, http.StatusAccepted)
	if hold.State != wire.StateQueued || hold.Position != 3 || hold.Token != 0 || hold.ExpiresInMS != nil {
		t.Errorf("got %+v", hold)
	}
	if resp.Header.Get("Fencing-Token") != "" || resp.Header.Get("Idempotent-Replay") != "true" {
		t.Errorf("headers %v", resp.Header)
	}
}

func TestAcquire_tells_who_holds_the_lock(t *testing.T) {
	t.Parallel()
	handler := newHandler(t, &fakeEngine{acquire: func(context.Context, lockserver.AcquireRequest) (*lockserver.Hold, error) {
		return nil, &lockserver.HeldError{
			Lock: "a", Waiters: 2, Waited: 1500 * time.Millisecond,
			Holder: lockserver.Holder{Ref: "r", Owner: "o", Token: 7, TTL: time.Second},
		}
	}})
	p := checkProblem(t, do(t, handler, "POST", "/v1/holds", `{"lock":"a","owner":"b"}`), apierr.LockHeld)
	if p.Holder == nil || p.Holder.Owner != "o" || p.Holder.Token != 7 || p.Holder.Ref != "r" || p.Waiters != 2 {
		t.Errorf("got %+v", p)
	}
	if p.WaitedMS == nil || *p.WaitedMS != 1500 {
		t.Errorf("waited_ms %v", p.WaitedMS)
	}
}

func TestHolds_answer_how_a_hold_ended(t *testing.T) {
	t.Parallel()
	gone := &lockserver.GoneError{Ref: "r", End: lockserver.Broken}
	handler := newHandler(t, &fakeEngine{
		hold:    func(context.Context, string) (*lockserver.Hold, error) { return nil, gone },
		renew:   func(context.Context, string) (*lockserver.Hold, error) { return nil, gone },
		release: func(context.Context, string) error { return gone },
	})
	for _, call := range []string{"GET /v1/holds/x", "POST /v1/holds/x/renew", "DELETE /v1/holds/x"} {
		method, target, _ := strings.Cut(call, " ")
		if p := checkProblem(t, do(t, handler, method, target, ""), apierr.HoldGone); p.Ended != "broken" {
			t.Errorf("%s: ended %q", call, p.Ended)
		}
	}
}

func TestRelease_answers_204(t *testing.T) {
	t.Parallel()
	var got string
	handler := newHandler(t, &fakeEngine{release: func(_ context.Context, id string) error { got = id; return nil }})
	if resp := do(t, handler, "DELETE", "/v1/holds/abc", ""); resp.StatusCode != http.StatusNoContent || got != "abc" {
		t.Errorf("status %d, released %q", resp.StatusCode, got)
	}
}

func TestCheck_answers_412_with_all_verdicts(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		verdicts []lockserver.Verdict
		code     apierr.Code // "" is 200
	}{
		"all valid":       {[]lockserver.Verdict{lockserver.Valid, lockserver.Valid}, ""},
		"one stale":       {[]lockserver.Verdict{lockserver.Valid, lockserver.Stale}, apierr.StaleToken},
		"one ended":       {[]lockserver.Verdict{lockserver.EndedVerdict, lockserver.Valid}, apierr.TokenNotValid},
		"ended and stale": {[]lockserver.Verdict{lockserver.EndedVerdict, lockserver.Stale}, apierr.StaleToken},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler := newHandler(t, &fakeEngine{check: func(_ context.Context, pairs []lockserver.Pair) ([]lockserver.CheckResult, error) {
				results := make([]lockserver.CheckResult, len(pairs))
				for i, p := range pairs {
					results[i] = lockserver.CheckResult{Pair: p, Verdict: tt.verdicts[i], Current: 9}
				}
				return results, nil
			}})
			resp := do(t, handler, "POST", "/v1/check", `[{"lock":"a","token":7},{"lock":"b","token":9}]`)
			var got []wire.CheckResult
			if tt.code == "" {
				got = decode[wire.CheckList](t, resp, http.StatusOK).Results
			} else {
				got = checkProblem(t, resp, tt.code).Results
			}
			want := []wire.CheckResult{
				{Lock: "a", Token: 7, Result: tt.verdicts[0].String(), Current: 9},
				{Lock: "b", Token: 9, Result: tt.verdicts[1].String(), Current: 9},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestLocks_page_by_cursor(t *testing.T) {
	t.Parallel()
	var got lockserver.LocksQuery
	handler := newHandler(t, &fakeEngine{locks: func(_ context.Context, q lockserver.LocksQuery) (*lockserver.LockPage, error) {
		got = q
		return &lockserver.LockPage{Locks: []lockserver.LockSummary{{Name: "a/é?&="}}, More: q.After == "", Revision: 5}, nil
	}})
	first := decode[wire.LockList](t, do(t, handler, "GET", "/v1/locks?prefix=a%2F&limit=1", ""), http.StatusOK)
	if want := (lockserver.LocksQuery{Prefix: "a/", Limit: 1}); got != want {
		t.Errorf("query %+v, want %+v", got, want)
	}
	last := decode[wire.LockList](t, do(t, handler, "GET", "/v1/locks?cursor="+first.Cursor, ""), http.StatusOK)
	if got.After != "a/é?&=" || last.Cursor != "" {
		t.Errorf("after %q, last cursor %q", got.After, last.Cursor)
	}
}

func TestSessions_list_shows_no_secret(t *testing.T) {
	t.Parallel()
	handler := newHandler(t, &fakeEngine{sessions: func(context.Context) ([]lockserver.Session, error) {
		return []lockserver.Session{{ID: secret, Ref: "r", Owner: "o"}}, nil
	}})
	list := decode[wire.SessionList](t, do(t, handler, "GET", "/v1/sessions", ""), http.StatusOK)
	if len(list.Sessions) != 1 || list.Sessions[0].Session != "" || list.Sessions[0].Live == nil {
		t.Errorf("got %+v", list)
	}
}

func TestHealth_and_readiness(t *testing.T) {
	t.Parallel()
	handler := newHandler(t, &fakeEngine{ready: func() error { return apierr.New(apierr.TokenFloor, "run fencectl floor raise") }})
	decode[wire.Health](t, do(t, handler, "GET", "/healthz", ""), http.StatusOK)
	if p := checkProblem(t, do(t, handler, "GET", "/readyz", ""), apierr.TokenFloor); p.Detail != "run fencectl floor raise" {
		t.Errorf("detail %q", p.Detail)
	}
}

// An error without a code is the server's own: its text goes to the log, once,
// and never to the client.
func TestProblem_keeps_unknown_errors_to_itself(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	engine := &fakeEngine{
		hold:    func(context.Context, string) (*lockserver.Hold, error) { return nil, errors.New(secret) },
		release: func(context.Context, string) error { panic(secret) },
		renew: func(context.Context, string) (*lockserver.Hold, error) {
			return nil, &apierr.Error{ErrCode: apierr.NoQuorum, Detail: "try again", Cause: errors.New(secret)}
		},
	}
	handler, err := httpapi.New(httpapi.Config{Engine: engine, Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		method, target string
		code           apierr.Code
		lines          int
	}{
		{"GET", "/v1/holds/x", apierr.Internal, 1},
		{"DELETE", "/v1/holds/x", apierr.Internal, 1},
		{"POST", "/v1/holds/x/renew", apierr.NoQuorum, 0},
	} {
		log.Reset()
		resp := do(t, handler, tt.method, tt.target, "")
		p := checkProblem(t, resp, tt.code)
		if strings.Contains(p.Detail, secret) {
			t.Errorf("%s: the answer tells %q", tt.method, p.Detail)
		}
		if got := strings.Count(log.String(), "\n"); got != tt.lines {
			t.Errorf("%s: %d lines logged, want %d: %s", tt.method, got, tt.lines, log.String())
		}
		if tt.lines > 0 && (!strings.Contains(log.String(), secret) || !strings.Contains(log.String(), p.RequestID)) {
			t.Errorf("%s: the log lacks the cause or the request id %s: %s", tt.method, p.RequestID, log.String())
		}
	}
}

func TestAccessLog_has_one_line_a_request_and_no_secret(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	engine := &fakeEngine{release: func(context.Context, string) error { return nil }}
	handler, err := httpapi.New(httpapi.Config{
		Engine: engine, Logger: quiet(), AccessLog: slog.New(slog.NewJSONHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]struct {
		status float64
		route  string
		code   string
	}{
		"/v1/holds/" + secret:       {204, "/v1/holds/{hold}", ""},
		"/v1/holds/" + secret + "/": {404, "", "not_found"},
	} {
		log.Reset()
		do(t, handler, "DELETE", target, "")
		var line map[string]any
		if err := json.Unmarshal(log.Bytes(), &line); err != nil {
			t.Fatalf("not one JSON line: %v: %s", err, log.String())
		}
		if line["status"] != want.status || line["route"] != want.route || line["code"] != want.code || line["request_id"] == "" {
			t.Errorf("%s: %v", target, line)
		}
		if strings.Contains(log.String(), secret) {
			t.Errorf("the line tells the secret id: %s", log.String())
		}
	}
}

func TestRoutes_answer_OPTIONS_and_405_with_Allow(t *testing.T) {
	t.Parallel()
	handler := newHandler(t, &fakeEngine{})
	for target, allow := range map[string]string{
		"/v1/holds":       "POST, OPTIONS",
		"/v1/holds/x":     "GET, DELETE, OPTIONS",
		"/v1/holds/a%2Fb": "GET, DELETE, OPTIONS",
		"/v1/locks":       "GET, HEAD, OPTIONS",
	} {
		resp := do(t, handler, "OPTIONS", target, "")
		if resp.StatusCode != http.StatusNoContent || resp.Header.Get("Allow") != allow {
			t.Errorf("OPTIONS %s: status %d, Allow %q, want %q", target, resp.StatusCode, resp.Header.Get("Allow"), allow)
		}
		for name := range resp.Header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("OPTIONS %s: header %s invites other sites", target, name)
			}
		}
		resp = do(t, handler, "PATCH", target, "")
		checkProblem(t, resp, apierr.MethodNotAllowed)
		if got := resp.Header.Get("Allow"); got != allow {
			t.Errorf("PATCH %s: Allow %q, want %q", target, got, allow)
		}
	}
	resp := do(t, handler, "HEAD", "/healthz", "")
	if resp.StatusCode != http.StatusOK {
		t.Errorf("HEAD /healthz: %d", resp.StatusCode)
	}
}

func TestAnswers_carry_security_headers(t *testing.T) {
	t.Parallel()
	handler := newHandler(t, &fakeEngine{})
	want := map[string]string{
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Resource-Policy": "same-origin",
	}
	for _, target := range []string{"/healthz", "/docs", "/openapi.json", "/v1/nothing", "/v1/holds"} {
		resp := do(t, handler, "GET", target, "")
		for name, value := range want {
			if got := resp.Header.Get(name); got != value {
				t.Errorf("%s: %s %q, want %q", target, name, got, value)
			}
		}
		if policy := resp.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") {
			t.Errorf("%s: policy %q", target, policy)
		}
		if strings.HasPrefix(target, "/v1/") && resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: Cache-Control %q", target, resp.Header.Get("Cache-Control"))
		}
	}
}

func TestHosts_that_are_ours_pass(t *testing.T) {
	t.Parallel()
	handler, err := httpapi.New(httpapi.Config{
		Engine: &fakeEngine{}, Logger: quiet(), PublicHosts: []string{"Locks.example.com", "other.example:7420", "2001:db8::7"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{
		"": 200, "localhost": 200, "LOCALHOST:7420": 200, "127.0.0.1": 200, "127.9.9.9:1": 200, "[::1]:7420": 200,
		"locks.example.com": 200, "LOCKS.example.com:443": 200, "other.example:7420": 200, "[2001:db8::7]:7420": 200,
		"other.example": 421, "other.example:7421": 421, "x.locks.example.com": 421, "locks.example.com.": 421, "localhost.evil.example": 421,
	} {
		r := badInput{method: "GET", target: "/healthz", header: map[string]string{"Host": host}}.request()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("Host %q: status %d, want %d", host, w.Code, want)
		}
	}
}

func TestNew_refuses_bad_config(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]httpapi.Config{
		"Engine":                      {},
		"Mode":                        {Engine: &fakeEngine{}, Mode: "raft"},
		`PublicHosts "https://a.b"`:   {Engine: &fakeEngine{}, PublicHosts: []string{"https://a.b"}},
		`PublicHosts "*.example.com"`: {Engine: &fakeEngine{}, PublicHosts: []string{"*.example.com"}},
		`PublicHosts "example.com/a"`: {Engine: &fakeEngine{}, PublicHosts: []string{"example.com/a"}},
		`PublicHosts ""`:              {Engine: &fakeEngine{}, PublicHosts: []string{""}},
	} {
		if _, err := httpapi.New(cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v", field, err)
		}
	}
}
