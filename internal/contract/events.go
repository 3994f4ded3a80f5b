package contract

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
)

// stream is one open stream of events.
type stream struct {
	b      *bundle
	lines  *bufio.Scanner
	start  string // the id that it begins behind
	lastID string
	close  func()
}

// follow opens a stream behind the given id, "" for now.
func (b *bundle) follow(prefix, after string) *stream {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.s.URL+"/v1/events?"+url.Values{"prefix": {prefix}}.Encode(), nil)
	if err != nil {
		b.Fatal(err)
	}
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	b.s.authorize(req)
	resp, err := b.s.HTTP.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	end := func() {
		cancel()
		resp.Body.Close()
	}
	b.Cleanup(end)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		b.Fatalf("stream: %s of type %q", resp.Status, resp.Header.Get("Content-Type"))
	}
	s := &stream{b: b, lines: bufio.NewScanner(resp.Body), close: end}
	for s.start == "" { // what the stream says of itself comes at once
		field, value := s.line()
		if field == "id" {
			s.start, s.lastID = value, value
		}
	}
	return s
}

func (s *stream) line() (field, value string) {
	s.b.Helper()
	if !s.lines.Scan() {
		s.b.Fatalf("the stream ended: %v", s.lines.Err())
	}
	field, value, _ = strings.Cut(s.lines.Text(), ": ")
	return field, value
}

// next returns the next event and its kind.
func (s *stream) next() (kind string, ev wire.Event) {
	s.b.Helper()
	for {
		switch field, value := s.line(); field {
		case "id":
			s.lastID = value
		case "event":
			kind = value
		case "data":
			if err := json.Unmarshal([]byte(value), &ev); err != nil {
				s.b.Fatalf("data %q: %v", value, err)
			}
			return kind, ev
		}
	}
}

// expect wants one event of each kind, in that order, of the hold beside it.
func (s *stream) expect(want ...happening) {
	s.b.Helper()
	for _, w := range want {
		kind, ev := s.next()
		if kind != w.kind || ev.Ref != w.hold.Ref || ev.Lock != w.hold.Lock || ev.Owner != w.hold.Owner {
			s.b.Fatalf("event %s of %s (%s), want %s of %s (%s)", kind, ev.Ref, ev.Lock, w.kind, w.hold.Ref, w.hold.Lock)
		}
		if granted := w.kind != wire.EventQueued && w.kind != wire.EventCancelled; granted != (ev.Token != 0) {
			s.b.Errorf("event %s with token %d", kind, ev.Token)
		}
	}
}

type happening struct {
	kind string
	hold wire.Hold
}

func eventsTell(b *bundle) {
	s := b.follow(b.lock, "")
	first := b.acquire(newKey(), nil).is(http.StatusCreated).hold()
	second := b.acquire(newKey(), queue).is(http.StatusAccepted).hold()
	third := b.acquire(newKey(), queue).is(http.StatusAccepted).hold()
	b.release(third).is(http.StatusNoContent)
	b.release(first).is(http.StatusNoContent)
	held := b.do(http.MethodGet, "/v1/holds/"+second.Hold+"?wait=10s", "", nil).is(http.StatusOK).hold()
	if err := b.client.Break(b.Context(), b.lock, held.Token, "contract"); err != nil {
		b.Fatal(err)
	}
	s.expect(happening{wire.EventGranted, first}, happening{wire.EventQueued, second}, happening{wire.EventQueued, third})
	if kind, ev := s.next(); kind != wire.EventReleased && kind != wire.EventCancelled || ev.Ref != third.Ref || ev.Token != 0 {
		b.Errorf("a place given up is told as %s of %+v", kind, ev)
	}
	s.expect(happening{wire.EventReleased, first}, happening{wire.EventGranted, second})
	if kind, ev := s.next(); kind != wire.EventBroken || ev.Reason != "contract" || ev.Token != held.Token {
		b.Errorf("a break is told as %s of %+v", kind, ev)
	}
}

// Who comes back with the last id misses nothing and sees nothing twice; where that is
// not possible he is told so.
func eventsResume(b *bundle) {
	s := b.follow(b.lock, "")
	first := b.acquire(newKey(), nil).is(http.StatusCreated).hold()
	s.expect(happening{wire.EventGranted, first})
	s.close()
	b.release(first).is(http.StatusNoContent)
	second := b.acquire(newKey(), nil).is(http.StatusCreated).hold()
	s = b.follow(b.lock, s.lastID)
	s.expect(happening{wire.EventReleased, first}, happening{wire.EventGranted, second})
	s.close()

	s = b.follow(b.lock, "999999999.0") // of another history
	if kind, _ := s.next(); kind != wire.EventResync {
		b.Errorf("an id that cannot be: %s, want resync", kind)
	}
	b.release(second).is(http.StatusNoContent)
	s.expect(happening{wire.EventReleased, second})
}

func eventsFilter(b *bundle) {
	s := b.follow(b.lock+"/a", "")
	at := func(name string) func(*wire.AcquireRequest) {
		return func(r *wire.AcquireRequest) { r.Lock = b.lock + name }
	}
	b.acquire("", at("/b/1")).is(http.StatusCreated)
	mine := b.acquire("", at("/a/1")).is(http.StatusCreated).hold()
	s.expect(happening{wire.EventGranted, mine})

	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, b.s.URL+"/v1/events", nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Last-Event-ID", "seven")
	b.send(req).refuses(apierr.Malformed)
}

// The SDK's own reading of the same stream.
func eventsThroughTheSDK(b *bundle) {
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	start := b.follow(b.lock, "").start
	h, err := b.client.Acquire(ctx, b.lock, nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := h.Release(ctx); err != nil {
		b.Fatal(err)
	}
	want := []string{wire.EventGranted, wire.EventReleased}
	for ev, err := range b.client.Events(ctx, &clientsdk.EventsOptions{Prefix: b.lock, After: start}) {
		if err != nil {
			b.Fatal(err)
		}
		if ev.Kind != want[0] || ev.Ref != h.Ref() || ev.Token != h.Token() || ev.ID == "" {
			b.Fatalf("event %+v, want %s of %s", ev, want[0], h.Ref())
		}
		if want = want[1:]; len(want) == 0 {
			return
		}
	}
	b.Error("the events ended before all had come")
}
