package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/apikey"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/internal/wire"
)

// removal is a service with two keys, one of which is taken out of the file.
type removal struct {
	*client
	ring           keyring
	removed, stays string
}

func newRemoval(t *testing.T) removal {
	t.Helper()
	ring := newKeyring(t)
	r := removal{ring: ring, removed: ring.add("removed", keys.Admin, "", apikey.Quota{}), stays: ring.add("stays", keys.Admin, "", apikey.Quota{})}
	r.client = newClientWith(t, httpapi.Config{Engine: etcdtest.Server(t), Keys: ring.open()})
	return r
}

func bearing(key string) []string { return []string{"Authorization", "Bearer " + key} }

// remove takes the key out and waits until the server must have seen it.
func (r removal) remove(t *testing.T) {
	t.Helper()
	id := strings.Split(r.removed, "_")[1]
	if err := apikey.Remove(r.ring.path, id); err != nil {
		t.Fatal(err)
	}
	time.Sleep(keys.ReloadInterval) // the next look at the file is due
	if got := r.send(t, "GET", "/v1/whoami", "", bearing(r.removed)...).StatusCode; got != http.StatusUnauthorized {
		t.Fatalf("the removed key is answered %d", got)
	}
}

// A request that waits while its key is removed is answered 401, and what was granted
// to it does not stand in the way of others.
func TestKeys_a_removed_key_is_granted_nothing(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(*testing.T, removal) *http.Response{
		"acquire": func(t *testing.T, r removal) *http.Response {
			return r.send(t, "POST", "/v1/holds", acquireBody("a", `,"wait":"20s","ttl":"1h"`), bearing(r.removed)...)
		},
		"acquire with an idempotency key": func(t *testing.T, r removal) *http.Response {
			return r.send(t, "POST", "/v1/holds", acquireBody("a", `,"wait":"20s","ttl":"1h"`), append(bearing(r.removed), wire.IdempotencyKey, keyA)...)
		},
		"a kept place": func(t *testing.T, r removal) *http.Response {
			kept := decode[wire.Hold](t, r.send(t, "POST", "/v1/holds", acquireBody("a", `,"keep_place":true,"ttl":"1h"`),
				append(bearing(r.removed), wire.IdempotencyKey, keyA)...), http.StatusAccepted)
			return r.send(t, "GET", "/v1/holds/"+kept.Hold+"?wait=20s", "", bearing(r.removed)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRemoval(t)
			holder := r.acquire(t, "a", `,"ttl":"1h"`, bearing(r.stays)...)
			queue := r.stream(t, "?prefix=a", "", bearing(r.stays)...)
			answer := make(chan *http.Response, 1)
			go func() { answer <- wait(t, r) }()
			queue.await(wire.EventQueued)
			r.remove(t)
			r.send(t, "DELETE", "/v1/holds/"+holder.Hold, "", bearing(r.stays)...)
			checkProblem(t, <-answer, apierr.Unauthorized)
			r.acquire(t, "a", `,"wait":"5s"`, bearing(r.stays)...)
		})
	}
}

// What a wait ends with tells of the lock, and so nothing to a key that was removed.
func TestKeys_a_removed_key_is_told_nothing(t *testing.T) {
	t.Parallel()
	r := newRemoval(t)
	holder := r.acquire(t, "a", `,"ttl":"1h","metadata":{"plan":"secret"}`, bearing(r.stays)...)
	session := decode[wire.Session](t, r.send(t, "POST", "/v1/sessions", `{"owner":"w"}`, bearing(r.removed)...), http.StatusCreated)
	queue := r.stream(t, "?prefix=a", "", bearing(r.stays)...)
	answers := make(chan *http.Response, 3)
	for _, ask := range []func() *http.Response{
		func() *http.Response {
			return r.send(t, "POST", "/v1/holds", acquireBody("a", `,"wait":"4s"`), bearing(r.removed)...)
		},
		func() *http.Response {
			return r.send(t, "GET", "/v1/sessions/"+session.Session+"?wait=20s", "", bearing(r.removed)...)
		},
	} {
		go func() { answers <- ask() }()
	}
	queue.await(wire.EventQueued)
	r.remove(t)
	checkProblem(t, <-answers, apierr.Unauthorized)
	r.send(t, "DELETE", "/v1/sessions/"+session.Session, "", bearing(r.stays)...)
	checkProblem(t, <-answers, apierr.Unauthorized)
	r.send(t, "DELETE", "/v1/holds/"+holder.Hold, "", bearing(r.stays)...)
}

// An open stream tells nothing more once its key is removed.
func TestKeys_a_removed_key_sees_no_more_events(t *testing.T) {
	t.Parallel()
	r := newRemoval(t)
	resp := r.send(t, "GET", "/v1/events", "", bearing(r.removed)...)
	defer resp.Body.Close()
	r.remove(t)
	r.acquire(t, "secret/plan", "", bearing(r.stays)...)
	var got strings.Builder
	buf := make([]byte, 1024)
	for {
		n, err := resp.Body.Read(buf)
		got.Write(buf[:n])
		if err != nil {
			break
		}
	}
	if strings.Contains(got.String(), "secret/plan") {
		t.Errorf("the stream went on: %q", got.String())
	}
}

// An event stream takes the room of a waiting request.
func TestQuota_counts_event_streams(t *testing.T) {
	t.Parallel()
	ring := newKeyring(t)
	key := ring.add("one", keys.Read, "", apikey.Quota{Waiting: 1})
	c := newClientWith(t, httpapi.Config{Engine: etcdtest.Server(t), Keys: ring.open()})
	first := c.send(t, "GET", "/v1/events", "", bearing(key)...)
	p := checkProblem(t, c.send(t, "GET", "/v1/events", "", bearing(key)...), apierr.Quota)
	if p.Field != "waiting" {
		t.Errorf("field %q", p.Field)
	}
	_ = first.Body.Close()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		again := c.send(t, "GET", "/v1/events", "", bearing(key)...)
		_ = again.Body.Close()
		if again.StatusCode == http.StatusOK {
			return
		}
	}
	t.Error("the end of a stream made no room")
}
