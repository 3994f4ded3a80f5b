package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/internal/freeport"
)

// scale is how much a run does.
type scale struct {
	rounds int
	round  time.Duration
	warm   time.Duration // load on each peer before its first round

	clients int // of "64 clients"
	engine  int // of "256 clients"
	waiters int // of "10,000 waiters"
	holds   int // of "at 100,000"
	expire  int // of "20,000 holds"
	starts  int
}

var (
	fullScale = scale{
		rounds: 5, round: 900 * time.Millisecond, warm: 2 * time.Second,
		clients: 64, engine: 256, waiters: 10_000, holds: 100_000, expire: 20_000, starts: 5,
	}
	quickScale = scale{
		rounds: 3, round: 120 * time.Millisecond, warm: 120 * time.Millisecond,
		clients: 64, engine: 256, waiters: 10_000, holds: 100_000, expire: 20_000, starts: 3,
	}
)

// missingError says that a peer is not installed: no fault, only a null.
type missingError struct{ peer, why string }

func (e *missingError) Error() string { return e.peer + " is left out: " + e.why }

func missing(peer, why string) error { return &missingError{peer, why} }

// suite is one run.
type suite struct {
	scale
	report *report
	log    io.Writer
	dir    string // for all data
	binary string // of fenced

	// The servers that most groups use; an empty address is a peer that is missing.
	etcd, fenced, zookeeper, redis string

	mu    sync.Mutex
	procs []*process
	dirs  int

	filled atomic.Int64 // names of locks that fill has used
}

// measure is one thing that is measured in rounds.
type measure struct {
	name string
	once func(ctx context.Context, d time.Duration) (float64, error)
}

// newSuite builds fenced and starts the peers. Close must follow, also after an
// error.
func newSuite(ctx context.Context, sc scale, rep *report, log io.Writer, dir string) (*suite, error) {
	s := &suite{scale: sc, report: rep, log: log, dir: dir, binary: filepath.Join(dir, "fenced")}
	begin := time.Now()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", s.binary, "github.com/fenced/fenced/cmd/fenced")
	if out, err := cmd.CombinedOutput(); err != nil {
		return s, fmt.Errorf("build fenced: %w: %s", err, out)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	starts := []func() error{
		func() (err error) { s.etcd, err = s.startRole(roleEtcd); return err },
		func() (err error) { s.fenced, err = s.startFenced(ctx); return err },
		func() (err error) { s.zookeeper, err = s.startPeer(ctx, startZooKeeper); return err },
		func() (err error) { s.redis, err = s.startPeer(ctx, startRedis); return err },
	}
	errs := make([]error, len(starts))
	var wg sync.WaitGroup
	for i, start := range starts {
		wg.Go(func() { errs[i] = start() })
	}
	wg.Wait()
	s.tell("setup", begin)
	for i, err := range errs {
		if s.leftOut(err) {
			errs[i] = nil
		}
	}
	return s, errors.Join(errs...)
}

// tell notes how long a part took.
func (s *suite) tell(part string, begin time.Time) {
	fmt.Fprintf(s.log, "%-9s %5.1f s\n", part, time.Since(begin).Seconds())
}

// leftOut notes an error that only says that something is not installed.
func (s *suite) leftOut(err error) bool {
	var m *missingError
	if !errors.As(err, &m) {
		return false
	}
	fmt.Fprintln(s.log, m)
	s.report.Left = append(s.report.Left, m.Error())
	return true
}

// close ends all servers.
func (s *suite) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range slices.Backward(s.procs) {
		p.stop()
	}
	s.procs = nil
}

func (s *suite) keep(p *process) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.procs = append(s.procs, p)
	return p
}

// newDir makes a directory for one server.
func (s *suite) newDir(name string) (string, error) {
	s.mu.Lock()
	s.dirs++
	dir := filepath.Join(s.dir, fmt.Sprintf("%s-%d", name, s.dirs))
	s.mu.Unlock()
	return dir, os.Mkdir(dir, 0o700)
}

func (s *suite) startRole(role string) (addr string, err error) {
	var ready address
	_, err = s.role(role, &ready)
	return ready.Addr, err
}

// role starts one of this binary's own servers.
func (s *suite) role(role string, ready any) (*process, error) {
	dir, err := s.newDir(role)
	if err != nil {
		return nil, err
	}
	p, err := spawnRole(role, dir, ready)
	if err != nil {
		return nil, err
	}
	return s.keep(p), nil
}

func (s *suite) startPeer(ctx context.Context, start func(context.Context, string) (*process, string, error)) (string, error) {
	dir, err := s.newDir("peer")
	if err != nil {
		return "", err
	}
	p, addr, err := start(ctx, dir)
	if err != nil {
		return "", err
	}
	s.keep(p)
	return addr, nil
}

// startFenced starts the real binary with default settings on a fresh directory
// and returns its address once it has granted.
func (s *suite) startFenced(ctx context.Context) (string, error) {
	p, addr, err := s.spawnFenced(ctx)
	if err != nil {
		return "", err
	}
	s.keep(p)
	return addr, nil
}

func (s *suite) spawnFenced(ctx context.Context) (*process, string, error) {
	dir, err := s.newDir("fenced")
	if err != nil {
		return nil, "", err
	}
	addr, err := freeport.Addr()
	if err != nil {
		return nil, "", err
	}
	p, err := spawn("fenced", exec.Command(s.binary, "serve", "--listen", addr, "--data-dir", filepath.Join(dir, "data")))
	if err != nil {
		return nil, "", err
	}
	err = p.waitFor(ctx, 2*time.Millisecond, func() error { return firstGrant(addr) })
	if err != nil {
		p.stop()
		return nil, "", err
	}
	return p, addr, nil
}

// firstGrant acquires and releases one lock on a new connection.
func firstGrant(addr string) error {
	c, err := dialHTTP(addr)
	if err != nil {
		return err
	}
	defer c.close()
	return c.cycle(context.Background(), "bench/first")
}

// measureAll runs the measures in rounds that take turns, every other round
// backwards, and notes each as a figure.
func (s *suite) measureAll(ctx context.Context, measures []measure) (map[string]series, error) {
	all := make(map[string]series, len(measures))
	for round := range s.rounds {
		for i := range measures {
			m := measures[i]
			if round%2 == 1 {
				m = measures[len(measures)-1-i]
			}
			v, err := m.once(ctx, s.round)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
			all[m.name] = append(all[m.name], v)
		}
	}
	for name, values := range all {
		s.report.figure(name, values)
	}
	return all, nil
}
