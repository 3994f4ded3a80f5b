package clientsdk_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/clientsdk/sdktest"
	"github.com/fenced/fenced/internal/faultproxy"
)

// The tests of this file run against the real program, with a proxy before it that
// fails. One server is enough for those that leave it alone.
func TestReal(t *testing.T) {
	t.Parallel()
	srv := sdktest.Start(t, nil)
	t.Run("lost answers", func(t *testing.T) { t.Parallel(); realLostAnswers(t, srv) })
	t.Run("a proxy that cuts after 3s", func(t *testing.T) { t.Parallel(); realCuttingProxy(t, srv) })
	t.Run("a partition", func(t *testing.T) { t.Parallel(); realPartition(t, srv) })
	t.Run("a dead connection", func(t *testing.T) { t.Parallel(); realDeadConnection(t, srv) })
	t.Run("bad answers", func(t *testing.T) { t.Parallel(); realBadAnswers(t, srv) })
	t.Run("a hundred waits", func(t *testing.T) { t.Parallel(); realHundredWaits(t, srv) })
	t.Run("a waiter gives up", func(t *testing.T) { t.Parallel(); realWaiterGivesUp(t, srv) })
	t.Run("a refused try", func(t *testing.T) { t.Parallel(); realRefusedTry(t, srv) })
	t.Run("events", func(t *testing.T) { t.Parallel(); realEvents(t, srv) })
	t.Run("a frozen holder", func(t *testing.T) { t.Parallel(); realFrozenHolder(t, srv) })
}

// realBundle is a client that reaches the server through a proxy of its own, and one
// that goes straight to it.
type realBundle struct {
	*testing.T
	proxy          *faultproxy.Proxy
	client, direct *clientsdk.Client
}

const shortTTL = 2 * time.Second

func realSetup(t *testing.T, srv *sdktest.Process) *realBundle {
	t.Helper()
	proxy, err := faultproxy.New(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	return &realBundle{t, proxy, newClient(t, proxy.URL()), newClient(t, srv.URL())}
}

func newClient(t *testing.T, urls ...string) *clientsdk.Client {
	t.Helper()
	client, err := clientsdk.New(clientsdk.Config{Endpoints: urls, TTL: shortTTL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func bothLeases(t *testing.T, test func(t *testing.T, opts *clientsdk.AcquireOptions)) {
	together(t, map[string]*clientsdk.AcquireOptions{"session": nil, "per hold": {PerHold: true}}, test)
}

// together runs tests at once that wait most of their time, and so need no processor each.
func together[T any](t *testing.T, tests map[string]T, test func(*testing.T, T)) {
	var all sync.WaitGroup
	for name, tc := range tests {
		all.Go(func() { t.Run(name, func(t *testing.T) { test(t, tc) }) })
	}
	all.Wait()
}

// lock returns what the server tells of a lock.
func (b *realBundle) lock(name string) *clientsdk.LockInfo {
	b.Helper()
	info, err := b.direct.Lock(context.Background(), name)
	if err != nil {
		b.Fatal(err)
	}
	return info
}

// awaitWaiters polls the server: the event is in another process.
func (b *realBundle) awaitWaiters(name string, n int) {
	b.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for b.lock(name).Waiters != n {
		<-tick.C
	}
}

var idInPath = regexp.MustCompile(`/[a-z2-7]{26}`)

// opOf names the call of a request, without ids.
func opOf(r *http.Request) string {
	return r.Method + " " + idInPath.ReplaceAllString(r.URL.Path, "/{id}")
}

func realLostAnswers(t *testing.T, srv *sdktest.Process) {
	ops := []string{"POST /v1/holds", "GET /v1/holds/{id}", "POST /v1/holds/{id}/renew", "DELETE /v1/holds/{id}",
		"POST /v1/sessions", "POST /v1/sessions/{id}/renew", "DELETE /v1/sessions/{id}"}
	type failing struct {
		fault faultproxy.Fault
		ops   []string
	}
	lives := map[string]failing{
		"all halved":          {faultproxy.Fault{HalfAnswer: true}, ops},
		"all delivered twice": {faultproxy.Fault{Twice: true}, ops},
	}
	for _, op := range ops {
		lives["dropped "+op] = failing{faultproxy.Fault{DropAnswer: true}, []string{op}}
	}
	bothLeases(t, func(t *testing.T, opts *clientsdk.AcquireOptions) {
		together(t, lives, func(t *testing.T, f failing) {
			b := realSetup(t, srv)
			b.failFirst(f.fault, 2, f.ops...)
			b.wholeLife(t.Name(), opts)
		})
	})
}

// failFirst makes the first n calls of each of ops fail.
func (b *realBundle) failFirst(fault faultproxy.Fault, n int, ops ...string) {
	var mu sync.Mutex
	left := make(map[string]int)
	for _, op := range ops {
		left[op] = n
	}
	b.proxy.Decide(func(r *http.Request) faultproxy.Fault {
		mu.Lock()
		defer mu.Unlock()
		op := opOf(r)
		if left[op] == 0 {
			return faultproxy.Fault{}
		}
		left[op]--
		return fault
	})
}

// wholeLife takes lock, waits for it behind itself, and leaves nothing behind.
func (b *realBundle) wholeLife(lock string, opts *clientsdk.AcquireOptions) {
	b.Helper()
	ctx := context.Background()
	first, err := b.client.Acquire(ctx, lock, opts)
	if err != nil {
		b.Fatal(err)
	}
	second := make(chan *clientsdk.Hold, 1)
	go func() {
		h, err := b.client.Acquire(ctx, lock, opts)
		if err != nil {
			b.Error(err)
		}
		second <- h
	}()
	b.awaitWaiters(lock, 1)
	if info := b.lock(lock); info.Holder == nil || info.Holder.Token != first.Token() {
		b.Errorf("holder %+v, want token %d", info.Holder, first.Token())
	}
	time.Sleep(shortTTL / 2) // a renewal
	if err := first.Release(ctx); err != nil {
		b.Errorf("release: %v", err)
	}
	h := <-second
	if h == nil {
		b.FailNow()
	}
	if err := h.Release(ctx); err != nil {
		b.Errorf("release: %v", err)
	}
	b.client.Close()
	if info := b.lock(lock); info.State != "free" || len(info.History) != 2 {
		b.Errorf("%s with %d waiters and %d past holds, want free after 2", info.State, info.Waiters, len(info.History))
	}
}

func realCuttingProxy(t *testing.T, srv *sdktest.Process) {
	bothLeases(t, func(t *testing.T, opts *clientsdk.AcquireOptions) {
		b := realSetup(t, srv)
		b.proxy.Decide(func(*http.Request) faultproxy.Fault { return faultproxy.Fault{CutAfter: 3 * time.Second} })
		b.waitOver(t.Name(), opts, func() { time.Sleep(8 * time.Second) }) // two cuts and a half
	})
}

// waitOver holds a lock while a client and then another wait for it, lets something
// happen, and checks that the two are granted in their order.
func (b *realBundle) waitOver(lock string, opts *clientsdk.AcquireOptions, happen func()) {
	b.Helper()
	ctx := context.Background()
	first, err := b.direct.Acquire(ctx, lock, opts)
	if err != nil {
		b.Fatal(err)
	}
	type grant struct {
		who  int
		hold *clientsdk.Hold
	}
	grants := make(chan grant, 2)
	for who, client := range []*clientsdk.Client{b.client, b.direct} {
		go func() {
			h, err := client.Acquire(ctx, lock, opts)
			if err != nil {
				b.Error(err)
			}
			grants <- grant{who, h}
		}()
		b.awaitWaiters(lock, who+1)
	}
	happen()
	if err := first.Release(ctx); err != nil {
		b.Errorf("release: %v", err)
	}
	for want := range 2 {
		got := <-grants
		if got.who != want || got.hold == nil {
			b.Fatalf("grant %d went to waiter %d", want, got.who)
		}
		if err := got.hold.Release(ctx); err != nil {
			b.Errorf("release: %v", err)
		}
	}
}

// The second client is granted only when the first one's context is over, though
// nothing told the first but its clock.
func realPartition(t *testing.T, srv *sdktest.Process) {
	bothLeases(t, func(t *testing.T, opts *clientsdk.AcquireOptions) {
		b := realSetup(t, srv)
		ctx := context.Background()
		h, err := b.client.Acquire(ctx, t.Name(), opts)
		if err != nil {
			t.Fatal(err)
		}
		b.proxy.Partition(true)
		next, err := b.direct.Acquire(ctx, t.Name(), opts)
		over := h.Context().Err() // asked at once
		if err != nil || over == nil {
			t.Fatalf("the next was granted (%v) while the first context was alive", err)
		}
		wantLost(t, h, clientsdk.LostExpired)
		if next.Token() <= h.Token() {
			t.Errorf("token %d after %d", next.Token(), h.Token())
		}
		b.proxy.Partition(false)
	})
}

// A connection that swallows everything is left while there is time for another.
func realDeadConnection(t *testing.T, srv *sdktest.Process) {
	bothLeases(t, func(t *testing.T, opts *clientsdk.AcquireOptions) {
		b := realSetup(t, srv)
		client := newClient(t, b.proxy.URL(), srv.URL())
		h, err := client.Acquire(context.Background(), t.Name(), opts)
		if err != nil {
			t.Fatal(err)
		}
		b.proxy.Partition(true)
		select {
		case <-h.Done():
			t.Errorf("lost though another endpoint answered: %v", h.Err())
		case <-time.After(3 * shortTTL): // renewals must go on
		}
		if err := h.Release(context.Background()); err != nil {
			t.Errorf("release: %v", err)
		}
		b.proxy.Partition(false)
	})
}

// Answers to renewals that are none, two of three, do not lose a lock; and when none of
// them is one any more, they do not keep it.
func realBadAnswers(t *testing.T, srv *sdktest.Process) {
	together(t, map[string]faultproxy.Fault{
		"500":          {Status: 500, Body: "oops"},
		"bad gateway":  {Status: 502, Body: "<html>"},
		"empty 200":    {Status: 200},
		"garbage":      {Status: 200, Body: "<html>"},
		"another hold": {Status: 200, Body: `{"ref":"other","lock":"l","state":"held","token":7,"ttl_ms":2000,"expires_in_ms":2000,"live":[]}`},
		"no answer":    {DropAnswer: true},
	}, func(t *testing.T, fault faultproxy.Fault) {
		bothLeases(t, func(t *testing.T, opts *clientsdk.AcquireOptions) { badAnswers(t, srv, fault, opts) })
	})
}

func badAnswers(t *testing.T, srv *sdktest.Process, fault faultproxy.Fault, opts *clientsdk.AcquireOptions) {
	b := realSetup(t, srv)
	var n, all atomic.Int64
	b.proxy.Decide(func(r *http.Request) faultproxy.Fault {
		if strings.HasSuffix(r.URL.Path, "/renew") && (n.Add(1)%3 != 0 || all.Load() == 1) {
			return fault
		}
		return faultproxy.Fault{}
	})
	h, err := b.client.Acquire(context.Background(), t.Name(), opts)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-h.Done():
		t.Fatalf("lost by answers that are none: %v", h.Err())
	case <-time.After(2 * shortTTL): // renewals must go on
	}
	if fault.DropAnswer { // the effect happens: the lease is kept, and nobody here can know
		h.Release(context.Background())
		return
	}
	all.Store(1)
	<-h.Done()
	wantLost(t, h, clientsdk.LostExpired)
}

func realHundredWaits(t *testing.T, srv *sdktest.Process) {
	client, err := clientsdk.New(clientsdk.Config{Endpoints: []string{srv.URL()}, TTL: shortTTL,
		HTTPClient: &http.Client{Transport: &http.Transport{MaxConnsPerHost: 100}}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	b := &realBundle{T: t, client: client, direct: newClient(t, srv.URL())}
	h, err := client.Acquire(t.Context(), t.Name(), &clientsdk.AcquireOptions{PerHold: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var waits sync.WaitGroup
	for range 100 {
		waits.Go(func() { client.Acquire(ctx, t.Name(), nil) })
	}
	b.awaitWaiters(t.Name(), 100)
	select {
	case <-h.Done():
		t.Errorf("100 waits starved the renewals: %v", h.Err())
	case <-time.After(3 * shortTTL): // renewals must go on
	}
	cancel()
	waits.Wait()
	if err := h.Release(context.Background()); err != nil {
		t.Errorf("release: %v", err)
	}
	client.Close()
	if info := b.lock(t.Name()); info.State != "free" {
		t.Errorf("lock is %s with %d waiters after all have left", info.State, info.Waiters)
	}
}

// A waiter that gives up leaves no place, although the server has not seen the end of
// its request when the client asks what became of it.
func realWaiterGivesUp(t *testing.T, srv *sdktest.Process) {
	b := realSetup(t, srv)
	h, err := b.direct.Acquire(t.Context(), t.Name(), nil)
	if err != nil {
		t.Fatal(err)
	}
	b.proxy.Decide(func(r *http.Request) faultproxy.Fault { return faultproxy.Fault{KeepOpen: true} })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.client.Acquire(ctx, t.Name(), &clientsdk.AcquireOptions{PerHold: true}) // a session would take its place along
	}()
	b.awaitWaiters(t.Name(), 1)
	cancel()
	<-done
	b.client.Close() // waits for what it does in the background
	if info := b.lock(t.Name()); info.Waiters != 0 {
		t.Errorf("%d waiters after the only one has left", info.Waiters)
	}
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Events go on where a cut connection left off: none is lost and none comes twice.
func realEvents(t *testing.T, srv *sdktest.Process) {
	b := realSetup(t, srv)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	events := make(chan clientsdk.Event, 100)
	go func() {
		defer close(events)
		for ev, err := range b.client.Events(ctx, &clientsdk.EventsOptions{Prefix: t.Name()}) {
			if err != nil {
				t.Errorf("events: %v", err)
				return
			}
			events <- ev
		}
	}()
	b.awaitEvents(t.Name()+"/ready", events)
	for i := range 5 {
		lock := fmt.Sprint(t.Name(), "/", i)
		h, err := b.direct.Acquire(ctx, lock, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.proxy.CutAll()
		if err := h.Release(ctx); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"granted", "released"} {
			ev := <-events
			for ev.Kind == "queued" {
				ev = <-events
			}
			if ev.Kind != kind || ev.Lock != lock || ev.Token != h.Token() || ev.ID == "" {
				t.Fatalf("event %+v, want %s of %q with token %d", ev, kind, lock, h.Token())
			}
		}
	}
	cancel()
	for range events {
	}
}

// awaitEvents takes and releases lock until the stream tells of it, and drains that.
func (b *realBundle) awaitEvents(lock string, events <-chan clientsdk.Event) {
	b.Helper()
	ctx := context.Background()
	for {
		h, err := b.direct.Acquire(ctx, lock, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Release(ctx); err != nil {
			b.Fatal(err)
		}
		select {
		case ev := <-events:
			for ev.Kind != "released" || ev.Token != h.Token() {
				ev = <-events
			}
			return
		case <-time.After(50 * time.Millisecond): // not subscribed yet
		}
	}
}

// holderEnv makes the test binary a process that holds a lock and tells what its
// hold's context says whenever it is asked.
const holderEnv = "CLIENTSDK_TEST_HOLDER"

func holderMain(url string) {
	client, err := clientsdk.New(clientsdk.Config{Endpoints: []string{url}, TTL: shortTTL})
	if err != nil {
		panic(err)
	}
	h, err := client.Acquire(context.Background(), "frozen", nil)
	if err != nil {
		panic(err)
	}
	ctx := h.Context()
	fmt.Println("held", int64(h.Token()))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Println(ctx.Err())
	}
	client.Close()
	os.Exit(0)
}

// What a process sees first after SIGSTOP and SIGCONT is the loss.
func realFrozenHolder(t *testing.T, srv *sdktest.Process) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+srv.URL())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer stdin.Close()
	out := bufio.NewScanner(stdout)
	line := func() string {
		if !out.Scan() {
			t.Fatal("the holder has ended")
		}
		return out.Text()
	}
	if got := line(); !strings.HasPrefix(got, "held ") {
		t.Fatalf("holder says %q", got)
	}
	fmt.Fprintln(stdin, "before")
	if got := line(); got != "<nil>" {
		t.Errorf("before the stop: %s", got)
	}
	stopProcess(t, cmd.Process)
	fmt.Fprintln(stdin, "after") // waits in the pipe, to be read before any timer runs
	next, err := newClient(t, srv.URL()).Acquire(context.Background(), "frozen", nil)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Process.Signal(syscall.SIGCONT)
	if got := line(); got != context.Canceled.Error() {
		t.Errorf("the first thing after the stop: %s, want %v", got, context.Canceled)
	}
	if err := next.Release(context.Background()); err != nil {
		t.Errorf("release: %v", err)
	}
}

// stopProcess returns when p stands still: kill(2) does not wait for that.
func stopProcess(t *testing.T, p *os.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !standsStill(t, p.Pid) {
		<-tick.C
	}
}

// standsStill reports whether every thread of pid is stopped.
func standsStill(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads of %d: %v, %v", pid, threads, err)
	}
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err != nil {
			return false // a thread that has just ended
		}
		if _, rest, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return true
}

// Holder and waiters get over a restart of the server, the waiters in their order.
func TestReal_ServerRestarts(t *testing.T) {
	t.Parallel()
	together(t, map[string]func(*sdktest.Process){
		"stopped": func(p *sdktest.Process) { p.Stop(); p.Restart() },
		"killed":  func(p *sdktest.Process) { p.Kill(); p.Restart() },
		"frozen":  func(p *sdktest.Process) { p.Freeze(); time.Sleep(2 * time.Second); p.Thaw() },
	}, func(t *testing.T, restart func(*sdktest.Process)) {
		bothLeases(t, func(t *testing.T, opts *clientsdk.AcquireOptions) {
			srv := sdktest.Start(t, nil)
			b := realSetup(t, srv)
			o := clientsdk.AcquireOptions{TTL: 30 * time.Second, PerHold: opts != nil}
			b.waitOver(t.Name(), &o, func() { restart(srv) })
		})
	})
}

// A server that is gone is unavailable, and says so in the time asked for.
func TestReal_Unavailable(t *testing.T) {
	t.Parallel()
	client, err := clientsdk.New(clientsdk.Config{Endpoints: []string{"http://127.0.0.1:1"}, RetryFor: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = client.Acquire(context.Background(), "l", nil)
	if !errors.Is(err, clientsdk.ErrUnavailable) || !clientsdk.OutcomeKnown(err) {
		t.Errorf("Acquire = %v, want ErrUnavailable with a known outcome", err)
	}
}
