package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/lockserver"
)

const (
	// growthRate is the cycles of acquire and release a second that a store is to
	// carry for hours in a file of bounded size.
	growthRate    = 10_000
	growthWorkers = 64
	growthLook    = 10 * time.Second
)

// growth runs growthRate cycles a second on an engine with the upkeep of fenced
// serve, and prints how large the store's file is as time goes by.
func growth(ctx context.Context, d time.Duration, dir string, out io.Writer) error {
	e, err := startEngine(ctx, dir)
	if err != nil {
		return err
	}
	defer e.stop()
	work, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	go e.upkeep(work)
	paces := make(chan struct{}, growthWorkers)
	failed := make(chan error, growthWorkers)
	var cycles atomic.Int64
	for i := range growthWorkers {
		go func() { failed <- e.cycles(work, fmt.Sprintf("bench/growth/%d", i), paces, &cycles) }()
	}
	go pace(work, growthRate, paces)
	err = watchFile(work, filepath.Join(dir, "member", "snap", "db"), &cycles, out)
	for range growthWorkers {
		err = errors.Join(err, <-failed)
	}
	return err
}

// cycles acquires and releases one lock at each pace until ctx ends.
func (e *engine) cycles(ctx context.Context, lock string, paces <-chan struct{}, done *atomic.Int64) error {
	for range paces {
		hold, err := e.Acquire(ctx, lockserver.AcquireRequest{Lock: lock, Owner: "bench", Wait: time.Second})
		if err == nil {
			err = e.Release(ctx, hold.ID)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		done.Add(1)
	}
	return nil
}

// pace lets rate cycles a second begin until ctx ends; what cannot begin in time is
// not made up for.
func pace(ctx context.Context, rate int, paces chan<- struct{}) {
	defer close(paces)
	const tick = 5 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for range rate * int(tick) / int(time.Second) {
			select {
			case paces <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}
}

// watchFile prints the size of a file every growthLook until ctx ends.
func watchFile(ctx context.Context, file string, cycles *atomic.Int64, out io.Writer) error {
	fmt.Fprintf(out, "| s | cycles | cycles/s | file, MiB |\n| --: | --: | --: | --: |\n")
	begin, last := time.Now(), int64(0)
	look := time.NewTicker(growthLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-look.C:
			info, err := os.Stat(file)
			if err != nil {
				return err
			}
			n := cycles.Load()
			fmt.Fprintf(out, "| %.0f | %d | %.0f | %.0f |\n", now.Sub(begin).Seconds(), n,
				float64(n-last)/growthLook.Seconds(), float64(info.Size())/(1<<20))
			last = n
		}
	}
}
