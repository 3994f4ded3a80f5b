//go:build unix

package mysqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"

	"github.com/fenced/fenced/tokens/internal/daemon"
)

// TB is the part of testing.TB that the helpers use.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Cleanup(func())
}

// Runner is the part of *testing.M that [Main] uses.
type Runner = daemon.Runner

// Main returns a Runner that runs m and then stops the server that the tests
// shared. Without it the server ends with the process, and its directory stays.
func Main(m Runner) Runner { return daemon.Main(m, shared.Stop) }

var shared = daemon.Shared[*Server]{Start: Start}

// Shared returns the server that all tests of the process share, starting it at
// the first call. Where none is installed it skips the test. Tests must not stop
// it.
func Shared(tb TB) *Server {
	tb.Helper()
	s, err := shared.Get()
	switch {
	case errors.Is(err, ErrNotInstalled):
		tb.Skipf("mysqltest: %v", err)
	case err != nil:
		tb.Fatalf("mysqltest: %v", err)
	}
	return s
}

var databases atomic.Int64

// New returns a pool on an empty database of the shared server, as root. When the
// test ends the pool is closed and the database dropped.
func New(tb TB) *sql.DB {
	tb.Helper()
	return Open(tb, NewDatabase(tb))
}

// NewDatabase makes an empty database on the shared server and returns the
// driver's settings for it. It is dropped when the test ends.
func NewDatabase(tb TB) *mysql.Config {
	tb.Helper()
	s := Shared(tb)
	name := fmt.Sprintf("test%d", databases.Add(1))
	if err := s.exec("CREATE DATABASE " + name); err != nil {
		tb.Fatalf("mysqltest: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.exec("DROP DATABASE " + name); err != nil {
			tb.Fatalf("mysqltest: %v", err)
		}
	})
	return s.Config(name)
}

// Open returns a pool with the settings c and closes it when the test ends.
func Open(tb TB, c *mysql.Config) *sql.DB {
	tb.Helper()
	connector, err := mysql.NewConnector(c)
	if err != nil {
		tb.Fatalf("mysqltest: %v", err)
	}
	db := sql.OpenDB(connector)
	tb.Cleanup(func() { _ = db.Close() }) // nothing of it outlives the test
	return db
}

// exec runs one statement on a connection of its own.
func (s *Server) exec(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), daemon.StartTimeout)
	defer cancel()
	connector, err := mysql.NewConnector(s.Config("mysql"))
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}
