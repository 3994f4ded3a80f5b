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
	// A deferred unique key failed: known, and the application's.
	err := classifyCommit(pgErr("ERROR", "23505"))
	if errors.Is(err, tokens.ErrUnknownOutcome) || errors.Is(err, tokens.ErrRetryable) {
		t.Errorf("23505: %v, want it as it is", err)
	}
}
