package pgfence

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenced/fenced/tokens"
)

// What COMMIT answers cannot all be brought about on a live server, so the table
// is tested by itself.
func TestClassifyCommit(t *testing.T) {
	t.Parallel()
	pgErr := func(severity, code string) error {
		return &pgconn.PgError{SeverityUnlocalized: severity, Severity: severity, Code: code}
	}
	for _, tt := range []struct {
		name string
		err  error
		want error
	}{
		{"serialization failure at COMMIT", pgErr("ERROR", "40001"), tokens.ErrRetryable},
		{"deadlock at COMMIT", pgErr("ERROR", "40P01"), tokens.ErrRetryable},
		{"deferred trigger of a protected table", pgErr("ERROR", "LF002"), tokens.ErrUnfenced},
		{"session ended before it read COMMIT", pgErr("FATAL", "25P03"), tokens.ErrRetryable},
		{"transaction_timeout before COMMIT", pgErr("FATAL", "25P04"), tokens.ErrRetryable},
		{"server shut down", pgErr("FATAL", "57P01"), tokens.ErrUnknownOutcome},
		{"server crashed", pgErr("PANIC", "XX000"), tokens.ErrUnknownOutcome},
		{"pooler lost the server", pgErr("FATAL", "08P01"), tokens.ErrUnknownOutcome},
		{"pooler lost the server, and calls it an error", pgErr("ERROR", "08006"), tokens.ErrUnknownOutcome},
		{"the session was ended while it was idle", pgErr("FATAL", "57P05"), tokens.ErrRetryable},
		{"connection lost", io.ErrUnexpectedEOF, tokens.ErrUnknownOutcome},
		{"no answer in time", context.DeadlineExceeded, tokens.ErrUnknownOutcome},
		{"rolled back instead", pgx.ErrTxCommitRollback, pgx.ErrTxCommitRollback},
	} {
		if err := classifyCommit(tt.err); !errors.Is(err, tt.want) || !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if err := classifyCommit(nil); err != nil {
		t.Errorf("nil: %v", err)
	}
	if err := classifyCommit(pgErr("ERROR", "08006")); errors.Is(err, tokens.ErrRetryable) {
		t.Errorf("the pooler's error: %v, want it not to be called undone", err)
	}
	if err := classifyCommit(pgx.ErrTxClosed); !errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, tokens.ErrUnknownOutcome) {
		t.Errorf("a transaction that had ended: %v, want it not to be called unknown", err)
	}
	// A deferred unique key failed: known, and the application's.
	err := classifyCommit(pgErr("ERROR", "23505"))
	if errors.Is(err, tokens.ErrUnknownOutcome) || errors.Is(err, tokens.ErrRetryable) {
		t.Errorf("23505: %v, want it as it is", err)
	}
}

func TestClassifyAlone(t *testing.T) {
	t.Parallel()
	pgErr := func(severity, code string) error {
		return &pgconn.PgError{SeverityUnlocalized: severity, Severity: severity, Code: code}
	}
	odd := errors.New("odd")
	for _, tt := range []struct {
		name string
		err  error
		want error
	}{
		{"stale", pgErr("ERROR", CodeStale), tokens.ErrStale},
		{"lock timeout", pgErr("ERROR", "55P03"), tokens.ErrBusy},
		{"no connection", &pgconn.ConnectError{Config: &pgconn.Config{}}, tokens.ErrRetryable},
		{"server shut down", pgErr("FATAL", "57P01"), tokens.ErrUnknownOutcome},
		{"pooler lost the server", pgErr("ERROR", "08006"), tokens.ErrUnknownOutcome},
		{"connection lost", io.ErrUnexpectedEOF, tokens.ErrUnknownOutcome},
		{"no answer in time", context.DeadlineExceeded, tokens.ErrUnknownOutcome},
		{"given up", context.Canceled, tokens.ErrUnknownOutcome},
		{"the caller's own", odd, odd},
	} {
		err := ClassifyAlone(tt.err)
		if !errors.Is(err, tt.want) || errors.Is(err, tokens.ErrUnknownOutcome) != (tt.want == tokens.ErrUnknownOutcome) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if again := ClassifyAlone(err); again != err {
			t.Errorf("%s: classified twice: %v", tt.name, again)
		}
	}
	if err := ClassifyAlone(nil); err != nil {
		t.Errorf("nil: %v", err)
	}
}
