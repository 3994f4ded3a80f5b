package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func dialTest(t *testing.T, handler http.HandlerFunc) *httpConn {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := dialHTTP(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

func TestHTTPConn_Do(t *testing.T) {
	t.Parallel()
	var conns atomic.Int64
	seen := ""
	c := dialTest(t, func(w http.ResponseWriter, r *http.Request) {
		if r.RemoteAddr != seen {
			seen = r.RemoteAddr
			conns.Add(1)
		}
		if r.Method == "DELETE" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		body := make([]byte, r.ContentLength)
		_, _ = r.Body.Read(body)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(r.URL.Path + " " + r.Header.Get("Content-Type") + " " + string(body)))
	})
	for _, tt := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"POST", "/a", `{"n":1}`, 201, `/a application/json {"n":1}`},
		{"DELETE", "/b", "", 204, ""},
		{"POST", "/c", `{}`, 201, `/c application/json {}`},
	} {
		status, answer, err := c.do(tt.method, tt.path, tt.body)
		if err != nil || status != tt.status || string(answer) != tt.answer {
			t.Errorf("%s %s: %d %q, %v; want %d %q", tt.method, tt.path, status, answer, err, tt.status, tt.answer)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections, want one that is kept", n)
	}
}

func TestHTTPConn_AcquireAsksAgain(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	c := dialTest(t, func(w http.ResponseWriter, _ *http.Request) {
		switch asked.Add(1) {
		case 1:
			w.WriteHeader(http.StatusConflict)
		case 2:
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"hold":"secret","ref":"r"}`))
		default:
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte("ttl"))
		}
	})
	hold, err := c.acquire("l", time.Second)
	if err != nil || hold != "secret" || asked.Load() != 2 {
		t.Errorf("hold %q, %v after %d requests; want secret after 2", hold, err, asked.Load())
	}
	if _, err := c.acquire("l", time.Second); err == nil || !strings.Contains(err.Error(), "422") {
		t.Errorf("a refusal gives %v, want an error with its status", err)
	}
	if err := c.release("h"); err == nil {
		t.Error("a release that is refused gives no error")
	}
}
