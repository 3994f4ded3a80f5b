package httpfence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/fenced/fenced/tokens"
)

// Config says what a [Fence] needs to know of the service it stands in.
type Config struct {
	// Lock names the lock whose token the request must carry, from its path or
	// from what was authenticated. Required. An error or a name out of bounds (see
	// [tokens.ValidateResource]) answers 400.
	Lock func(r *http.Request) (string, error)

	// Peek returns the fence of the resource that lock guards, to refuse requests
	// early whose token is below it; for example the Peek method of a guard, where
	// resources are named like their locks. An error refuses nothing: the handler
	// asks the store itself. Defaults to no early refusal.
	Peek func(ctx context.Context, lock string) (tokens.Token, error)

	// ErrorFunc answers for errors of a [HandlerFunc] that have no meaning here; w is
	// fresh, whatever the handler had written. Defaults to 500, code internal,
	// without the error's text, which is logged to slog's default logger.
	ErrorFunc func(w http.ResponseWriter, r *http.Request, err error)

	_ struct{}
}

// Fence takes tokens from requests into contexts.
type Fence struct {
	lock      func(r *http.Request) (string, error)
	peek      func(ctx context.Context, lock string) (tokens.Token, error)
	errorFunc func(w http.ResponseWriter, r *http.Request, err error)
}

// New returns a Fence. It gives an error that wraps [tokens.ErrInvalid] where
// Config.Lock is nil.
func New(cfg Config) (*Fence, error) {
	if cfg.Lock == nil {
		return nil, fmt.Errorf("httpfence: Config.Lock is nil: %w", tokens.ErrInvalid)
	}
	f := &Fence{lock: cfg.Lock, peek: cfg.Peek, errorFunc: cfg.ErrorFunc}
	if f.errorFunc == nil {
		f.errorFunc = logAndHide
	}
	return f, nil
}

func logAndHide(w http.ResponseWriter, r *http.Request, err error) {
	slog.ErrorContext(r.Context(), "fenced handler failed", "method", r.Method, "pattern", r.Pattern, "error", err)
	internal.write(w)
}

// Wrap returns a handler that calls next with the lock and token of the request
// in its context, for [tokens.FromContext], or answers 428, 400 or, early, 412.
// It leaves the answer to next; [WriteError] is how next answers for a stale
// token.
func (f *Fence) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, err := f.admit(r)
		if err != nil {
			WriteError(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// A HandlerFunc is a handler that returns what went wrong instead of answering
// for it.
type HandlerFunc func(w http.ResponseWriter, r *http.Request) error

// Handle is [Fence.Wrap] for a handler that returns its error. What h writes is
// sent after it has returned nil; after an error it is dropped, and the error's
// answer is sent (see the package's table).
func (f *Fence) Handle(h HandlerFunc) http.Handler {
	return f.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := buffer{header: w.Header().Clone()} // with what was set around this handler
		err := h(&answer, r)
		switch {
		case err == nil && answer.tooLarge:
			f.errorFunc(w, r, ErrAnswerTooLarge)
		case err == nil:
			answer.sendTo(w)
		case !WriteError(w, err):
			f.errorFunc(w, r, err)
		}
	}))
}

// admit returns the context for the request's handler, or why there is none. It
// does not accept anything.
func (f *Fence) admit(r *http.Request) (context.Context, error) {
	token, err := tokens.FromHeader(r.Header)
	if err != nil {
		return nil, err
	}
	lock, err := f.lock(r)
	if err == nil {
		err = tokens.ValidateResource(lock)
	}
	if err != nil {
		return nil, fmt.Errorf("lock of the request: %w: %w", tokens.ErrInvalid, err)
	}
	if f.peek != nil {
		if current, err := f.peek(r.Context(), lock); err == nil && token < current {
			return nil, &tokens.StaleError{Resource: lock, Presented: token, Current: current}
		}
	}
	return tokens.NewContext(r.Context(), lock, token), nil
}

// WriteError answers for err where it is one that this package knows, and reports
// whether it is. Call it before anything was written to w.
//
// tokens.ErrInvalid counts as the caller's fault (400): by the time a handler
// runs, only what came with the request can be out of bounds.
func WriteError(w http.ResponseWriter, err error) bool {
	p, ok := problemFor(err)
	if ok {
		p.write(w)
	}
	return ok
}

func problemFor(err error) (problem, bool) {
	if stale, ok := errors.AsType[*tokens.StaleError](err); ok {
		p := staleToken
		p.Resource, p.Presented, p.Current = stale.Resource, stale.Presented, stale.Current
		return p, true
	}
	for _, known := range []struct {
		err error
		problem
	}{
		{tokens.ErrMissing, tokenMissing},
		{tokens.ErrUnknownOutcome, outcomeUnknown},
		{tokens.ErrStale, staleToken},
		{tokens.ErrDuplicate, duplicate},
		{tokens.ErrBusy, busy},
		{tokens.ErrRetryable, busy},
		{tokens.ErrInvalid, malformed},
	} {
		if errors.Is(err, known.err) {
			return known.problem, true
		}
	}
	return problem{}, false
}
