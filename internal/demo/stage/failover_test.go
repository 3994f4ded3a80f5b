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
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/internal/demo/stage"
)

// standby is a streaming replica of a stage's PostgreSQL.
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, s.port, _ = net.SplitHostPort(l.Addr().String())
	_ = l.Close()
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
	s.start(t, ctx)
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

func (s *standby) start(t *testing.T, ctx context.Context) {
	t.Helper()
	s.cmd = s.command("postgres", "-D", s.data(), "-k", s.dir, "-h", "127.0.0.1", "-p", s.port, "-c", "fsync=off")
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for {
		conn, err := pgx.Connect(ctx, s.url)
		if err == nil {
			_ = conn.Close(ctx)
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond) // it says nothing that could be waited for
	}
}

func (s *standby) stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGINT) // fast shutdown
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
	replica.start(t, p.ctx)
	var promoted bool
	query(t, p.ctx, replica.url, `SELECT pg_promote()`, &promoted)
	faults.add("standby promoted without the last commits")

	u, err := url.Parse(p.DSN)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = net.JoinHostPort("127.0.0.1", replica.port)
	after, err := s.OpenLedger(p.ctx, u.String())
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
