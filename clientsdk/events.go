package clientsdk

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/wire"
)

// Event is one change of one hold.
type Event struct {
	// ID is "<revision>.<index>", equal on all servers; see [EventsOptions].
	ID string `json:"id"`
	// Kind is queued, granted, released, expired, broken, cancelled, unknown, or
	// resync, which says that events were lost: list the locks again.
	Kind string `json:"kind"`
	wire.Event
}

// EventsOptions says which events. nil means all, from now on.
type EventsOptions struct {
	// Prefix keeps the locks whose names start with it.
	Prefix string
	// After is the ID of the last event that was seen. Defaults to now.
	After string
	_     struct{}
}

// eventSilence is how long a stream may be silent: the server sends a comment every
// 10 s.
const eventSilence = 25 * time.Second

// Events yields what happens to locks, as it happens, until ctx or the client ends or
// the loop stops. Lost connections are resumed where they broke off, on any server; an
// event "resync" comes where the gap was too long, or came before the first event. The last pair may be an error: a
// refusal, or [ErrUnavailable].
func (c *Client) Events(ctx context.Context, opts *EventsOptions) iter.Seq2[Event, error] {
	var o EventsOptions
	if opts != nil {
		o = *opts
	}
	return func(yield func(Event, error) bool) {
		ctx, end, err := c.begin(ctx)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer end()
		s := &eventStream{c: c, opts: o, yield: yield}
		for ctx.Err() == nil && !s.stopped {
			if err := c.t.retry(ctx, c.cfg.RetryFor, func(context.Context) error { return s.read(ctx) }); err != nil {
				if ctx.Err() == nil {
					yield(Event{}, err)
				}
				return
			}
			sleep(ctx, minPause) // a server that hangs up at once is not to be run over
		}
	}
}

type eventStream struct {
	c       *Client
	opts    EventsOptions
	yield   func(Event, error) bool
	opened  bool
	stopped bool
}

// read follows one connection. It returns nil when it brought something, so that the
// time for retries counts from the last sign of life.
func (s *eventStream) read(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(eventSilence, cancel)
	defer silence.Stop()
	body, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	if s.opened && s.opts.After == "" && !s.yield(Event{Kind: wire.EventResync}, nil) {
		s.stopped = true // what happened between the two connections has no number to resume at
		return nil
	}
	s.opened = true
	var ev Event
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		silence.Reset(eventSilence)
		if !s.line(lines.Text(), &ev) {
			s.stopped = true
			return nil
		}
	}
	return nil
}

func (s *eventStream) open(ctx context.Context) (io.ReadCloser, error) {
	r := request{op: "events", method: http.MethodGet, path: "/v1/events?" + url.Values{"prefix": {s.opts.Prefix}}.Encode()}
	if s.opts.After != "" {
		r.header = http.Header{"Last-Event-Id": {s.opts.After}}
	}
	return s.c.t.stream(ctx, r, "text/event-stream")
}

// line takes one line of the stream; an empty one ends an event. It returns false when
// the reader wants no more.
func (s *eventStream) line(text string, ev *Event) bool {
	field, value, _ := strings.Cut(text, ":")
	value = strings.TrimPrefix(value, " ")
	switch field {
	case "id":
		ev.ID = value
	case "event":
		ev.Kind = value
	case "data":
		if err := json.Unmarshal([]byte(value), &ev.Event); err != nil && ev.Kind != wire.EventResync {
			return s.yield(Event{}, fmt.Errorf("events: data cannot be read: %w", err))
		}
	case "":
		if text != "" || ev.Kind == "" { // a comment, or the end of nothing
			return true
		}
		done := *ev
		*ev = Event{}
		if done.ID != "" {
			s.opts.After = done.ID
		}
		return s.yield(done, nil)
	}
	return true
}
