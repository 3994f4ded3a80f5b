package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver"
)

// A lock that passes from one to the next shows in the metrics of the engine.
func TestMetrics_of_the_engine(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	observer, err := httpapi.Observe(registry)
	if err != nil {
		t.Fatal(err)
	}
	engine, _ := etcdtest.Run(t, lockserver.Config{Client: etcdtest.Node(t).Client(), Alone: true, Observer: observer})
	c := newClientWith(t, httpapi.Config{Engine: engine, Registry: registry, Logger: quiet()})
	first := c.acquire(t, "secret-lock", "")
	next := make(chan *http.Response, 1)
	go func() { next <- c.send(t, "POST", "/v1/holds", acquireBody("secret-lock", `,"wait":"20s"`)) }()
	c.awaitWaiters(t, "secret-lock", 1)
	c.release(t, first)
	c.release(t, decode[wire.Hold](t, <-next, http.StatusCreated))

	text, err := io.ReadAll(c.send(t, "GET", "/metrics", "").Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`fenced_hold_events_total{kind="queued"} 1`, `fenced_hold_events_total{kind="granted"} 2`,
		`fenced_hold_events_total{kind="released"} 2`, `fenced_hold_events_total{kind="expired"} 0`,
		`fenced_queue_length_count 1`, `fenced_wait_seconds_count 1`, `fenced_hand_over_seconds_count 1`,
		`fenced_commit_seconds_count{lane="put"} 2`, `fenced_batch_holds_sum{lane="delete"} 2`,
	} {
		if !strings.Contains(string(text), "\n"+want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
	for _, callers := range []string{"secret-lock", first.Ref, `"w"`} {
		if strings.Contains(string(text), callers) {
			t.Errorf("the metrics have a caller's %q", callers)
		}
	}
	if _, err := httpapi.Observe(registry); err == nil {
		t.Error("two engines share the metrics of one registry")
	}
}

// The alarm of a mirror that missed an event of the store: what the audits found is a
// counter, and at 0 from the start, or the first one would be no increase.
func TestMetrics_of_the_audits(t *testing.T) {
	t.Parallel()
	found := 0
	engine := &fakeEngine{
		ready:  func() error { return nil },
		status: func(context.Context) (lockserver.Status, error) { return lockserver.Status{Differences: found}, nil },
	}
	c := newClientWith(t, httpapi.Config{Engine: engine, Registry: prometheus.NewRegistry(), Logger: quiet()})
	for ; found < 2; found++ {
		text, err := io.ReadAll(c.send(t, "GET", "/metrics", "").Body)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("\n# TYPE fenced_mirror_differences_total counter\nfenced_mirror_differences_total %d\n", found)
		if !strings.Contains(string(text), want) {
			t.Errorf("after %d the metrics lack %s", found, want)
		}
	}
}

// The engine tells its observer under its mutex: that must cost no garbage.
func TestObserve_allocates_nothing(t *testing.T) {
	o, err := httpapi.Observe(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		o.Event(lockserver.EventGranted)
		o.Queued(3)
		o.Granted(time.Second, time.Millisecond)
		o.Committed(lockserver.PutLane, 7, time.Millisecond)
		o.Lagged(time.Millisecond)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
