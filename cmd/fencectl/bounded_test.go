package main

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fenced/fenced/clientsdk/sdktest"
	"github.com/fenced/fenced/internal/apierr"
)

// silent accepts connections and never answers, as a server that hangs.
func silent(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(io.Discard, conn)
			}()
		}
	}()
	return l.Addr().String()
}

// Who says how long to wait has his prompt back soon after, also where no server can
// answer.
func TestWait_EndsInTime(t *testing.T) {
	t.Parallel()
	noQuorum := setup(t)
	for range 1000 {
		noQuorum.srv.On(sdktest.Acquire, sdktest.Fault{Code: "no_quorum"})
	}
	b := &bundle{T: t, env: map[string]string{}}
	var all sync.WaitGroup
	defer all.Wait()
	for name, addr := range map[string]string{"silent": silent(t), "nobody there": "127.0.0.1:1", "no quorum": noQuorum.env["FENCED_ADDR"]} {
		for flag, most := range map[string]time.Duration{"--try": 3500 * time.Millisecond, "--wait=3s": 4500 * time.Millisecond} {
			for _, args := range [][]string{{"acquire", "l", flag}, {"run", "l", flag, "--", "true"}} {
				all.Go(func() {
					begun := time.Now()
					p := b.program(append(args, "--addr", addr)...)
					code := p.code()
					if took := time.Since(begun); took > most+3*time.Second { // a busy machine starts programs slowly
						t.Errorf("%s: %q took %s, want %s", name, args, took, most)
					}
					if code != apierr.ExitUnreachable {
						t.Errorf("%s: %q: code %d, %s", name, args, code, p.err.String())
					}
				})
			}
		}
	}
}
