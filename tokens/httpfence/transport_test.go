package httpfence_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/httpfence"
)

// roundTripFunc stands for the transport below.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// body notes whether it was closed.
type body struct {
	*strings.Reader
	closed bool
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

func TestTransport(t *testing.T) {
	t.Parallel()
	both := tokens.NewContext(tokens.NewContext(context.Background(), "a", 7), "b", 8)
	for _, tt := range []struct {
		name string
		ctx  context.Context
		lock string
		set  string
		want string
		err  error
	}{
		{name: "sends the lock's token", ctx: both, lock: "a", want: "7"},
		{name: "never another's", ctx: both, lock: "c", err: tokens.ErrMissing},
		{name: "needs none", ctx: both, lock: ""},
		{name: "leaves a header alone", ctx: both, lock: "a", set: "5", want: "5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var sent *http.Request
			transport := &httpfence.Transport{
				Base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
					sent = r
					return &http.Response{}, nil
				}),
				Lock: func(*http.Request) (string, error) { return tt.lock, nil },
			}
			b := &body{Reader: strings.NewReader("x")}
			r, err := http.NewRequestWithContext(tt.ctx, "POST", "http://example.com", b)
			if err != nil {
				t.Fatal(err)
			}
			if tt.set != "" {
				r.Header.Set(tokens.Header, tt.set)
			}
			_, err = transport.RoundTrip(r)
			if !errors.Is(err, tt.err) || (tt.err != nil) != (sent == nil) {
				t.Fatalf("RoundTrip: %v, sent %v; want error %v", err, sent != nil, tt.err)
			}
			if tt.err != nil {
				if !b.closed {
					t.Error("the body was not closed")
				}
				return
			}
			if got := sent.Header.Get(tokens.Header); got != tt.want {
				t.Errorf("header %q, want %q", got, tt.want)
			}
			if got := r.Header.Get(tokens.Header); got != tt.set {
				t.Errorf("the caller's request was changed: header %q, was %q", got, tt.set)
			}
		})
	}
}

func TestTransport_LockErrors(t *testing.T) {
	t.Parallel()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	odd := errors.New("odd")
	failing := &httpfence.Transport{Lock: func(*http.Request) (string, error) { return "", odd }}
	if _, err := failing.RoundTrip(r); !errors.Is(err, odd) {
		t.Errorf("RoundTrip: %v, want what Lock returned", err)
	}
	if _, err := (&httpfence.Transport{}).RoundTrip(r); !errors.Is(err, tokens.ErrInvalid) {
		t.Errorf("RoundTrip without Lock: %v, want ErrInvalid", err)
	}
}
