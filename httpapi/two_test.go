package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver"
)

// twoServers serve the same locks.
func twoServers(t *testing.T) (a, b *client) {
	t.Helper()
	node := etcdtest.Node(t)
	one := func(name string) *client {
		engine, _ := etcdtest.Run(t, lockserver.Config{Client: node.Client(), Name: name})
		srv := serve(t, engine)
		c := &client{srv, srv.Client()}
		t.Cleanup(c.http.CloseIdleConnections)
		return c
	}
	return one("a"), one("b")
}

// A wait that is cut, as by a proxy, goes on through any server under its key: with
// the place that it had, and so before who came meanwhile.
func TestWait_that_is_cut_goes_on_through_another_server(t *testing.T) {
	t.Parallel()
	a, b := twoServers(t)
	holder := a.acquire(t, "lock", "")
	cut, stop := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		r, err := http.NewRequestWithContext(cut, http.MethodPost, a.URL+"/v1/holds", strings.NewReader(acquireBody("lock", `,"wait":"30s"`)))
		if err == nil {
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set(wire.IdempotencyKey, keyA)
			_, err = a.http.Do(r)
		}
		gone <- err
	}()
	b.awaitWaiters(t, "lock", 1)
	stop()
	if err := <-gone; err == nil {
		t.Fatal("the wait was answered")
	}
	later := make(chan *http.Response, 1)
	go func() { later <- a.send(t, "POST", "/v1/holds", acquireBody("lock", `,"wait":"30s"`)) }()
	b.awaitWaiters(t, "lock", 2)
	place := decode[wire.Lock](t, b.send(t, "GET", "/v1/lock?name=lock", ""), http.StatusOK).Queue[0]

	again := make(chan *http.Response, 1)
	go func() {
		again <- b.send(t, "POST", "/v1/holds", acquireBody("lock", `,"wait":"30s"`), wire.IdempotencyKey, keyA)
	}()
	a.release(t, holder)
	resp := <-again
	hold := decode[wire.Hold](t, resp, http.StatusCreated)
	if hold.Ref != place.Ref || hold.Token <= holder.Token || resp.Header.Get(wire.IdempotentReplay) != "true" {
		t.Errorf("got %+v, want the place %s", hold, place.Ref)
	}
	same := decode[wire.Hold](t, a.send(t, "POST", "/v1/holds", acquireBody("lock", `,"wait":"30s"`), wire.IdempotencyKey, keyA), http.StatusCreated)
	if same.Token != hold.Token || same.Hold != hold.Hold {
		t.Errorf("asked again through the first server: %+v, want token %d", same, hold.Token)
	}
	b.release(t, hold)
	if next := decode[wire.Hold](t, <-later, http.StatusCreated); next.Token <= hold.Token {
		t.Errorf("who came later has token %d, after %d", next.Token, hold.Token)
	}
}

// Events have the same ids on all servers: a reader goes on where another stopped.
func TestEvents_go_on_through_another_server(t *testing.T) {
	t.Parallel()
	a, b := twoServers(t)
	session := decode[wire.Session](t, a.send(t, "POST", "/v1/sessions", `{"owner":"w"}`), http.StatusCreated)
	start := fmt.Sprintf("%d.0", session.Revision)
	for range 3 {
		a.release(t, a.acquire(t, "lock", ""))
	}
	whole := b.stream(t, "?prefix=lock", start)
	var ids []string
	for range 6 {
		ids = append(ids, whole.next().id)
	}
	for i, id := range ids[:5] {
		for _, server := range []*client{a, b} {
			if next := server.stream(t, "?prefix=lock", id).next(); next.id != ids[i+1] {
				t.Errorf("behind %s comes %s, want %s", id, next.id, ids[i+1])
			}
		}
	}
}

// Everybody sees refs; who knows one can do nothing with the hold.
func TestRef_is_no_capability(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	hold := c.acquire(t, "lock", "")
	for id, codes := range map[string][2]apierr.Code{
		hold.Ref:                   {apierr.HoldGone, apierr.SessionGone},
		hold.Hold + "a":            {apierr.Malformed, apierr.Malformed},
		hold.Hold[1:]:              {apierr.Malformed, apierr.Malformed},
		strings.ToUpper(hold.Hold): {apierr.Malformed, apierr.Malformed},
	} {
		path := "/v1/holds/" + id
		checkProblem(t, c.send(t, "GET", path, ""), codes[0])
		checkProblem(t, c.send(t, "GET", path+"?wait=1s", ""), codes[0])
		checkProblem(t, c.send(t, "POST", path+"/renew", ""), codes[0])
		checkProblem(t, c.send(t, "DELETE", path, ""), codes[0])
		checkProblem(t, c.send(t, "GET", "/v1/sessions/"+id, ""), codes[1])
	}
	if still := decode[wire.Hold](t, c.send(t, "POST", "/v1/holds/"+hold.Hold+"/renew", ""), http.StatusOK); still.Token != hold.Token {
		t.Errorf("got %+v, want token %d", still, hold.Token)
	}
}
