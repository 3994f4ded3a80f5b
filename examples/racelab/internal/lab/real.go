//go:build unix

package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fenced/fenced/examples/racelab/internal/ledger"
	"github.com/fenced/fenced/examples/racelab/internal/lock"
	"github.com/fenced/fenced/examples/racelab/internal/plan"
	"github.com/fenced/fenced/examples/racelab/internal/stage"
)

// WorkerRole is the role, for [stage.ChildMain], of a process that is a worker.
const WorkerRole = "worker"

// The lines that lab and worker process exchange, each with a number:
//
//	lab -> worker   step N     do that step of the plan
//	worker -> lab   stall NS   stop me for that many nanoseconds, now
//	lab -> worker   go NS      you were stopped at that Unix time, and run again
//	worker -> lab   done N
//
// The worker ends with its input.
const (
	sayStep  = "step"
	sayStall = "stall"
	sayGo    = "go"
	sayDone  = "done"
)

// orders are what a worker process is told at its start.
type orders struct {
	Worker    string
	Way       Way
	Endpoints Endpoints
	Seed      uint64
	Size      plan.Size
	TTL       time.Duration
}

// WorkerMain is the life of a worker process.
func WorkerMain() (err error) {
	var o orders
	if err := json.Unmarshal([]byte(os.Args[1]), &o); err != nil {
		return fmt.Errorf("orders: %w", err)
	}
	ctx := context.Background()
	const conns = 2
	pool, err := stage.OpenPool(ctx, o.Endpoints.DSN, conns)
	if err != nil {
		return err
	}
	defer pool.Close()
	locker, err := o.Endpoints.maker(o.Way, o.TTL)(o.Worker, &lock.Gate{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close()) }()
	in := bufio.NewScanner(os.Stdin)
	w := &worker{name: o.Worker, prefix: string(o.Way) + "/", ledger: ledger.Open(pool, string(o.Way), o.Way.guard()), locker: locker}
	w.stall = func(_ context.Context, d time.Duration) (time.Time, error) {
		say(os.Stdout, sayStall, int64(d))
		ns, err := hear(in, sayGo)
		return time.Unix(0, ns), err
	}
	steps := plan.New(o.Seed, o.Size)
	for {
		n, err := hear(in, sayStep)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := w.do(ctx, steps[n]); err != nil {
			return err
		}
		say(os.Stdout, sayDone, n)
	}
}

// say writes one line. A lab that is gone takes the worker with it.
func say(w io.Writer, word string, n int64) { _, _ = fmt.Fprintln(w, word, n) }

func hear(in *bufio.Scanner, word string) (int64, error) {
	if !in.Scan() {
		return 0, errors.Join(io.EOF, in.Err())
	}
	return parse(in.Text(), word)
}

func parse(line, word string) (int64, error) {
	rest, ok := strings.CutPrefix(line, word+" ")
	if !ok {
		return 0, fmt.Errorf("got %q instead of %q", line, word)
	}
	return strconv.ParseInt(rest, 10, 64)
}

// processes is a crew of worker processes.
type processes []*process

type process struct {
	*stage.Process
	in    io.WriteCloser
	lines chan string
}

func (r *run) hire(w Way) (crew, error) {
	var all processes
	for i := range r.config.Workers {
		p, err := spawn(orders{
			Worker: workerName(i), Way: w, Endpoints: r.endpoints,
			Seed: r.config.Seed, Size: r.config.Size, TTL: r.config.TTL,
		})
		if err != nil {
			return nil, errors.Join(err, all.close())
		}
		all = append(all, p)
	}
	return all, nil
}

func spawn(o orders) (*process, error) {
	arg, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	cmd, err := stage.Child(WorkerRole, string(arg))
	if err != nil {
		return nil, err
	}
	p := &process{lines: make(chan string, 1)}
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.Process, err = stage.Spawn(cmd, func(line string) { p.lines <- line })
	return p, err
}

// do has a process do a step, and stops it where it asks for that.
func (all processes) do(ctx context.Context, worker int, step plan.Step) error {
	p := all[worker]
	say(p.in, sayStep, int64(step.N))
	for {
		select {
		case line := <-p.lines:
			if ns, err := parse(line, sayStall); err == nil {
				if err := p.stop(ctx, time.Duration(ns)); err != nil {
					return err
				}
				continue
			}
			_, err := parse(line, sayDone)
			return err
		case <-p.Ended():
			return p.Failure()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stop stops the process for d with SIGSTOP, which no code of it can notice.
func (p *process) stop(ctx context.Context, d time.Duration) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	stopped := time.Now()
	sleep(ctx, d)
	err := p.Signal(syscall.SIGCONT)
	say(p.in, sayGo, stopped.UnixNano())
	return err
}

// close ends the processes. Their sessions are closed by themselves, so that none
// of them outlives its way.
func (all processes) close() error {
	var err error
	for _, p := range all {
		err = errors.Join(err, p.in.Close())
	}
	for _, p := range all {
		select {
		case <-p.Ended():
		case <-time.After(2 * releaseLimit):
			p.Kill()
			err = errors.Join(err, fmt.Errorf("a worker did not end: %w", p.Failure()))
		}
	}
	return err
}
