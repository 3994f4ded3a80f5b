package pgfence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/pgfence"
)

// all are the classes; an error has one of them or none.
var all = []error{tokens.ErrStale, tokens.ErrDuplicate, tokens.ErrInvalid, tokens.ErrMissing, tokens.ErrBusy,
	tokens.ErrRetryable, tokens.ErrUnknownOutcome, tokens.ErrUnfenced}

func TestClassify_Codes(t *testing.T) {
	t.Parallel()
	const refused = `{"resource":"a","token":33,"current":34}`
	for _, tt := range []struct {
		code   string
		detail string
		want   error // nil: comes back as it is
	}{
		{"LF001", refused, tokens.ErrStale},
		{"LF001", "not ours", tokens.ErrStale},
		{"LF004", refused, tokens.ErrDuplicate},
		{"LF003", "", tokens.ErrInvalid},
		{"LF002", "account/42", tokens.ErrUnfenced},
		{"42501", "", tokens.ErrUnfenced},
		{"40001", "", tokens.ErrRetryable},
		{"40P01", "", tokens.ErrRetryable},
		{"55P03", "", tokens.ErrBusy},
		{"57014", "", tokens.ErrBusy},
		{"25P03", "", tokens.ErrRetryable},
		{"25P04", "", tokens.ErrRetryable},
		{"57P01", "", tokens.ErrRetryable},
		{"57P02", "", tokens.ErrRetryable},
		{"57P03", "", tokens.ErrRetryable},
		{"57P05", "", tokens.ErrRetryable},
		{"53300", "", tokens.ErrRetryable},
		{"25006", "", tokens.ErrRetryable},
		{"08006", "", tokens.ErrRetryable},
		{"08P01", "", tokens.ErrRetryable},
		{"23505", "", nil}, // a key of the application's
		{"25P02", "", nil}, // secondary: something failed before
		{"42P10", "", nil}, // bugs
		{"0A000", "", nil},
		{"21000", "", nil},
		{"22P02", "", nil},
		{"XX000", "", nil},
		{"LF999", "", nil},
		{"0", "", nil},
		{"", "", nil},
	} {
		cause := &pgconn.PgError{Code: tt.code, Detail: tt.detail}
		err := pgfence.Classify(fmt.Errorf("wrapped: %w", cause))
		for _, class := range all {
			if got, want := errors.Is(err, class), class == tt.want; got != want {
				t.Errorf("%s %s: %v; errors.Is(%v) = %v, want %v", tt.code, tt.detail, err, class, got, want)
			}
		}
		if again := pgfence.Classify(err); again != err {
			t.Errorf("%s: classified twice: %v", tt.code, again)
		}
		if _, ok := errors.AsType[*pgconn.PgError](err); !ok && tt.code != "LF001" {
			t.Errorf("%s: the cause is lost: %v", tt.code, err)
		}
	}
	err := pgfence.Classify(&pgconn.PgError{Code: "LF001", Detail: refused})
	stale, ok := errors.AsType[*tokens.StaleError](err)
	if want := (tokens.StaleError{Resource: "a", Presented: 33, Current: 34}); !ok || *stale != want {
		t.Errorf("LF001: %v, want %v", err, &want)
	}
}

func TestClassify_Others(t *testing.T) {
	t.Parallel()
	if err := pgfence.Classify(nil); err != nil {
		t.Errorf("nil: %v", err)
	}
	for _, lost := range []error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
		&net.OpError{Op: "read", Err: errors.New("connection reset by peer")},
		&pgconn.ConnectError{Config: &pgconn.Config{}},
	} {
		if err := pgfence.Classify(fmt.Errorf("wrapped: %w", lost)); !errors.Is(err, tokens.ErrRetryable) {
			t.Errorf("%T: %v, want ErrRetryable", lost, err)
		}
	}
	for _, same := range []error{
		context.Canceled, context.DeadlineExceeded, errors.New("odd"), pgx.ErrNoRows, pgx.ErrTxClosed,
		&tokens.StaleError{Resource: "a", Presented: 1, Current: 2}, tokens.ErrUnknownOutcome,
		fmt.Errorf("%w: %w", context.Canceled, io.EOF),
	} {
		if err := pgfence.Classify(same); err != same {
			t.Errorf("%v came back as %v", same, err)
		}
	}
}

// A connection that nobody listens to is a matter of trying again.
func TestClassify_RefusedConnection(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, err = pgx.Connect(t.Context(), "postgres://postgres@"+l.Addr().String()+"/postgres?sslmode=disable")
	if !errors.Is(pgfence.Classify(err), tokens.ErrRetryable) {
		t.Errorf("%v, want ErrRetryable", pgfence.Classify(err))
	}
}
