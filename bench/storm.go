package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// storm sends mixed requests, valid and not, at a rate, and counts what comes back.
type storm struct {
	addr    string
	rate    float64 // requests a second
	clients int

	// callers are kept from one blow to the next, so that what they hold goes on.
	callers []*caller
}

// tally is what came back.
type tally struct {
	sent     int
	statuses map[int]int // 0 is a connection that was closed without an answer
	faults   []string    // answers that no request of their kind may get; the first few
	wrong    int         // how many there were
	times    []time.Duration
}

const faultsKept = 10

func newTally() *tally { return &tally{statuses: map[int]int{}} }

func (t *tally) add(o *tally) {
	t.sent += o.sent
	t.wrong += o.wrong
	t.times = append(t.times, o.times...)
	t.faults = append(t.faults, o.faults...)
	t.faults = t.faults[:min(len(t.faults), faultsKept)]
	for status, n := range o.statuses {
		t.statuses[status] += n
	}
}

func newStorm(addr string, rate float64, clients int) *storm {
	s := &storm{addr: addr, rate: rate, clients: clients}
	for i := range clients {
		s.callers = append(s.callers, &caller{addr: addr, random: rand.New(rand.NewPCG(1, uint64(i)))})
	}
	return s
}

// blow sends for d. Each request has its moment; a client that is late sends at
// once, so that a server that answers late gets no less.
func (s *storm) blow(ctx context.Context, d time.Duration) (*tally, error) {
	var next atomic.Int64
	start := time.Now()
	tallies, errs := make([]*tally, s.clients), make([]error, s.clients)
	var all sync.WaitGroup
	for i, c := range s.callers {
		tallies[i] = newTally()
		c.tally = tallies[i]
		all.Go(func() {
			for ctx.Err() == nil && errs[i] == nil {
				at := time.Duration(float64(next.Add(1)) / s.rate * float64(time.Second))
				if at > d || time.Since(start) > d {
					return
				}
				time.Sleep(at - time.Since(start))
				errs[i] = c.step()
			}
		})
	}
	all.Wait()
	sum := newTally()
	for _, t := range tallies {
		sum.add(t)
	}
	return sum, errors.Join(append(errs, context.Cause(ctx))...)
}

// close leaves everything as it is, as a process that dies would.
func (s *storm) close() {
	for _, c := range s.callers {
		c.hangUp()
	}
}

// caller is one client of a storm with a connection of its own.
type caller struct {
	addr   string
	random *rand.Rand
	tally  *tally

	conn net.Conn
	in   *bufio.Reader

	lock, hold string // what it holds, "" for nothing
	token      int64
	session    string
}

// callTimeout is above the longest wait that a storm asks for.
const callTimeout = 20 * time.Second

// step sends one request of some kind and looks at the answer. It errs where there
// can be no next one.
func (c *caller) step() error {
	k := c.choose()
	request := k.request(c)
	begin := time.Now()
	status, body, err := c.exchange(request)
	took := time.Since(begin)
	if err != nil && (!k.cut || errors.Is(err, os.ErrDeadlineExceeded)) {
		return fmt.Errorf("%s: %w", k.name, err)
	}
	c.tally.sent++
	c.tally.statuses[status]++
	c.tally.times = append(c.tally.times, took)
	if !k.allows(status) {
		c.tally.wrong++
		if len(c.tally.faults) < faultsKept {
			c.tally.faults = append(c.tally.faults, fmt.Sprintf("%s: status %d: %.300s", k.name, status, body))
		}
	}
	if k.got != nil {
		k.got(c, status, body)
	}
	if k.leaves {
		c.hangUp()
	}
	return nil
}

// exchange sends a request and reads its answer; status 0 stands for none. A server
// may have closed an idle connection, so a fresh one is tried after that.
func (c *caller) exchange(request string) (status int, body []byte, err error) {
	for range 2 {
		fresh := c.conn == nil
		if fresh {
			if c.conn, err = net.Dial("tcp", c.addr); err != nil {
				return 0, nil, err
			}
			c.in = bufio.NewReader(c.conn)
		}
		if status, body, err = c.ask(request); err == nil || fresh {
			break
		}
		c.hangUp()
	}
	if err != nil {
		c.hangUp()
	}
	return status, body, err
}

func (c *caller) ask(request string) (status int, body []byte, err error) {
	if err := c.conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return 0, nil, err
	}
	if _, err := io.WriteString(c.conn, request); err != nil {
		return 0, nil, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, nil, err
	}
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		return resp.StatusCode, nil, nil // it has no end
	}
	body, err = io.ReadAll(resp.Body)
	if resp.Close {
		c.hangUp()
	}
	return resp.StatusCode, body, errors.Join(err, resp.Body.Close())
}

func (c *caller) hangUp() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}
