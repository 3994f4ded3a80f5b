package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver"
)

// heartbeat is how often a silent stream sends a comment, so that proxies keep it
// and both sides notice when the other is gone.
const heartbeat = 10 * time.Second

const lastEventID = "Last-Event-ID"

// events serves GET /v1/events.
type events struct {
	quotas    *quotas
	subscribe func(ctx context.Context, prefix string, after *lockserver.EventID) (eventStream, error)
	heartbeat time.Duration
}

// eventStream is one subscription.
type eventStream interface {
	Next(ctx context.Context) ([]lockserver.Event, error)
	Last() lockserver.EventID // behind which Next goes on
}

func newEvents(engine EventService, quotas *quotas) events {
	return events{
		quotas: quotas,
		subscribe: func(ctx context.Context, prefix string, after *lockserver.EventID) (eventStream, error) {
			return engine.Subscribe(ctx, prefix, after)
		},
		heartbeat: heartbeat,
	}
}

func (s events) routes(a *api) {
	a.schema(reflect.TypeFor[wire.Event]()) // what each event has as data
	a.route(eventsOp, s.stream)
}

// stream sends events until the client or the engine ends. Errors before the
// first byte are answers; later ones end the stream, and the client resumes it.
func (s events) stream(c *call) error {
	prefix, err := c.prefix()
	if err != nil {
		return err
	}
	if err := c.permitPrefix(keys.Read, prefix); err != nil {
		return err
	}
	ended, err := s.quotas.wait(c.key)
	if err != nil {
		return err
	}
	defer ended()
	after, err := parseLastEventID(c.r.Header)
	if err != nil {
		return err
	}
	f := feed{events: s, prefix: prefix, out: newEventWriter(c.w), permitted: func() error {
		if err := c.again(keys.Read); err != nil {
			return err
		}
		return c.permitPrefix(keys.Read, prefix)
	}}
	if err := f.open(c.r.Context(), after); err != nil {
		return err
	}
	_ = f.run(c.r.Context()) // the client is gone, its key is, or the engine stops
	return nil
}

// feed is one client's stream.
type feed struct {
	events
	prefix string
	source eventStream
	lost   bool // a resync is due before the next event
	out    *eventWriter
	// permitted says whether the client may still see what is about to be sent.
	permitted func() error
}

// open subscribes after the given event. Where that is forgotten it subscribes
// from now on: the client lists again, and misses nothing that comes later.
func (f *feed) open(ctx context.Context, after *lockserver.EventID) error {
	source, err := f.subscribe(ctx, f.prefix, after)
	if errors.Is(err, lockserver.ErrResync) {
		f.lost = true
		source, err = f.subscribe(ctx, f.prefix, nil)
	}
	if err != nil {
		return err
	}
	f.source = source
	return nil
}

func (f *feed) run(ctx context.Context) error {
	if err := f.out.start(f.source.Last()); err != nil {
		return err
	}
	for {
		if err := f.resync(); err != nil {
			return err
		}
		batch, err := f.next(ctx)
		switch {
		case errors.Is(err, lockserver.ErrResync):
			f.lost = true
			if err := f.open(ctx, nil); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		if err := f.permitted(); err != nil {
			return err
		}
		if len(batch) == 0 {
			err = f.out.heartbeat(f.source.Last())
		} else {
			err = f.out.send(batch)
		}
		if err != nil {
			return err
		}
	}
}

// resync tells the client, once, that it missed events.
func (f *feed) resync() error {
	if !f.lost {
		return nil
	}
	f.lost = false
	return f.out.resync(f.source.Last())
}

// next waits for events, one heartbeat at most; it returns none when that is over.
func (f *feed) next(ctx context.Context) ([]lockserver.Event, error) {
	beat, cancel := context.WithTimeout(ctx, f.heartbeat)
	defer cancel()
	batch, err := f.source.Next(beat)
	if err != nil && ctx.Err() == nil && beat.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	return batch, err
}

// eventWriter writes the text/event-stream format. Each write has a deadline of
// its own: a client that does not read is cut.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func newEventWriter(w http.ResponseWriter) *eventWriter {
	return &eventWriter{w: w, control: http.NewResponseController(w)}
}

// start says where the stream begins, so that a client that is cut off before the
// first event resumes there.
func (o *eventWriter) start(from lockserver.EventID) error {
	h := o.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // proxies must not collect events
	return o.write("retry: 2000\nid: " + formatEventID(from) + "\n\n")
}

// send writes events.
func (o *eventWriter) send(batch []lockserver.Event) error {
	var b strings.Builder
	for i := range batch {
		e := &batch[i]
		data, err := json.Marshal(wireEvent(e))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "id: %s\nevent: %s\ndata: %s\n\n", formatEventID(e.ID), e.Kind, data)
	}
	return o.write(b.String())
}

// heartbeat is a comment. The id keeps up with events that the prefix left out,
// so that a quiet client's place is not forgotten.
func (o *eventWriter) heartbeat(at lockserver.EventID) error {
	return o.write(": heartbeat\nid: " + formatEventID(at) + "\n\n")
}

func (o *eventWriter) resync(at lockserver.EventID) error {
	return o.write("id: " + formatEventID(at) + "\nevent: " + wire.EventResync + "\ndata: {}\n\n")
}

func (o *eventWriter) write(text string) error {
	_ = o.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := o.w.Write([]byte(text)); err != nil {
		return err
	}
	return o.control.Flush()
}

func formatEventID(id lockserver.EventID) string {
	return strconv.FormatInt(id.Revision, 10) + "." + strconv.Itoa(id.Index)
}

// parseLastEventID returns nil where the client starts anew.
func parseLastEventID(h http.Header) (*lockserver.EventID, error) {
	values := h.Values(lastEventID)
	switch {
	case len(values) == 0, len(values) == 1 && values[0] == "":
		return nil, nil
	case len(values) == 1:
		if id, ok := parseEventID(values[0]); ok {
			return &id, nil
		}
	}
	return nil, &apierr.Error{
		ErrCode: apierr.Malformed, Detail: "the header must be the id of an event: <revision>.<index>",
		Field: lastEventID, Limit: "<revision>.<index>",
	}
}

// parseEventID accepts what formatEventID writes, and no other spelling of it.
func parseEventID(text string) (lockserver.EventID, bool) {
	revision, index, _ := strings.Cut(text, ".")
	r, err1 := strconv.ParseInt(revision, 10, 64)
	i, err2 := strconv.ParseInt(index, 10, 32)
	id := lockserver.EventID{Revision: r, Index: int(i)}
	return id, err1 == nil && err2 == nil && r >= 0 && i >= 0 && formatEventID(id) == text
}
