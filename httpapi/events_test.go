package httpapi_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fenced/fenced/internal/wire"
)

// message is one server-sent event as a client reads it.
type message struct {
	id, name string
	data     wire.Event
}

// stream is an open GET /v1/events.
type stream struct {
	t     *testing.T
	lines *bufio.Scanner
	id    string // the last one, as a browser keeps it
}

func (c *client) stream(t *testing.T, query, lastID string, headers ...string) *stream {
	t.Helper()
	resp := c.send(t, "GET", "/v1/events"+query, "", append(headers, "Last-Event-ID", lastID)...)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("status %d, Content-Type %q", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	return &stream{t: t, lines: bufio.NewScanner(resp.Body)}
}

// next reads up to the next event; blocks without data only move the id.
func (s *stream) next() message {
	s.t.Helper()
	m := message{}
	for s.lines.Scan() {
		name, value, _ := strings.Cut(s.lines.Text(), ": ")
		switch name {
		case "id":
			s.id = value
		case "event":
			m.name = value
		case "data":
			if err := json.Unmarshal([]byte(value), &m.data); err != nil {
				s.t.Fatalf("data %q: %v", value, err)
			}
		case "":
			if s.lines.Text() == "" && m.name != "" {
				m.id = s.id
				return m
			}
		}
	}
	s.t.Fatalf("the stream ended: %v", s.lines.Err())
	return m
}

// await reads up to an event of that name.
func (s *stream) await(name string) {
	s.t.Helper()
	for s.next().name != name {
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	all, some := c.stream(t, "", ""), c.stream(t, "?prefix=b%2F", "")

	first := c.acquire(t, "a", "")
	c.release(t, first)
	second := c.acquire(t, "b/1", "")
	c.release(t, second)

	event := func(kind string, h wire.Hold) message {
		return message{name: kind, data: wire.Event{Lock: h.Lock, Ref: h.Ref, Owner: "w", Token: h.Token}}
	}
	ignore := cmp.Options{cmp.AllowUnexported(message{}), cmpopts.IgnoreFields(message{}, "id"), cmpopts.IgnoreFields(wire.Event{}, "Time")}
	var seen []message
	for _, want := range []message{
		event(wire.EventGranted, first), event(wire.EventReleased, first),
		event(wire.EventGranted, second), event(wire.EventReleased, second),
	} {
		got := all.next()
		seen = append(seen, got)
		if diff := cmp.Diff(want, got, ignore); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
	for _, want := range seen[2:] {
		if got := some.next(); got != want {
			t.Errorf("with a prefix got %+v, want %+v", got, want)
		}
	}
	for i := range seen[:3] {
		if got := c.stream(t, "", seen[i].id).next(); got != seen[i+1] {
			t.Errorf("after %s got %+v, want %+v", seen[i].id, got, seen[i+1])
		}
	}
}

// A place in the stream that no server remembers gives resync first, and then
// what happens from then on.
func TestEvents_resync(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.release(t, c.acquire(t, "before", ""))
	for _, lastID := range []string{"0.0", "9007199254740991.0"} {
		s := c.stream(t, "", lastID)
		if got := s.next(); got.name != wire.EventResync || got.id == lastID {
			t.Errorf("after %s got %+v, want a resync with an id to go on from", lastID, got)
		}
		hold := c.acquire(t, "after", "")
		if got := s.next(); got.name != wire.EventGranted || got.data.Ref != hold.Ref {
			t.Errorf("after the resync got %+v", got)
		}
		c.release(t, hold)
	}
}
