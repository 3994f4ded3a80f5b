//go:build linux

package stage_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/internal/demo/stage"
	"github.com/fenced/fenced/internal/faultproxy"
)

// theStage is shared by the tests that do not disturb fenced or PostgreSQL itself.
var theStage *stage.Stage

// programs are built once.
var programs stage.Programs

func TestMain(m *testing.M) { goleak.VerifyTestMain(onStage{m}) }

type onStage struct{ m *testing.M }

func (s onStage) Run() int {
	code, err := s.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func (s onStage) run() (int, error) {
	dir, err := os.MkdirTemp("", "fenced-programs-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if programs, err = stage.Build(context.Background(), dir); err != nil {
		return 0, err
	}
	if theStage, err = stage.Open(context.Background(), programs); err != nil {
		return 0, err
	}
	defer theStage.Close()
	code := s.m.Run()
	faults.print()
	return code, nil
}

// counter counts the faults that were really injected, so that a run can say so.
type counter struct {
	mu sync.Mutex
	n  map[string]int
}

var faults = counter{n: make(map[string]int)}

func (c *counter) add(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[kind]++
}

func (c *counter) print() {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Printf("faults injected: %v\n", c.n)
}

// play is a ledger and what is owed there.
type play struct {
	*stage.Ledger
	owed []rewards.Reward
	ctx  context.Context
}

// weeks gives every play rewards of its own, and so locks of its own: all ledgers
// share one lock service.
var weeks = struct {
	sync.Mutex
	n int
}{n: 100}

func nextWeek() int {
	weeks.Lock()
	defer weeks.Unlock()
	weeks.n++
	return weeks.n
}

// patience is how long a play may take; what hangs longer has failed.
const patience = 90 * time.Second

// proxyTo starts a proxy to the server at url, as faithful as the network until told
// otherwise.
func proxyTo(t *testing.T, url string) *faultproxy.Proxy {
	t.Helper()
	proxy, err := faultproxy.New(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	return proxy
}

// newPlay makes a ledger on s.
func newPlay(t *testing.T, s *stage.Stage) *play {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	l, err := s.NewLedger(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Pool.Close)
	return &play{Ledger: l, ctx: ctx}
}

// deliver puts deliveries into the inbox and adds them to what is owed.
func (p *play) deliver(t *testing.T, deliveries ...rewards.Reward) {
	t.Helper()
	if err := rewards.Deliver(p.ctx, p.Pool, deliveries); err != nil {
		t.Fatal(err)
	}
	owed, _, err := rewards.Distinct(append(p.owed, deliveries...))
	if err != nil {
		t.Fatal(err)
	}
	p.owed = owed
}

// one is a reward that no other play has.
func one(t *testing.T, number int) rewards.Reward {
	t.Helper()
	id, err := rewards.Event{
		Season: "2026", Content: "week-" + strconv.Itoa(nextWeek()), Player: "42", Kind: "rank", Item: strconv.Itoa(number),
	}.ID()
	if err != nil {
		t.Fatal(err)
	}
	return rewards.Reward{Player: "42", Event: id, Amount: 500}
}

// worker starts a worker with leases of a second unless args say otherwise.
func (p *play) worker(t *testing.T, name string, args ...string) *stage.Process {
	t.Helper()
	w, err := p.Worker(name, append([]string{"--ttl", "1s", "--drain"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Kill)
	return w
}

func (p *play) publisher(t *testing.T, name, items string, args ...string) *stage.Process {
	t.Helper()
	w, err := p.Publisher(name, items, append([]string{"--drain", "--first-retry", "10ms", "--longest-retry", "500ms"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Kill)
	return w
}

// stopped waits until w has stopped itself by the fault it was given.
func (p *play) stopped(t *testing.T, w *stage.Process) rewards.Record {
	t.Helper()
	r := p.fault(t, w)
	if err := w.WaitStopped(p.ctx); err != nil {
		t.Fatal(err)
	}
	return r
}

// fault waits for the announcement of w's fault.
func (p *play) fault(t *testing.T, w *stage.Process) rewards.Record {
	t.Helper()
	return p.record(t, w, func(r rewards.Record) bool { return r.Kind == "fault" })
}

func (p *play) record(t *testing.T, w *stage.Process, match func(rewards.Record) bool) rewards.Record {
	t.Helper()
	r, err := w.WaitRecord(p.ctx, match)
	if err != nil {
		t.Fatalf("%v\nrecords: %+v", err, w.Records())
	}
	return r
}

// attempt waits for w's report of an attempt at key with one of the outcomes.
func (p *play) attempt(t *testing.T, w *stage.Process, key string, outcomes ...rewards.Outcome) rewards.Record {
	t.Helper()
	return p.record(t, w, func(r rewards.Record) bool {
		for _, o := range outcomes {
			if r.Kind == "attempt" && r.Key == key && r.Outcome == string(o) {
				return true
			}
		}
		return false
	})
}

// finish waits for the processes to drain their queue and checks the invariants.
func (p *play) finish(t *testing.T, processes ...*stage.Process) rewards.Verdict {
	t.Helper()
	for _, w := range processes {
		if err := w.Wait(p.ctx); err != nil {
			t.Errorf("%v\nrecords: %+v", err, w.Records())
		}
	}
	v, err := rewards.Verify(p.ctx, p.Pool, p.owed)
	if err != nil {
		t.Fatal(err)
	}
	if !v.OK() {
		t.Errorf("the ledger is not what is owed: %+v", v)
	}
	return v
}

// eventually asks the database until sql answers true. What it waits for is the
// effect of another process, which has no other way to tell.
func (p *play) eventually(t *testing.T, sql string, args ...any) {
	t.Helper()
	for {
		var ok bool
		err := p.Pool.QueryRow(p.ctx, sql, args...).Scan(&ok)
		if ok {
			return
		}
		if p.ctx.Err() != nil {
			t.Fatalf("%s: %v, %v", sql, err, p.ctx.Err())
		}
		time.Sleep(2 * time.Millisecond) // leaves the machine to those it waits for
	}
}
