package httpapi

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenced/fenced/lockserver"
)

// source is a subscription that a test feeds.
type source struct {
	batches chan []lockserver.Event
	errs    chan error
	last    lockserver.EventID
}

func (s *source) Next(ctx context.Context) ([]lockserver.Event, error) {
	select {
	case batch := <-s.batches:
		s.last = batch[len(batch)-1].ID
		return batch, nil
	case err := <-s.errs:
		return nil, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *source) Last() lockserver.EventID { return s.last }

// A silent stream sends a comment every heartbeat; a stream that fell behind
// sends resync and goes on with a new subscription; the end of the engine ends it.
func TestEvents_heartbeat_resync_and_end(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{batches: make(chan []lockserver.Event), errs: make(chan error), last: lockserver.EventID{Revision: 5, Index: 1}}
		opened := 0
		s := events{heartbeat: heartbeat, subscribe: func(context.Context, string, *lockserver.EventID) (eventStream, error) {
			opened++
			return src, nil
		}}
		w := httptest.NewRecorder()
		done := make(chan error)
		go func() {
			done <- s.stream(&call{w: w, r: httptest.NewRequestWithContext(t.Context(), "GET", "/v1/events", nil)})
		}()

		time.Sleep(2*heartbeat + time.Second) // of the bubble's clock
		src.errs <- lockserver.ErrResync
		src.batches <- []lockserver.Event{{ID: lockserver.EventID{Revision: 7}, Kind: lockserver.EventGranted, Lock: "a\nb", Token: 7}}
		src.errs <- errors.New("shutting down")
		if err := <-done; err != nil {
			t.Errorf("stream: %v", err)
		}
		want := "retry: 2000\nid: 5.1\n\n" +
			": heartbeat\nid: 5.1\n\n" +
			": heartbeat\nid: 5.1\n\n" +
			"id: 5.1\nevent: resync\ndata: {}\n\n" +
			"id: 7.0\nevent: granted\ndata: {\"lock\":\"a\\nb\",\"ref\":\"\",\"token\":7,\"time\":\"0001-01-01T00:00:00Z\"}\n\n"
		if got := w.Body.String(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if opened != 2 {
			t.Errorf("subscribed %d times, want 2", opened)
		}
	})
}

func FuzzEventID(f *testing.F) {
	for _, s := range []string{"0.0", "7341.12", "-1.0", "1.-1", "01.0", "1.2.3", "", "9223372036854775808.0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, ok := parseEventID(text)
		if ok && formatEventID(id) != text {
			t.Errorf("%q was read as %v", text, id)
		}
	})
}

func FuzzCursor(f *testing.F) {
	for _, s := range []string{"", "YQ", "YR", "_w", "YQ==", "a", "07\n0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, err := parseCursor(text)
		if err == nil && cursor(name) != text {
			t.Errorf("%q was read as %q, whose cursor is %q", text, name, cursor(name))
		}
	})
}

func FuzzDuration(f *testing.F) {
	for _, s := range []string{"5s", "1500ms", "-1s", "0", "1h1m1s1ms1us1ns", "9999999h", ".5s", "1e3s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ttl(text)
		if err == nil && text != "" && d <= 0 {
			t.Errorf("ttl %q is %v", text, d)
		}
	})
}
