package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/apikey"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver"
	"github.com/fenced/fenced/tokens"
)

// keyring is a key file of a test.
type keyring struct {
	t    testing.TB
	path string
}

func newKeyring(t testing.TB) keyring {
	return keyring{t, filepath.Join(t.TempDir(), "keys.json")}
}

// add makes a key with one grant and returns what its owner presents.
func (r keyring) add(name string, role keys.Role, prefix string, quota apikey.Quota) string {
	r.t.Helper()
	text, k, err := apikey.Generate(name, []apikey.Grant{{Role: role, Prefixes: []string{prefix}}}, quota)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := apikey.Add(r.path, k); err != nil {
		r.t.Fatal(err)
	}
	return text
}

func (r keyring) open() *keys.Store {
	r.t.Helper()
	store, err := keys.Open(r.path, quiet())
	if err != nil {
		r.t.Fatal(err)
	}
	return store
}

// agreeable is an engine that says yes to everything.
func agreeable() *fakeEngine {
	hold := heldHold(lockserver.AcquireRequest{Lock: "orders/1", Owner: "w"})
	session := &lockserver.Session{ID: "s", Ref: "r"}
	return &fakeEngine{
		acquire:      func(context.Context, lockserver.AcquireRequest) (*lockserver.Hold, error) { return hold, nil },
		hold:         func(context.Context, string) (*lockserver.Hold, error) { return hold, nil },
		awaitHold:    func(context.Context, string, time.Duration) (*lockserver.Hold, error) { return hold, nil },
		awaitSession: func(context.Context, string, time.Duration) (*lockserver.Session, error) { return session, nil },
		renew:        func(context.Context, string) (*lockserver.Hold, error) { return hold, nil },
		release:      func(context.Context, string) error { return nil },
		session:      func(context.Context, string) (*lockserver.Session, error) { return session, nil },
		create:       func(context.Context, string, time.Duration) (*lockserver.Session, error) { return session, nil },
		sessions:     func(context.Context) ([]lockserver.Session, error) { return nil, nil },
		lock:         func(context.Context, string) (*lockserver.LockInfo, error) { return &lockserver.LockInfo{}, nil },
		locks: func(context.Context, lockserver.LocksQuery) (*lockserver.LockPage, error) {
			return &lockserver.LockPage{}, nil
		},
		check: func(context.Context, []lockserver.Pair) ([]lockserver.CheckResult, error) { return nil, nil },
		breakHold: func(context.Context, lockserver.BreakRequest) (*lockserver.Ended, error) {
			return &lockserver.Ended{Token: 1}, nil
		},
		ready:      func() error { return nil },
		status:     func(context.Context) (lockserver.Status, error) { return lockserver.Status{}, nil },
		raiseFloor: func(context.Context, tokens.Token) (int64, error) { return 1, nil },
	}
}

// Who may call what: none, a key that is not known, read and lock over "orders/",
// admin over "orders/", and admin over all.
func TestKeys_access(t *testing.T) {
	t.Parallel()
	ring := newKeyring(t)
	callers := []string{
		"", "fk_aaaaaaaaaa_" + strings.Repeat("a", 52),
		ring.add("read", keys.Read, "orders/", apikey.Quota{}), ring.add("lock", keys.Lock, "orders/", apikey.Quota{}),
		ring.add("admin", keys.Admin, "orders/", apikey.Quota{}), ring.add("root", keys.Admin, "", apikey.Quota{}),
	}
	handler, err := httpapi.New(httpapi.Config{Engine: agreeable(), Keys: ring.open(), Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		method, target, body string
		want                 [6]int
	}{
		{"GET", "/healthz", "", [6]int{200, 200, 200, 200, 200, 200}},
		{"GET", "/readyz", "", [6]int{200, 200, 200, 200, 200, 200}},
		{"GET", "/docs", "", [6]int{200, 200, 200, 200, 200, 200}},
		{"GET", "/metrics", "", [6]int{401, 401, 200, 200, 200, 200}},
		{"GET", "/v1/status", "", [6]int{401, 401, 200, 200, 200, 200}},
		{"GET", "/v1/whoami", "", [6]int{401, 401, 200, 200, 200, 200}},
		{"GET", "/v1/sessions", "", [6]int{401, 401, 200, 200, 200, 200}},
		{"GET", "/v1/lock?name=orders%2F1", "", [6]int{401, 401, 200, 200, 200, 200}},
		{"GET", "/v1/lock?name=stock%2F1", "", [6]int{401, 401, 403, 403, 403, 200}},
		{"GET", "/v1/locks?prefix=orders%2Fa", "", [6]int{401, 401, 200, 200, 200, 200}},
		{"GET", "/v1/locks?prefix=orders", "", [6]int{401, 401, 403, 403, 403, 200}},
		{"GET", "/v1/locks", "", [6]int{401, 401, 403, 403, 403, 200}},
		{"POST", "/v1/check", `[{"lock":"orders/1","token":1}]`, [6]int{401, 401, 200, 200, 200, 200}},
		{"POST", "/v1/check", `[{"lock":"orders/1","token":1},{"lock":"stock/1","token":1}]`, [6]int{401, 401, 403, 403, 403, 200}},
		{"POST", "/v1/holds", `{"lock":"orders/1","owner":"w"}`, [6]int{401, 401, 403, 201, 201, 201}},
		{"POST", "/v1/holds", `{"lock":"stock/1","owner":"w"}`, [6]int{401, 401, 403, 403, 403, 201}},
		{"GET", "/v1/holds/x", "", [6]int{401, 401, 403, 200, 200, 200}},
		{"POST", "/v1/holds/x/renew", "", [6]int{401, 401, 403, 200, 200, 200}},
		{"DELETE", "/v1/holds/x", "", [6]int{401, 401, 403, 204, 204, 204}},
		{"POST", "/v1/sessions", `{"owner":"w"}`, [6]int{401, 401, 403, 201, 201, 201}},
		{"POST", "/v1/sessions/x/renew", "", [6]int{401, 401, 403, 200, 200, 200}},
		{"DELETE", "/v1/sessions/x", "", [6]int{401, 401, 403, 204, 204, 204}},
		{"POST", "/v1/break", `{"lock":"orders/1","token":1,"reason":"r"}`, [6]int{401, 401, 403, 403, 200, 200}},
		{"POST", "/v1/break", `{"lock":"stock/1","token":1,"reason":"r"}`, [6]int{401, 401, 403, 403, 403, 200}},
		{"POST", "/v1/floor", `{}`, [6]int{401, 401, 403, 403, 403, 200}},
		{"GET", "/v1/events?prefix=stock", "", [6]int{401, 401, 403, 403, 403, 0}},
		{"GET", "/v1/events", "", [6]int{401, 401, 403, 403, 403, 0}},
	} {
		var got [6]int
		for i, key := range callers {
			if tt.want[i] == 0 {
				continue // a stream
			}
			r := badInput{method: tt.method, target: tt.target, body: tt.body}.request()
			if key != "" {
				r.Header.Set("Authorization", "Bearer "+key)
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			got[i] = w.Code
			if challenge := w.Header().Get("WWW-Authenticate"); (w.Code == 401) != (challenge == "Bearer") {
				t.Errorf("%s %s: status %d with challenge %q", tt.method, tt.target, w.Code, challenge)
			}
			if strings.Contains(w.Body.String(), key) && key != "" {
				t.Errorf("%s %s: the answer tells the key", tt.method, tt.target)
			}
		}
		if got != tt.want {
			t.Errorf("%s %s %s: got %v, want %v", tt.method, tt.target, tt.body, got, tt.want)
		}
	}
}

// Every operation but health and readiness must ask for a role, so that a new one
// cannot be forgotten.
func TestKeys_guard_every_operation(t *testing.T) {
	t.Parallel()
	handler, err := httpapi.New(httpapi.Config{Engine: &fakeEngine{}, Keys: func() *keys.Store {
		ring := newKeyring(t)
		ring.add("k", keys.Read, "", apikey.Quota{})
		return ring.open()
	}(), Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Paths map[string]map[string]any }
	if err := json.NewDecoder(do(t, handler, "GET", "/openapi.json", "").Body).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	for path, methods := range doc.Paths {
		if path == "/healthz" || path == "/readyz" {
			continue
		}
		for method := range methods {
			resp := do(t, handler, strings.ToUpper(method), path, "")
			checkProblem(t, resp, apierr.Unauthorized)
		}
	}
}

func TestQuota_bounds_each_key(t *testing.T) {
	t.Parallel()
	ring := newKeyring(t)
	small := ring.add("small", keys.Lock, "", apikey.Quota{Held: 2})
	queue := ring.add("queue", keys.Lock, "", apikey.Quota{Waiting: 1})
	slow := ring.add("slow", keys.Lock, "", apikey.Quota{PerSecond: 3})
	other := ring.add("other", keys.Lock, "", apikey.Quota{})
	c := newClientWith(t, httpapi.Config{Engine: etcdtest.Server(t), Keys: ring.open()})
	as := func(key string) []string { return []string{"Authorization", "Bearer " + key} }

	t.Run("held holds", func(t *testing.T) {
		t.Parallel()
		first := c.acquire(t, "q/1", `,"ttl":"1s"`, as(small)...)
		withKey := append(as(small), wire.IdempotencyKey, keyA)
		second := c.acquire(t, "q/2", `,"ttl":"1h"`, withKey...)
		p := checkProblem(t, c.send(t, "POST", "/v1/holds", acquireBody("q/3", ""), as(small)...), apierr.Quota)
		if p.Field != "held" {
			t.Errorf("field %q", p.Field)
		}
		if again := c.acquire(t, "q/2", `,"ttl":"1h"`, withKey...); again.Hold != second.Hold {
			t.Error("a repeat at the limit found another hold")
		}
		// The first one expires by itself, and makes room without a release.
		after := c.acquire(t, "q/1", `,"wait":"10s"`, as(other)...)
		if after.Previous == nil || after.Previous.Ref != first.Ref || after.Previous.Ended != "expired" {
			t.Fatalf("before it was %+v", after.Previous)
		}
		third := c.acquireWhenRoom(t, "q/3", as(small)...)
		if resp := c.send(t, "DELETE", "/v1/holds/"+third.Hold, "", as(small)...); resp.StatusCode != 204 {
			t.Errorf("release: %d", resp.StatusCode)
		}
		c.acquire(t, "q/3", "", as(small)...)
	})
	t.Run("waiting requests", func(t *testing.T) {
		t.Parallel()
		holder := c.acquire(t, "w/1", "", as(queue)...)
		done := make(chan *http.Response, 1)
		go func() { done <- c.send(t, "POST", "/v1/holds", acquireBody("w/1", `,"wait":"20s"`), as(queue)...) }()
		for {
			info := decode[wire.Lock](t, c.send(t, "GET", "/v1/lock?name=w%2F1", "", as(queue)...), 200)
			if info.Waiters == 1 {
				break
			}
		}
		p := checkProblem(t, c.send(t, "POST", "/v1/holds", acquireBody("w/1", `,"wait":"20s"`), as(queue)...), apierr.Quota)
		if p.Field != "waiting" {
			t.Errorf("field %q", p.Field)
		}
		checkProblem(t, c.send(t, "POST", "/v1/holds", acquireBody("w/1", ""), as(queue)...), apierr.LockHeld)
		if resp := c.send(t, "DELETE", "/v1/holds/"+holder.Hold, "", as(queue)...); resp.StatusCode != 204 {
			t.Errorf("release: %d", resp.StatusCode)
		}
		decode[wire.Hold](t, <-done, http.StatusCreated)
	})
	t.Run("requests a second", func(t *testing.T) {
		t.Parallel()
		refused := 0
		for range 20 {
			resp := c.send(t, "GET", "/v1/lock?name=a", "", as(slow)...)
			if resp.StatusCode == http.StatusTooManyRequests {
				checkProblem(t, resp, apierr.Quota)
				refused++
			}
		}
		if refused == 0 {
			t.Error("20 requests in a row passed a rate of 3 a second")
		}
	})
}

// A hold that stays for a repeat of its request, because the client has left, counts: a
// client in a loop with too short a patience would have as many as it likes.
func TestQuota_counts_a_hold_whose_client_left(t *testing.T) {
	t.Parallel()
	ring := newKeyring(t)
	small := []string{"Authorization", "Bearer " + ring.add("small", keys.Lock, "", apikey.Quota{Held: 1})}
	engine := agreeable()
	asked := make(chan struct{}, 1)
	engine.acquire = func(ctx context.Context, req lockserver.AcquireRequest) (*lockserver.Hold, error) {
		asked <- struct{}{}
		if req.Wait > 0 {
			<-ctx.Done()
		}
		return heldHold(req), nil
	}
	var audit lines
	c := newClientWith(t, httpapi.Config{Engine: engine, Keys: ring.open(), Audit: slog.New(slog.NewJSONHandler(&audit, nil)), Logger: quiet()})
	conn := c.dial(t)
	request := rawPost("/v1/holds", acquireBody("l", `,"wait":"20s"`), small[0]+": "+small[1], wire.IdempotencyKey+": "+keyA)
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	<-asked
	conn.Close()
	audit.await(t, "client_gone")
	if !strings.Contains(audit.String(), `"token":7341`) {
		t.Errorf("the audit log does not tell of the grant: %s", audit.String())
	}
	if p := checkProblem(t, c.send(t, "POST", "/v1/holds", acquireBody("other", ""), small...), apierr.Quota); p.Field != "held" {
		t.Errorf("field %q", p.Field)
	}
	c.acquire(t, "l", "", append(small, wire.IdempotencyKey, keyA)...) // its repeat finds it
}

// newClientWith serves cfg as newClient does.
func newClientWith(t *testing.T, cfg httpapi.Config) *client {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = quiet()
	}
	handler, err := httpapi.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = httpapi.NewServer(handler)
	srv.Start()
	c := &client{srv, srv.Client()}
	t.Cleanup(func() { c.http.CloseIdleConnections(); srv.Close() })
	return c
}

// acquireWhenRoom repeats a refused acquire as Retry-After says.
func (c *client) acquireWhenRoom(t *testing.T, lock string, headers ...string) wire.Hold {
	t.Helper()
	for range 3 {
		resp := c.send(t, "POST", "/v1/holds", acquireBody(lock, ""), headers...)
		if resp.StatusCode != http.StatusTooManyRequests {
			return decode[wire.Hold](t, resp, http.StatusCreated)
		}
		time.Sleep(time.Second) // what Retry-After asks for
	}
	t.Fatal("no room after three repeats")
	return wire.Hold{}
}

// lines is a log that a test reads while handlers write.
type lines struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	more chan struct{} // closed by the next write; nil where nobody waits for one
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
	return l.buf.Write(b)
}

// await waits until text is in the log.
func (l *lines) await(t *testing.T, text string) {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		l.mu.Lock()
		if l.more == nil {
			l.more = make(chan struct{})
		}
		found, more := strings.Contains(l.buf.String(), text), l.more
		l.mu.Unlock()
		if found {
			return
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("waited 30 s for %q in %q", text, l.String())
		}
	}
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// leaveWait has a client leave while it waits for a lock that another one holds.
func (c *client) leaveWait(t *testing.T, lock string, waiter, holder []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", c.URL+"/v1/holds", strings.NewReader(acquireBody(lock, `,"wait":"20s"`)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(waiter[0], waiter[1])
	queue := c.stream(t, "?prefix="+url.QueryEscape(lock), "", holder...)
	left := make(chan error, 1)
	go func() {
		resp, err := c.http.Do(r)
		if err == nil {
			resp.Body.Close()
		}
		left <- err
	}()
	queue.await(wire.EventQueued)
	cancel()
	<-left
}

func TestAudit_tells_who_did_what(t *testing.T) {
	t.Parallel()
	ring := newKeyring(t)
	worker := ring.add("worker", keys.Lock, "orders/", apikey.Quota{})
	boss := ring.add("boss", keys.Admin, "", apikey.Quota{})
	var audit lines
	engine := etcdtest.Server(t)
	if _, err := engine.Acquire(t.Context(), lockserver.AcquireRequest{Lock: "orders/2", Owner: "w", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	c := newClientWith(t, httpapi.Config{
		Engine: engine, Keys: ring.open(), Audit: slog.New(slog.NewJSONHandler(&audit, nil)),
	})
	as := func(key string) []string { return []string{"Authorization", "Bearer " + key} }
	first := c.acquire(t, "orders/1", "", as(worker)...)
	c.send(t, "DELETE", "/v1/holds/"+first.Hold, "", as(worker)...)
	second := c.acquire(t, "orders/1", "", as(worker)...)
	c.send(t, "GET", "/v1/holds/"+second.Hold, "", as(worker)...) // changes nothing
	c.send(t, "POST", "/v1/holds", acquireBody("stock\n/1", ""), as(worker)...)
	reason := `line\nbreak`
	breakBody := fmt.Sprintf(`{"lock":"orders/1","token":%d,"reason":"%s"}`, second.Token, "host is down")
	c.send(t, "POST", "/v1/break", breakBody, as(worker)...)
	c.send(t, "POST", "/v1/break", breakBody, as(boss)...)
	c.send(t, "POST", "/v1/break", strings.Replace(breakBody, "host is down", reason, 1))
	c.leaveWait(t, "orders/2", as(worker), as(boss))
	audit.await(t, "client_gone")
	c.send(t, "GET", "/v1/locks", "") // who tries keys leaves a trace

	type line struct {
		Who, What, Lock, Ref, Reason, Result string
		Token                                tokens.Token
	}
	var got []line
	dec := json.NewDecoder(strings.NewReader(audit.String()))
	for dec.More() {
		var l struct {
			line
			Token int64
		}
		if err := dec.Decode(&l); err != nil {
			t.Fatal(err)
		}
		l.line.Token = tokens.Token(l.Token)
		got = append(got, l.line)
	}
	want := []line{
		{"worker", "acquireHold", "orders/1", first.Ref, "", "ok", first.Token},
		{"worker", "releaseHold", "orders/1", first.Ref, "", "ok", first.Token},
		{"worker", "acquireHold", "orders/1", second.Ref, "", "ok", second.Token},
		{"worker", "acquireHold", "stock\n/1", "", "", "forbidden", 0},
		{"worker", "breakHold", "", "", "", "forbidden", 0},
		{"boss", "breakHold", "orders/1", second.Ref, "host is down", "ok", second.Token},
		{"", "breakHold", "", "", "", "unauthorized", 0},
		{"worker", "acquireHold", "orders/2", "", "", "client_gone", 0},
		{"", "listLocks", "", "", "", "unauthorized", 0},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, secret := range []string{first.Hold, second.Hold, worker, boss} {
		if strings.Contains(audit.String(), secret) {
			t.Error("the audit log tells a secret")
		}
	}
	info := decode[wire.Lock](t, c.send(t, "GET", "/v1/lock?name=orders%2F1", "", as(boss)...), 200)
	if len(info.History) == 0 || info.History[0].Reason != "host is down" {
		t.Errorf("history %+v", info.History)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.release(t, c.acquire(t, secret, ""))
	checkProblem(t, c.send(t, "POST", "/v1/check", `[]`), apierr.OutOfBounds)
	resp := c.send(t, "GET", "/metrics", "")
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil || resp.StatusCode != 200 {
		t.Fatalf("status %d, error %v", resp.StatusCode, err)
	}
	for _, want := range []string{
		`fenced_http_requests_total{operation="acquireHold",outcome="ok"} 1`,
		`fenced_http_requests_total{operation="acquireHold",outcome="internal"} 0`,
		`fenced_http_requests_total{operation="releaseHold",outcome="ok"} 1`,
		`fenced_http_requests_total{operation="checkTokens",outcome="out_of_bounds"} 1`,
		`fenced_http_request_seconds_count{operation="acquireHold"} 1`,
		`fenced_http_requests_open{operation="getMetrics"} 1`,
		"fenced_ready 1", "fenced_holds 0", "fenced_locks 0", "fenced_sessions 0",
	} {
		if !strings.Contains(body.String(), want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
	if strings.Contains(body.String(), secret) {
		t.Error("the metrics tell a lock's name")
	}
}

func TestWhoAmI(t *testing.T) {
	t.Parallel()
	ring := newKeyring(t)
	key := ring.add("ops", keys.Admin, "orders/", apikey.Quota{})
	with := newClientWith(t, httpapi.Config{Engine: agreeable(), Keys: ring.open(), Logger: quiet()})
	got := decode[wire.Caller](t, with.send(t, "GET", "/v1/whoami", "", "Authorization", "Bearer "+key), http.StatusOK)
	want := wire.Caller{Key: strings.Split(key, "_")[1], Name: "ops", Grants: []wire.Grant{{Role: "admin", Prefixes: []string{"orders/"}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	without := newClientWith(t, httpapi.Config{Engine: agreeable(), Logger: quiet()})
	got = decode[wire.Caller](t, without.send(t, "GET", "/v1/whoami", ""), http.StatusOK)
	if diff := cmp.Diff(wire.Caller{Grants: []wire.Grant{{Role: "admin", Prefixes: []string{""}}}}, got); diff != "" {
		t.Error(diff)
	}
}
