package lockserver_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver"
	"github.com/fenced/fenced/lockserver/embedded"
	"github.com/fenced/fenced/tokens"
)

// deployment is a node with a lock server that can be stopped and started over on
// another store, as a restore does.
type deployment struct {
	t      *testing.T
	dir    string
	issued string
	node   *embedded.Node
	server *lockserver.Server
	stop   func()

	restored string // the id of the restore that the store comes from
}

func deploy(t *testing.T) *deployment {
	t.Helper()
	d := &deployment{t: t, issued: filepath.Join(t.TempDir(), "data.issued")}
	d.start(filepath.Join(t.TempDir(), "data"))
	if err := d.server.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

// start runs a server on the store in dir; it may be closed.
func (d *deployment) start(dir string) {
	d.t.Helper()
	d.dir = dir
	d.node = etcdtest.NodeAt(d.t, dir)
	d.server, d.stop = etcdtest.Run(d.t, lockserver.Config{
		Client: d.node.Client(), Alone: true, Managed: true, IssuedFile: d.issued, Restored: d.restored,
	})
}

// external runs a server that shares the store with others.
func (d *deployment) external(t *testing.T) *lockserver.Server {
	t.Helper()
	server, _ := etcdtest.Run(t, lockserver.Config{Client: d.node.Client()})
	return server
}

func (d *deployment) floor(want lockserver.FloorState) {
	d.t.Helper()
	if st, err := d.server.Status(d.t.Context()); err != nil || st.Floor != want {
		d.t.Fatalf("floor is %v, want %v (%v)", st.Floor, want, err)
	}
}

// churn issues tokens and returns the highest.
func (d *deployment) churn(n int) tokens.Token {
	d.t.Helper()
	return d.churnOn("a", n)
}

func (d *deployment) churnOn(lock string, n int) tokens.Token {
	d.t.Helper()
	var last tokens.Token
	for range n {
		h := mustAcquire(d.t, d.server, try(lock))
		mustRelease(d.t, d.server, h)
		last = h.Token
	}
	return last
}

func TestFloor_WipedStoreGrantsNothingUntilRaised(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.floor(lockserver.Protected)
	highest := d.churn(50)
	d.stop()

	d.start(filepath.Join(t.TempDir(), "another"))
	d.floor(lockserver.Closed)
	_, err := d.server.Acquire(t.Context(), try("a"))
	wantCode(t, err, apierr.TokenFloor)
	wantCode(t, d.server.Ready(), apierr.TokenFloor)
	if _, err := d.server.Locks(t.Context(), lockserver.LocksQuery{}); err != nil {
		t.Fatalf("a closed server must still show its locks: %v", err)
	}

	if _, err := d.server.RaiseFloor(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	d.floor(lockserver.Protected)
	if h := mustAcquire(t, d.server, try("a")); h.Token <= highest {
		t.Fatalf("token %d after %d", h.Token, highest)
	}
}

func TestFloor_ClosureSurvivesRestart(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.churn(50)
	d.stop()
	dir := filepath.Join(t.TempDir(), "another")
	d.start(dir)
	d.floor(lockserver.Closed)
	d.stop()
	if err := d.node.Close(); err != nil {
		t.Fatal(err)
	}
	d.start(dir)
	d.floor(lockserver.Closed)
}

func TestFloor_RaiseEndsHoldsAndLiftsTokens(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	h := mustAcquire(t, d.server, try("a"))
	const above = 1 << 40
	base, err := d.server.RaiseFloor(t.Context(), above)
	if err != nil || base <= 0 {
		t.Fatalf("raise: %d, %v", base, err)
	}
	_, err = d.server.Renew(t.Context(), h.ID)
	wantGone(t, err, lockserver.EndUnknown)
	next := mustAcquire(t, d.server, try("a"))
	if next.Token <= above {
		t.Fatalf("token %d, want above %d", next.Token, int64(above))
	}
	_, err = d.server.RaiseFloor(t.Context(), 1<<52+1)
	wantCode(t, err, apierr.OutOfBounds)
}

// A floor at its highest cannot be raised, and that is no fault of what was asked for.
func TestFloor_AtItsHighest(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	_, err := d.server.RaiseFloor(t.Context(), 1<<52)
	for range 10 { // the base begins below, by the revision
		if err == nil {
			_, err = d.server.RaiseFloor(t.Context(), 0)
		}
	}
	wantCode(t, err, apierr.OutOfBounds)
	if text := err.Error(); strings.Contains(text, "above must be") || !strings.Contains(text, "would pass 4503599627370496") {
		t.Errorf("%q", text)
	}
}

func TestFloor_UnprotectedWithoutTheFile(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.churn(3)
	d.stop()
	if err := d.node.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(d.issued); err != nil {
		t.Fatal(err)
	}
	d.start(d.dir)
	d.floor(lockserver.Unprotected)
}

func TestFloor_ABadFileIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "issued")
	if err := os.WriteFile(path, []byte("something else entirely, of some length\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := lockserver.New(lockserver.Config{Client: etcdtest.Node(t).Client(), Alone: true, IssuedFile: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil {
		t.Fatal("a file that this server did not write was taken")
	}
}

// runFiled runs a server with an issued-token file of its own in dir.
func runFiled(t *testing.T, store *clientv3.Client, dir, name string) (*lockserver.Server, func()) {
	t.Helper()
	return etcdtest.Run(t, lockserver.Config{
		Client: store, Managed: true, Name: name, IssuedFile: filepath.Join(dir, name),
	})
}

// TestFloor_ARaiseGoesAboveWhatEveryServerIssued raises a wiped store through the
// server that has seen the least, with and without the other one there to object.
func TestFloor_ARaiseGoesAboveWhatEveryServerIssued(t *testing.T) {
	t.Parallel()
	store := etcdtest.NodeAt(t, filepath.Join(t.TempDir(), "data")).Client()
	dir := t.TempDir()
	run := func(name string) (*lockserver.Server, func()) { return runFiled(t, store, dir, name) }
	_, stopLow := run("low")
	stopLow()
	high, stopHigh := run("high")
	var highest tokens.Token
	for range 20 {
		h := mustAcquire(t, high, try("a"))
		mustRelease(t, high, h)
		highest = h.Token
	}
	stopHigh()

	store = etcdtest.NodeAt(t, filepath.Join(t.TempDir(), "wiped")).Client()
	low, stopLow := run("low")
	if _, err := low.RaiseFloor(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	high, stopHigh = run("high")
	wantCode(t, high.Ready(), apierr.TokenFloor)
	waitClosed(t, low)
	if _, err := low.RaiseFloor(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*lockserver.Server{low, high} {
		h := mustAcquire(t, s, try("a"))
		if h.Token <= highest {
			t.Fatalf("token %d after %d", h.Token, highest)
		}
		mustRelease(t, s, h)
	}
	stopLow()
	stopHigh()
}

// TestFloor_ARaiseIsKnownToWhoWasAway stops a server that has closed granting, raises the
// floor through the other one, and lets it come back: nothing is below what it knows of.
func TestFloor_ARaiseIsKnownToWhoWasAway(t *testing.T) {
	t.Parallel()
	store := etcdtest.NodeAt(t, filepath.Join(t.TempDir(), "data")).Client()
	dir := t.TempDir()
	run := func(name string) (*lockserver.Server, func()) { return runFiled(t, store, dir, name) }
	_, stopOther := run("other")
	away, stopAway := run("away")
	var highest tokens.Token
	for range 20 {
		h := mustAcquire(t, away, try("a"))
		mustRelease(t, away, h)
		highest = h.Token
	}
	stopOther()
	stopAway()

	store = etcdtest.NodeAt(t, filepath.Join(t.TempDir(), "wiped")).Client()
	other, stopOther := run("other")
	away, stopAway = run("away")
	wantCode(t, away.Ready(), apierr.TokenFloor)
	waitClosed(t, other)
	stopAway()
	away, stopAway = run("away")
	wantCode(t, away.Ready(), apierr.TokenFloor) // nobody has raised it
	stopAway()
	if _, err := other.RaiseFloor(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	h := mustAcquire(t, other, try("a"))
	if h.Token <= highest {
		t.Fatalf("token %d after %d", h.Token, highest)
	}

	away, stopAway = run("away")
	if err := away.Ready(); err != nil {
		t.Fatalf("a server that was away during the raise: %v", err)
	}
	if r, err := away.Renew(t.Context(), h.ID); err != nil || r.Token != h.Token {
		t.Fatalf("%+v, %v", r, err)
	}
	stopAway()
	stopOther()
	away, stopAway = run("away")
	if err := away.Ready(); err != nil {
		t.Fatalf("the file still says closed: %v", err)
	}
	stopAway()
}

// TestFloor_WhoWasToldOfAClosureKnowsWhatWasIssued closes two servers, one of which has seen
// less, and puts a store between the two that does not say closed: the one that has seen
// less was told by the other, and must not issue again what that one has.
func TestFloor_WhoWasToldOfAClosureKnowsWhatWasIssued(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := func(name string) *clientv3.Client {
		return etcdtest.NodeAt(t, filepath.Join(dir, "data of "+name)).Client()
	}
	run := func(store *clientv3.Client, name string) (*lockserver.Server, func()) {
		config := lockserver.Config{Client: store, Managed: true, Name: name}
		if name != "none" {
			config.IssuedFile = filepath.Join(dir, name)
		}
		return etcdtest.Run(t, config)
	}
	issue := func(s *lockserver.Server, n int) (last tokens.Token) {
		for range n {
			h := mustAcquire(t, s, try("a"))
			mustRelease(t, s, h)
			last = h.Token
		}
		return last
	}
	first := store("first")
	low, stopLow := run(first, "low")
	lowest := issue(low, 10)
	stopLow()
	high, stopHigh := run(first, "high")
	highest := issue(high, 60)
	stopHigh()

	wiped := store("wiped")
	high, stopHigh = run(wiped, "high")
	wantCode(t, high.Ready(), apierr.TokenFloor)
	waitTold(t, wiped)
	low, stopLow = run(wiped, "low")
	wantCode(t, low.Ready(), apierr.TokenFloor)
	stopLow()
	stopHigh()

	between := store("another backup")
	other, stopOther := run(between, "none")
	if at := issue(other, 30); at <= lowest || at >= highest {
		t.Fatalf("the store is at %d, not between %d and %d", at, lowest, highest)
	}
	stopOther()
	low, stopLow = run(between, "low")
	defer stopLow()
	wantCode(t, low.Ready(), apierr.TokenFloor)
}

// waitTold waits until a server has written into the store that it is closed.
func waitTold(t *testing.T, store *clientv3.Client) {
	t.Helper()
	const key = lockserver.DefaultPrefix + "closed"
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range store.Watch(ctx, key, clientv3.WithRev(1)) {
		return
	}
	t.Fatal("the store was not told of the closure")
}

// waitClosed waits until another server's closure has arrived.
func waitClosed(t *testing.T, s *lockserver.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for apierr.CodeOf(s.Ready()) != apierr.TokenFloor {
		if ctx.Err() != nil {
			t.Fatal("the server is still open")
		}
		runtime.Gosched()
	}
}
