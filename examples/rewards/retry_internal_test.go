package rewards

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenced/fenced/tokens"
)

func TestClassOf(t *testing.T) {
	t.Parallel()
	code := func(c string) error { return &pgconn.PgError{Code: c} }
	for name, tc := range map[string]struct{ err, want error }{
		"serialization":        {code("40001"), tokens.ErrRetryable},
		"deadlock":             {code("40P01"), tokens.ErrRetryable},
		"a standby":            {code("25006"), tokens.ErrRetryable},
		"our unique key":       {&pgconn.PgError{Code: "23505", ConstraintName: "reward_ledger_once"}, tokens.ErrRetryable},
		"another unique key":   {&pgconn.PgError{Code: "23505", ConstraintName: "yours"}, nil},
		"lock timeout":         {code("55P03"), tokens.ErrBusy},
		"statement timeout":    {code("57014"), tokens.ErrBusy},
		"shutting down":        {code("57P01"), tokens.ErrUnknownOutcome},
		"connection class":     {code("08006"), tokens.ErrUnknownOutcome},
		"connection lost":      {fmt.Errorf("read: %w", io.ErrUnexpectedEOF), tokens.ErrUnknownOutcome},
		"a CHECK":              {code("23514"), nil},
		"no such table":        {code("42P01"), nil},
		"no right":             {code("42501"), nil},
		"stale":                {&tokens.StaleError{Resource: "r", Presented: 1, Current: 2}, nil},
		"mismatch":             {fmt.Errorf("x: %w", ErrMismatch), nil},
		"raced classification": {errRaced, tokens.ErrRetryable},
	} {
		if got := classOf(tc.err); got != tc.want {
			t.Errorf("%s: class %v, want %v", name, got, tc.want)
		}
	}
}

func TestRetry_says_what_is_known(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		busy, lost := &pgconn.PgError{Code: "55P03"}, io.ErrUnexpectedEOF
		for name, tc := range map[string]struct {
			errs []error // the last one repeats
			want error
		}{
			"busy to the end":                      {[]error{busy}, tokens.ErrBusy},
			"one answer lost, then busy":           {[]error{lost, busy}, tokens.ErrUnknownOutcome},
			"one answer lost, then stale":          {[]error{lost, &tokens.StaleError{}}, tokens.ErrStale},
			"one answer lost, then a full disk":    {[]error{lost, &pgconn.PgError{Code: "53100"}}, tokens.ErrUnknownOutcome},
			"one answer lost, then it had been us": {[]error{lost, nil}, nil},
		} {
			calls := 0
			_, err := retry(t.Context(), func() (Outcome, error) {
				err := tc.errs[min(calls, len(tc.errs)-1)]
				calls++
				return Replayed, err
			})
			if !errors.Is(err, tc.want) {
				t.Errorf("%s: %v, want %v", name, err, tc.want)
			}
			if calls > maxAttempts {
				t.Errorf("%s: %d attempts", name, calls)
			}
		}
	})
}

func TestRetry_ends_with_its_context(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := retry(ctx, func() (Outcome, error) { return "", &pgconn.PgError{Code: "40001"} })
		if waited := time.Since(start); !errors.Is(err, tokens.ErrRetryable) || waited > 50*time.Millisecond {
			t.Errorf("after %v: %v, want ErrRetryable within 50ms", waited, err)
		}
	})
}

func TestBackoff_stays_within_its_bounds(t *testing.T) {
	t.Parallel()
	for _, bounds := range [][2]time.Duration{
		{firstPause, longPause},
		{time.Minute, 5 * time.Minute}, // a shift by 28 is negative
		{20 * time.Second, time.Hour},  // one by 29 is
		{time.Nanosecond, math.MaxInt64 - time.Hour},
		{time.Hour, time.Second},
	} {
		for attempt := 1; attempt < 100; attempt++ {
			for range 100 {
				if d := backoff(attempt, bounds[0], bounds[1]); d <= 0 || d > bounds[1]+time.Millisecond {
					t.Fatalf("attempt %d of %v: pause %v", attempt, bounds, d)
				}
			}
		}
	}
	// It doubles up to the last.
	var most time.Duration
	for range 1000 {
		most = max(most, backoff(4, time.Second, time.Minute))
	}
	if most < 4*time.Second || most > 8*time.Second+time.Millisecond {
		t.Errorf("the fourth pause is at most %v, want nearly 8s", most)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "3600": time.Hour, "3601": time.Hour, "99999999999999999999": time.Hour,
		"-1": 0, "soon": 0, "Mon, 01 Jan 2001 00:00:00 GMT": 0, "Fri, 01 Jan 2999 00:00:00 GMT": time.Hour,
	} {
		if got := retryAfter(&http.Response{Header: http.Header{"Retry-After": {header}}}); got != want {
			t.Errorf("Retry-After %q: %v, want %v", header, got, want)
		}
	}
}
