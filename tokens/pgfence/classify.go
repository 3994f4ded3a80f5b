package pgfence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/internal/unit"
)

// SQLSTATEs that the functions and triggers of the schema raise. Their class is
// outside the ranges that the SQL standard and PostgreSQL keep for themselves.
const (
	// CodeStale: the token is below the fence or the floor.
	CodeStale = "LF001"
	// CodeUnfenced: a protected table was written without advancing its resource.
	CodeUnfenced = "LF002"
	// CodeInvalid: a token or a resource name is out of bounds.
	CodeInvalid = "LF003"
	// CodeDuplicate: a one-shot claim's token equals the fence.
	CodeDuplicate = "LF004"
)

// classes is what each SQLSTATE means for the unit of work it ended.
var classes = map[string]error{
	CodeUnfenced: tokens.ErrUnfenced,
	"42501":      tokens.ErrUnfenced, // insufficient_privilege: not a member of fence_writer, or a column not granted
	CodeInvalid:  tokens.ErrInvalid,

	"40001": tokens.ErrRetryable, // serialization_failure: perhaps stale, only another try can tell
	"40P01": tokens.ErrRetryable, // deadlock_detected

	"55P03": tokens.ErrBusy, // lock_not_available: lock_timeout
	"57014": tokens.ErrBusy, // query_canceled: statement_timeout

	// The transaction is lost and nothing of it was written.
	"25P03": tokens.ErrRetryable, // idle_in_transaction_session_timeout
	"25P04": tokens.ErrRetryable, // transaction_timeout
	"57P01": tokens.ErrRetryable, // admin_shutdown, pg_terminate_backend
	"57P02": tokens.ErrRetryable, // crash_shutdown
	"57P03": tokens.ErrRetryable, // cannot_connect_now
	"57P05": tokens.ErrRetryable, // idle_session_timeout, met by the next statement
	"53300": tokens.ErrRetryable, // too_many_connections

	"25006": tokens.ErrRetryable, // read_only_sql_transaction: not the primary, or no longer
}

// Classify returns err with the meaning it has for a fenced unit of work, so that
// errors.Is finds the sentinel of package tokens and errors.As still finds the
// *pgconn.PgError:
//
//	LF001                        *tokens.StaleError
//	LF004                        ErrDuplicate
//	LF003                        ErrInvalid
//	LF002 42501                  ErrUnfenced
//	40001 40P01                  ErrRetryable
//	55P03 57014                  ErrBusy
//	25P03 25P04 57P01 57P02      ErrRetryable: the transaction is lost
//	57P03 57P05 53300 25006      ErrRetryable
//	class 08                     ErrRetryable
//	connection lost or refused   ErrRetryable
//
// Everything else comes back as it is: nil, the end of a context, an error that
// has a meaning already, and what only the application understands, such as 23505
// (a unique key of yours) or 22P02 (a bug). None of these is a reason for 412.
//
// It is meant for errors from before COMMIT was sent. What is lost at COMMIT has
// an unknown outcome; [WithFence] and [Commit] tell the two apart, and
// [ClassifyAlone] does where a statement is a transaction of its own.
func Classify(err error) error {
	if err == nil || unit.Classified(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return classifyCode(pgErr, err)
	}
	if connectionLost(err) {
		return fmt.Errorf("%w: %w", tokens.ErrRetryable, err)
	}
	return err
}

func classifyCode(pgErr *pgconn.PgError, err error) error {
	switch {
	case pgErr.Code == CodeStale:
		return staleFrom(pgErr, err)
	case pgErr.Code == CodeDuplicate:
		r := refusalDetail(pgErr)
		return fmt.Errorf("resource %q: token %d: %w: %w", r.Resource, r.Token, tokens.ErrDuplicate, err)
	case classes[pgErr.Code] != nil:
		return fmt.Errorf("%w: %w", classes[pgErr.Code], err)
	case classOf(pgErr) == connectionException: // also a pooler's
		return fmt.Errorf("%w: %w", tokens.ErrRetryable, err)
	default:
		return err
	}
}

// detail is the DETAIL of LF001 and LF004.
type detail struct {
	Resource string `json:"resource"`
	Token    int64  `json:"token"`
	Current  int64  `json:"current"`
}

// refusalDetail reads what fence.advance said; what cannot be read stays zero.
func refusalDetail(pgErr *pgconn.PgError) detail {
	var d detail
	if json.Unmarshal([]byte(pgErr.Detail), &d) != nil {
		return detail{}
	}
	return d
}

func staleFrom(pgErr *pgconn.PgError, err error) error {
	d := refusalDetail(pgErr)
	if d.Resource == "" {
		// Somebody else's function raised our code: stale all the same.
		return fmt.Errorf("%w: %w", tokens.ErrStale, err)
	}
	return &tokens.StaleError{Resource: d.Resource, Presented: tokens.Token(d.Token), Current: tokens.Token(d.Current)}
}

// connectionLost reports whether err is about the connection, not about SQL.
func connectionLost(err error) bool {
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	return connecting || unit.ConnectionLost(err) || pgconn.SafeToRetry(err)
}

// ClassifyAlone is [Classify] for a statement or a batch outside of a transaction. The
// server commits such a one before it answers, so where the answer was lost, with the
// connection or at the end of a context, the error wraps [tokens.ErrUnknownOutcome].
// To wait in vain for a connection of a pool looks the same, and is called the same.
func ClassifyAlone(err error) error {
	switch {
	case err == nil, unit.Classified(err), nothingCommitted(err):
		return Classify(err)
	case answerLost(err):
		return fmt.Errorf("%w: %w", tokens.ErrUnknownOutcome, err)
	default:
		return err
	}
}

// classifyCommit is Classify for the answer to COMMIT, where a lost connection
// means that nobody knows.
func classifyCommit(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return fmt.Errorf("commit: a statement had failed and its error was ignored: %w", err)
	case errors.Is(err, pgx.ErrTxClosed):
		return fmt.Errorf("commit: the transaction had ended: %w", err)
	case nothingCommitted(err):
		return Classify(err)
	default:
		return fmt.Errorf("commit: %w: %w", tokens.ErrUnknownOutcome, err)
	}
}

// nothingCommitted reports whether err, of what would have committed, says for
// certain that it has not.
func nothingCommitted(err error) bool {
	if _, connecting := errors.AsType[*pgconn.ConnectError](err); connecting {
		return true
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		return pgconn.SafeToRetry(err) // it was never sent
	case pgErr.Code == "25P03" || pgErr.Code == "25P04" || pgErr.Code == "57P05":
		return true // the server ended the session before it read what was sent, or in the midst of it
	case classOf(pgErr) == connectionException:
		return false // a pooler has lost the server, and some call that an ERROR
	default:
		return pgErr.SeverityUnlocalized == "ERROR" // the server answered, and rolled back
	}
}

// answerLost reports whether err came in the place of an answer. A server's error
// that is none of [nothingCommitted] is such a one: it shut down, or a pooler lost it.
func answerLost(err error) bool {
	_, fromServer := errors.AsType[*pgconn.PgError](err)
	return fromServer || unit.ConnectionLost(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// connectionException is the class of SQLSTATEs that are about the connection.
const connectionException = "08"

func classOf(e *pgconn.PgError) string { return e.Code[:min(2, len(e.Code))] }

// decisionOf returns the decision that err, classified, is for c; the zero one
// where err is no refusal.
func decisionOf(c tokens.Claim, err error) tokens.Decision {
	if stale, ok := errors.AsType[*tokens.StaleError](err); ok {
		return tokens.Decision{Outcome: tokens.Stale, Current: stale.Current}
	}
	if errors.Is(err, tokens.ErrDuplicate) {
		return tokens.Decision{Outcome: tokens.Duplicate, Current: c.Token}
	}
	return tokens.Decision{}
}

// markRefused notes in decisions which of the claims err refused.
func markRefused(decisions []tokens.Decision, cs []tokens.Claim, err error) {
	resource := ""
	if stale, ok := errors.AsType[*tokens.StaleError](err); ok {
		resource = stale.Resource
	} else if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		resource = refusalDetail(pgErr).Resource
	}
	for i, c := range cs {
		if c.Resource == resource {
			decisions[i] = decisionOf(c, err)
		}
	}
}
