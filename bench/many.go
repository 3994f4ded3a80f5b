package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// fill acquires n holds on locks with names that no fill had before, each with the
// TTL that ttl returns at that moment. It uses more connections than other loads,
// because it is not measured and the server batches what comes together.
func (s *suite) fill(ctx context.Context, addr string, n int, ttl func() time.Duration) error {
	first := s.filled.Add(int64(n)) - int64(n)
	var next atomic.Int64
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range min(n, 4*s.clients) {
		wg.Go(func() {
			c, err := dialHTTP(addr)
			if err != nil {
				cancel(err)
				return
			}
			defer c.close()
			for i := next.Add(1); i <= int64(n) && ctx.Err() == nil; i = next.Add(1) {
				if _, err := c.acquire(fmt.Sprintf("bench/many/%d", first+i), ttl()); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// memory weighs a server that holds many holds, each with a lease of its own.
func (s *suite) memory(ctx context.Context) error {
	var ready address
	p, err := s.role(roleServer, &ready)
	if err != nil {
		return err
	}
	defer p.stop()
	if err := firstGrant(ready.Addr); err != nil {
		return err
	}
	var idle, full memory
	if err := p.ask(&idle, "memory"); err != nil {
		return err
	}
	if err := p.ask(nil, "hold %d", s.holds); err != nil {
		return err
	}
	if err := p.ask(&full, "memory"); err != nil {
		return err
	}
	n := float64(s.holds)
	s.report.figure("kib_per_hold", series{(full.HeapKiB - idle.HeapKiB) / n})
	s.report.figure("resident_kib_per_hold", series{(full.ResidentKiB - idle.ResidentKiB) / n})
	s.report.figure("idle_heap_kib", series{idle.HeapKiB})
	return nil
}

const (
	// probes are the clients that acquire and release while the holds expire.
	probes = 8
	// idleTime is how long they do so before, for comparison.
	idleTime = time.Second
	// expiryLimit ends a measurement in which holds stay.
	expiryLimit = 30 * time.Second
)

// fillTogether acquires n holds and returns the moment at which they all end. How
// long acquiring takes it learns from a tenth of them, and where that was too little
// from all of them.
func (s *suite) fillTogether(ctx context.Context, addr string, n int) (end time.Time, err error) {
	begin := time.Now()
	if err := s.fill(ctx, addr, n/10, func() time.Duration { return time.Second }); err != nil {
		return time.Time{}, err
	}
	expected := 13 * time.Since(begin)
	const tries = 3
	for range tries {
		begin = time.Now()
		end = begin.Add(expected + time.Second)
		err := s.fill(ctx, addr, n, func() time.Duration {
			return max(time.Until(end), time.Second).Round(time.Millisecond)
		})
		if err != nil || time.Now().Before(end) {
			return end, err
		}
		expected = 2 * time.Since(begin)
	}
	return end, errors.New("acquiring the holds takes longer each time")
}

// expiry lets many holds of callers that are gone expire at the same moment, and
// looks how long others wait for their locks meanwhile and when the last is gone.
func (s *suite) expiry(ctx context.Context) error {
	p, addr, err := s.spawnFenced(ctx)
	if err != nil {
		return err
	}
	defer p.stop()
	clients, err := dialProbes(addr)
	if err != nil {
		return err
	}
	defer clients.close()
	idle, err := clients.drive(ctx, idleTime)
	if err != nil {
		return err
	}
	end, err := s.fillTogether(ctx, addr, s.expire)
	if err != nil {
		return err
	}
	return s.watchExpiry(ctx, addr, end, idle, clients)
}

func (s *suite) watchExpiry(ctx context.Context, addr string, end time.Time, idle time.Duration, clients probeClients) error {
	wait := time.NewTimer(time.Until(end))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	gone := make(chan error, 1)
	probing, stop := context.WithCancel(ctx)
	defer stop()
	var last time.Duration
	go func() {
		err := waitGone(ctx, addr)
		last = time.Since(end)
		gone <- err
		stop()
	}()
	busy, err := clients.driveUntil(probing)
	if err := errors.Join(<-gone, err); err != nil {
		return err
	}
	s.report.figure("expiry_last_gone_s", series{last.Seconds()})
	s.report.figure("expiry_idle_p99_us", series{micros(idle)})
	s.report.figure("expiry_busy_p99_us", series{micros(busy)})
	s.report.ratio("expiry_p99_vs_idle", series{micros(busy)}, series{micros(idle)})
	return nil
}

// waitGone returns when no holds are left but those of the probes.
func waitGone(ctx context.Context, addr string) error {
	c, err := dialHTTP(addr)
	if err != nil {
		return err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, expiryLimit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		status, err := readStatus(c)
		if err != nil || status.Holds <= probes {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d holds are left: %w", status.Holds, context.Cause(ctx))
		}
	}
}

// probeClients measure how long an acquire takes.
type probeClients []*httpConn

func dialProbes(addr string) (probeClients, error) {
	var p probeClients
	for range probes {
		c, err := dialServed(addr)
		if err != nil {
			p.close()
			return nil, err
		}
		p = append(p, c)
	}
	return p, nil
}

func (p probeClients) close() {
	for _, c := range p {
		c.close()
	}
}

// drive returns the p99 of acquires within d.
func (p probeClients) drive(ctx context.Context, d time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return p.driveUntil(ctx)
}

// driveUntil returns the p99 of acquires until ctx ends.
func (p probeClients) driveUntil(ctx context.Context) (time.Duration, error) {
	times := make([][]time.Duration, len(p))
	errs := make([]error, len(p))
	var wg sync.WaitGroup
	for i, c := range p {
		wg.Go(func() { times[i], errs[i] = probe(ctx, c, fmt.Sprintf("bench/probe/%d", i)) })
	}
	wg.Wait()
	var all []time.Duration
	for _, t := range times {
		all = append(all, t...)
	}
	return quantile(all, 0.99), errors.Join(errs...)
}

func probe(ctx context.Context, c *httpConn, lock string) (times []time.Duration, err error) {
	for ctx.Err() == nil {
		begin := time.Now()
		hold, err := acquireAtLast(ctx, c, lock)
		if err != nil {
			return nil, err
		}
		times = append(times, time.Since(begin))
		if err := c.release(hold); err != nil {
			return nil, err
		}
	}
	return times, nil
}

// acquireAtLast asks again where the server cannot answer for now; what that takes
// is part of how long the acquire took.
func acquireAtLast(ctx context.Context, c *httpConn, lock string) (string, error) {
	for {
		hold, err := c.acquire(lock, benchTTL)
		var refused *statusError
		if !errors.As(err, &refused) || refused.status != http.StatusServiceUnavailable || ctx.Err() != nil {
			return hold, err
		}
	}
}
