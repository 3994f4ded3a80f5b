package clientsdk

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
// event "resync" comes where the gap was too long. The last pair may be an error: a
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
	var ev Event
	heard := false
	lines := bufio.NewScanner(body)
	lines.Split(wholeLines)
	for lines.Scan() {
		silence.Reset(eventSilence)
		heard, s.opened = true, true
		if err := s.line(lines.Text(), &ev); err != nil || s.stopped {
			return err
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) || !heard {
		return s.unreadable(cmp.Or(err, errors.New("the stream ended before it began")))
	}
	return nil
}

// unreadable is a stream that is none of ours, or one that was changed on its way. The
// next try is for another server.
func (s *eventStream) unreadable(cause error) error {
	n, endpoint := s.c.t.endpoint()
	s.c.t.current.CompareAndSwap(n, n+1)
	return &unavailableError{op: "events", endpoint: endpoint, cause: cause}
}

// wholeLines is [bufio.ScanLines] without the rest of a line that was cut off.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if bytes.IndexByte(data, '\n') < 0 {
		return 0, nil, nil
	}
	return bufio.ScanLines(data, atEOF)
}

func (s *eventStream) open(ctx context.Context) (io.ReadCloser, error) {
	r := request{op: "events", method: http.MethodGet, path: "/v1/events?" + url.Values{"prefix": {s.opts.Prefix}}.Encode()}
	if s.opts.After != "" {
		r.header = http.Header{"Last-Event-Id": {s.opts.After}}
	}
	return s.c.t.stream(ctx, r, "text/event-stream")
}

// line takes one line of the stream; an empty one ends an event, or says only where to
// resume.
func (s *eventStream) line(text string, ev *Event) error {
	field, value, _ := strings.Cut(text, ":")
	value = strings.TrimPrefix(value, " ")
	switch field {
	case "id":
		ev.ID = value
	case "event":
		ev.Kind = value
	case "data":
		if err := json.Unmarshal([]byte(value), &ev.Event); err != nil && ev.Kind != wire.EventResync {
			return s.unreadable(err)
		}
	case "":
		if text != "" { // a comment
			return nil
		}
		done := *ev
		*ev = Event{}
		if done.ID != "" {
			s.opts.After = done.ID
		}
		s.stopped = done.Kind != "" && !s.yield(done, nil)
	}
	return nil
}
