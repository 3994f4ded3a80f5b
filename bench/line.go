package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// line is a queue for one lock that never ends: each client acquires, releases and
// queues again. While it is paused its holder keeps the lock, so that the queue
// stays as long as it is.
type line struct {
	addr  string
	conns []*httpConn
	wg    sync.WaitGroup
	fail  chan error

	// mu is held by whoever is between a grant and the release, and by the
	// measurement while the line is paused.
	mu       sync.Mutex
	released time.Time // when the last release was sent
	times    []time.Duration
}

// lineTTL outlasts every pause: a paused holder does not renew.
const lineTTL = 5 * time.Minute

// newLine starts n clients on lock and returns with the line paused and n-1
// clients waiting. close must follow.
func newLine(ctx context.Context, addr, lock string, n int) (*line, error) {
	l := &line{addr: addr, fail: make(chan error, n)}
	l.mu.Lock()
	for range n {
		c, err := dialHTTP(addr)
		if err != nil {
			l.close()
			return nil, err
		}
		l.conns = append(l.conns, c)
		l.wg.Go(func() { l.fail <- l.client(c, lock) })
	}
	if err := l.full(ctx, n-1); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// client works until its connection is closed.
func (l *line) client(c *httpConn, lock string) error {
	for {
		hold, err := c.acquire(lock, lineTTL)
		if err != nil {
			return err
		}
		granted := time.Now()
		l.mu.Lock()
		if !l.released.IsZero() {
			l.times = append(l.times, granted.Sub(l.released))
		}
		l.released = time.Now()
		l.mu.Unlock()
		if err := c.release(hold); err != nil {
			return err
		}
	}
}

// full waits until as many clients wait as should.
func (l *line) full(ctx context.Context, waiters int) error {
	c, err := dialHTTP(l.addr)
	if err != nil {
		return err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		status, err := readStatus(c)
		if err != nil || status.Waiters >= waiters {
			return err
		}
		select {
		case <-tick.C:
		case err := <-l.fail:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%d of %d wait: %w", status.Waiters, waiters, context.Cause(ctx))
		}
	}
}

// round lets the line move for d, or longer until there is a hand-over, and returns
// for how long it moved and the hand-overs, from the sending of a release to the
// reading of the next grant.
func (l *line) round(ctx context.Context, d time.Duration) (moved time.Duration, times []time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(d)
	defer tick.Stop()
	l.times = nil
	begin := time.Now()
	for err == nil && len(l.times) == 0 {
		l.mu.Unlock()
		select {
		case <-tick.C:
		case err = <-l.fail:
		case <-ctx.Done():
			err = fmt.Errorf("no hand-over: %w", context.Cause(ctx))
		}
		l.mu.Lock()
	}
	return time.Since(begin), l.times, err
}

// close cuts all connections; the server drops their places.
func (l *line) close() {
	for _, c := range l.conns {
		c.close()
	}
	l.mu.Unlock()
	l.wg.Wait()
}

// serverStatus is what the benchmark reads of GET /v1/status.
type serverStatus struct {
	Holds   int `json:"holds"`
	Waiters int `json:"waiters"`
}

func readStatus(c *httpConn) (serverStatus, error) {
	var s serverStatus
	status, body, err := c.do("GET", "/v1/status", "")
	if err == nil && status != http.StatusOK {
		err = &statusError{"status", status, string(body)}
	}
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	return s, err
}

// handover measures the hand-over beside one put of etcd.
func (s *suite) handover(ctx context.Context) error {
	l, err := newLine(ctx, s.fenced, "bench/line", s.clients+1)
	if err != nil {
		return err
	}
	defer l.close()
	raw, err := newRaw(s.etcd)
	if err != nil {
		return err
	}
	defer raw.close()
	put := func(ctx context.Context) error { return raw.put(ctx, "bench/put") }
	got, err := s.measureAll(ctx, []measure{
		{"handover64_us", func(ctx context.Context, d time.Duration) (float64, error) {
			_, times, err := l.round(ctx, d)
			return micros(quantile(times, 0.5)), err
		}},
		{"etcd_put_us", func(ctx context.Context, d time.Duration) (float64, error) {
			load, err := drive(ctx, d, []func(context.Context) error{put})
			return load.p50(), err
		}},
	})
	if err != nil {
		return err
	}
	s.report.ratio("handover_vs_put", got["handover64_us"], got["etcd_put_us"])
	return nil
}

// crowd compares the cost of a hand-over, as time over hand-overs, in a long line
// with that in a short one. The lines are on servers of their own.
func (s *suite) crowd(ctx context.Context) error {
	const few = 10
	var measures []measure
	for _, n := range []int{few, s.waiters} {
		p, addr, err := s.spawnFenced(ctx)
		if err != nil {
			return err
		}
		defer p.stop()
		l, err := newLine(ctx, addr, "bench/line", n+1)
		if err != nil {
			return fmt.Errorf("%d waiters: %w", n, err)
		}
		defer l.close()
		measures = append(measures, measure{lineName(n), func(ctx context.Context, d time.Duration) (float64, error) {
			moved, times, err := l.round(ctx, d)
			return micros(moved) / float64(len(times)), err
		}})
	}
	got, err := s.measureAll(ctx, measures)
	if err != nil {
		return err
	}
	s.report.ratio("handover_10000_vs_10", got[lineName(s.waiters)], got[lineName(few)])
	return nil
}

func lineName(waiters int) string { return fmt.Sprintf("handover_cost_%d_waiters_us", waiters) }
