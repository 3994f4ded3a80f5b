package mysqlfence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/internal/unit"
)

const (
	errLockWaitTimeout = 1205
	errNoSavepoint     = 1305
)

// classes is what each error number means for the unit of work it came in.
var classes = map[uint16]error{
	1142: tokens.ErrUnfenced, // table access denied: the role may not advance
	1143: tokens.ErrUnfenced, // column access denied

	errLockWaitTimeout: tokens.ErrBusy,
	1969:               tokens.ErrBusy, // MariaDB: max_statement_time
	3024:               tokens.ErrBusy, // MySQL: max_execution_time
	3572:               tokens.ErrBusy, // MySQL: NOWAIT
	1317:               tokens.ErrBusy, // KILL QUERY

	1213: tokens.ErrRetryable, // deadlock; the transaction is gone
	1020: tokens.ErrRetryable, // MariaDB 11.6: the record has changed since the snapshot
	1047: tokens.ErrRetryable, // Galera: the node is not ready
	1040: tokens.ErrRetryable, // too many connections
	1203: tokens.ErrRetryable, // too many connections of the user
	1053: tokens.ErrRetryable, // server shutdown
	1927: tokens.ErrRetryable, // MariaDB: KILL CONNECTION
	3169: tokens.ErrRetryable, // MySQL: KILL CONNECTION
	4031: tokens.ErrRetryable, // MySQL: wait_timeout
	1290: tokens.ErrRetryable, // read_only: not the primary, or no longer
	1836: tokens.ErrRetryable, // read-only mode
}

// Classify returns err with the meaning it has for a fenced unit of work, so that
// errors.Is finds the sentinel of package tokens and errors.As still finds the
// *mysql.MySQLError:
//
//	1142 1143                          ErrUnfenced: the role may not advance
//	1205 1969 3024 3572 1317           ErrBusy
//	1213 1020 1047                     ErrRetryable
//	1040 1203 1053 1290 1836           ErrRetryable
//	1927 3169 4031                     ErrRetryable: the connection is lost
//	connection lost or refused         ErrRetryable
//
// Everything else comes back as it is: nil, the end of a context, an error that
// has a meaning already, and what only the application understands, such as 1062
// (a unique key of yours). None of these is a reason for 412.
//
// It is meant for errors from before COMMIT was sent. What is lost at COMMIT has
// an unknown outcome; [Commit] and [WithFence] tell the two apart.
func Classify(err error) error {
	if err == nil || unit.Classified(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if class := classes[codeOf(err)]; class != nil {
		return fmt.Errorf("%w: %w", class, err)
	}
	if unit.ConnectionLost(err, driver.ErrBadConn, mysql.ErrInvalidConn) {
		return fmt.Errorf("%w: %w", tokens.ErrRetryable, err)
	}
	return err
}

// codeOf returns the number of a server's error, 0 where err is none.
func codeOf(err error) uint16 {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// interrupted are the errors that can come from a COMMIT that goes on without its
// client, for example while it waits for a replica.
var interrupted = map[uint16]bool{1053: true, 1317: true, 1927: true, 1969: true, 3024: true, 3169: true}

// classifyCommit is Classify for the answer to COMMIT, where a lost connection
// means that nobody knows.
func classifyCommit(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("commit: the transaction had ended: %w", err)
	case codeOf(err) != 0 && !interrupted[codeOf(err)]:
		return Classify(err) // the server answered, and rolled back
	case errors.Is(err, driver.ErrBadConn):
		return Classify(err) // COMMIT was never sent
	default:
		return fmt.Errorf("commit: %w: %w", tokens.ErrUnknownOutcome, err)
	}
}
