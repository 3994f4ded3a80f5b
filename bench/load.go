package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// locker is one client with a connection of its own.
type locker interface {
	// cycle acquires the lock, waiting for its turn, and releases it.
	cycle(ctx context.Context, lock string) error
	close()
}

// load is what the clients did in one round.
type load struct {
	rate  float64 // cycles a second
	count float64
	times []time.Duration
}

// p50 is in microseconds.
func (l load) p50() float64 { return micros(quantile(l.times, 0.5)) }

// drive calls each function again and again for d, each in a goroutine of its own,
// and waits for the last call to return. A call that ends later counts with the
// part of it that lay within d, so that calls as long as d count right too. The
// first error ends it.
func drive(ctx context.Context, d time.Duration, calls []func(context.Context) error) (load, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	loads := make([]load, len(calls))
	var wg sync.WaitGroup
	end := time.Now().Add(d)
	for i, call := range calls {
		wg.Go(func() {
			var err error
			if loads[i], err = repeat(ctx, end, call); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return load{}, err
	}
	var all load
	for _, l := range loads {
		all.count += l.count
		all.times = append(all.times, l.times...)
	}
	all.rate = all.count / d.Seconds()
	return all, nil
}

// repeat is the work of one client.
func repeat(ctx context.Context, end time.Time, call func(context.Context) error) (load, error) {
	var l load
	for start := time.Now(); start.Before(end) && ctx.Err() == nil; {
		if err := call(ctx); err != nil {
			return l, err
		}
		now := time.Now()
		took := now.Sub(start)
		l.times = append(l.times, took)
		l.count += min(1, float64(end.Sub(start))/float64(took))
		start = now
	}
	return l, nil
}

// ownLocks lets each client cycle on a lock of its own.
func ownLocks(clients []locker) []func(context.Context) error {
	calls := make([]func(context.Context) error, len(clients))
	for i, c := range clients {
		lock := fmt.Sprintf("bench/own/%d", i)
		calls[i] = func(ctx context.Context) error { return c.cycle(ctx, lock) }
	}
	return calls
}

// oneLock lets all clients cycle on the same lock.
func oneLock(clients []locker) []func(context.Context) error {
	lock := fmt.Sprintf("bench/shared/%d", len(clients))
	calls := make([]func(context.Context) error, len(clients))
	for i, c := range clients {
		calls[i] = func(ctx context.Context) error { return c.cycle(ctx, lock) }
	}
	return calls
}
