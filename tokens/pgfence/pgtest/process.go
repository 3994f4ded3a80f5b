//go:build unix

package pgtest

import (
	"bytes"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is one run of the server binary.
type process struct {
	cmd  *exec.Cmd
	log  *logTail
	done chan struct{} // closed when the process is gone
}

// spawn starts the server. The goroutine keeps its thread until the process is
// gone, because a parent-death signal is sent when the starting *thread* ends.
func spawn(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, log: newLogTail(), done: make(chan struct{})}
	cmd.Stderr = p.log
	// Children of a killed server can keep the pipe open a moment longer.
	cmd.WaitDelay = 5 * time.Second
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended stands in the log
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// stop sends sig and waits until the process is gone.
func (p *process) stop(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig) // errs only when it is gone already
	<-p.done
}

// processAttr is how every binary of the server is started: away from the
// terminal's process group, so that Ctrl-C reaches only the program that owns
// the server, and without root's rights.
func processAttr(as *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if as != nil {
		attr.Credential = &syscall.Credential{Uid: as.uid, Gid: as.gid}
	}
	dieWithParent(attr)
	return attr
}

// readyLine is what the server logs once it takes connections. Its language is
// fixed by initdb's --no-locale.
const readyLine = "database system is ready to accept connections"

// logTail keeps the end of a server's log for error messages, and says when the
// server is ready.
type logTail struct {
	ready chan struct{}

	mu   sync.Mutex
	tail []byte
	seen bool
}

const logTailLen = 4 << 10

func newLogTail() *logTail { return &logTail{ready: make(chan struct{})} }

func (l *logTail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = append(l.tail, p...)
	if !l.seen && bytes.Contains(l.tail, []byte(readyLine)) {
		l.seen = true
		close(l.ready)
	}
	if over := len(l.tail) - logTailLen; over > 0 {
		l.tail = append(l.tail[:0], l.tail[over:]...)
	}
	return len(p), nil
}

func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSpace(string(l.tail))
}
