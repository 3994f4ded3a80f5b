package httpapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver"
)

// client talks to a service over a real engine and a real etcd.
type client struct {
	*httptest.Server
	http *http.Client
}

func newClient(t testing.TB) *client {
	t.Helper()
	srv := serve(t, etcdtest.Server(t))
	c := &client{srv, srv.Client()}
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

// send makes one request; the headers are name, value pairs.
func (c *client) send(t testing.TB, method, target, body string, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, c.URL+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.http.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func acquireBody(lock, more string) string {
	return fmt.Sprintf(`{"lock":%q,"owner":"w"%s}`, lock, more)
}

// acquire takes a free lock.
func (c *client) acquire(t *testing.T, lock, more string, headers ...string) wire.Hold {
	t.Helper()
	return decode[wire.Hold](t, c.send(t, "POST", "/v1/holds", acquireBody(lock, more), headers...), http.StatusCreated)
}

func (c *client) release(t *testing.T, hold wire.Hold) {
	t.Helper()
	if resp := c.send(t, "DELETE", "/v1/holds/"+hold.Hold, ""); resp.StatusCode != http.StatusNoContent {
		t.Fatalf("release: status %d", resp.StatusCode)
	}
}

// awaitWaiters blocks until the lock has that many waiters, which only events
// of the engine can make happen.
func (c *client) awaitWaiters(t *testing.T, lock string, want int) {
	t.Helper()
	for {
		got := decode[wire.Lock](t, c.send(t, "GET", "/v1/lock?name="+url.QueryEscape(lock), ""), http.StatusOK)
		if got.Waiters == want {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
	}
}

const (
	keyA = "9f1c8c3e-0a9b-4d6f-8e2b-7a5d4c3b2a19"
	keyB = "00112233445566778899aabbccddeeff"
)

func TestService(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	for name, test := range map[string]func(*testing.T, *client){
		"a lock is granted, held against others, renewed and released": testLife,
		"a waiter is granted when the holder leaves":                   testWait,
		"a wait that is over gives up its place":                       testWaitOver,
		"a repeat with the same key finds the same hold":               testReplay,
		"a place is kept and asked for again":                          testKeptPlace,
		"holds of a session live and end with it":                      testSession,
		"check tells valid, stale and ended":                           testCheck,
		"break hits the token seen and no newcomer":                    testBreak,
		"locks are listed in pages":                                    testPages,
		"status and readiness":                                         testStatus,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, c)
		})
	}
}

func testLife(t *testing.T, c *client) {
	hold := c.acquire(t, "life", `,"ttl":"5s","metadata":{"host":"a"}`)
	if !hold.Token.Valid() || hold.State != wire.StateHeld || hold.Previous != nil || hold.TTLMS != 5000 {
		t.Errorf("granted %+v", hold)
	}
	p := checkProblem(t, c.send(t, "POST", "/v1/holds", acquireBody("life", "")), apierr.LockHeld)
	if p.Holder == nil || p.Holder.Ref != hold.Ref || p.Holder.Token != hold.Token || p.Holder.Owner != "w" {
		t.Errorf("held by %+v, want the hold %s", p.Holder, hold.Ref)
	}
	path := "/v1/holds/" + hold.Hold
	for _, resp := range []*http.Response{c.send(t, "POST", path+"/renew", ""), c.send(t, "GET", path, ""), c.send(t, "GET", path+"?wait=1s", "")} {
		if got := decode[wire.Hold](t, resp, http.StatusOK); got.Token != hold.Token || got.Hold != hold.Hold {
			t.Errorf("got %+v, want the same hold and token", got)
		}
	}
	c.release(t, hold)
	c.release(t, hold) // a repeat
	for _, resp := range []*http.Response{c.send(t, "POST", path+"/renew", ""), c.send(t, "GET", path, ""), c.send(t, "GET", path+"?wait=1s", "")} {
		if p := checkProblem(t, resp, apierr.HoldGone); p.Ended != "released" {
			t.Errorf("ended %q", p.Ended)
		}
	}
	next := c.acquire(t, "life", "")
	if next.Token <= hold.Token || next.Previous == nil || next.Previous.Ended != "released" || next.Previous.Token != hold.Token {
		t.Errorf("the next grant is %+v after token %d", next, hold.Token)
	}
}

func testWait(t *testing.T, c *client) {
	holder := c.acquire(t, "wait", "")
	granted := make(chan *http.Response, 1)
	go func() { granted <- c.send(t, "POST", "/v1/holds", acquireBody("wait", `,"wait":"20s"`)) }()
	c.awaitWaiters(t, "wait", 1)
	c.release(t, holder)
	if hold := decode[wire.Hold](t, <-granted, http.StatusCreated); hold.Token <= holder.Token {
		t.Errorf("token %d after %d", hold.Token, holder.Token)
	}
}

func testWaitOver(t *testing.T, c *client) {
	c.acquire(t, "over", "")
	p := checkProblem(t, c.send(t, "POST", "/v1/holds", acquireBody("over", `,"wait":"50ms"`)), apierr.LockHeld)
	if p.WaitedMS == nil || *p.WaitedMS < 50 {
		t.Errorf("waited %v ms", p.WaitedMS)
	}
	c.awaitWaiters(t, "over", 0)
}

func testReplay(t *testing.T, c *client) {
	hold := c.acquire(t, "replay", "", wire.IdempotencyKey, keyA)
	resp := c.send(t, "POST", "/v1/holds", acquireBody("replay", ""), wire.IdempotencyKey, strings.ToUpper(keyA))
	if resp.Header.Get(wire.IdempotentReplay) != "true" {
		t.Errorf("headers %v", resp.Header)
	}
	if again := decode[wire.Hold](t, resp, http.StatusCreated); again.Hold != hold.Hold || again.Token != hold.Token {
		t.Errorf("the repeat got %+v, want %+v", again, hold)
	}
	checkProblem(t, c.send(t, "POST", "/v1/holds", acquireBody("replay", `,"ttl":"3s"`), wire.IdempotencyKey, keyA), apierr.IdempotencyKeyReused)
	checkProblem(t, c.send(t, "POST", "/v1/holds", acquireBody("replay", ""), wire.IdempotencyKey, "order-42"), apierr.BadIdempotencyKey)
	c.release(t, hold)
	checkProblem(t, c.send(t, "POST", "/v1/holds", acquireBody("replay", ""), wire.IdempotencyKey, keyA), apierr.HoldGone)
}

func testKeptPlace(t *testing.T, c *client) {
	holder := c.acquire(t, "kept", "")
	if p := checkProblem(t, c.send(t, "POST", "/v1/holds", acquireBody("kept", `,"keep_place":true`)), apierr.OutOfBounds); p.Field != "keep_place" {
		t.Errorf("field %q", p.Field)
	}
	resp := c.send(t, "POST", "/v1/holds", acquireBody("kept", `,"wait":"20ms","keep_place":true`), wire.IdempotencyKey, keyB)
	queued := decode[wire.Hold](t, resp, http.StatusAccepted)
	if queued.State != wire.StateQueued || queued.Position != 1 || resp.Header.Get("Location") != "/v1/holds/"+queued.Hold {
		t.Errorf("got %+v, Location %q", queued, resp.Header.Get("Location"))
	}
	checkProblem(t, c.send(t, "POST", "/v1/holds/"+queued.Hold+"/renew", ""), apierr.NotHeld)
	c.release(t, holder)
	resp = c.send(t, "GET", "/v1/holds/"+queued.Hold+"?wait=10s", "")
	if held := decode[wire.Hold](t, resp, http.StatusOK); held.State != wire.StateHeld || held.Ref != queued.Ref || held.Token <= holder.Token {
		t.Errorf("got %+v", held)
	}
}

func testSession(t *testing.T, c *client) {
	resp := c.send(t, "POST", "/v1/sessions", `{"owner":"w","ttl":"10s"}`)
	session := decode[wire.Session](t, resp, http.StatusCreated)
	path := "/v1/sessions/" + session.Session
	if resp.Header.Get("Location") != path || session.TTLMS != 10_000 {
		t.Errorf("got %+v, Location %q", session, resp.Header.Get("Location"))
	}
	hold := c.acquire(t, "of a session", `,"session":"`+session.Session+`"`)
	if hold.Session != session.Ref {
		t.Errorf("hold of session %q, want %q", hold.Session, session.Ref)
	}
	for _, resp := range []*http.Response{c.send(t, "POST", path+"/renew", ""), c.send(t, "GET", path, "")} {
		got := decode[wire.Session](t, resp, http.StatusOK)
		if diff := cmp.Diff([]string{hold.Ref}, got.Live); diff != "" || got.Revision < hold.Revision {
			t.Errorf("revision %d, live (-want +got)\n%s", got.Revision, diff)
		}
	}
	list := decode[wire.SessionList](t, c.send(t, "GET", "/v1/sessions", ""), http.StatusOK)
	if len(list.Sessions) != 1 || list.Sessions[0].Ref != session.Ref || list.Sessions[0].Session != "" {
		t.Errorf("listed %+v", list)
	}
	if resp := c.send(t, "DELETE", path, ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("end: status %d", resp.StatusCode)
	}
	if resp := c.send(t, "DELETE", path, ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("end again: status %d", resp.StatusCode)
	}
	if p := checkProblem(t, c.send(t, "POST", path+"/renew", ""), apierr.SessionGone); p.Ended != "released" {
		t.Errorf("a session that was ended is %q", p.Ended)
	}
	brief := decode[wire.Session](t, c.send(t, "POST", "/v1/sessions", `{"owner":"w","ttl":"1s"}`), http.StatusCreated)
	for ended := false; !ended; {
		resp := c.send(t, "GET", "/v1/sessions/"+brief.Session+"?wait=5s", "")
		if ended = resp.StatusCode != http.StatusOK; ended {
			checkProblem(t, resp, apierr.SessionGone)
		}
	}
	if p := checkProblem(t, c.send(t, "DELETE", "/v1/sessions/"+brief.Session, ""), apierr.SessionGone); p.Ended != "expired" {
		t.Errorf("a session that has expired is %q", p.Ended)
	}
	checkProblem(t, c.send(t, "POST", "/v1/holds/"+hold.Hold+"/renew", ""), apierr.HoldGone)
}

func testCheck(t *testing.T, c *client) {
	old := c.acquire(t, "check", "")
	c.release(t, old)
	item := func(hold wire.Hold) string { return fmt.Sprintf(`{"lock":"check","token":%d}`, hold.Token) }
	p := checkProblem(t, c.send(t, "POST", "/v1/check", "["+item(old)+"]"), apierr.TokenNotValid)
	if len(p.Results) != 1 || p.Results[0].Result != "ended" {
		t.Errorf("got %+v", p.Results)
	}
	live := c.acquire(t, "check", "")
	decode[wire.CheckList](t, c.send(t, "POST", "/v1/check", "["+item(live)+"]"), http.StatusOK)
	p = checkProblem(t, c.send(t, "POST", "/v1/check", "["+item(live)+","+item(old)+"]"), apierr.StaleToken)
	want := []wire.CheckResult{
		{Lock: "check", Token: live.Token, Result: "valid", Current: live.Token},
		{Lock: "check", Token: old.Token, Result: "stale", Current: live.Token},
	}
	if diff := cmp.Diff(want, p.Results); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func testBreak(t *testing.T, c *client) {
	hold := c.acquire(t, "break", "")
	body := func(token any) string {
		return fmt.Sprintf(`{"lock":"break","token":%v,"reason":"host is down"}`, token)
	}
	checkProblem(t, c.send(t, "POST", "/v1/break", body(hold.Token-1)), apierr.HolderChanged)
	ended := decode[wire.Ended](t, c.send(t, "POST", "/v1/break", body(hold.Token)), http.StatusOK)
	if ended.Ended != "broken" || ended.Token != hold.Token || ended.Reason != "host is down" {
		t.Errorf("got %+v", ended)
	}
	if p := checkProblem(t, c.send(t, "POST", "/v1/holds/"+hold.Hold+"/renew", ""), apierr.HoldGone); p.Ended != "broken" {
		t.Errorf("ended %q", p.Ended)
	}
	info := decode[wire.Lock](t, c.send(t, "GET", "/v1/lock?name=break", ""), http.StatusOK)
	if info.State != wire.StateFree || len(info.History) != 1 || info.History[0].Ended != "broken" {
		t.Errorf("got %+v", info)
	}
}

func testPages(t *testing.T, c *client) {
	names := []string{"page/a b", "page/é", "page/%2F", "page//", "page/..", "page/+;?#"}
	for _, name := range names {
		c.acquire(t, name, "")
	}
	var got []string
	for cursor := ""; ; {
		page := decode[wire.LockList](t, c.send(t, "GET", "/v1/locks?limit=4&prefix=page%2F&cursor="+cursor, ""), http.StatusOK)
		for _, l := range page.Locks {
			got = append(got, l.Lock)
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	want := []string{"page/%2F", "page/+;?#", "page/..", "page//", "page/a b", "page/é"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, name := range names {
		info := decode[wire.Lock](t, c.send(t, "GET", "/v1/lock?name="+url.QueryEscape(name), ""), http.StatusOK)
		if info.Lock != name || info.State != wire.StateHeld {
			t.Errorf("%q: got %+v", name, info.LockSummary)
		}
	}
}

func testStatus(t *testing.T, c *client) {
	decode[wire.Health](t, c.send(t, "GET", "/readyz", ""), http.StatusOK)
	st := decode[wire.Status](t, c.send(t, "GET", "/v1/status", ""), http.StatusOK)
	if !st.Ready || st.Version != "devel" || st.Mode != "embedded" || st.Cluster == "" || st.Started.IsZero() {
		t.Errorf("got %+v", st)
	}
}

// Bad values that only the engine can tell: each is a 422 with its field, and
// nothing is stored.
func TestService_stores_nothing_of_bad_input(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	long := func(n int) string { return strings.Repeat("a", n) }
	metadata := `{"k":"` + long(1024) + `"}`
	tests := map[string]struct{ body, field string }{
		"lock of 513 bytes":   {acquireBody(long(513), ""), "lock"},
		"empty lock":          {acquireBody("", ""), "lock"},
		"no lock":             {`{"owner":"w"}`, "lock"},
		"lock not composed":   {`{"lock":"e\u0301","owner":"w"}`, "lock"},
		"zero width":          {`{"lock":"a\u200bb","owner":"w"}`, "lock"},
		"right-to-left mark":  {`{"lock":"a\u200fb","owner":"w"}`, "lock"},
		"CR LF":               {`{"lock":"a\r\nb","owner":"w"}`, "lock"},
		"NUL":                 {`{"lock":"a\u0000b","owner":"w"}`, "lock"},
		"line separator":      {`{"lock":"a\u2028b","owner":"w"}`, "lock"},
		"private use":         {`{"lock":"a\ue000b","owner":"w"}`, "lock"},
		"unassigned":          {`{"lock":"a\u0378b","owner":"w"}`, "lock"},
		"no owner":            {`{"lock":"a"}`, "owner"},
		"owner of 129 bytes":  {`{"lock":"a","owner":"` + long(129) + `"}`, "owner"},
		"ttl under 1s":        {acquireBody("a", `,"ttl":"999ms"`), "ttl"},
		"ttl over 1h":         {acquireBody("a", `,"ttl":"3600001ms"`), "ttl"},
		"ttl in microseconds": {acquireBody("a", `,"ttl":"1500001us"`), "ttl"},
		"metadata too big":    {acquireBody("a", `,"metadata":`+metadata), "metadata"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if p := checkProblem(t, c.send(t, "POST", "/v1/holds", tt.body), apierr.OutOfBounds); p.Field != tt.field || p.Limit == "" {
				t.Errorf("field %q, limit %q; want field %q", p.Field, p.Limit, tt.field)
			}
		})
	}
	for name, bad := range badInputs {
		if _, other := bad.header["Host"]; other {
			continue // a client cannot send it and connect here
		}
		t.Run(name, func(t *testing.T) {
			r := bad.request()
			out, err := http.NewRequestWithContext(t.Context(), r.Method, c.URL+r.URL.RequestURI(), strings.NewReader(bad.body))
			if err != nil {
				t.Fatal(err)
			}
			out.Header = r.Header
			resp, err := c.http.Do(out)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if want := bad.code.Info().Status; resp.StatusCode != want {
				t.Errorf("status %d, want %d", resp.StatusCode, want)
			}
		})
	}
	if st := decode[wire.Status](t, c.send(t, "GET", "/v1/status", ""), http.StatusOK); st.Holds != 0 || st.Locks != 0 || st.Sessions != 0 {
		t.Errorf("something was stored: %+v", st)
	}
	longest := c.acquire(t, long(lockserver.MaxLockName), `,"ttl":"1h","metadata":{"k":"`+long(1023)+`"}`)
	if longest.Lock != long(lockserver.MaxLockName) || longest.TTLMS != time.Hour.Milliseconds() {
		t.Errorf("the longest valid request got %+v", longest)
	}
}
