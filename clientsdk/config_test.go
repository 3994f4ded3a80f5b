package clientsdk_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/clientsdk/internal/clock"
	"github.com/fenced/fenced/clientsdk/sdktest"
	"github.com/fenced/fenced/internal/certtest"
)

func TestNew_RefusesByName(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]clientsdk.Config{
		"Endpoints must be URLs":                     {Endpoints: []string{"127.0.0.1:7420"}},
		"Endpoints must be scheme, host and port":    {Endpoints: []string{"http://a:1/path"}},
		"not \"http://u:xxxxx@a:1\"":                 {Endpoints: []string{"http://u:secret@a:1"}},
		"not \"ftp://u:xxxxx@a:1\"":                  {Endpoints: []string{"ftp://u:secret@a:1"}},
		"one cannot be read":                         {Endpoints: []string{"http://u:secret%@a:1"}},
		"not \"http://a:1/#x\"":                      {Endpoints: []string{"http://a:1/#x"}},
		"not \"http://a:1?\"":                        {Endpoints: []string{"http://a:1?"}},
		"TLS must be set in HTTPClient's":            {TLS: &tls.Config{}, HTTPClient: &http.Client{}},
		"Owner must be at most 128 bytes":            {Owner: strings.Repeat("x", 129)},
		"RetryFor must not be negative":              {RetryFor: -1},
		"APIKey must be printable ASCII":             {APIKey: "fk_id_secret\n"},
		"APIKey must be printable":                   {APIKey: "fk_id_secr\u00e9t"},
		"Owner must be valid UTF-8":                  {Owner: "\xff"},
		"TTL must be 1s to 1h0m0s in whole millisec": {TTL: 1500 * time.Microsecond},
	} {
		if _, err := clientsdk.New(cfg); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Calls and renewals go over TLS, each with the certificate; a client without one, or
// that does not know the authority, reaches nothing.
func TestClient_TLS(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	srv := sdktest.New()
	h := ca.Serve(srv)
	t.Cleanup(func() { srv.Close() }) // before h, which waits for its requests
	mine := ca.Pair(certtest.Names{Common: "worker"})
	client := func(cfg *tls.Config) *clientsdk.Client {
		t.Helper()
		c, err := clientsdk.New(clientsdk.Config{Endpoints: []string{h.URL}, TLS: cfg, TTL: 2 * time.Second, RetryFor: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for name, cfg := range map[string]*tls.Config{
		"no config": nil, "no certificate": {RootCAs: ca.Pool()}, "no authority": {Certificates: []tls.Certificate{mine}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // RetryFor is longer: it must not be waited for
		_, err := client(cfg).Acquire(ctx, name, nil)
		if !errors.Is(err, clientsdk.ErrUnavailable) || ctx.Err() != nil {
			t.Errorf("%s: %v, want ErrUnavailable at once", name, err)
		}
		cancel()
	}
	hold, err := client(&tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{mine}}).Acquire(t.Context(), "l", nil)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-hold.Done():
		t.Errorf("renewals do not get through: %v", hold.Err())
	case <-time.After(3 * time.Second): // renewals must have kept it
	}
	if err := hold.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// Whoever looks at a lock finds the process that has it.
func TestAcquire_Metadata(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		o := clientsdk.AcquireOptions{Metadata: map[string]string{"ticket": "OPS-7", "pid": "mine"}}
		if opts != nil {
			o.PerHold = opts.PerHold
		}
		b.acquire("given", &o)
		b.acquire("plain", opts)
		holder := func(lock string) *clientsdk.Holder {
			info, err := b.client.Lock(context.Background(), lock)
			if err != nil || info.Holder == nil {
				b.Fatalf("%+v, %v", info, err)
			}
			return info.Holder
		}
		host, err := os.Hostname()
		if err != nil {
			b.Fatal(err)
		}
		program, pid := filepath.Base(os.Args[0]), strconv.Itoa(os.Getpid())
		got := holder("plain")
		if m := got.Metadata; m["host"] != host || m["pid"] != pid || m["program"] != program {
			b.Errorf("metadata %v", m)
		}
		if want := host + ":" + pid + " " + program; got.Owner != want {
			b.Errorf("owner %q, want %q", got.Owner, want)
		}
		if m := holder("given").Metadata; m["ticket"] != "OPS-7" || m["pid"] != "mine" || m["host"] != host {
			b.Errorf("metadata %v, want the caller's before ours", m)
		}
	})
}

// The key goes along with every call, the renewals among them.
func TestClient_APIKey(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		key := b.srv.AddKey("lock", "orders/")
		_, err := b.client.Acquire(context.Background(), "orders/1", opts)
		var api *clientsdk.APIError
		if !errors.As(err, &api) || api.ErrCode != "unauthorized" || clientsdk.SafeToRetry(err) {
			b.Errorf("without a key: %v", err)
		}
		cfg := b.srv.Config()
		cfg.APIKey = key
		client, err := clientsdk.New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		h, err := client.Acquire(context.Background(), "orders/1", opts)
		if err != nil {
			b.Fatal(err)
		}
		time.Sleep(4 * ttl) // virtual
		if err := h.Release(context.Background()); err != nil {
			b.Errorf("after renewals: %v", err)
		}
		if _, err := client.Acquire(context.Background(), "stock/1", opts); !errors.As(err, &api) || api.ErrCode != "forbidden" {
			b.Errorf("a lock that the key is not for: %v", err)
		}
	})
}

// What cannot be sent as it is, is refused before anything is sent, with the code of
// the server for it.
func TestClient_RefusesWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	srv := sdktest.New()
	t.Cleanup(srv.Close)
	client, err := clientsdk.New(srv.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx := t.Context()
	for field, call := range map[string]func() error{
		"lock":  func() error { _, err := client.Acquire(ctx, "a\xffb", nil); return err },
		"Owner": func() error { _, err := client.Acquire(ctx, "l", &clientsdk.AcquireOptions{Owner: "\xff"}); return err },
		"TTL":   func() error { _, err := client.Acquire(ctx, "l", &clientsdk.AcquireOptions{TTL: 1}); return err },
		"Wait":  func() error { _, err := client.TryAcquire(ctx, "l", &clientsdk.AcquireOptions{Wait: 1}); return err },
		"locks": func() error { _, err := client.AcquireAll(ctx, []string{"a", "a"}, nil); return err },
		"[1].lock": func() error {
			_, err := client.Check(ctx, []clientsdk.CheckItem{{Lock: "a", Token: 1}, {Lock: "\xff", Token: 1}})
			return err
		},
		"reason": func() error { return client.Break(ctx, "l", 1, "\xff") },
	} {
		err := call()
		var api *clientsdk.APIError
		if !errors.As(err, &api) || api.ErrCode != "out_of_bounds" || api.Field != field || api.Limit == "" {
			t.Errorf("%s: %v", field, err)
		}
		if clientsdk.SafeToRetry(err) || !clientsdk.OutcomeKnown(err) {
			t.Errorf("%s: a refusal is final and known", field)
		}
	}
	if n := srv.Calls(sdktest.Acquire); n != 0 {
		t.Errorf("%d calls were made", n)
	}
}

// contextKey stands for what a tracer keeps in a context.
type contextKey struct{}

// watcher is a transport as a tracer's: it sees the caller's context.
type watcher struct {
	http.RoundTripper
	mu   sync.Mutex
	seen map[string]bool // by method and path, whether the caller's value was there
}

func (w *watcher) LeaseClock() clock.Instant { return clock.Go() }

func (w *watcher) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.seen[opOf(r)] = r.Context().Value(contextKey{}) != nil
	w.mu.Unlock()
	return w.RoundTripper.RoundTrip(r)
}

// A trace of the caller goes on in the given http.Client, through every call that is
// made for the caller, a release with a context that is over among them.
func TestClient_CarriesTheCallersContext(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		w := &watcher{RoundTripper: b.srv.Transport(), seen: map[string]bool{}}
		client := b.clientWith(func(cfg *clientsdk.Config) { cfg.HTTPClient = &http.Client{Transport: w} })
		ctx, cancel := context.WithCancel(context.WithValue(context.Background(), contextKey{}, true))
		h, err := client.Acquire(ctx, "l", opts)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := client.Lock(ctx, "l"); err != nil {
			b.Fatal(err)
		}
		if h.Context().Value(contextKey{}) == nil {
			b.Error("the hold's context lacks the caller's values")
		}
		cancel()
		if h.Context().Err() != nil {
			b.Error("the end of the caller's context ended the hold")
		}
		if err := h.Release(ctx); err != nil {
			b.Fatal(err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, op := range []string{"POST /v1/holds", "GET /v1/lock", "DELETE /v1/holds/{id}"} {
			if !w.seen[op] {
				b.Errorf("%s was made without the caller's context: %v", op, w.seen)
			}
		}
	})
}
