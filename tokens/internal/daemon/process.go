//go:build unix

package daemon

import (
	"bytes"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is one run of a server binary.
type Process struct {
	// Log keeps the end of what the server wrote to its standard error.
	Log *Log
	// Done is closed when the process is gone.
	Done chan struct{}

	cmd *exec.Cmd
}

// Spawn starts the server, which is ready once it logs readyLine. The goroutine
// keeps its thread until the process is gone, because a parent-death signal is
// sent when the starting *thread* ends.
func Spawn(cmd *exec.Cmd, readyLine string) (*Process, error) {
	p := &Process{cmd: cmd, Log: newLog(readyLine), Done: make(chan struct{})}
	cmd.Stderr = p.Log
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
			close(p.Done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Stop sends sig and waits until the process is gone.
func (p *Process) Stop(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig) // errs only when it is gone already
	<-p.Done
}

// Attr is how every binary of a server is started: away from the terminal's
// process group, so that Ctrl-C reaches only the program that owns the server,
// and as the given user. On Linux the kernel sends it death when the thread that
// started it is gone; [Spawn] keeps that thread for as long as the server runs.
func Attr(as *Account, death syscall.Signal) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if as != nil {
		attr.Credential = &syscall.Credential{Uid: as.UID, Gid: as.GID}
	}
	dieWithParent(attr, death)
	return attr
}

// Log keeps the end of a server's log for error messages, and says when the
// server is ready.
type Log struct {
	// Ready is closed when the server has logged that it takes connections.
	Ready chan struct{}

	readyLine []byte

	mu   sync.Mutex
	tail []byte
	seen bool
}

const logLen = 4 << 10

func newLog(readyLine string) *Log {
	return &Log{Ready: make(chan struct{}), readyLine: []byte(readyLine)}
}

// Write takes what the server logs.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = append(l.tail, p...)
	if !l.seen && bytes.Contains(l.tail, l.readyLine) {
		l.seen = true
		close(l.Ready)
	}
	if over := len(l.tail) - logLen; over > 0 {
		l.tail = append(l.tail[:0], l.tail[over:]...)
	}
	return len(p), nil
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSpace(string(l.tail))
}
