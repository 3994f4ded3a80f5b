//go:build linux

package stage_test

import (
	"context"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/internal/demo/stage"
	"github.com/fenced/fenced/internal/freeport"
)

// primary is the PostgreSQL that a play writes to: the stage's own, or a standby
// that was promoted.
type primary interface {
	Restart(ctx context.Context) error
	Kill()
	TCPURL(db string) string
}

// standby is a streaming replica of another PostgreSQL.
type standby struct {
	bin, dir, port string
	cmd            *exec.Cmd
	url            string // of the database postgres, over TCP
}

// newStandby copies the primary and follows it.
func newStandby(t *testing.T, ctx context.Context, primary string) *standby {
	t.Helper()
	s := &standby{dir: t.TempDir()}
	query(t, ctx, primary, `SELECT setting FROM pg_config WHERE name = 'BINDIR'`, &s.bin)
	addr, err := freeport.Addr()
	if err != nil {
		t.Fatal(err)
	}
	_, s.port, _ = net.SplitHostPort(addr)
	u, err := url.Parse(primary)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = net.JoinHostPort("127.0.0.1", s.port)
	s.url = u.String()
	for dir := s.dir; dir != os.TempDir(); dir = filepath.Dir(dir) { // the server's user must get in
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := s.command("pg_basebackup", "-d", primary, "-D", s.data(), "-R", "-X", "stream", "-c", "fast")
	if err := os.Chown(s.dir, int(cmd.SysProcAttr.Credential.Uid), int(cmd.SysProcAttr.Credential.Gid)); err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	t.Cleanup(s.stop)
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *standby) data() string { return filepath.Join(s.dir, "data") }

// command is a program of PostgreSQL, as a user that it accepts.
func (s *standby) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	uid, gid := os.Getuid(), os.Getgid()
	if u, err := user.Lookup("postgres"); uid == 0 && err == nil {
		uid, _ = strconv.Atoi(u.Uid)
		gid, _ = strconv.Atoi(u.Gid)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), NoSetGroups: os.Getuid() != 0}}
	return cmd
}

func (s *standby) start(ctx context.Context) error {
	s.cmd = s.command("postgres", "-D", s.data(), "-k", s.dir, "-h", "127.0.0.1", "-p", s.port, "-c", "fsync=off")
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for {
		conn, err := pgx.Connect(ctx, s.url)
		if err == nil {
			return conn.Close(ctx)
		}
		if ctx.Err() != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond) // it says nothing that could be waited for
	}
}

// promote starts a standby that was stopped, and makes it a primary.
func (s *standby) promote(t *testing.T, ctx context.Context) {
	t.Helper()
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	var promoted bool
	query(t, ctx, s.url, `SELECT pg_promote()`, &promoted)
	if !promoted {
		t.Fatal("the standby was not promoted")
	}
	faults.add("standby promoted without the last commits")
}

// Restart implements primary.
func (s *standby) Restart(ctx context.Context) error {
	s.Kill()
	return s.start(ctx)
}

// Kill implements primary: an immediate shutdown, as a crash leaves it.
func (s *standby) Kill() { s.end(syscall.SIGQUIT) }

// TCPURL implements primary.
func (s *standby) TCPURL(db string) string {
	u, _ := url.Parse(s.url) // it was made by a URL
	u.Path = "/" + db
	return u.String()
}

func (s *standby) stop() { s.end(syscall.SIGINT) } // fast shutdown

func (s *standby) end(sig syscall.Signal) {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(sig)
	_ = s.cmd.Wait()
	s.cmd = nil
}

func query(t *testing.T, ctx context.Context, dsn, sql string, into any) {
	t.Helper()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, sql).Scan(into); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// database returns the name of the database at dsn.
func database(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}

// A standby is promoted that has not received the last commits. The ledger has
// forgotten a reward that the item server has granted; its message is delivered
// again. One item: the key is the reward's identity and not a row's.
func TestPostgres_failover_loses_the_last_commits(t *testing.T) {
	t.Parallel()
	s, err := stage.Open(t.Context(), programs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	p := newPlay(t, s)
	items, err := theStage.ItemServer(p.ctx) // its database is another one and survives
	if err != nil {
		t.Fatal(err)
	}
	kept, lost := one(t, 1), one(t, 2)
	p.deliver(t, kept)
	p.finish(t, p.worker(t, "worker"))
	replica := newStandby(t, p.ctx, s.Postgres.TCPURL("postgres"))

	replica.stop() // from here on it hears nothing
	p.deliver(t, lost)
	p.finish(t, p.worker(t, "worker"))
	p.finish(t, p.publisher(t, "publisher", items))
	p.told(t, items)
	s.Postgres.Kill()
	replica.promote(t, p.ctx)

	after, err := s.OpenLedger(p.ctx, replica.TCPURL(database(t, p.DSN)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(after.Pool.Close)
	p.Ledger = after
	if v, err := rewards.Verify(p.ctx, p.Pool, p.owed); err != nil || len(v.Forgotten) != 1 || v.Forgotten[0] != lost {
		t.Fatalf("verdict %+v, %v: the failover was to lose one reward", v, err)
	}
	p.deliver(t, lost) // the broker was never told that it is done
	p.finish(t, p.worker(t, "worker"))
	p.finish(t, p.publisher(t, "publisher", items))
	p.told(t, items)
}
