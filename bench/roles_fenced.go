package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/lockserver"
	"github.com/fenced/fenced/lockserver/embedded"
)

// engine is a lock engine on its own embedded etcd, which nobody compacts unless
// upkeep runs.
type engine struct {
	*lockserver.Server
	node *embedded.Node
	stop func()
}

// upkeep compacts the store as fenced serve does, until ctx ends.
func (e *engine) upkeep(ctx context.Context) {
	revision := func() int64 {
		st, _ := e.Status(ctx) // its error is nil
		return st.Revision
	}
	e.node.Upkeep(ctx, revision, slog.New(slog.DiscardHandler))
}

func startEngine(ctx context.Context, dir string) (*engine, error) {
	start, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	node, err := embedded.Start(start, embedded.Config{Dir: dir})
	if err != nil {
		return nil, err
	}
	server, err := lockserver.New(lockserver.Config{Client: node.Client(), Alone: true, IssuedFile: dir + ".issued"})
	if err != nil {
		return nil, errors.Join(err, node.Close())
	}
	run, cancelRun := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = server.Run(run) }) // its failure shows in the calls
	e := &engine{server, node, func() {
		cancelRun()
		running.Wait()
		_ = node.Close()
	}}
	if err := server.WaitReady(start); err != nil {
		e.stop()
		return nil, err
	}
	return e, nil
}

// serveEngine drives the engine from inside its process.
func serveEngine(ctx context.Context, dir string, c *console) error {
	e, err := startEngine(ctx, dir)
	if err != nil {
		return err
	}
	defer e.stop()
	return c.talk(nil, driver(ctx, func(i int) func(context.Context) error {
		lock := fmt.Sprintf("bench/own/%d", i)
		return func(ctx context.Context) error {
			hold, err := e.Acquire(ctx, lockserver.AcquireRequest{Lock: lock, Owner: "bench", Wait: time.Second})
			if err != nil {
				return err
			}
			return e.Release(ctx, hold.ID)
		}
	}))
}

// memory is what a server weighs.
type memory struct {
	HeapKiB     float64 `json:"heap_kib"` // live after a collection
	ResidentKiB float64 `json:"resident_kib"`
}

// serveFenced is fenced serve with a view inside: "hold N" acquires so many locks,
// "upkeep" starts to drop old history, "footprint" answers what a load can leave
// behind, and the rest is inspect's.
func serveFenced(ctx context.Context, dir string, c *console) error {
	e, err := startEngine(ctx, dir)
	if err != nil {
		return err
	}
	defer e.stop()
	handler, err := httpapi.New(httpapi.Config{Engine: e.Server, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	listener, err := httpapi.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer serveHTTP(handler, listener)()
	return c.talk(address{listener.Addr().String()}, func(verb string, args []string) (any, error) {
		switch {
		case verb == "hold" && len(args) == 1:
			n, err := strconv.Atoi(args[0])
			return nil, errors.Join(err, e.hold(ctx, n))
		case verb == "upkeep":
			go e.upkeep(ctx)
			return nil, nil
		case verb == "footprint":
			return e.footprint(ctx)
		}
		return inspect(verb, args)
	})
}

// hold acquires n locks, each for an hour and on a lease of its own.
func (e *engine) hold(ctx context.Context, n int) error {
	const workers = 256
	var next atomic.Int64
	failed := make(chan error, workers)
	for range workers {
		go func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				_, err := e.Acquire(ctx, lockserver.AcquireRequest{Lock: fmt.Sprintf("bench/many/%d", i), Owner: "bench", TTL: time.Hour})
				if err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	var errs []error
	for range workers {
		errs = append(errs, <-failed)
	}
	return errors.Join(errs...)
}

// serveHTTP returns what ends it.
func serveHTTP(handler http.Handler, listener net.Listener) (stop func()) {
	server := httpapi.NewServer(handler)
	done := make(chan struct{})
	go func() {
		_ = server.Serve(listener) // its failure shows in the calls
		close(done)
	}()
	return func() {
		_ = server.Close()
		<-done
	}
}

// inspect answers "memory" with what the process weighs; "profile FILE", which
// starts a CPU profile, and "profiled", which ends it, with the CPU time used so
// far; "heap FILE" writes a heap profile.
func inspect(verb string, args []string) (any, error) {
	switch {
	case verb == "memory":
		runtime.GC()
		runtime.GC() // what the first one found in sync.Pools goes with the second
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return memory{HeapKiB: float64(m.HeapAlloc) / 1024, ResidentKiB: residentKiB()}, nil
	case verb == "profile" && len(args) == 1:
		file, err := os.Create(args[0])
		if err != nil {
			return nil, err
		}
		return cpuTime().Seconds(), pprof.StartCPUProfile(file)
	case verb == "profiled":
		pprof.StopCPUProfile()
		return cpuTime().Seconds(), nil
	case verb == "heap" && len(args) == 1:
		file, err := os.Create(args[0])
		if err != nil {
			return nil, err
		}
		runtime.GC()
		return nil, errors.Join(pprof.WriteHeapProfile(file), file.Close())
	}
	return nil, unknown(verb)
}

// cpuTime is what this process has used of the CPUs, in and out of the kernel.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
