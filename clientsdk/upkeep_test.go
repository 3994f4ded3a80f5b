package clientsdk_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenced/fenced/clientsdk"
)

// against returns a client of a server that is one handler.
func against(t *testing.T, h http.HandlerFunc) *clientsdk.Client {
	t.Helper()
	srv := httptest.NewServer(h)
	client, err := clientsdk.New(clientsdk.Config{Endpoints: []string{srv.URL}, RetryFor: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		srv.Close()
	})
	return client
}

// A raise of the floor ends every hold: a lost answer must not lead to a second one.
func TestRaiseFloor_IsNotRepeated(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	client := against(t, func(http.ResponseWriter, *http.Request) {
		calls.Add(1)
		panic(http.ErrAbortHandler)
	})
	if _, err := client.RaiseFloor(t.Context(), 7); !errors.Is(err, clientsdk.ErrUnavailable) || clientsdk.OutcomeKnown(err) || clientsdk.SafeToRetry(err) {
		t.Errorf("got %v, want an unknown outcome that is not safe to retry", err)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// What no server could take is refused by field and limit, before anything is sent.
func TestRefusedBeforeSending(t *testing.T) {
	t.Parallel()
	client := against(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("sent: %s %s", r.Method, r.URL) })
	ctx := t.Context()
	for name, call := range map[string]struct {
		field string
		do    func() error
	}{
		"release without id":  {"id", func() error { return client.ReleaseID(ctx, "") }},
		"release up the path": {"id", func() error { return client.ReleaseID(ctx, "..") }},
		"renew without id":    {"id", func() error { _, err := client.RenewID(ctx, ""); return err }},
		"do nothing":          {"fn", func() error { return client.Do(ctx, "l", nil) }},
		"break token 0":       {"token", func() error { return client.Break(ctx, "l", 0, "why") }},
		"check token -1": {"[0].token", func() error {
			_, err := client.Check(ctx, []clientsdk.CheckItem{{Lock: "l", Token: -1}})
			return err
		}},
		"floor below 0":     {"above", func() error { _, err := client.RaiseFloor(ctx, -5); return err }},
		"floor above limit": {"above", func() error { _, err := client.RaiseFloor(ctx, 1<<52+1); return err }},
	} {
		var refused *clientsdk.APIError
		if err := call.do(); !errors.As(err, &refused) || refused.ErrCode != "out_of_bounds" || refused.Field != call.field || refused.Limit == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("snapshot", 1<<17)
	client := against(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		io.WriteString(w, whole)
	})
	var got bytes.Buffer
	if err := client.Snapshot(t.Context(), &got); err != nil || got.String() != whole {
		t.Errorf("%d bytes, %v", got.Len(), err)
	}
	full := errors.New("disk is full")
	if err := client.Snapshot(t.Context(), writer(func([]byte) (int, error) { return 0, full })); !errors.Is(err, full) || errors.Is(err, clientsdk.ErrUnavailable) {
		t.Errorf("full disk: %v", err)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// Half a snapshot must not be taken for one.
func TestSnapshot_BrokenOff(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]http.HandlerFunc{
		"chunked": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			io.WriteString(w, strings.Repeat("x", 1<<20))
			panic(http.ErrAbortHandler)
		},
		"of a length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("Content-Length", fmt.Sprint(1<<20))
			io.WriteString(w, "x")
		},
		"a page of a proxy": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			io.WriteString(w, "<html>Sign in to the network</html>")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := against(t, cut).Snapshot(t.Context(), io.Discard); !errors.Is(err, clientsdk.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A writer that takes its time is no silence of the server.
func TestSnapshot_SlowWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		whole := strings.Repeat("snapshot", 1<<17)
		client, err := clientsdk.New(clientsdk.Config{HTTPClient: &http.Client{Transport: streamed(whole)}})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		var got bytes.Buffer
		err = client.Snapshot(t.Context(), writer(func(b []byte) (int, error) {
			if got.Len() == 0 {
				time.Sleep(time.Minute) // virtual
			}
			return got.Write(b)
		}))
		if err != nil || got.String() != whole {
			t.Errorf("%d bytes, %v", got.Len(), err)
		}
	})
}

// streamed is the body of every answer, for as long as its request lasts.
type streamed string

func (s streamed) RoundTrip(r *http.Request) (*http.Response, error) {
	body := strings.NewReader(string(s))
	read := reader(func(b []byte) (int, error) {
		if err := r.Context().Err(); err != nil {
			return 0, err
		}
		return body.Read(b)
	})
	head := http.Header{"Content-Type": {"application/octet-stream"}}
	return &http.Response{StatusCode: http.StatusOK, Header: head, Body: io.NopCloser(read), Request: r}, nil
}

type reader func([]byte) (int, error)

func (r reader) Read(b []byte) (int, error) { return r(b) }

// Of an answer that was none of ours nothing stays in the one after it.
func TestLock_IsOfOneAnswer(t *testing.T) {
	t.Parallel()
	answers := []string{
		`{"lock":"other","state":"held","holder":{"ref":"r","owner":"somebody else","token":7},"waiters":3,"queue":[],"history":[]}`,
		`{"lock":"l","state":"free","waiters":0,"queue":[],"history":[]}`,
	}
	var calls atomic.Int32
	client := against(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, answers[calls.Add(1)-1])
	})
	info, err := client.Lock(t.Context(), "l")
	if err != nil || info.State != "free" || info.Holder != nil {
		t.Errorf("%+v, %v", info, err)
	}
}
