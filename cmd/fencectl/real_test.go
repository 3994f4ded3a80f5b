package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/clientsdk/sdktest"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/faultproxy"
)

var rounds = flag.Int("rounds", 3, "how often each fault of TestRun_Real is tried")

// Two nodes want one lock, and the first is cut off from the server in some way while
// its command runs. The second must not be granted while that command runs.
func TestRun_Real(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*sdktest.Process, *faultproxy.Proxy) (mend func()){
		"partition without reset": func(_ *sdktest.Process, p *faultproxy.Proxy) func() {
			p.Partition(true)
			return func() { p.Partition(false) }
		},
		"500s": func(_ *sdktest.Process, p *faultproxy.Proxy) func() {
			p.Decide(func(*http.Request) faultproxy.Fault { return faultproxy.Fault{Status: 500, Body: "oops"} })
			return func() {}
		},
		"frozen server": func(s *sdktest.Process, _ *faultproxy.Proxy) func() {
			s.Freeze()
			time.Sleep(testTTL + time.Second) // the server is away for longer than the lease
			s.Thaw()
			return func() {}
		},
		"killed server": func(s *sdktest.Process, _ *faultproxy.Proxy) func() {
			s.Kill()
			time.Sleep(testTTL + time.Second) // as above; a server that is back sooner keeps the hold
			s.Restart()
			return func() {}
		},
	} {
		for round := range *rounds {
			t.Run(fmt.Sprintf("%s/%d", name, round+1), func(t *testing.T) {
				t.Parallel()
				excluded(t, fault)
			})
		}
	}
}

func excluded(t *testing.T, fault func(*sdktest.Process, *faultproxy.Proxy) func()) {
	srv := sdktest.Start(t, nil)
	proxy, err := faultproxy.New(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	dir := t.TempDir()
	b := &bundle{T: t, env: map[string]string{"FENCED_ADDR": proxy.URL()}}
	first, pids := b.startRun(dir, true)
	granted := second(t, srv, pids)
	mend := fault(srv, proxy)
	if alive := <-granted; alive {
		t.Error("the second node was granted the lock while the first one's command ran")
	}
	mend()
	first.Wait()
	if code := first.ProcessState.ExitCode(); code != apierr.ExitLost {
		t.Errorf("code %d; stderr %q", code, first.err.String())
	}
}

// second waits for the lock beside the first, straight from the server, and tells
// whether the first one's command ran at the moment of the grant.
func second(t *testing.T, srv *sdktest.Process, pids []int) <-chan bool {
	cfg := srv.Config()
	cfg.RetryFor = time.Minute
	client, err := clientsdk.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	granted := make(chan bool, 1)
	go func() {
		h, err := client.Acquire(context.Background(), "l", nil)
		granted <- !dead(pids)
		if err != nil {
			t.Error(err)
			return
		}
		h.Release(context.Background())
	}()
	return granted
}
