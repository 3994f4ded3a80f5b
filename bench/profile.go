package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/fenced/fenced/clientsdk"
)

// profileTime is how long each hot path runs under the profiler.
const profileTime = 4 * time.Second

// hotPath is one load to profile a role under.
type hotPath struct {
	name, role string
	run        func(ctx context.Context, p *process, addr string) (rate float64, err error)
}

var hotPaths = []hotPath{
	{"own64", roleServer, overHTTP(64, ownLocks)},
	{"own64-sdk", roleServer, overSDK},
	{"one64", roleServer, overHTTP(64, oneLock)},
	{"one-client", roleServer, overHTTP(1, ownLocks)},
	{"engine256", roleEngine, inside},
	{"raw-etcd256", roleRaw, inside},
}

// profile runs the servers of this binary under each hot path, writes a CPU profile
// of each, and prints what is at the top. It ends with a heap profile of a server
// with many holds.
func profile(ctx context.Context, into, dir string, out io.Writer) error {
	into, err := filepath.Abs(into)
	if err == nil {
		err = os.MkdirAll(into, 0o755)
	}
	if err != nil {
		return err
	}
	s := &suite{scale: fullScale, dir: dir}
	defer s.close()
	for _, h := range hotPaths {
		if err := s.profilePath(ctx, h, filepath.Join(into, h.name+".pprof"), out); err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
	}
	return s.profileHeap(ctx, filepath.Join(into, "heap.pprof"), out)
}

func (s *suite) profilePath(ctx context.Context, h hotPath, file string, out io.Writer) error {
	var ready address
	p, err := s.role(h.role, &ready)
	if err != nil {
		return err
	}
	defer p.stop()
	var before, after float64
	if err := p.ask(&before, "profile %s", file); err != nil {
		return err
	}
	rate, err := h.run(ctx, p, ready.Addr)
	if err != nil {
		return err
	}
	if err := p.ask(&after, "profiled"); err != nil {
		return err
	}
	perCycle := (after - before) / (rate * profileTime.Seconds()) * 1e6
	return printTop(ctx, out, fmt.Sprintf("%s: %.0f cycles/s, %.0f us of CPU in the server a cycle", h.name, rate, perCycle), file)
}

func (s *suite) profileHeap(ctx context.Context, file string, out io.Writer) error {
	var ready address
	p, err := s.role(roleServer, &ready)
	if err != nil {
		return err
	}
	defer p.stop()
	if err := s.fill(ctx, ready.Addr, s.holds, func() time.Duration { return time.Hour }); err != nil {
		return err
	}
	if err := p.ask(nil, "heap %s", file); err != nil {
		return err
	}
	return printTop(ctx, out, fmt.Sprintf("heap of %d holds", s.holds), file)
}

// printTop prints where the time or the memory went by itself, then with what it
// calls, without the Go runtime's frames.
func printTop(ctx context.Context, out io.Writer, name, file string) error {
	fmt.Fprintf(out, "## %s (%s)\n\n", name, file)
	for _, args := range [][]string{{"-nodecount=20"}, {"-cum", "-nodecount=45", "-hide=^runtime|^sync|^internal"}} {
		cmd := exec.CommandContext(ctx, "go", append(append([]string{"tool", "pprof", "-top"}, args...), file)...)
		top, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("pprof: %w: %s", err, top)
		}
		fmt.Fprintf(out, "%s\n", top)
	}
	return nil
}

func overHTTP(n int, on func([]locker) []func(context.Context) error) func(context.Context, *process, string) (float64, error) {
	return func(ctx context.Context, _ *process, addr string) (float64, error) {
		var clients []locker
		for range n {
			c, err := dialHTTP(addr)
			if err != nil {
				return 0, err
			}
			defer c.close()
			clients = append(clients, c)
		}
		l, err := drive(ctx, profileTime, on(clients))
		return l.rate, err
	}
}

func overSDK(ctx context.Context, _ *process, addr string) (float64, error) {
	client, err := clientsdk.New(clientsdk.Config{Endpoints: []string{"http://" + addr}, Owner: "bench"})
	if err != nil {
		return 0, err
	}
	clients := make([]locker, 64)
	for i := range clients {
		clients[i] = sdkClient{client, i == 0}
	}
	defer clients[0].close()
	l, err := drive(ctx, profileTime, ownLocks(clients))
	return l.rate, err
}

// inside lets the process drive itself.
func inside(_ context.Context, p *process, _ string) (rate float64, err error) {
	err = p.ask(&rate, "drive 256 %s", profileTime)
	return rate, err
}
