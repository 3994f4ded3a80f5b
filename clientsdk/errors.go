package clientsdk

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/tokens"
)

// What a call can say; compare with errors.Is.
var (
	// ErrHeld: the lock is held by another and the time for waiting is over.
	// Nothing is left behind. Try later, or see the [*HeldError] for who holds it.
	ErrHeld = errors.New("lock is held by another")

	// ErrLost: the hold has ended, or can have ended, without a Release. Stop
	// working; writes that are already on their way are for the fence to refuse.
	// It comes as a [*LostError].
	ErrLost = errors.New("hold is lost")

	// ErrReleased: the hold was released by this process. Work that still runs under
	// its context should have ended before the release.
	ErrReleased = errors.New("hold is released")

	// ErrUnavailable: no server gave a usable answer in time. Ask [OutcomeKnown]
	// whether the call can have taken effect; what Acquire may have left behind it
	// removes by itself.
	ErrUnavailable = errors.New("no server is available")

	// ErrClosed: the client was closed, and its holds with it. Make a new client, or
	// close it later: it is the last thing that a program does.
	ErrClosed = errors.New("client is closed")
)

// HeldError says who holds the lock that was asked for. It matches [ErrHeld].
type HeldError struct {
	Lock string
	// Holder is nil where the server no longer knew one.
	Holder  *Holder
	Waiters int
	// Waited is how long this call stood in the queue.
	Waited time.Duration
}

// Error implements error.
func (e *HeldError) Error() string {
	if e.Holder == nil {
		return fmt.Sprintf("acquire %q: %v", e.Lock, ErrHeld)
	}
	return fmt.Sprintf("acquire %q: held by %q with token %d", e.Lock, e.Holder.Owner, int64(e.Holder.Token))
}

// Is reports whether target is [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Code returns lock_held.
func (e *HeldError) Code() apierr.Code { return apierr.LockHeld }

// Reason says why a hold was lost.
type Reason string

// The reasons. All but LostExpired are the server's word; LostExpired is also this
// process's own, when no renewal was confirmed in time.
const (
	// LostExpired: the lease ended, or can have ended by the local clock.
	LostExpired Reason = "expired"
	// LostBroken: a person ended the hold.
	LostBroken Reason = "broken"
	// LostSession: the session ended that the hold shared.
	LostSession Reason = "session"
	// LostReleased: somebody else released it, by its id.
	LostReleased Reason = "released"
	// LostUnknown: it vanished and nobody remembers why. Treat it like a crash.
	LostUnknown Reason = "unknown"
)

// LostError says which hold was lost and why. It matches [ErrLost].
type LostError struct {
	Lock   string
	Ref    string
	Token  tokens.Token
	Reason Reason
}

// Error implements error.
func (e *LostError) Error() string {
	return fmt.Sprintf("lock %q: hold with ref %s and token %d is lost: %s", e.Lock, e.Ref, int64(e.Token), e.Reason)
}

// Is reports whether target is [ErrLost].
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Code returns hold_gone.
func (e *LostError) Code() apierr.Code { return apierr.HoldGone }

// APIError is a refusal by a server that no other error of this package stands
// for. Its code is stable; a server explains each at /docs.
type APIError struct {
	// Op is what was asked for, such as `acquire "orders/42"`.
	Op     string
	Status int
	// ErrCode is the stable code. The SDK decides by it and never by Status.
	ErrCode string
	Detail  string
	// Field and Limit name the value that was out of bounds.
	Field, Limit string
	// RetryAfter is when a repeat makes sense; 0 where none was given.
	RetryAfter time.Duration

	problem wire.Problem
}

// Error implements error.
func (e *APIError) Error() string {
	text := e.ErrCode
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Op != "" {
		text = e.Op + ": " + text
	}
	return text
}

// Code returns the code as the table of codes knows it.
func (e *APIError) Code() apierr.Code { return apierr.Code(e.ErrCode) }

// unavailableError is one exchange without a usable answer.
type unavailableError struct {
	op       string
	endpoint string
	cause    error
	// sent says that the request may have reached the server.
	sent bool
}

func (e *unavailableError) Error() string {
	return fmt.Sprintf("%s: %s: %v", e.op, e.endpoint, e.cause)
}

func (e *unavailableError) Is(target error) bool { return target == ErrUnavailable }

func (e *unavailableError) Unwrap() error { return e.cause }

func (e *unavailableError) Code() apierr.Code {
	if e.sent {
		return apierr.OutcomeUnknown
	}
	return apierr.Unreachable
}

// endedError is one exchange that its context has ended, for a cause that can be any
// error: the caller's own, or ErrClosed.
type endedError struct {
	op    string
	cause error
	reads bool // else it may have had effect, or a try before it
}

func (e *endedError) Error() string { return fmt.Sprintf("%s: %v", e.op, e.cause) }

func (e *endedError) Unwrap() error { return e.cause }

// onceError is the unknown outcome of a call that must not be made twice.
type onceError struct{ error }

func (e *onceError) Unwrap() error { return e.error }

// errNoAnswer is the cause with which a context ends that lasts for the time of one
// call, or of one try.
var errNoAnswer error = noAnswerError{}

// forAnswer returns ctx with an end to it after wait and more, for want of an answer.
func forAnswer(ctx context.Context, wait, more time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, min(wait, math.MaxInt64-more)+more, errNoAnswer)
}

type noAnswerError struct{}

func (noAnswerError) Error() string { return "no answer in the time there was" }

func (noAnswerError) Is(target error) bool { return target == ErrUnavailable }

func (noAnswerError) Code() apierr.Code { return apierr.Unreachable }

// gaveUpError is a refusal that would have passed, and has not in the time there was.
// Its text is the server's first: there is one, and it says why.
type gaveUpError struct {
	error
	// unknown: this refusal did nothing, and another try may have had effect.
	unknown bool
}

func (e *gaveUpError) Error() string {
	if e.unknown {
		return e.error.Error() + "; another try may have had effect"
	}
	return e.error.Error()
}

func (e *gaveUpError) Is(target error) bool { return target == ErrUnavailable }

func (e *gaveUpError) Unwrap() error { return e.error }

func (e *gaveUpError) Code() apierr.Code {
	if e.unknown {
		return apierr.OutcomeUnknown
	}
	return apierr.CodeOf(e.error)
}

// SafeToRetry reports whether the same call may be made again as it was: it can
// succeed, and it cannot do twice what should be done once.
func SafeToRetry(err error) bool {
	switch {
	case err == nil, errors.Is(err, ErrClosed), errors.Is(err, ErrLost), errors.As(err, new(*onceError)):
		return false
	case errors.Is(err, ErrHeld), errors.Is(err, ErrUnavailable):
		return true
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return true
	}
	return apierr.CodeOf(err).Info().Retryable
}

// OutcomeKnown reports whether it is certain that the failed call has had no
// effect. It is true for nil.
func OutcomeKnown(err error) bool {
	var ended *endedError
	var u *unavailableError
	var gaveUp *gaveUpError
	var api *APIError
	switch {
	case errors.As(err, &ended):
		return ended.reads
	case errors.As(err, &u):
		return !u.sent
	case errors.As(err, &gaveUp) && gaveUp.unknown:
		return false
	case errors.As(err, &api):
		return api.Code().Info().OutcomeKnown
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	}
	return true
}

// gone returns how the hold or session of err ended, and false where err says
// nothing of the kind.
func gone(err error) (ended string, ok bool) {
	var api *APIError
	if !errors.As(err, &api) {
		return "", false
	}
	switch api.Code() {
	case apierr.HoldGone, apierr.SessionGone:
		return api.problem.Ended, true
	}
	return "", false
}

// lostReason maps the server's word for an end to a reason.
func lostReason(err error, ended string) Reason {
	if apierr.CodeOf(err) == apierr.SessionGone {
		return LostSession
	}
	switch r := Reason(ended); r {
	case LostExpired, LostBroken, LostReleased:
		return r
	}
	return LostUnknown
}

// checkText refuses what JSON cannot carry: it would arrive as another text, and so
// name something else.
func checkText(op, field, text string) error {
	if utf8.ValidString(text) {
		return nil
	}
	return bounds(op, field, "valid UTF-8")
}

// bounds is a refusal of a value by this process, as the server's would be.
func bounds(op, field, limit string) error {
	return &APIError{Op: op, Status: http.StatusUnprocessableEntity, ErrCode: string(apierr.OutOfBounds),
		Detail: field + " must be " + limit, Field: field, Limit: limit}
}

// checkToken refuses what is no token.
func checkToken(op, field string, t tokens.Token) error {
	if t.Valid() {
		return nil
	}
	return bounds(op, field, fmt.Sprintf("1 to %d", int64(tokens.Max)))
}

// checkID refuses what would change the path that it stands in.
func checkID(op, id string) error {
	if id == "" || strings.Trim(id, ".") == "" || strings.Contains(id, "/") {
		return bounds(op, "id", "the secret id of a hold, as an acquire answers it")
	}
	return nil
}

// passing reports whether err may be gone at the next try, here or on another
// server.
func passing(err error) bool {
	var api *APIError
	if errors.As(err, &api) {
		info := api.Code().Info()
		return info.Status >= 500 || api.Status >= 500
	}
	return errors.Is(err, ErrUnavailable)
}
