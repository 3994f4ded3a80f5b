package clientsdk_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/clientsdk/internal/clock"
	"github.com/fenced/fenced/clientsdk/sdktest"
)

// Who says how long to wait is answered a second later at most, whatever the servers do,
// and is told where the outcome is not known.
func TestClient_WaitBoundsTheCall(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault sdktest.Fault
		known bool
	}{
		"no quorum":    {sdktest.Fault{Code: "no_quorum"}, true},
		"requests cut": {sdktest.Fault{DropRequest: true}, false},
		"answers cut":  {sdktest.Fault{DropAnswer: true}, false},
		"no answer":    {sdktest.Fault{Delay: time.Hour}, false},
		"late answer":  {sdktest.Fault{DelayAnswer: time.Hour}, false},
	} {
		for _, op := range []sdktest.Op{sdktest.OpenSession, sdktest.Acquire, sdktest.Await, sdktest.Renew} {
			t.Run(fmt.Sprint(name, "/", op), func(t *testing.T) {
				bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
					for range 1000 {
						b.srv.On(op, tc.fault)
					}
					for _, wait := range []time.Duration{0, 3 * time.Second} {
						b.bounded(wait, opts, tc.known)
					}
				})
			})
		}
	}
}

// bounded acquires, waiting that long, or trying where that is 0.
func (b *bundle) bounded(wait time.Duration, opts *clientsdk.AcquireOptions, known bool) {
	b.Helper()
	acquire, o := b.client.Acquire, &clientsdk.AcquireOptions{Wait: wait, PerHold: opts != nil}
	if wait == 0 {
		acquire = b.client.TryAcquire
	}
	begun := time.Now()
	h, err := acquire(context.Background(), "l", o)
	took := time.Since(begun)
	if most := max(3*time.Second, wait+time.Second); took > most {
		b.Errorf("Wait %s: took %s, want %s at most", wait, took, most)
	}
	switch {
	case err == nil: // the calls that fail were not needed
		b.release(h)
	case !errors.Is(err, clientsdk.ErrUnavailable) || !clientsdk.SafeToRetry(err):
		b.Errorf("Wait %s: %v, want ErrUnavailable", wait, err)
	case clientsdk.OutcomeKnown(err) != known:
		b.Errorf("Wait %s: %v: outcome known %t, want %t", wait, err, !known, known)
	}
}

// The time that a call has is shared among the servers: the last of them is asked too.
func TestClient_WaitReachesTheLastServer(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		for _, wait := range []time.Duration{0, 3 * time.Second} {
			client := b.clientWith(func(cfg *clientsdk.Config) {
				cfg.Endpoints = []string{"http://a.invalid", "http://b.invalid", "http://c.invalid"}
				cfg.HTTPClient = &http.Client{Transport: &deadBut{b.srv.Transport(), "c.invalid"}}
			})
			acquire, o := client.Acquire, &clientsdk.AcquireOptions{Wait: wait, PerHold: opts != nil}
			if wait == 0 {
				acquire = client.TryAcquire
			}
			h, err := acquire(context.Background(), "l", o)
			if err != nil {
				b.Errorf("Wait %s: %v, want the lock from the third server", wait, err)
				continue
			}
			b.release(h)
		}
	})
}

// deadBut swallows what is sent to any other host.
type deadBut struct {
	http.RoundTripper
	alive string
}

func (d *deadBut) LeaseClock() clock.Instant { return clock.Go() }

func (d *deadBut) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == d.alive {
		return d.RoundTripper.RoundTrip(r)
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A request that may have arrived makes the outcome unknown, also where the tries after
// it have certainly done nothing.
func TestClient_OutcomeStaysUnknown(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		b.srv.On(sdktest.Acquire, sdktest.Fault{DropAnswer: true})
		for range 1000 {
			b.srv.On(sdktest.Acquire, sdktest.Fault{Code: "no_quorum"})
		}
		_, err := b.client.Acquire(context.Background(), "l", opts)
		if !errors.Is(err, clientsdk.ErrUnavailable) || clientsdk.OutcomeKnown(err) {
			b.Errorf("Acquire = %v, want ErrUnavailable with an unknown outcome", err)
		}
	})
}

// A server whose store has just lost its quorum says so after 2 s. The try that the end of
// the time cuts off does not hide that, and its outcome is not known.
func TestClient_NoAnswerDoesNotHideARefusal(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		for range 1000 {
			b.srv.On(sdktest.Acquire, sdktest.Fault{Code: "no_quorum", Delay: 2 * time.Second})
		}
		_, err := b.client.TryAcquire(context.Background(), "l", opts)
		if !errors.Is(err, clientsdk.ErrUnavailable) || clientsdk.OutcomeKnown(err) {
			b.Errorf("TryAcquire = %v, want ErrUnavailable with an unknown outcome", err)
		}
		var api *clientsdk.APIError
		if !errors.As(err, &api) || api.ErrCode != "no_quorum" || !strings.Contains(err.Error(), "another try may have had effect") {
			b.Errorf("TryAcquire = %v, want the server's no_quorum", err)
		}
	})
}

// net/http sends a request with a key again where a connection breaks that was used
// before. That the second connection is refused says nothing of the first.
func TestClient_OutcomeOfAResentRequest(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	arrived := make(chan string, 1)
	go func() {
		defer close(arrived)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		if _, err := http.ReadRequest(in); err != nil {
			return
		}
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		l.Close()
		arrived <- r.Method + " " + r.URL.Path
	}()
	client, err := clientsdk.New(clientsdk.Config{Endpoints: []string{"http://" + l.Addr().String()}, RetryFor: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = client.TryAcquire(t.Context(), "l", &clientsdk.AcquireOptions{PerHold: true})
	if got := <-arrived; got != "POST /v1/holds" {
		t.Fatalf("%q has arrived", got)
	}
	if !errors.Is(err, clientsdk.ErrUnavailable) || clientsdk.OutcomeKnown(err) {
		t.Errorf("TryAcquire = %v, want ErrUnavailable with an unknown outcome", err)
	}
}

// A hold of which no answer ever told is removed also where the servers are away for
// longer than its removal is tried at first: its session would keep it for ever. The
// connections may be cut or silent.
func TestClient_AcquireLeavesNoOrphanUnderASession(t *testing.T) {
	for name, silent := range map[string]bool{"cut": false, "silent": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) { b.orphan(&lossyHolds{silent: silent}, opts) })
		})
	}
}

func (b *bundle) orphan(lossy *lossyHolds, opts *clientsdk.AcquireOptions) {
	lossy.RoundTripper = b.srv.Transport()
	client := b.clientWith(func(cfg *clientsdk.Config) { cfg.HTTPClient = &http.Client{Transport: lossy} })
	kept, err := client.Acquire(context.Background(), "another", opts)
	if err != nil {
		b.Fatal(err)
	}
	lossy.on.Store(true)
	locks := strings.Fields("a b c d e f g h") // several: two ends fall on one instant, in either order
	for _, lock := range locks {
		if _, err := client.TryAcquire(context.Background(), lock, opts); !errors.Is(err, clientsdk.ErrUnavailable) {
			b.Errorf("TryAcquire = %v, want ErrUnavailable", err)
		}
	}
	time.Sleep(6 * time.Second) // virtual: longer than a release is tried
	lossy.on.Store(false)
	time.Sleep(2 * ttl) // virtual
	for _, lock := range locks {
		b.free(lock)
	}
	if err := kept.Release(context.Background()); err != nil {
		b.Error(err)
	}
}

// lossyHolds loses the answers to new holds while it is on.
type lossyHolds struct {
	http.RoundTripper
	on     atomic.Bool
	silent bool // else it cuts the connection
}

func (l *lossyHolds) LeaseClock() clock.Instant { return clock.Go() }

func (l *lossyHolds) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	if !l.on.Load() || r.URL.Path != "/v1/holds" || err != nil {
		return resp, err
	}
	resp.Body.Close()
	if l.silent {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return nil, errors.New("connection cut")
}

// Calls that share a session stand behind the one that opens it. Where nobody answers,
// each ends in its own time, not after all before it.
func TestClient_AcquireAtOnceEndsInItsOwnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, err := clientsdk.New(clientsdk.Config{Endpoints: []string{"http://fenced.test"}, HTTPClient: &http.Client{Transport: silence{}}})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		begun := time.Now()
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() {
				_, err := client.Acquire(context.Background(), fmt.Sprint(i), nil)
				if took := time.Since(begun); !errors.Is(err, clientsdk.ErrUnavailable) || took > 20*time.Second {
					t.Errorf("%v after %s, want ErrUnavailable within RetryFor and the 5 s of one answer", err, took)
				}
			})
		}
		calls.Wait()
	})
}

// silence answers nothing.
type silence struct{}

func (silence) LeaseClock() clock.Instant { return clock.Go() }

func (silence) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A call that its context or Close ends while it is under way may have had effect,
// whatever cause the context gives.
func TestClient_OutcomeOfAnEndedCall(t *testing.T) {
	t.Parallel()
	own := errors.New("the shift is over")
	for name, end := range map[string]func(*clientsdk.Client, context.CancelCauseFunc) error{
		"cancelled":               func(_ *clientsdk.Client, cancel context.CancelCauseFunc) error { cancel(nil); return context.Canceled },
		"cancelled with a cause":  func(_ *clientsdk.Client, cancel context.CancelCauseFunc) error { cancel(own); return own },
		"the client being closed": func(c *clientsdk.Client, _ context.CancelCauseFunc) error { go c.Close(); return clientsdk.ErrClosed },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan struct{}, 1)
			client := against(t, func(_ http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				arrived <- struct{}{}
				<-r.Context().Done()
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			broken := make(chan error)
			go func() { broken <- client.Break(ctx, "orders/42", 7, "stuck") }()
			<-arrived
			want := end(client, cancel)
			if err := <-broken; !errors.Is(err, want) || clientsdk.OutcomeKnown(err) {
				t.Errorf("%v: outcome known %v, want unknown and %v", err, clientsdk.OutcomeKnown(err), want)
			}
		})
	}
}

// Holds that were taken together are given up together: where nobody answers, that takes
// as long as for one.
func TestHolds_ReleaseIsBounded(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		host := &deadHost{RoundTripper: b.srv.Transport()}
		client := b.clientWith(func(cfg *clientsdk.Config) {
			cfg.HTTPClient = &http.Client{Transport: host}
			cfg.Endpoints = []string{"http://a.invalid"}
		})
		all, err := client.AcquireAll(context.Background(), strings.Fields("a b c d e f"), opts)
		if err != nil {
			b.Fatal(err)
		}
		host.set("a.invalid")
		begun := time.Now()
		err = all.Release(context.Background())
		if took := time.Since(begun); !errors.Is(err, clientsdk.ErrUnavailable) || took > 6*time.Second {
			b.Errorf("Release = %v after %s, want ErrUnavailable within 5 s", err, took)
		}
	})
}

// AcquireAll takes a second at most, beyond what one Acquire does, to give back what it had
// taken.
func TestClient_AcquireAllIsBounded(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		b.acquire("z", opts)
		host := &deadHost{RoundTripper: b.srv.Transport()}
		client := b.clientWith(func(cfg *clientsdk.Config) {
			cfg.HTTPClient = &http.Client{Transport: host}
			cfg.Endpoints = []string{"http://a.invalid"}
		})
		var o clientsdk.AcquireOptions
		if opts != nil {
			o = *opts
		}
		o.Wait = 10 * time.Second
		time.AfterFunc(time.Second, func() { host.set("a.invalid") })
		time.AfterFunc(20*time.Second, func() { host.set("") })
		begun := time.Now()
		_, err := client.AcquireAll(context.Background(), strings.Fields("a b c d e z"), &o)
		if took := time.Since(begun); err == nil || took > 12*time.Second {
			b.Errorf("AcquireAll = %v after %s, want an error within 12 s", err, took)
		}
		time.Sleep(3 * ttl) // virtual
		for _, lock := range strings.Fields("a b c d e") {
			b.free(lock)
		}
	})
}

// A try that one server has not answered and another has refused is at an end: what the
// first makes of it when it goes on finds its key used up.
func realRefusedTry(t *testing.T, srv *sdktest.Process) {
	first := &withheld{}
	cfg := srv.Config()
	cfg.Endpoints = []string{srv.URL(), srv.URL()}
	cfg.HTTPClient = &http.Client{Transport: first}
	client, err := clientsdk.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h, err := newClient(t, srv.URL()).Acquire(t.Context(), t.Name(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.TryAcquire(t.Context(), t.Name(), &clientsdk.AcquireOptions{PerHold: true}); !errors.Is(err, clientsdk.ErrHeld) {
		t.Errorf("TryAcquire = %v, want ErrHeld", err)
	}
	client.Close() // waits for what it does in the background
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(first.request)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusGone {
		t.Errorf("the late request is answered %d, want %d", resp.StatusCode, http.StatusGone)
	}
}

// withheld keeps back the first request for a hold.
type withheld struct{ request *http.Request }

func (w *withheld) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.request != nil || r.URL.Path != "/v1/holds" {
		return http.DefaultTransport.RoundTrip(r)
	}
	w.request = r.Clone(context.Background())
	w.request.Body, _ = r.GetBody()
	<-r.Context().Done()
	return nil, r.Context().Err()
}
