//go:build unix

package stage

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// A Redis is a running redis-server.
type Redis struct {
	// Addr is its host and port.
	Addr string

	bin, dir string
	process  *Process
}

// startRedis starts a redis-server with its data in dir.
func startRedis(ctx context.Context, bin, dir string) (*Redis, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	r := &Redis{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), bin: bin, dir: dir}
	return r, r.start(ctx)
}

func (r *Redis) start(ctx context.Context) error {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(r.Addr)
	p, err := Spawn(exec.Command(r.bin, "--bind", host, "--port", port, "--dir", r.dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", "always"), nil)
	if err != nil {
		return err
	}
	r.process = p
	if err := p.waitPort(ctx, r.Addr); err != nil {
		p.Kill()
		return err
	}
	return nil
}

// Pause stops the server where it stands; Resume lets it go on.
func (r *Redis) Pause() error { return r.process.Signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (r *Redis) Resume() error { return r.process.Signal(syscall.SIGCONT) }

// Wipe restarts the server without its data, as a machine that has lost its disk,
// or a Redis without persistence, comes back.
func (r *Redis) Wipe(ctx context.Context) error {
	r.process.Kill()
	if err := os.RemoveAll(r.dir); err != nil {
		return err
	}
	return r.start(ctx)
}

// waitPort returns when addr takes connections.
func (p *Process) waitPort(ctx context.Context, addr string) error {
	const between = 10 * time.Millisecond
	for {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.ended:
			return p.Failure()
		case <-ctx.Done():
			return fmt.Errorf("%s does not listen: %w", p.cmd.Path, context.Cause(ctx))
		case <-time.After(between):
		}
	}
}

// freePort is free now; nothing keeps it so.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
