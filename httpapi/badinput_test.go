package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
)

// badInput is one request that must be refused without reaching the engine.
type badInput struct {
	method, target string // POST /v1/holds where empty
	body           string
	header         map[string]string // "Host" too; an empty value removes a header
	code           apierr.Code
	field          string
}

func (b badInput) request() *http.Request {
	method, target := b.method, b.target
	if method == "" {
		method, target = http.MethodPost, "/v1/holds"
	}
	r := httptest.NewRequest(method, target, strings.NewReader(b.body))
	r.Host = "127.0.0.1:7420"
	if b.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range b.header {
		switch {
		case name == "Host":
			r.Host = value
		case value == "":
			r.Header.Del(name)
		default:
			r.Header.Set(name, value)
		}
	}
	return r
}

// secret is put into bodies to show that no detail repeats them.
const secret = "hunter2hunter2"

var badInputs = map[string]badInput{
	// Bodies.
	"no body":                {code: apierr.UnsupportedMediaType},
	"empty body":             {header: map[string]string{"Content-Type": "application/json"}, code: apierr.Malformed},
	"not JSON":               {body: `lock=` + secret, code: apierr.Malformed},
	"broken-off body":        {body: `{"lock":"` + secret, code: apierr.Malformed},
	"trailing data":          {body: `{"lock":"a","owner":"b"} "` + secret + `"`, code: apierr.Malformed},
	"repeated field":         {body: `{"lock":"` + secret + `","lock":"b"}`, code: apierr.Malformed},
	"field in another case":  {body: `{"LOCK":"` + secret + `"}`, code: apierr.Malformed},
	"unknown field":          {body: `{"lock":"` + secret + `","colour":"red"}`, code: apierr.OutOfBounds, field: "colour"},
	"lock that is no string": {body: `{"lock":42}`, code: apierr.OutOfBounds, field: "lock"},
	"bytes not UTF-8":        {body: "{\"lock\":\"\xff\"}", code: apierr.Malformed, field: "lock"},
	"huge body":              {body: `{"lock":"` + strings.Repeat("x", 64<<10) + `"}`, code: apierr.TooLarge, field: "body"},
	"body for a renewal":     {method: "POST", target: "/v1/holds/x/renew", body: `{"ttl":"5s"}`, code: apierr.OutOfBounds, field: "ttl"},

	// Content types.
	"form":          {body: `lock=a`, header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, code: apierr.UnsupportedMediaType},
	"text":          {body: `{}`, header: map[string]string{"Content-Type": "text/plain"}, code: apierr.UnsupportedMediaType},
	"no type":       {body: `{}`, header: map[string]string{"Content-Type": ""}, code: apierr.UnsupportedMediaType},
	"compressed":    {body: `{}`, header: map[string]string{"Content-Encoding": "gzip"}, code: apierr.UnsupportedMediaType},
	"other charset": {body: `{}`, header: map[string]string{"Content-Type": "application/json; charset=utf-16"}, code: apierr.UnsupportedMediaType},

	// Hosts and origins.
	"foreign host":          {body: `{}`, header: map[string]string{"Host": "evil.example"}, code: apierr.Misdirected},
	"foreign host, GET":     {method: "GET", target: "/healthz", header: map[string]string{"Host": "evil.example:7420"}, code: apierr.Misdirected},
	"foreign address":       {method: "GET", target: "/healthz", header: map[string]string{"Host": "203.0.113.9"}, code: apierr.Misdirected},
	"loopback look-alike":   {method: "GET", target: "/healthz", header: map[string]string{"Host": "127.0.0.1.evil.example"}, code: apierr.Misdirected},
	"page of another site":  {body: `{}`, header: map[string]string{"Sec-Fetch-Site": "cross-site"}, code: apierr.Forbidden},
	"page of another port":  {body: `{}`, header: map[string]string{"Sec-Fetch-Site": "same-site"}, code: apierr.Forbidden},
	"another origin":        {body: `{}`, header: map[string]string{"Origin": "http://evil.example"}, code: apierr.Forbidden},
	"origin null":           {body: `{}`, header: map[string]string{"Origin": "null"}, code: apierr.Forbidden},
	"DELETE by other site":  {method: "DELETE", target: "/v1/holds/x", header: map[string]string{"Sec-Fetch-Site": "cross-site"}, code: apierr.Forbidden},
	"GET by other site":     {method: "GET", target: "/v1/snapshot", header: map[string]string{"Sec-Fetch-Site": "cross-site"}, code: apierr.Forbidden},
	"GET by other port":     {method: "GET", target: "/v1/locks", header: map[string]string{"Sec-Fetch-Site": "same-site"}, code: apierr.Forbidden},
	"unknown route":         {method: "GET", target: "/v1/hold", code: apierr.NotFound},
	"slash behind":          {method: "GET", target: "/v1/locks/", code: apierr.NotFound},
	"two slashes":           {method: "GET", target: "//v1/locks", code: apierr.NotFound},
	"wrong method":          {method: "PUT", target: "/v1/holds", code: apierr.MethodNotAllowed},
	"HEAD of a waiting GET": {method: "HEAD", target: "/v1/holds/x", code: apierr.MethodNotAllowed},

	// Durations.
	"ttl of 0":                {body: `{"lock":"a","owner":"b","ttl":"0s"}`, code: apierr.OutOfBounds, field: "ttl"},
	"negative ttl":            {body: `{"lock":"a","owner":"b","ttl":"-5s"}`, code: apierr.OutOfBounds, field: "ttl"},
	"ttl without unit":        {body: `{"lock":"a","owner":"b","ttl":"5"}`, code: apierr.OutOfBounds, field: "ttl"},
	"ttl that is a number":    {body: `{"lock":"a","owner":"b","ttl":5}`, code: apierr.OutOfBounds, field: "ttl"},
	"ttl beyond any":          {body: `{"lock":"a","owner":"b","ttl":"9999999h"}`, code: apierr.OutOfBounds, field: "ttl"},
	"wait above 30s":          {body: `{"lock":"a","owner":"b","wait":"30001ms"}`, code: apierr.OutOfBounds, field: "wait"},
	"negative wait":           {body: `{"lock":"a","owner":"b","wait":"-1s"}`, code: apierr.OutOfBounds, field: "wait"},
	"wait in microseconds":    {body: `{"lock":"a","owner":"b","wait":"1500us"}`, code: apierr.OutOfBounds, field: "wait"},
	"wait in words":           {body: `{"lock":"a","owner":"b","wait":"soon"}`, code: apierr.OutOfBounds, field: "wait"},
	"session ttl of 0":        {method: "POST", target: "/v1/sessions", body: `{"owner":"a","ttl":"0s"}`, code: apierr.OutOfBounds, field: "ttl"},
	"wait above 30s in query": {method: "GET", target: "/v1/holds/x?wait=31s", code: apierr.OutOfBounds, field: "wait"},
	"empty wait in query":     {method: "GET", target: "/v1/holds/x?wait=", code: apierr.OutOfBounds, field: "wait"},

	// Queries.
	"unknown query value":   {method: "GET", target: "/v1/locks?colour=red", code: apierr.OutOfBounds, field: "query"},
	"query without a use":   {method: "GET", target: "/healthz?x=1", code: apierr.OutOfBounds, field: "query"},
	"repeated query value":  {method: "GET", target: "/v1/locks?limit=1&limit=2", code: apierr.Malformed, field: "limit"},
	"semicolon in query":    {method: "GET", target: "/v1/locks?limit=1;prefix=a", code: apierr.Malformed},
	"bad escape in query":   {method: "GET", target: "/v1/locks?prefix=%zz", code: apierr.Malformed},
	"query not UTF-8":       {method: "GET", target: "/v1/lock?name=%ff", code: apierr.Malformed, field: "name"},
	"limit of 0":            {method: "GET", target: "/v1/locks?limit=0", code: apierr.OutOfBounds, field: "limit"},
	"limit too high":        {method: "GET", target: "/v1/locks?limit=1001", code: apierr.OutOfBounds, field: "limit"},
	"limit in another way":  {method: "GET", target: "/v1/locks?limit=%2B5", code: apierr.OutOfBounds, field: "limit"},
	"cursor of one's own":   {method: "GET", target: "/v1/locks?cursor=%21", code: apierr.Malformed, field: "cursor"},
	"long prefix":           {method: "GET", target: "/v1/locks?prefix=" + strings.Repeat("a", 513), code: apierr.OutOfBounds, field: "prefix"},
	"no name":               {method: "GET", target: "/v1/lock", code: apierr.OutOfBounds, field: "name"},
	"name of 513 bytes":     {method: "GET", target: "/v1/lock?name=" + strings.Repeat("a", 513), code: apierr.OutOfBounds, field: "name"},
	"name not composed":     {method: "GET", target: "/v1/lock?name=e%CC%81", code: apierr.OutOfBounds, field: "name"},
	"name with zero width":  {method: "GET", target: "/v1/lock?name=a%E2%80%8Bb", code: apierr.OutOfBounds, field: "name"},
	"name with line break":  {method: "GET", target: "/v1/lock?name=a%0Ab", code: apierr.OutOfBounds, field: "name"},
	"name with NUL":         {method: "GET", target: "/v1/lock?name=a%00b", code: apierr.OutOfBounds, field: "name"},
	"bad Last-Event-ID":     {method: "GET", target: "/v1/events", header: map[string]string{"Last-Event-ID": "7"}, code: apierr.Malformed, field: "Last-Event-ID"},
	"signed Last-Event-ID":  {method: "GET", target: "/v1/events", header: map[string]string{"Last-Event-ID": "+7.0"}, code: apierr.Malformed, field: "Last-Event-ID"},
	"check of nothing":      {method: "POST", target: "/v1/check", body: `[]`, code: apierr.OutOfBounds, field: "body"},
	"check without a token": {method: "POST", target: "/v1/check", body: `[{"lock":"a"}]`, code: apierr.OutOfBounds, field: "[0].token"},
	"check without a lock":  {method: "POST", target: "/v1/check", body: `[{"token":1}]`, code: apierr.OutOfBounds, field: "[0].lock"},
	"break without a token": {method: "POST", target: "/v1/break", body: `{"lock":"a","reason":"r"}`, code: apierr.OutOfBounds, field: "token"},
}

// Tokens that are none, wherever a request has one.
func init() {
	for _, token := range []string{`0`, `-1`, `1.5`, `9007199254740992`, `"abc"`, `"7"`, `1e3`, `null`} {
		badInputs["check of token "+token] = badInput{
			method: "POST", target: "/v1/check", body: `[{"lock":"a","token":` + token + `}]`, code: apierr.OutOfBounds, field: "[0].token",
		}
		badInputs["break of token "+token] = badInput{
			method: "POST", target: "/v1/break", body: `{"lock":"a","token":` + token + `,"reason":"r"}`, code: apierr.OutOfBounds, field: "token",
		}
		badInputs["floor above "+token] = badInput{
			method: "POST", target: "/v1/floor", body: `{"above":` + token + `}`, code: apierr.OutOfBounds, field: "above",
		}
	}
}

func TestNew_refuses_bad_input(t *testing.T) {
	t.Parallel()
	handler := newHandler(t, &fakeEngine{})
	for name, bad := range badInputs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, bad.request())
			p := checkProblem(t, w.Result(), bad.code)
			if p.Field != bad.field {
				t.Errorf("field %q, want %q (%+v)", p.Field, bad.field, p)
			}
			if strings.Contains(w.Body.String(), secret) {
				t.Errorf("the answer repeats the body: %s", w.Body)
			}
		})
	}
}

// checkProblem decodes a problem and checks what all of them have in common.
func checkProblem(t *testing.T, resp *http.Response, code apierr.Code) wire.Problem {
	t.Helper()
	defer resp.Body.Close()
	var p wire.Problem
	dec := json.NewDecoder(resp.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		t.Fatalf("status %d: decode the problem: %v", resp.StatusCode, err)
	}
	info := code.Info()
	if p.Code != code || p.Status != info.Status || resp.StatusCode != info.Status {
		t.Fatalf("got status %d, problem %+v; want code %s with status %d", resp.StatusCode, p, code, info.Status)
	}
	if got := resp.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	if p.Type != "/docs#"+string(code) || p.Title != info.Meaning || p.RequestID == "" {
		t.Errorf("type %q, title %q, request id %q", p.Type, p.Title, p.RequestID)
	}
	if got := resp.Header.Get("Retry-After"); (got == "1" || got == "2") != info.Retryable || got == "" == info.Retryable {
		t.Errorf("Retry-After %q of a code with retryable %v", got, info.Retryable)
	}
	return p
}
