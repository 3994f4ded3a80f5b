//go:build unix

package mysqltest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/go-sql-driver/mysql"

	"github.com/fenced/fenced/tokens/internal/daemon"
)

// ErrNotInstalled: no MariaDB server was found.
var ErrNotInstalled = errors.New("mariadbd and mariadb-install-db not found on PATH or under /usr/sbin and /usr/bin; " +
	"install them, on Debian and Ubuntu with: apt-get install mariadb-server")

// readyLine is what the server logs once it takes connections.
const readyLine = "ready for connections"

// A Server is one running MariaDB with a directory of its own.
type Server struct {
	dir string // holds data/ and the unix socket

	stop sync.Once
	proc *daemon.Process // nil where it did not start
}

// Start makes a fresh server and returns when it takes connections, in a few
// seconds. The end of ctx gives up starting; it does not end a server that runs.
// The caller must call [Server.Stop].
func Start(ctx context.Context) (*Server, error) {
	server, err := find("mariadbd", "/usr/sbin/mariadbd")
	if err != nil {
		return nil, fmt.Errorf("start mariadbd: %w", err)
	}
	installer, err := find("mariadb-install-db", "/usr/bin/mariadb-install-db")
	if err != nil {
		return nil, fmt.Errorf("start mariadbd: %w", err)
	}
	as, err := daemon.Unprivileged("mysql", "nobody")
	if err != nil {
		return nil, fmt.Errorf("start mariadbd: %w", err)
	}
	s := &Server{}
	if err := s.create(ctx, as, installer, server); err != nil {
		return nil, errors.Join(fmt.Errorf("start mariadbd: %w", err), s.Stop())
	}
	return s, nil
}

// find looks on PATH, where Debian's sbin need not be, and then for the path.
func find(name, path string) (string, error) {
	if found, err := exec.LookPath(name); err == nil {
		return found, nil
	}
	if daemon.IsExecutable(path) {
		return path, nil
	}
	return "", ErrNotInstalled
}

func (s *Server) create(ctx context.Context, as *daemon.Account, installer, server string) error {
	var err error
	if s.dir, err = as.MakeDir("mysqltest"); err != nil {
		return err
	}
	data := "--datadir=" + filepath.Join(s.dir, "data")
	// A starting server removes the temporary tables that it finds, also those of
	// another that is using them.
	tmp := "--tmpdir=" + s.dir
	install := exec.CommandContext(ctx, installer, "--no-defaults", data, tmp, "--auth-root-authentication-method=normal", "--skip-test-db", "--force")
	install.Dir = s.dir
	install.SysProcAttr = daemon.Attr(as, syscall.SIGKILL)
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w: %s", err, out)
	}
	cmd := exec.Command(server, "--no-defaults", data, tmp, "--socket="+s.socket(), "--skip-networking", "--skip-log-bin",
		"--pid-file="+filepath.Join(s.dir, "pid"), "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M",
		"--lc-messages=en_US")
	cmd.Dir = s.dir
	cmd.SysProcAttr = daemon.Attr(as, syscall.SIGKILL)
	return s.await(ctx, cmd)
}

func (s *Server) await(ctx context.Context, cmd *exec.Cmd) error {
	p, err := daemon.Spawn(cmd, readyLine)
	if err != nil {
		return err
	}
	s.proc = p
	select {
	case <-p.Log.Ready:
		return nil
	case <-p.Done:
		return fmt.Errorf("it ended while starting; its log: %s", p.Log)
	case <-ctx.Done():
		return fmt.Errorf("it is not ready: %w; its log: %s", context.Cause(ctx), p.Log)
	}
}

func (s *Server) socket() string { return filepath.Join(s.dir, "socket") }

// Config returns the driver's settings for a database, over the unix socket and
// as root. The name "mysql" is a database that every server has.
func (s *Server) Config(db string) *mysql.Config {
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = "root", "unix", s.socket(), db
	return c
}

// Stop kills the server, cutting its connections, and removes its directory. A
// second Stop does nothing.
func (s *Server) Stop() (err error) {
	s.stop.Do(func() {
		if s.proc != nil {
			s.proc.Stop(syscall.SIGKILL)
		}
		if s.dir != "" {
			err = os.RemoveAll(s.dir)
		}
	})
	return err
}
