//go:build unix

package stage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

// A Process is a child of this one.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // of the exit; set before ended closes

	mu   sync.Mutex
	tail []string // the last lines it wrote to stderr and, where nobody reads it, stdout
}

// tailLines is how much of a process's output an error message carries.
const tailLines = 20

// Spawn starts cmd. Each line of its stdout goes to line, which may be nil.
func Spawn(cmd *exec.Cmd, line func(string)) (*Process, error) {
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	if line == nil {
		line = p.keep
	}
	cmd.SysProcAttr = attributes()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	errs, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go p.run(started, out, line, errs)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// run starts and reaps on one thread, because a parent-death signal is sent when
// the thread ends that started the child.
func (p *Process) run(started chan<- error, out io.Reader, line func(string), errs io.Reader) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	var readers sync.WaitGroup
	readers.Go(func() { scan(out, line) })
	readers.Go(func() { scan(errs, p.keep) })
	readers.Wait()
	p.err = p.cmd.Wait()
	close(p.ended)
}

func scan(r io.Reader, line func(string)) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		line(lines.Text())
	}
}

func (p *Process) keep(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tail = append(p.tail, line)
	if len(p.tail) > tailLines {
		p.tail = p.tail[1:]
	}
}

// Ended is closed when the process is gone.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Failure says how the process, which has ended, did so, with the end of its output.
func (p *Process) Failure() error {
	<-p.ended
	p.mu.Lock()
	defer p.mu.Unlock()
	cause := p.err
	if cause == nil {
		cause = errors.New("it exited")
	}
	return fmt.Errorf("%s: %w\n%s", p.cmd.Path, cause, strings.Join(p.tail, "\n"))
}

// Signal sends sig. A process that is gone gives os.ErrProcessDone.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Kill ends the process at once, also a stopped one, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it errs only where the process is gone
	<-p.ended
}

// spawnListening starts cmd and returns what follows "listens on " in its output,
// where the program says so.
func spawnListening(ctx context.Context, cmd *exec.Cmd) (*Process, string, error) {
	found := make(chan string, 1)
	p, err := Spawn(cmd, func(line string) {
		if _, addr, ok := strings.Cut(line, "listens on "); ok {
			select {
			case found <- addr:
			default:
			}
		}
	})
	if err != nil {
		return nil, "", err
	}
	select {
	case addr := <-found:
		return p, addr, nil
	case <-p.ended:
		return nil, "", p.Failure()
	case <-ctx.Done():
		p.Kill()
		return nil, "", fmt.Errorf("%s does not listen: %w", cmd.Path, context.Cause(ctx))
	}
}
