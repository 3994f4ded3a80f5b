package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
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
	shared := sdktest.Start(t, nil) // for the faults that leave the server alone
	for name, fault := range map[string]realFault{
		"partition without reset": func(_ *sdktest.Process, p *faultproxy.Proxy, _ *os.Process) func() {
			p.Partition(true)
			return func() { p.Partition(false) }
		},
		"500s": func(_ *sdktest.Process, p *faultproxy.Proxy, _ *os.Process) func() {
			p.Decide(func(*http.Request) faultproxy.Fault { return faultproxy.Fault{Status: 500, Body: "oops"} })
			return func() {}
		},
		"frozen server": func(s *sdktest.Process, _ *faultproxy.Proxy, _ *os.Process) func() {
			s.Freeze()
			time.Sleep(testTTL + time.Second) // the server is away for longer than the lease
			s.Thaw()
			return func() {}
		},
		"killed server": func(s *sdktest.Process, _ *faultproxy.Proxy, _ *os.Process) func() {
			s.Kill()
			time.Sleep(testTTL + time.Second) // as above; a server that is back sooner keeps the hold
			s.Restart()
			return func() {}
		},
		"frozen fencectl": func(_ *sdktest.Process, _ *faultproxy.Proxy, fencectl *os.Process) func() {
			fencectl.Signal(syscall.SIGSTOP)
			return func() { fencectl.Signal(syscall.SIGCONT) }
		},
		killedFencectl: func(_ *sdktest.Process, _ *faultproxy.Proxy, fencectl *os.Process) func() {
			fencectl.Kill()
			return func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each := map[string]struct{}{}
			for round := range *rounds {
				each[fmt.Sprint(round+1)] = struct{}{}
			}
			together(t, each, func(t *testing.T, _ struct{}) {
				srv := shared
				if strings.HasSuffix(name, " server") {
					srv = sdktest.Start(t, nil)
				}
				code := excluded(t, srv, fault)
				if code != apierr.ExitLost && name != killedFencectl {
					t.Errorf("code %d, want %d", code, apierr.ExitLost)
				}
			})
		})
	}
}

// realFault does harm while the first node's command runs; mend ends it.
type realFault func(*sdktest.Process, *faultproxy.Proxy, *os.Process) (mend func())

const killedFencectl = "killed fencectl"

// excluded demands that the second node is granted the lock only when the first one's
// command is dead, and returns the exit code of the first.
func excluded(t *testing.T, srv *sdktest.Process, fault realFault) (code int) {
	proxy, err := faultproxy.New(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	dir := t.TempDir()
	b := &bundle{T: t, env: map[string]string{"FENCED_ADDR": proxy.URL()}}
	first, command := b.startRun(t.Name(), dir, true)
	granted := second(t, srv, command)
	mend := fault(srv, proxy, first.Process)
	if alive := <-granted; alive {
		t.Error("the second node was granted the lock while the first one's command ran")
	}
	mend()
	first.Wait()
	return first.ProcessState.ExitCode()
}

// second waits for the lock beside the first, straight from the server, and tells
// whether the first one's command ran at the moment of the grant.
func second(t *testing.T, srv *sdktest.Process, command processes) <-chan bool {
	cfg := srv.Config()
	cfg.RetryFor = time.Minute
	client, err := clientsdk.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	granted := make(chan bool, 1)
	go func() {
		h, err := client.Acquire(context.Background(), t.Name(), nil)
		granted <- !command.dead()
		if err != nil {
			t.Error(err)
			return
		}
		h.Release(context.Background())
	}()
	return granted
}
