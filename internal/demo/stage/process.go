//go:build linux

package stage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenced/fenced/examples/rewards"
)

// A Process is one program on the stage.
type Process struct {
	// Name is what messages call it.
	Name string
	// Pid is its process id.
	Pid int

	cmd    *exec.Cmd
	ended  chan struct{}
	mu     sync.Mutex
	lines  []string
	closed bool          // no line can come any more
	news   chan struct{} // closed when lines or closed change
	err    error         // of the exit; set before ended closes
	stderr strings.Builder
}

// start runs a program until it ends or [Process.Kill] is called.
func start(name, bin string, args ...string) (*Process, error) {
	p := &Process{Name: name, cmd: exec.Command(bin, args...), ended: make(chan struct{}), news: make(chan struct{})}
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = attributes()
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go p.run(started, stdout)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.Pid = p.cmd.Process.Pid
	return p, nil
}

// run starts and reaps the program on one thread, because a parent-death signal is
// sent when the thread ends that started the child.
func (p *Process) run(started chan<- error, stdout io.Reader) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		p.append(lines.Text(), false)
	}
	p.append("", true)
	if err := p.cmd.Wait(); err != nil {
		p.err = fmt.Errorf("%s: %w\n%s", p.Name, err, strings.TrimSpace(p.stderr.String()))
	}
	close(p.ended)
}

func (p *Process) append(line string, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed = last; !last {
		p.lines = append(p.lines, line)
	}
	close(p.news)
	p.news = make(chan struct{})
}

// WaitLine returns the first line of the output, from its beginning, that matches.
// It blocks until there is one, the output ends, or ctx does.
func (p *Process) WaitLine(ctx context.Context, match func(string) bool) (string, error) {
	for seen := 0; ; {
		p.mu.Lock()
		lines, closed, news := p.lines[seen:], p.closed, p.news
		seen = len(p.lines)
		p.mu.Unlock()
		for _, line := range lines {
			if match(line) {
				return line, nil
			}
		}
		if closed {
			return "", errors.Join(fmt.Errorf("%s ended without the awaited line", p.Name), p.Wait(ctx))
		}
		select {
		case <-news:
		case <-ctx.Done():
			return "", fmt.Errorf("%s has not printed the awaited line: %w", p.Name, context.Cause(ctx))
		}
	}
}

// WaitRecord is [Process.WaitLine] for the records of rewardctl.
func (p *Process) WaitRecord(ctx context.Context, match func(rewards.Record) bool) (rewards.Record, error) {
	var found rewards.Record
	_, err := p.WaitLine(ctx, func(line string) bool {
		r, ok := record(line)
		if ok && match(r) {
			found = r
			return true
		}
		return false
	})
	return found, err
}

// Records returns the records printed so far.
func (p *Process) Records() []rewards.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []rewards.Record
	for _, line := range p.lines {
		if r, ok := record(line); ok {
			all = append(all, r)
		}
	}
	return all
}

func record(line string) (r rewards.Record, ok bool) {
	return r, json.Unmarshal([]byte(line), &r) == nil
}

// Signal sends sig, for example SIGSTOP and SIGCONT. A process that is gone gives
// [os.ErrProcessDone].
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("%s: send %v: %w", p.Name, sig, err)
	}
	return nil
}

// WaitStopped returns when the process has been stopped by a signal: from then on
// none of its threads runs. It blocks until that, the end of the process, or the
// end of ctx.
func (p *Process) WaitStopped(ctx context.Context) error {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, p.Pid, &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("%s: wait for its stop: %w", p.Name, err)
		}
		if err == nil && info.Signo == int32(unix.SIGCHLD) {
			return nil
		}
		// The kernel tells a parent of a stop only by SIGCHLD, which the runtime
		// has; asking again is simpler than sharing it.
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s is not stopped: %w", p.Name, context.Cause(ctx))
		}
	}
}

// Wait returns when the process is gone: nil where it exited with 0, else an error
// that holds its stderr. It blocks until then, or until ctx ends.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.ended:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("%s still runs: %w", p.Name, context.Cause(ctx))
	}
}

// Ended reports whether the process is gone.
func (p *Process) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Kill ends the process at once, also a stopped one, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it errs only where the process is gone
	<-p.ended
}

// Terminate asks the process to end and waits until it has, or until ctx ends.
func (p *Process) Terminate(ctx context.Context) error {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return p.Wait(ctx)
}
