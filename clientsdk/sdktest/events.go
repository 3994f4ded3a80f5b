package sdktest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/apikey"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/tokens"
)

const (
	eventsKept = 10_000
	heartbeat  = 10 * time.Second
)

// eventID orders events, as "<revision>.<index>".
type eventID struct{ revision, index int64 }

func (id eventID) String() string { return fmt.Sprintf("%d.%d", id.revision, id.index) }

func (id eventID) before(o eventID) bool {
	return id.revision < o.revision || id.revision == o.revision && id.index < o.index
}

// parseEventID returns nil where the client starts anew.
func parseEventID(h http.Header) (*eventID, error) {
	text := h.Get("Last-Event-ID")
	if text == "" {
		return nil, nil
	}
	revision, index, _ := strings.Cut(text, ".")
	r, err1 := strconv.ParseInt(revision, 10, 64)
	i, err2 := strconv.ParseInt(index, 10, 32)
	if err1 != nil || err2 != nil {
		return nil, &apierr.Error{ErrCode: apierr.Malformed, Field: "Last-Event-ID", Limit: "<revision>.<index>"}
	}
	return &eventID{r, i}, nil
}

type event struct {
	id   eventID
	kind string
	wire.Event
}

// eventLog keeps the last events. The server's mutex guards it.
type eventLog struct {
	events []event
	lost   eventID       // the last event that is kept no more
	fresh  chan struct{} // closed at the next event
}

// emit tells what happened to h in the revision that the table is at.
func (t *table) emit(kind string, h *hold, token tokens.Token, reason string) {
	l := &t.log
	id := eventID{revision: t.revision}
	if n := len(l.events); n > 0 && l.events[n-1].id.revision == t.revision {
		id.index = l.events[n-1].id.index + 1
	}
	l.events = append(l.events, event{id, kind, wire.Event{
		Lock: h.lock, Ref: h.ref, Owner: h.owner, Token: token, Reason: reason, Time: time.Now().UTC(),
	}})
	if over := len(l.events) - eventsKept; over > 0 {
		l.lost = l.events[over-1].id
		l.events = l.events[over:]
	}
	close(l.fresh)
	l.fresh = make(chan struct{})
}

// after returns the events behind id, and what is closed when there are more. ok is
// false where some of them are gone.
func (t *table) after(id eventID, prefix string) (found []event, last eventID, fresh <-chan struct{}, ok bool) {
	last = id
	for _, e := range t.log.events {
		if id.before(e.id) {
			last = e.id
			if strings.HasPrefix(e.Lock, prefix) {
				found = append(found, e)
			}
		}
	}
	return found, last, t.log.fresh, !id.before(t.log.lost)
}

// now is behind everything that has happened.
func (t *table) now() eventID { return eventID{t.revision, 1 << 30} }

// streamEvents follows what happens to holds until the client or the server ends.
func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request) error {
	prefix := r.URL.Query().Get("prefix")
	if err := s.permit(r, apikey.Read, prefix); err != nil {
		return err
	}
	from, err := parseEventID(r.Header)
	if err != nil {
		return err
	}
	s.mu.Lock()
	at, cut := s.now(), s.cut
	s.mu.Unlock()
	resync := false
	if from != nil {
		resync = at.before(*from)
		if !resync {
			at = *from
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := &eventWriter{w: w, control: http.NewResponseController(w)}
	out.write("retry: 2000\nid: %s\n\n", at)
	s.follow(r.Context(), out, prefix, at, resync, cut)
	return nil
}

func (s *Server) follow(ctx context.Context, out *eventWriter, prefix string, at eventID, resync bool, cut <-chan struct{}) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for out.err == nil {
		s.mu.Lock()
		found, last, fresh, ok := s.after(at, prefix)
		if !ok || resync {
			found, last, resync = nil, s.now(), false
			out.write("id: %s\nevent: %s\ndata: {}\n\n", last, wire.EventResync)
		}
		s.mu.Unlock()
		at = last
		for _, e := range found {
			data, err := json.Marshal(e.Event)
			if err != nil {
				return
			}
			out.write("id: %s\nevent: %s\ndata: %s\n\n", e.id, e.kind, data)
		}
		select {
		case <-fresh:
		case <-beat.C:
			out.write(": heartbeat\nid: %s\n\n", at)
		case <-cut:
			return
		case <-ctx.Done():
			return
		case <-s.life.Done():
			return
		}
	}
}

// eventWriter sends what is written at once, until the first error.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	err     error
}

func (o *eventWriter) write(format string, args ...any) {
	if o.err == nil {
		_, o.err = fmt.Fprintf(o.w, format, args...)
	}
	if o.err == nil {
		o.err = o.control.Flush()
	}
}

// CutEvents ends all open streams of events, as a lost connection does.
func (s *Server) CutEvents() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

// streamed answers a stream through memory: the answer is there with its first byte.
func (t *transport) streamed(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	served, err := serverRequest(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	in, out := io.Pipe()
	w := &pipeWriter{header: http.Header{}, out: out, started: make(chan int, 1)}
	go func() {
		defer out.Close()
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				panic(p)
			}
			w.WriteHeader(0) // cut, unless it has started
		}()
		t.s.ServeHTTP(w, served)
	}()
	select {
	case status := <-w.started:
		if status == 0 {
			cancel()
			return nil, errCut
		}
		return &http.Response{StatusCode: status, Header: w.header, Request: r, ProtoMajor: 1, ProtoMinor: 1,
			Body: &streamBody{in, cancel}}, nil
	case <-ctx.Done():
		cancel()
		in.Close()
		return nil, r.Context().Err()
	}
}

// streamBody ends the handler when it is closed.
type streamBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b *streamBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

// pipeWriter is the server's end of a stream through memory.
type pipeWriter struct {
	header  http.Header
	out     *io.PipeWriter
	started chan int // the status, once
	wrote   bool
}

var _ http.ResponseWriter = (*pipeWriter)(nil)

// Header implements http.ResponseWriter.
func (w *pipeWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *pipeWriter) WriteHeader(status int) {
	if !w.wrote {
		w.wrote = true
		w.started <- status
	}
}

// Write implements http.ResponseWriter.
func (w *pipeWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.out.Write(b)
}

// Flush implements http.Flusher: nothing is kept back.
func (w *pipeWriter) Flush() {}

// replay sends an answer that was made in full.
func replay(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
	for k, vs := range answer.Header() {
		w.Header()[k] = vs
	}
	w.WriteHeader(answer.Code)
	w.Write(answer.Body.Bytes())
}
