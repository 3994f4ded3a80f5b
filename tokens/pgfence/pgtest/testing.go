//go:build unix

package pgtest

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/tokens/internal/daemon"
)

// TB is the part of testing.TB that the helpers use.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Runner is the part of *testing.M that [Main] uses.
type Runner = daemon.Runner

// Main returns a Runner that runs m and then stops the server that the tests
// shared. Without it the server ends with the process, and its directory stays.
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m).Run()) }
//
// A package that looks for leaked goroutines hands it to goleak:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }
func Main(m Runner) Runner { return daemon.Main(m, shared.Stop) }

var shared = daemon.Shared[*Server]{Start: func(ctx context.Context) (*Server, error) { return Start(ctx, nil) }}

// Shared returns the server that all tests of the process share, starting it at
// the first call. Tests must not stop or restart it; a test that must has its own
// with [Start].
func Shared(tb TB) *Server {
	tb.Helper()
	s, err := shared.Get()
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	return s
}

var databases atomic.Int64

// NewDatabase makes an empty database on the shared server and returns its name.
// It is dropped, with the connections that are left, when the test ends.
func NewDatabase(tb TB) string {
	tb.Helper()
	s := Shared(tb)
	name := fmt.Sprintf("test%d", databases.Add(1))
	if err := s.exec("CREATE DATABASE " + name); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.exec("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			tb.Fatalf("pgtest: %v", err)
		}
	})
	return name
}

// New returns a pool on an empty database of the shared server, as superuser.
// When the test ends the pool is closed and the database dropped. Another process
// reaches the same database at pool.Config().ConnString().
func New(tb TB) *pgxpool.Pool {
	tb.Helper()
	return NewPool(tb, Shared(tb).URL(NewDatabase(tb)))
}

// NewPool returns a pool on the database at url and closes it when the test ends.
func NewPool(tb TB, url string) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// exec runs one statement on a connection of its own.
func (s *Server) exec(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), daemon.StartTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}
