package clientsdk_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenced/fenced/clientsdk"
)

const anEvent = "id: 8.0\nevent: granted\ndata: {\"lock\":\"a\",\"token\":8}\n\n"

// streams returns a client of a server whose nth stream of events has the nth text, and
// the ids that the streams were resumed at. Where the texts are over it ends the last.
func streams(t *testing.T, texts ...string) (client *clientsdk.Client, resumed func() []string) {
	ids := make(chan string, 1000)
	var n atomic.Int32
	client = against(t, func(w http.ResponseWriter, r *http.Request) {
		i := int(n.Add(1)) - 1
		ids <- r.Header.Get("Last-Event-ID")
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, texts[min(i, len(texts)-1)])
	})
	return client, func() (all []string) {
		for len(ids) > 0 {
			all = append(all, <-ids)
		}
		return all
	}
}

// A connection that is cut in the middle of an event loses nothing and tells nothing: the
// event comes whole from the next one.
func TestClient_EventsOfACutConnection(t *testing.T) {
	t.Parallel()
	for at := range len(anEvent) {
		client, _ := streams(t, "retry: 2000\nid: 7.0\n\n"+anEvent[:at], anEvent)
		for ev, err := range client.Events(t.Context(), nil) {
			if err != nil || ev.ID != "8.0" || ev.Kind != "granted" || ev.Lock != "a" || ev.Token != 8 {
				t.Errorf("cut after %q: %+v, %v", anEvent[:at], ev, err)
			}
			break
		}
	}
}

// Where the server says that a stream begins, and where it is in silence, the next one
// goes on: what happens between the two is not lost.
func TestClient_EventsResumeWhereNothingHappened(t *testing.T) {
	t.Parallel()
	client, resumed := streams(t, "retry: 2000\nid: 7.0\n\n", ": heartbeat\nid: 7.5\n\n", anEvent)
	for ev, err := range client.Events(t.Context(), nil) {
		if err != nil || ev.Kind != "granted" {
			t.Errorf("%+v, %v", ev, err)
		}
		break
	}
	if got := resumed(); len(got) != 3 || got[0] != "" || got[1] != "7.0" || got[2] != "7.5" {
		t.Errorf("the streams began at %q", got)
	}
}

// What is no stream of events ends with ErrUnavailable, and is not asked for ever.
func TestClient_EventsOfNoServer(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing":           "",
		"no JSON":           "id: 7.0\n\nid: 8.0\nevent: granted\ndata: {\n\n",
		"a line too long":   "id: 7.0\n\nid: 8.0\nevent: granted\ndata: " + string(make([]byte, 1<<20)) + "\n\n",
		"a page of a proxy": "<html>",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, _ := streams(t, text)
			if text == "<html>" {
				client = against(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) })
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var last error
			for ev, err := range client.Events(ctx, nil) {
				if last = err; err == nil {
					t.Errorf("an event out of nothing: %+v", ev)
				}
			}
			if !errors.Is(last, clientsdk.ErrUnavailable) {
				t.Errorf("ended with %v, want ErrUnavailable", last)
			}
		})
	}
}

// Behind an address that ends each stream before it begins, the next one is asked.
func TestClient_EventsPastNoServer(t *testing.T) {
	t.Parallel()
	var addresses []string
	for _, text := range []string{"", "id: 7.0\n\nid: 8.0\nevent: granted\ndata: {\n\n", anEvent} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, text)
		}))
		t.Cleanup(server.Close)
		addresses = append(addresses, server.URL)
	}
	client, err := clientsdk.New(clientsdk.Config{Endpoints: addresses, RetryFor: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	for ev, err := range client.Events(t.Context(), nil) {
		if err != nil || ev.ID != "8.0" {
			t.Errorf("%+v, %v", ev, err)
		}
		break
	}
}
