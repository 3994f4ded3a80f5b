package clientsdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/clientsdk/internal/clock"
	"github.com/fenced/fenced/clientsdk/sdktest"
	"github.com/fenced/fenced/tokens"
)

func TestClient_TryAcquire(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		h := b.acquire("l", &clientsdk.AcquireOptions{Owner: "first"})
		begun := time.Now()
		_, err := b.client.TryAcquire(context.Background(), "l", opts)
		var held *clientsdk.HeldError
		if !errors.Is(err, clientsdk.ErrHeld) || !errors.As(err, &held) {
			b.Fatalf("TryAcquire = %v, want ErrHeld", err)
		}
		if held.Holder == nil || held.Holder.Owner != "first" || held.Holder.Token != h.Token() {
			b.Errorf("holder = %+v", held.Holder)
		}
		if took := time.Since(begun); took > 0 {
			b.Errorf("took %s of virtual time", took)
		}
		b.release(h)
		b.free("l")
	})
}

func TestClient_AcquireInOrder(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		first := b.acquire("l", opts)
		granted := make(chan *clientsdk.Hold)
		for range 3 {
			go func() { granted <- b.acquire("l", opts) }()
			synctest.Wait()
		}
		last := first
		for range 3 {
			time.Sleep(10 * ttl) // virtual: far beyond what one request waits
			b.release(last)
			next := <-granted
			if next.Token() <= last.Token() {
				b.Errorf("token %d after %d", next.Token(), last.Token())
			}
			if left := time.Until(next.Deadline()); left < ttl/2 {
				b.Errorf("granted with %s left of %s", left, ttl)
			}
			if p := next.Previous(); p == nil || p.Ended != "released" || p.Token != last.Token() {
				b.Errorf("previous = %+v", p)
			}
			last = next
		}
		b.release(last)
		b.free("l")
	})
}

// The time in the queue is not the lease's: a grant that was waited for longer than
// a TTL starts with time of its own.
func TestClient_AcquireStartsWithTimeOfItsOwn(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		late := sdktest.Fault{DelayAnswer: 4900 * time.Millisecond}
		slow := sdktest.Fault{DelayAnswer: time.Second}
		if opts == nil {
			b.srv.On(sdktest.OpenSession, late)
			b.srv.On(sdktest.RenewSession, slow, slow)
		} else {
			b.srv.On(sdktest.Acquire, late)
		}
		o := clientsdk.AcquireOptions{TTL: 6 * time.Second}
		if opts != nil {
			o.PerHold = opts.PerHold
		}
		h := b.acquire("l", &o)
		if left := time.Until(h.Deadline()); left < 3400*time.Millisecond {
			b.Errorf("%s left of %s, less than two thirds minus the margin", left, o.TTL)
		}
	})
}

func TestClient_AcquireGivesUpItsPlace(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		h := b.acquire("l", opts)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		begun := time.Now()
		_, err := b.client.Acquire(ctx, "l", opts)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Minute {
			b.Errorf("Acquire = %v after %s", err, time.Since(begun))
		}
		synctest.Wait()
		if n := b.srv.Live("l"); n != 1 {
			b.Errorf("%d holds, want the holder's only", n)
		}

		o := clientsdk.AcquireOptions{Wait: 25 * time.Second}
		if opts != nil {
			o.PerHold = opts.PerHold
		}
		begun = time.Now()
		_, err = b.client.Acquire(context.Background(), "l", &o)
		var held *clientsdk.HeldError
		if !errors.As(err, &held) || held.Holder.Token != h.Token() || held.Waited < o.Wait {
			b.Errorf("Acquire = %v, %+v", err, held)
		}
		if took := time.Since(begun); took < o.Wait || took > o.Wait+time.Second {
			b.Errorf("waited %s, want %s", took, o.Wait)
		}
		if n := b.srv.Live("l"); n != 1 {
			b.Errorf("%d holds, want the holder's only", n)
		}
	})
}

// The lost answer: the effect of every call, at its first, second and third try,
// happens once and leaves nothing behind.
func TestClient_LostAnswers(t *testing.T) {
	faults := map[string]sdktest.Fault{
		"answer lost":     {DropAnswer: true},
		"request lost":    {DropRequest: true},
		"empty 200":       {Status: http.StatusOK},
		"another's":       {Status: http.StatusCreated, Body: `{"hold":"x","ref":"y","lock":"other","state":"held","token":9,"ttl_ms":15000}`},
		"html":            {Status: http.StatusBadGateway, Body: "<html>"},
		"internal":        {Code: "internal"},
		"outcome unknown": {Code: "outcome_unknown"},
		"shutting down":   {Code: "shutting_down"},
	}
	ops := []sdktest.Op{sdktest.Acquire, sdktest.Await, sdktest.Renew, sdktest.Release,
		sdktest.OpenSession, sdktest.RenewSession, sdktest.EndSession}
	for name, f := range faults {
		for _, op := range ops {
			for times := 1; times <= 3; times++ {
				t.Run(fmt.Sprintf("%s/%s/%d", name, op, times), func(t *testing.T) {
					bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
						for range times {
							b.srv.On(op, f)
						}
						b.lifeOfALock(opts)
					})
				})
			}
		}
	}
}

// lifeOfALock takes a lock, waits for it behind itself, keeps it and releases it.
func (b *bundle) lifeOfALock(opts *clientsdk.AcquireOptions) {
	b.Helper()
	first := b.acquire("l", opts)
	second := make(chan *clientsdk.Hold)
	go func() { second <- b.acquire("l", opts) }()
	time.Sleep(2 * ttl) // virtual
	if n := b.srv.Live("l"); n != 2 {
		b.Errorf("%d holds, want one holder and one waiter", n)
	}
	if got, _ := b.srv.Holder("l"); got != first.Token() {
		b.Errorf("the server's token is %d, ours %d", got, first.Token())
	}
	b.release(first)
	h := <-second
	time.Sleep(2 * ttl) // virtual
	if h.Err() != nil || h.Token() <= first.Token() {
		b.Errorf("second hold: token %d after %d, %v", h.Token(), first.Token(), h.Err())
	}
	b.release(h)
	b.free("l")
	b.client.Close()
	b.free("l")
}

// A grant whose every answer is lost until the caller gives up must not stay.
func TestClient_AcquireLeavesNoOrphan(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		for range 5 {
			b.srv.On(sdktest.Acquire, sdktest.Fault{DropAnswer: true})
		}
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if _, err := b.client.Acquire(ctx, "l", opts); !errors.Is(err, context.DeadlineExceeded) {
			b.Errorf("Acquire = %v", err)
		}
		time.Sleep(5 * time.Second) // virtual
		b.free("l")
	})
}

// A request that arrives after the caller has given up finds its key used up.
func TestClient_AcquireLeavesNoGhost(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		late := lateTransport{RoundTripper: b.srv.Transport(), delay: time.Second}
		cfg := b.srv.Config()
		cfg.HTTPClient = &http.Client{Transport: &late}
		client, err := clientsdk.New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if _, err := client.Acquire(ctx, "l", opts); !errors.Is(err, context.DeadlineExceeded) {
			b.Errorf("Acquire = %v", err)
		}
		time.Sleep(5 * time.Second) // virtual
		b.free("l")
	})
}

// lateTransport delivers the first acquire after its caller has left.
type lateTransport struct {
	http.RoundTripper
	delay time.Duration
	once  sync.Once
}

func (t *lateTransport) LeaseClock() clock.Instant { return clock.Go() }

func (t *lateTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	late := false
	if r.URL.Path == "/v1/holds" {
		t.once.Do(func() { late = true })
	}
	if !late {
		return t.RoundTripper.RoundTrip(r)
	}
	copied := r.Clone(context.WithoutCancel(r.Context()))
	copied.Body, _ = r.GetBody()
	go func() {
		time.Sleep(t.delay) // virtual
		t.RoundTripper.RoundTrip(copied)
	}()
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestClient_UnavailableServers(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		for range 1000 {
			b.srv.On(sdktest.Acquire, sdktest.Fault{Code: "no_quorum"})
			b.srv.On(sdktest.OpenSession, sdktest.Fault{Code: "no_quorum"})
		}
		begun := time.Now()
		_, err := b.client.Acquire(context.Background(), "l", opts)
		if !errors.Is(err, clientsdk.ErrUnavailable) || !clientsdk.SafeToRetry(err) {
			b.Errorf("Acquire = %v, want ErrUnavailable", err)
		}
		if took := time.Since(begun); took < 10*time.Second || took > 20*time.Second {
			b.Errorf("gave up after %s, want about 15s", took)
		}
	})
}

func TestClient_Refusals(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		_, err := b.client.Acquire(context.Background(), "", opts)
		var api *clientsdk.APIError
		if !errors.As(err, &api) || api.ErrCode != "out_of_bounds" || api.Field != "lock" {
			b.Errorf("Acquire without a name = %v", err)
		}
		if clientsdk.SafeToRetry(err) || !clientsdk.OutcomeKnown(err) {
			b.Error("a refusal is final and known")
		}
		_, err = b.client.Acquire(context.Background(), "l", &clientsdk.AcquireOptions{TTL: time.Millisecond})
		if err == nil {
			b.Error("a TTL of 1ms was taken")
		}
	})
}

func TestClient_FailsOver(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		down := &deadHost{RoundTripper: b.srv.Transport(), dead: "a.invalid"}
		cfg := b.srv.Config()
		cfg.HTTPClient = &http.Client{Transport: down}
		cfg.Endpoints = []string{"http://a.invalid", "http://b.invalid", "http://c.invalid/"}
		client, err := clientsdk.New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		h, err := client.Acquire(context.Background(), "l", opts)
		if err != nil {
			b.Fatal(err)
		}
		down.set("b.invalid")
		time.Sleep(4 * ttl) // virtual
		down.set("c.invalid")
		time.Sleep(4 * ttl) // virtual
		if h.Err() != nil {
			b.Errorf("lost while two of three servers answered: %v", h.Err())
		}
		if err := h.Release(context.Background()); err != nil {
			b.Error(err)
		}
		b.free("l")
	})
}

// A server that refuses what the others take, such as one with an older file of keys,
// costs no hold.
func TestHold_OutlivesARefusingServer(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		odd := &deadHost{RoundTripper: b.srv.Transport(), refusal: `{"code":"unauthorized","status":401}`}
		client := b.clientWith(func(cfg *clientsdk.Config) {
			cfg.HTTPClient = &http.Client{Transport: odd}
			cfg.Endpoints = []string{"http://a.invalid", "http://b.invalid"}
		})
		h, err := client.Acquire(context.Background(), "l", opts)
		if err != nil {
			b.Fatal(err)
		}
		odd.set("a.invalid")
		time.Sleep(4 * ttl) // virtual
		if h.Err() != nil {
			b.Errorf("lost while one of two servers took the key: %v", h.Err())
		}
		if err := h.Release(context.Background()); err != nil {
			b.Error(err)
		}
		b.free("l")
	})
}

// deadHost swallows what is sent to one host, or refuses it.
type deadHost struct {
	http.RoundTripper
	mu      sync.Mutex
	dead    string
	refusal string
}

func (d *deadHost) LeaseClock() clock.Instant { return clock.Go() }

func (d *deadHost) set(host string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = host
}

func (d *deadHost) RoundTrip(r *http.Request) (*http.Response, error) {
	d.mu.Lock()
	dead := d.dead == r.URL.Host
	d.mu.Unlock()
	switch {
	case dead && d.refusal != "":
		return &http.Response{StatusCode: http.StatusUnauthorized, Body: io.NopCloser(strings.NewReader(d.refusal)), Request: r}, nil
	case dead:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return d.RoundTripper.RoundTrip(r)
}

func TestClient_Close(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		h := b.acquire("l", opts)
		waiting := make(chan error)
		go func() {
			_, err := b.client.Acquire(context.Background(), "l", opts)
			waiting <- err
		}()
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- b.client.Close() }()
		if err := <-waiting; !errors.Is(err, clientsdk.ErrClosed) {
			b.Errorf("waiting Acquire = %v, want ErrClosed", err)
		}
		if err := <-closed; err != nil {
			b.Errorf("Close = %v", err)
		}
		if !errors.Is(h.Err(), clientsdk.ErrClosed) || !errors.Is(context.Cause(h.Context()), clientsdk.ErrClosed) {
			b.Errorf("after Close: %v, %v", h.Err(), context.Cause(h.Context()))
		}
		want := 0
		if opts != nil { // PerHold outlives the client
			want = 1
		}
		if n := b.srv.Live("l"); n != want {
			b.Errorf("%d holds after Close, want %d", n, want)
		}
		if err := h.Release(context.Background()); !errors.Is(err, clientsdk.ErrClosed) {
			b.Errorf("Release after Close = %v", err)
		}
		if _, err := b.client.Acquire(context.Background(), "l", opts); !errors.Is(err, clientsdk.ErrClosed) {
			b.Errorf("Acquire after Close = %v", err)
		}
		if err := b.client.Close(); err != nil {
			b.Errorf("second Close = %v", err)
		}
	})
}

func TestClient_AcquireAll(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		asked := []string{"c", "a", "b"}
		all, err := b.client.AcquireAll(context.Background(), asked, opts)
		if err != nil {
			b.Fatal(err)
		}
		var got []string
		for _, h := range all.All() {
			got = append(got, h.Lock())
			if tok, ok := tokens.FromContext(all.Context(), h.Lock()); !ok || tok != h.Token() {
				b.Errorf("token of %q in the common context: %d, want %d", h.Lock(), tok, h.Token())
			}
		}
		if !slices.Equal(got, asked) {
			b.Errorf("order %v, want %v", got, asked)
		}
		b.srv.Break("b", "stuck")
		<-all.Context().Done()
		if !errors.Is(context.Cause(all.Context()), clientsdk.ErrLost) || !errors.Is(all.Err(), clientsdk.ErrLost) {
			b.Errorf("cause %v, err %v", context.Cause(all.Context()), all.Err())
		}
		if err := all.Release(context.Background()); !errors.Is(err, clientsdk.ErrLost) {
			b.Errorf("Release = %v, want the loss of one", err)
		}
		for _, name := range asked {
			b.free(name)
		}
	})
}

func TestClient_AcquireAllOrNothing(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		h := b.acquire("b", opts)
		o := clientsdk.AcquireOptions{Wait: time.Minute}
		_, err := b.client.AcquireAll(context.Background(), []string{"a", "b", "c"}, &o)
		if !errors.Is(err, clientsdk.ErrHeld) {
			b.Errorf("AcquireAll = %v, want ErrHeld", err)
		}
		b.free("a")
		b.free("c")

		time.AfterFunc(time.Minute, func() { b.srv.Break("a", "stuck") })
		_, err = b.client.AcquireAll(context.Background(), []string{"a", "b"}, opts)
		if !errors.Is(err, clientsdk.ErrLost) {
			b.Errorf("AcquireAll = %v, want the loss of a", err)
		}
		synctest.Wait()
		if n := b.srv.Live("b"); n != 1 {
			b.Errorf("%d holds of b, want the holder's only", n)
		}
		b.release(h)
		if _, err := b.client.AcquireAll(context.Background(), []string{"a", "a"}, opts); err == nil {
			b.Error("a name given twice was taken")
		}
	})
}

func TestClient_Do(t *testing.T) {
	bubble(t, func(b *bundle, _ *clientsdk.AcquireOptions) {
		ctx := context.Background()
		boom := errors.New("boom")
		err := b.client.Do(ctx, "l", func(ctx context.Context) error {
			if _, ok := tokens.FromContext(ctx, "l"); !ok {
				b.Error("no token in the context")
			}
			return boom
		})
		if !errors.Is(err, boom) || errors.Is(err, clientsdk.ErrLost) {
			b.Errorf("Do = %v", err)
		}
		b.free("l")

		err = b.client.Do(ctx, "l", func(ctx context.Context) error {
			b.srv.Break("l", "stuck")
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, clientsdk.ErrLost) {
			b.Errorf("Do = %v, want ErrLost", err)
		}

		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err = b.client.Do(short, "l", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, clientsdk.ErrLost) {
			b.Errorf("Do = %v, want the caller's own end", err)
		}
		b.free("l")
	})
}

func TestClient_DoPanics(t *testing.T) {
	bubble(t, func(b *bundle, _ *clientsdk.AcquireOptions) {
		defer func() {
			if p := recover(); p != "boom" {
				b.Errorf("recovered %v, want boom", p)
			}
			b.free("l")
		}()
		b.client.Do(context.Background(), "l", func(context.Context) error { panic("boom") })
	})
}

// A proxy that cuts every request after 3 s costs neither the place nor the wait.
func TestClient_AcquireThroughACuttingProxy(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		cfg := b.srv.Config()
		cfg.HTTPClient = &http.Client{Transport: &cutter{b.srv.Transport()}}
		client, err := clientsdk.New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		first := b.acquire("l", opts)
		granted := make(chan *clientsdk.Hold)
		go func() {
			h, err := client.Acquire(context.Background(), "l", opts)
			if err != nil {
				b.Error(err)
			}
			granted <- h
		}()
		time.Sleep(time.Minute) // virtual
		third := make(chan *clientsdk.Hold)
		go func() { third <- b.acquire("l", opts) }()
		time.Sleep(10 * time.Minute) // virtual
		b.release(first)
		h := <-granted
		if h == nil || h.Err() != nil {
			b.Fatal("no hold")
		}
		h.Release(context.Background())
		b.release(<-third)
		b.free("l")
	})
}

type cutter struct{ http.RoundTripper }

func (c *cutter) LeaseClock() clock.Instant { return clock.Go() }

func (c *cutter) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
	defer cancel()
	return c.RoundTripper.RoundTrip(r.WithContext(ctx))
}

// Close is over within 5 s, also where the servers are so slow that what an Acquire may
// have left behind is learnt of late and removed later.
func TestClient_CloseIsBounded(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		b.srv.On(sdktest.Acquire, sdktest.Fault{DelayAnswer: time.Hour})
		b.srv.On(sdktest.Acquire, sdktest.Fault{DelayAnswer: 4 * time.Second}) // the question what was left
		for range 10 {
			b.srv.On(sdktest.Release, sdktest.Fault{Delay: time.Hour})
		}
		asked := make(chan error)
		go func() {
			_, err := b.client.Acquire(context.Background(), "l", opts)
			asked <- err
		}()
		synctest.Wait()
		begun := time.Now()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			b.client.Close()
		}()
		if err := <-asked; !errors.Is(err, clientsdk.ErrClosed) {
			b.Errorf("Acquire = %v", err)
		}
		<-closed
		if took := time.Since(begun); took > 5*time.Second {
			b.Errorf("Close took %s", took)
		}
		if opts != nil && b.srv.Calls(sdktest.Release) == 0 { // a session takes its holds along
			b.Error("what was left was not looked for")
		}
	})
}
