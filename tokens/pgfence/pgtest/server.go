//go:build unix

package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/fenced/fenced/tokens/internal/daemon"
)

// Options are the settings of a [Server]. Nil means defaults.
type Options struct {
	// Settings are server parameters as in postgresql.conf, for example
	// {"max_prepared_transactions": "4"}. They come after the defaults fsync=off,
	// full_page_writes=off and TimeZone=UTC, and may override these.
	Settings map[string]string

	_ struct{}
}

// readyLine is what the server logs once it takes connections. Its language is
// fixed by initdb's --no-locale.
const readyLine = "database system is ready to accept connections"

// superuser is the name of the one role of a fresh server.
const superuser = "postgres"

// A Server is one running PostgreSQL with a directory of its own.
type Server struct {
	bin      string
	dir      string // holds data/ and the unix socket
	as       *daemon.Account
	port     int
	password string
	settings map[string]string

	mu   sync.Mutex      // held over starting and stopping, so that these never overlap
	proc *daemon.Process // nil while it is down
}

// Start makes a fresh server and returns when it takes connections, in about a
// second. The end of ctx gives up starting; it does not end a server that runs.
// The caller must call [Server.Stop].
func Start(ctx context.Context, opts *Options) (*Server, error) {
	if opts == nil {
		opts = &Options{}
	}
	bin, err := binDir()
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	as, err := daemon.Unprivileged("postgres", "nobody") // one of them exists on nearly every system
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	s := &Server{bin: bin, as: as, password: rand.Text(), settings: opts.Settings}
	if err := s.create(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start postgres: %w", err), s.Stop())
	}
	return s, nil
}

func (s *Server) create(ctx context.Context) error {
	var err error
	if s.dir, err = s.as.MakeDir("pgtest"); err != nil {
		return err
	}
	if err := s.initdb(ctx); err != nil {
		return err
	}
	// Between choosing a free port and taking it, somebody else can take it.
	const tries = 3
	for try := 1; ; try++ {
		var err error
		if s.port, err = freePort(); err != nil {
			return err
		}
		err = s.Restart(ctx)
		if err == nil || try == tries || !strings.Contains(err.Error(), "Address already in use") {
			return err
		}
	}
}

func (s *Server) initdb(ctx context.Context) error {
	pwfile := filepath.Join(s.dir, "password")
	if err := os.WriteFile(pwfile, []byte(s.password), 0o600); err != nil {
		return err
	}
	if err := s.as.Own(pwfile); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "-D", s.dataDir(), "-U", superuser,
		"--auth-local=trust", "--auth-host=scram-sha-256", "--pwfile="+pwfile, "--no-locale", "-E", "UTF8", "--no-sync")
	cmd.Dir = s.dir
	cmd.SysProcAttr = daemon.Attr(s.as, syscall.SIGQUIT)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

// Restart stops the server as [Server.Kill] does if it runs, and starts it again
// on the same data, port and socket. It returns when connections are taken, or
// with an error that carries the end of the log.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopLocked(syscall.SIGQUIT)
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), s.args()...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = daemon.Attr(s.as, syscall.SIGQUIT)
	p, err := daemon.Spawn(cmd, readyLine)
	if err != nil {
		return err
	}
	select {
	case <-p.Log.Ready:
		s.proc = p
		return nil
	case <-p.Done:
		return fmt.Errorf("postgres ended while starting; its log: %s", p.Log)
	case <-ctx.Done():
		p.Stop(syscall.SIGQUIT)
		return fmt.Errorf("postgres is not ready: %w; its log: %s", context.Cause(ctx), p.Log)
	}
}

func (s *Server) args() []string {
	args := []string{"-D", s.dataDir(), "-k", s.dir, "-h", "127.0.0.1", "-p", strconv.Itoa(s.port),
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "TimeZone=UTC"}
	for name, value := range s.settings {
		args = append(args, "-c", name+"="+value)
	}
	return args
}

// Kill stops the server as a crash would: every connection is cut, nothing is
// finished, and the next [Server.Restart] recovers from the log. It returns when
// the server is gone. Killing a server that is down does nothing.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopLocked(syscall.SIGQUIT)
}

// Stop ends the server, cutting its connections, and removes its directory. A
// second Stop does nothing.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopLocked(syscall.SIGINT)
	if s.dir == "" {
		return nil
	}
	dir := s.dir
	s.dir = ""
	return os.RemoveAll(dir)
}

func (s *Server) stopLocked(sig syscall.Signal) {
	if s.proc != nil {
		s.proc.Stop(sig)
		s.proc = nil
	}
}

// URL returns the address of a database, over the unix socket and as the
// superuser. The name "postgres" is a database that every server has.
func (s *Server) URL(db string) string {
	q := url.Values{"host": {s.dir}, "port": {strconv.Itoa(s.port)}, "user": {superuser}}
	u := url.URL{Scheme: "postgres", Path: "/" + db, RawQuery: q.Encode()}
	return u.String()
}

// TCPURL is [Server.URL] over the loopback port, for programs that know no unix
// sockets. It holds the server's password.
func (s *Server) TCPURL(db string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(superuser, s.password), Host: s.Addr(),
		Path: "/" + db, RawQuery: "sslmode=disable"}
	return u.String()
}

// Addr returns the host and port on which the server listens, for a proxy to put
// in front of it.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// SocketDir returns the directory of the unix socket.
func (s *Server) SocketDir() string { return s.dir }

func (s *Server) dataDir() string { return filepath.Join(s.dir, "data") }

// freePort returns a port that nobody listens on. It is below those that systems give to
// outgoing connections, so that a server which is restarted finds it free again.
func freePort() (port int, err error) {
	for range 100 {
		port = 10000 + mathrand.IntN(10000)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}
