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

// hotPath is one load to profile the server under.
type hotPath struct {
	name string
	run  func(ctx context.Context, addr string) (load, error)
}

var hotPaths = []hotPath{
	{"own64", func(ctx context.Context, addr string) (load, error) { return profileHTTP(ctx, addr, 64, ownLocks) }},
	{"own64-sdk", profileSDK},
	{"one64", func(ctx context.Context, addr string) (load, error) { return profileHTTP(ctx, addr, 64, oneLock) }},
	{"one-client", func(ctx context.Context, addr string) (load, error) { return profileHTTP(ctx, addr, 1, ownLocks) }},
}

// profile runs the server of this binary under each hot path, writes a CPU profile
// of it, and prints what is at the top. It ends with a heap profile of a server
// that holds many holds.
func profile(ctx context.Context, into, dir string, out io.Writer) error {
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	into, err := filepath.Abs(into)
	if err != nil {
		return err
	}
	s := &suite{scale: fullScale, dir: dir}
	defer s.close()
	var ready address
	p, err := s.role(roleServer, &ready)
	if err != nil {
		return err
	}
	for _, h := range hotPaths {
		file := filepath.Join(into, h.name+".pprof")
		if err := p.ask(nil, "profile %s", file); err != nil {
			return err
		}
		l, err := h.run(ctx, ready.Addr)
		if err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
		if err := p.ask(nil, "profiled"); err != nil {
			return err
		}
		if err := printTop(ctx, out, fmt.Sprintf("%s: %.0f cycles/s, p50 %.0f us", h.name, l.rate, l.p50()), file); err != nil {
			return err
		}
	}
	return s.profileHeap(ctx, p, ready.Addr, filepath.Join(into, "heap.pprof"), out)
}

func (s *suite) profileHeap(ctx context.Context, p *process, addr, file string, out io.Writer) error {
	if err := s.fill(ctx, addr, s.holds, func() time.Duration { return time.Hour }); err != nil {
		return err
	}
	if err := p.ask(nil, "heap %s", file); err != nil {
		return err
	}
	return printTop(ctx, out, "heap of 100,000 holds", file)
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

func profileHTTP(ctx context.Context, addr string, n int, on func([]locker) []func(context.Context) error) (load, error) {
	var clients []locker
	for range n {
		c, err := dialHTTP(addr)
		if err != nil {
			return load{}, err
		}
		defer c.close()
		clients = append(clients, c)
	}
	return drive(ctx, profileTime, on(clients))
}

func profileSDK(ctx context.Context, addr string) (load, error) {
	client, err := clientsdk.New(clientsdk.Config{Endpoints: []string{"http://" + addr}, Owner: "bench"})
	if err != nil {
		return load{}, err
	}
	clients := make([]locker, 64)
	for i := range clients {
		clients[i] = sdkClient{client, i == 0}
	}
	defer clients[0].close()
	return drive(ctx, profileTime, ownLocks(clients))
}
