package rewards

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenced/fenced/tokens"
)

// Bounds of retry: ten attempts with full jitter up to a second take some three
// seconds, longer than a failover's connection storm, shorter than most leases.
const (
	maxAttempts = 10
	firstPause  = 20 * time.Millisecond
	longPause   = time.Second
)

// retry runs statement, which must be idempotent under its token, until it
// succeeds or fails for good. After a lost answer the statement itself is
// repeated, not a read in its place: the repeat waits behind the row lock of the
// attempt in doubt, where a read would see nothing a moment too early.
func retry(ctx context.Context, statement func() (Outcome, error)) (Outcome, error) {
	var doubt bool // an earlier attempt may have taken effect
	for attempt := 1; ; attempt++ {
		outcome, err := statement()
		if err == nil {
			return outcome, nil
		}
		class := classOf(err)
		doubt = doubt || errors.Is(class, tokens.ErrUnknownOutcome)
		switch {
		case errors.Is(err, tokens.ErrStale) || errors.Is(err, ErrMismatch): // they say that no attempt paid it
			return "", err
		case class == nil && doubt:
			return "", fmt.Errorf("after %d attempts: %w: %w", attempt, tokens.ErrUnknownOutcome, err)
		case class == nil:
			return "", err
		case attempt == maxAttempts || pause(ctx, backoff(attempt, firstPause, longPause)) != nil:
			if doubt {
				class = tokens.ErrUnknownOutcome
			}
			return "", fmt.Errorf("after %d attempts: %w: %w", attempt, class, err)
		}
	}
}

// classOf says whether the statement may be repeated, and what is known about
// its effect: [tokens.ErrRetryable] (none), [tokens.ErrBusy] (none, and somebody
// holds the row) or [tokens.ErrUnknownOutcome]. nil means that a repeat would end
// in the same way.
func classOf(err error) error {
	if errors.Is(err, errRaced) {
		return tokens.ErrRetryable
	}
	if errors.Is(err, tokens.ErrStale) || errors.Is(err, ErrMismatch) {
		return nil
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return classOfCode(pg)
	}
	if pgconn.SafeToRetry(err) {
		return tokens.ErrRetryable // nothing was sent
	}
	// A lost connection or an ended context after the statement had been sent.
	return tokens.ErrUnknownOutcome
}

func classOfCode(e *pgconn.PgError) error {
	switch e.Code {
	case "40001", "40P01": // serialization failure, deadlock
		return tokens.ErrRetryable
	case "23505": // a rival was first; the repeat meets its row and is classified
		if strings.HasPrefix(e.ConstraintName, "reward_") {
			return tokens.ErrRetryable
		}
		return nil
	case "55P03", "57014": // lock or statement timeout, cancelled
		return tokens.ErrBusy
	case "25006": // a standby: the connection leads to a primary of yesterday
		return tokens.ErrRetryable
	case "57P01", "57P02", "57P03", "53300": // shutting down, starting up, full
		return tokens.ErrUnknownOutcome
	}
	if strings.HasPrefix(e.Code, "08") {
		return tokens.ErrUnknownOutcome
	}
	return nil
}

// backoff is full jitter: anything from nothing to the doubled pause, so that
// those who failed together do not come back together. attempt counts from 1.
func backoff(attempt int, first, longest time.Duration) time.Duration {
	ceiling := longest
	if shift := attempt - 1; first < longest>>shift { // first<<shift would overflow in time
		ceiling = first << shift
	}
	return rand.N(ceiling) + time.Millisecond
}

// pause waits for d and returns the reason if ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pauseUnless waits for d, or until woken has a value or ctx ends.
func pauseUnless(ctx context.Context, woken <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-woken:
	case <-ctx.Done():
	}
}
