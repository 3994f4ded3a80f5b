package mysqlfence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fenced/fenced/tokens"
)

// session is a connection whose settings bind it to the lease.
type session struct {
	conn  *sql.Conn
	bound int64 // the timeouts, in seconds
	// spoilt says that what was done on the connection may outlast the transaction, such
	// as LOCK TABLES.
	spoilt bool
}

// openSession takes a connection and notes its settings before it changes them.
// Without autocommit nothing that is written after the server has ended the
// transaction is committed by itself.
func openSession(ctx context.Context, db *sql.DB, deadline time.Time) (*session, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, bound: secondsUntil(deadline)}
	_, err = conn.ExecContext(ctx, `SET @fenced_autocommit = @@SESSION.autocommit, @fenced_wait = @@SESSION.wait_timeout,
		@fenced_write = @@SESSION.net_write_timeout, @fenced_lock = @@SESSION.innodb_lock_wait_timeout,
		SESSION autocommit = 0, `+limitsSQL(s.bound))
	if err != nil {
		s.discard()
		return nil, err
	}
	return s, nil
}

// close gives the connection back as it was. The ROLLBACK comes first because to
// switch autocommit on commits what is open.
func (s *session) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
	defer cancel()
	if s.spoilt {
		s.discard()
		return
	}
	_, err := s.conn.ExecContext(ctx, "ROLLBACK")
	if err == nil {
		_, err = s.conn.ExecContext(ctx, `SET SESSION autocommit = @fenced_autocommit, SESSION wait_timeout = @fenced_wait,
			SESSION net_write_timeout = @fenced_write, SESSION innodb_lock_wait_timeout = @fenced_lock`)
	}
	if err != nil {
		s.discard()
		return
	}
	_ = s.conn.Close()
}

func (s *session) discard() {
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = s.conn.Close()
}

// longest is a limit that every server takes for each of the settings. Beyond, a strict
// sql_mode makes an error of what is cut otherwise.
const longest = math.MaxInt32 / 1000 * time.Second

// secondsUntil is what is left in whole seconds, which is all that the server
// counts in, and never 0.
func secondsUntil(deadline time.Time) int64 {
	return int64(min(max(time.Until(deadline), time.Second), longest) / time.Second)
}

func limitsSQL(seconds int64) string {
	return fmt.Sprintf("SESSION wait_timeout = %d, SESSION net_write_timeout = %d, SESSION innodb_lock_wait_timeout = %d",
		seconds, seconds, seconds)
}

// Tx is the transaction that fn of [WithFence] sees. It has the methods of *sql.Tx
// that run statements, and none that ends it. It keeps the server's timeouts bound
// to the lease, at the cost of one more round trip a second; a prepared statement
// does not, and keeps those of its preparation.
type Tx struct {
	tx       *sql.Tx
	deadline time.Time
	bound    int64 // the timeouts in force, in seconds
	err      error // the first one that ends the unit, whatever fn makes of it
}

// ExecContext is that of *sql.Tx.
func (tx *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := tx.bind(ctx); err != nil {
		return nil, err
	}
	result, err := tx.tx.ExecContext(ctx, query, args...)
	tx.note(err)
	return result, err
}

// QueryContext is that of *sql.Tx.
func (tx *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := tx.bind(ctx); err != nil {
		return nil, err
	}
	rows, err := tx.tx.QueryContext(ctx, query, args...)
	tx.note(err)
	return rows, err
}

// QueryRowContext is that of *sql.Tx.
func (tx *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if err := tx.bind(ctx); err != nil {
		// A row cannot be made with an error of one's own; what ended the unit is
		// what WithFence returns.
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		cancel(err)
	}
	row := tx.tx.QueryRowContext(ctx, query, args...)
	tx.note(row.Err())
	return row
}

// PrepareContext is that of *sql.Tx.
func (tx *Tx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if err := tx.bind(ctx); err != nil {
		return nil, err
	}
	stmt, err := tx.tx.PrepareContext(ctx, query)
	tx.note(err)
	return stmt, err
}

// bind shrinks the timeouts to what is left of the lease, and refuses the
// statement where the unit has failed.
func (tx *Tx) bind(ctx context.Context) error {
	if tx.err != nil {
		return tx.err
	}
	left := secondsUntil(tx.deadline)
	if left >= tx.bound {
		return nil
	}
	if _, err := tx.tx.ExecContext(ctx, "SET "+limitsSQL(left)); err != nil {
		tx.err = Classify(err)
		return tx.err
	}
	tx.bound = left
	return nil
}

func (tx *Tx) note(err error) {
	err = Classify(err)
	if tx.err == nil && (errors.Is(err, tokens.ErrBusy) || errors.Is(err, tokens.ErrRetryable)) {
		tx.err = err
	}
}
