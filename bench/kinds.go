package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// kind is one kind of request in a storm.
type kind struct {
	name    string
	weight  int
	want    []int // statuses beside 503; nil is any from 400 to 499
	request func(*caller) string
	got     func(c *caller, status int, body []byte)
	needs   func(*caller) bool // whether a caller can send it now; nil is always
	cut     bool               // the server may close instead of an answer
	leaves  bool               // the caller closes the connection behind it
}

// allows reports whether the server may answer so.
func (k *kind) allows(status int) bool {
	switch {
	case status == 503 || status == 0 && k.cut:
		return true
	case k.want == nil:
		return status >= 400 && status < 500
	}
	return slices.Contains(k.want, status)
}

// choose draws a kind that the caller can send.
func (c *caller) choose() *kind {
	for {
		k := &kinds[drawn[c.random.IntN(len(drawn))]]
		if k.needs == nil || k.needs(c) {
			return k
		}
	}
}

// drawn has the index of each kind as often as its weight says.
var drawn = func() (all []int) {
	for i := range kinds {
		all = append(all, slices.Repeat([]int{i}, kinds[i].weight)...)
	}
	return all
}()

func get(path string, headers ...string) string { return text("GET", path, "", headers) }

func post(path, body string, headers ...string) string {
	return text("POST", path, body, append([]string{"Content-Type: application/json"}, headers...))
}

func text(method, path, body string, headers []string) string {
	var b strings.Builder
	b.WriteString(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n")
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	if body != "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n" + body)
	return b.String()
}

// stormTTL is short, so that what is left behind is gone soon.
const stormTTL = "2s"

func holds(c *caller) bool      { return c.hold != "" }
func isFree(c *caller) bool     { return c.hold == "" }
func hasSession(c *caller) bool { return c.session != "" }
func noSession(c *caller) bool  { return c.session == "" }

// someLock is one of many, so that callers meet now and then.
func (c *caller) someLock() string { return fmt.Sprintf("storm/%d", c.random.IntN(2000)) }

func (c *caller) acquire(more string, headers ...string) string {
	c.lock = c.someLock()
	return post("/v1/holds", `{"lock":"`+c.lock+`","owner":"storm","ttl":"`+stormTTL+`"`+more+`}`, headers...)
}

func (c *caller) attempt() string {
	return fmt.Sprintf("Idempotency-Key: %016x%016x", c.random.Uint64(), c.random.Uint64())
}

func acquired(c *caller, status int, body []byte) {
	var answer struct {
		Hold  string
		Token int64
	}
	if status == 201 && json.Unmarshal(body, &answer) == nil {
		c.hold, c.token = answer.Hold, answer.Token
	}
}

func forgetHold(c *caller, _ int, _ []byte)    { c.hold = "" }
func forgetSession(c *caller, _ int, _ []byte) { c.session = "" }

// gone forgets a hold that the server says has ended.
func gone(c *caller, status int, _ []byte) {
	if status == 410 {
		c.hold = ""
	}
}

var kinds = append([]kind{
	{name: "try", weight: 40, want: []int{201, 409}, needs: isFree, got: acquired,
		request: func(c *caller) string { return c.acquire("") }},
	{name: "try with a key", weight: 20, want: []int{201, 409}, needs: isFree, got: acquired,
		request: func(c *caller) string { return c.acquire("", c.attempt()) }},
	{name: "wait", weight: 4, want: []int{201, 409}, needs: isFree, got: acquired,
		request: func(c *caller) string { return c.acquire(`,"wait":"20ms"`) }},
	{name: "queue and never come back", weight: 1, want: []int{201, 202},
		request: func(c *caller) string {
			return post("/v1/holds", `{"lock":"storm/hot","owner":"storm","ttl":"1s","wait":"5ms","keep_place":true}`, c.attempt())
		}},
	{name: "wait and leave", weight: 2, want: []int{200}, leaves: true, got: waitAndLeave, needs: isFree,
		request: func(*caller) string { return get("/healthz") }},
	{name: "try in a session", weight: 10, want: []int{201, 409, 410}, needs: func(c *caller) bool { return isFree(c) && hasSession(c) }, got: acquired,
		request: func(c *caller) string {
			c.lock = c.someLock()
			return post("/v1/holds", `{"lock":"`+c.lock+`","owner":"storm","session":"`+c.session+`"}`)
		}},
	{name: "release", weight: 80, want: []int{204, 410}, needs: holds, got: forgetHold,
		request: func(c *caller) string { return text("DELETE", "/v1/holds/"+c.hold, "", nil) }},
	{name: "never release", weight: 1, want: []int{200}, needs: holds, got: forgetHold,
		request: func(*caller) string { return get("/healthz") }},
	{name: "renew", weight: 20, want: []int{200, 410}, needs: holds, got: gone,
		request: func(c *caller) string { return post("/v1/holds/"+c.hold+"/renew", "{}") }},
	{name: "see a hold", weight: 10, want: []int{200, 410}, needs: holds, got: gone,
		request: func(c *caller) string { return get("/v1/holds/" + c.hold) }},
	{name: "break another's", weight: 5, want: []int{409}, needs: holds,
		request: func(c *caller) string {
			return post("/v1/break", fmt.Sprintf(`{"lock":"%s","token":%d,"reason":"storm"}`, c.lock, c.token-1))
		}},
	{name: "break", weight: 1, want: []int{200, 409}, needs: holds, got: forgetHold,
		request: func(c *caller) string {
			return post("/v1/break", fmt.Sprintf(`{"lock":"%s","token":%d,"reason":"storm"}`, c.lock, c.token))
		}},
	{name: "check", weight: 10, want: []int{200, 412}, needs: holds,
		request: func(c *caller) string {
			return post("/v1/check", fmt.Sprintf(`[{"lock":"%s","token":%d}]`, c.lock, c.token))
		}},
	{name: "make a session", weight: 3, want: []int{201}, needs: noSession,
		request: func(*caller) string { return post("/v1/sessions", `{"owner":"storm","ttl":"`+stormTTL+`"}`) },
		got: func(c *caller, _ int, body []byte) {
			var answer struct{ Session string }
			_ = json.Unmarshal(body, &answer) // "" where it is a problem
			c.session = answer.Session
		}},
	{name: "renew a session", weight: 5, want: []int{200, 410}, needs: hasSession,
		request: func(c *caller) string { return post("/v1/sessions/"+c.session+"/renew", "{}") },
		got: func(c *caller, status int, _ []byte) {
			if status == 410 {
				c.session = ""
			}
		}},
	{name: "end a session", weight: 1, want: []int{204, 410}, needs: hasSession, got: forgetSession,
		request: func(c *caller) string { return text("DELETE", "/v1/sessions/"+c.session, "", nil) }},
	{name: "see a lock", weight: 20, want: []int{200}, request: func(c *caller) string { return get("/v1/lock?name=" + c.someLock()) }},
	{name: "list", weight: 5, want: []int{200}, request: func(c *caller) string { return get("/v1/locks?limit=10&prefix=storm/") }},
	{name: "events for a moment", weight: 1, want: []int{200}, leaves: true,
		request: func(*caller) string { return get("/v1/events") }},
	{name: "status", weight: 5, want: []int{200}, request: func(*caller) string { return get("/v1/status") }},
	{name: "health", weight: 5, want: []int{200}, request: func(*caller) string { return get("/healthz") }},
	{name: "metrics", weight: 1, want: []int{200}, request: func(*caller) string { return get("/metrics") }},
	{name: "page", weight: 1, want: []int{200}, request: func(*caller) string { return get("/") }},
}, invalid()...)

// invalid are requests that must be refused, each drawn alike.
func invalid() []kind {
	body := func(b string) string { return post("/v1/holds", b) }
	name := func(n string) string { return get("/v1/lock?name=" + url.QueryEscape(n)) }
	all := map[string]string{
		"no JSON":                body(`lock=a`),
		"broken JSON":            body(`{"lock":"a"`),
		"repeated field":         body(`{"lock":"a","lock":"b","owner":"w"}`),
		"field in another case":  body(`{"Lock":"a","owner":"w"}`),
		"unknown field":          body(`{"lock":"a","owner":"w","colour":"red"}`),
		"no UTF-8":               body("{\"lock\":\"\xff\",\"owner\":\"w\"}"),
		"empty name":             body(`{"lock":"","owner":"w"}`),
		"name with NUL":          body(`{"lock":"a\u0000","owner":"w"}`),
		"name not composed":      body("{\"lock\":\"e\u0301\",\"owner\":\"w\"}"),
		"name of 513 bytes":      body(`{"lock":"` + strings.Repeat("n", 513) + `","owner":"w"}`),
		"no owner":               body(`{"lock":"a"}`),
		"ttl without unit":       body(`{"lock":"a","owner":"w","ttl":"5"}`),
		"ttl beyond any":         body(`{"lock":"a","owner":"w","ttl":"9999999h"}`),
		"long wait":              body(`{"lock":"a","owner":"w","wait":"31s"}`),
		"place without a key":    body(`{"lock":"a","owner":"w","keep_place":true}`),
		"session that never was": body(`{"lock":"a","owner":"w","session":"nobody"}`),
		"huge body":              body(`{"lock":"` + strings.Repeat("x", 40<<10) + `"}`),
		"bad key":                post("/v1/holds", `{"lock":"a","owner":"w"}`, "Idempotency-Key: order-42"),
		"text":                   text("POST", "/v1/holds", `{}`, []string{"Content-Type: text/plain"}),
		"other site":             post("/v1/holds", `{"lock":"a","owner":"w"}`, "Origin: http://evil.example"),
		"other host":             strings.Replace(get("/healthz"), "localhost", "evil.example", 1),
		"unknown route":          get("/v1/nothing"),
		"wrong method":           text("PUT", "/v1/locks", "", nil),
		"hold that never was":    get("/v1/holds/nobody"),
		"renewal of nothing":     post("/v1/holds/nobody/renew", "{}"),
		"limit of 0":             get("/v1/locks?limit=0"),
		"repeated query":         get("/v1/locks?limit=1&limit=2"),
		"own cursor":             get("/v1/locks?cursor=%21"),
		"name with a line break": name("a\nb"),
		"name right to left":     name("a\u202eb"),
		"negative token":         post("/v1/check", `[{"lock":"a","token":-1}]`),
		"token beyond any":       post("/v1/check", `[{"lock":"a","token":9007199254740993}]`),
		"check of nothing":       post("/v1/check", `[]`),
		"break without a reason": post("/v1/break", `{"lock":"a","token":1}`),
		"bad Last-Event-ID":      get("/v1/events", "Last-Event-ID: seven"),
		"header without an end":  "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n",
		"no HTTP":                "\x16\x03\x01\x02\x00 hello\r\n\r\n",
		"two lengths":            "POST /v1/holds HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
		"length and chunks":      "POST /v1/holds HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
	}
	var out []kind
	for name, request := range all {
		out = append(out, kind{name: name, weight: 4, cut: true, request: func(*caller) string { return request }})
	}
	slices.SortFunc(out, func(a, b kind) int { return strings.Compare(a.name, b.name) })
	return out
}

// waitAndLeave sends a wait behind the answer to the request before, and does not
// wait: what it would be granted must not stay with it.
func waitAndLeave(c *caller, status int, _ []byte) {
	if status == 200 && c.conn != nil {
		_, _ = c.conn.Write([]byte(c.acquire(`,"wait":"5s"`)))
	}
}
