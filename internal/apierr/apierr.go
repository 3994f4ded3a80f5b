// Package apierr is the one table of error codes of fenced: what each code
// means, its HTTP status, its exit code in fencectl, whether a repeat can help,
// and whether the outcome of the call is known.
//
// The code travels in the body of every error answer, so a client rebuilds the
// error from the code and never from the status, which several codes share. One
// meaning has one code; codes are added, never changed.
package apierr

import (
	"errors"
	"fmt"
	"time"
)

// Code is the stable, machine-readable name of an error.
type Code string

// The codes of the API. Their meaning, status and exit code stand in the table
// that [Code.Info] reads.
const (
	Malformed            Code = "malformed"
	BadIdempotencyKey    Code = "bad_idempotency_key"
	Unauthorized         Code = "unauthorized"
	Forbidden            Code = "forbidden"
	NotFound             Code = "not_found"
	MethodNotAllowed     Code = "method_not_allowed"
	LockHeld             Code = "lock_held"
	HolderChanged        Code = "holder_changed"
	NotHeld              Code = "not_held"
	SessionFull          Code = "session_full"
	Duplicate            Code = "duplicate"
	HoldGone             Code = "hold_gone"
	SessionGone          Code = "session_gone"
	StaleToken           Code = "stale_token"
	TokenNotValid        Code = "token_not_valid"
	TooLarge             Code = "too_large"
	UnsupportedMediaType Code = "unsupported_media_type"
	Misdirected          Code = "misdirected"
	OutOfBounds          Code = "out_of_bounds"
	IdempotencyKeyReused Code = "idempotency_key_reused"
	TokenMissing         Code = "token_missing"
	Quota                Code = "quota"
	Internal             Code = "internal"
	NoQuorum             Code = "no_quorum"
	Behind               Code = "behind"
	TokenFloor           Code = "token_floor"
	ShuttingDown         Code = "shutting_down"
	OutcomeUnknown       Code = "outcome_unknown"
)

// Unreachable is the code of a call that has reached no server. No server answers with
// it, so it is none of [Codes].
const Unreachable Code = "unreachable"

// Exit codes of fencectl, after sysexits.h where it has a fitting one.
const (
	ExitUsage       = 64 // EX_USAGE: the command line or a value is wrong
	ExitUnreachable = 69 // EX_UNAVAILABLE: no server could answer
	ExitNotAcquired = 75 // EX_TEMPFAIL: the lock is held by another
	ExitLost        = 76 // the lock was lost while the command ran
	ExitRefused     = 77 // EX_NOPERM: the key may not do this
	ExitConflict    = 78 // the named hold or token is not the current one
)

// Info is what the table says of one code.
type Info struct {
	// Status is the HTTP status that carries the code.
	Status int
	// Exit is the exit code of fencectl for it.
	Exit int
	// Retryable says that the same call may succeed later, unchanged.
	Retryable bool
	// OutcomeKnown is false where the call may have taken effect.
	OutcomeKnown bool
	// Meaning is one sentence for people; it is the problem's title.
	Meaning string
}

var table = map[Code]Info{
	Malformed:            {400, ExitUsage, false, true, "The request cannot be read"},
	BadIdempotencyKey:    {400, ExitUsage, false, true, "The Idempotency-Key is neither a UUID nor 32 hex digits"},
	Unauthorized:         {401, ExitRefused, false, true, "No valid API key was given"},
	Forbidden:            {403, ExitRefused, false, true, "The caller may not do this"},
	NotFound:             {404, ExitUsage, false, true, "There is no such route"},
	MethodNotAllowed:     {405, ExitUsage, false, true, "The route does not know this method"},
	LockHeld:             {409, ExitNotAcquired, true, true, "The lock is held by another"},
	HolderChanged:        {409, ExitConflict, false, true, "The token is not the one of the current holder"},
	NotHeld:              {409, ExitConflict, false, true, "The hold is still queued"},
	SessionFull:          {409, ExitConflict, false, true, "The session has as many holds as one session may have"},
	Duplicate:            {409, ExitConflict, false, true, "The token was used before, in one-shot mode"},
	HoldGone:             {410, ExitLost, false, true, "The hold has ended"},
	SessionGone:          {410, ExitLost, false, true, "The session has ended"},
	StaleToken:           {412, ExitConflict, false, true, "The token is lower than the highest accepted one"},
	TokenNotValid:        {412, ExitConflict, false, true, "The token is not the one of a live holder"},
	TooLarge:             {413, ExitUsage, false, true, "The request is too large"},
	UnsupportedMediaType: {415, ExitUsage, false, true, "The body must be application/json"},
	Misdirected:          {421, ExitUsage, false, true, "The Host header names another server"},
	OutOfBounds:          {422, ExitUsage, false, true, "A value is out of bounds"},
	IdempotencyKeyReused: {422, ExitUsage, false, true, "The Idempotency-Key was used for this lock with another body"},
	TokenMissing:         {428, ExitUsage, false, true, "The request needs a Fencing-Token header"},
	Quota:                {429, ExitNotAcquired, true, true, "A quota of the API key is used up"},
	Internal:             {500, 70, false, false, "The server met a fault of its own"},
	NoQuorum:             {503, ExitUnreachable, true, true, "The store has no quorum"},
	Behind:               {503, ExitUnreachable, true, true, "This server is behind the store"},
	TokenFloor:           {503, ExitUnreachable, true, true, "Granting is closed: the store is below tokens issued before"},
	ShuttingDown:         {503, ExitUnreachable, true, true, "The server is shutting down"},
	OutcomeUnknown:       {503, ExitUnreachable, true, false, "The call may or may not have taken effect"},
}

var unreachable = Info{0, ExitUnreachable, true, true, "No server could be reached"}

// Codes returns every code that a server can answer with, in no particular order.
func Codes() []Code {
	codes := make([]Code, 0, len(table))
	for c := range table {
		codes = append(codes, c)
	}
	return codes
}

// Info returns the row of c. An unknown code, such as one of a newer server, is
// treated like [Internal].
func (c Code) Info() Info {
	if c == Unreachable {
		return unreachable
	}
	if info, ok := table[c]; ok {
		return info
	}
	return table[Internal]
}

// Known reports whether c is one of [Codes].
func (c Code) Known() bool {
	_, ok := table[c]
	return ok
}

// Error is an error with a code. Errors that carry more data have types of their
// own with a Code method; [CodeOf] finds the code of either.
type Error struct {
	ErrCode Code
	// Detail is one sentence for people. It never repeats the caller's body.
	Detail string
	// Field names the offending field or header, Limit what it must obey; both
	// are empty where no single field is at fault.
	Field, Limit string
	// RetryAfter is when a repeat makes sense; 0 where none does.
	RetryAfter time.Duration
	// Cause is the error behind this one, for logs; it is never sent.
	Cause error
}

// New returns an [Error] of code c with a formatted detail.
func New(c Code, format string, args ...any) *Error {
	return &Error{ErrCode: c, Detail: fmt.Sprintf(format, args...)}
}

// Bounds returns an [OutOfBounds] error for the named field.
func Bounds(field, limit string) *Error {
	return &Error{ErrCode: OutOfBounds, Detail: field + " must be " + limit, Field: field, Limit: limit}
}

// Error implements error.
func (e *Error) Error() string {
	text := string(e.ErrCode)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Code returns the code.
func (e *Error) Code() Code { return e.ErrCode }

// Is reports whether target is an [*Error] of the same code, so that an error
// with a code and nothing else serves as a sentinel.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.ErrCode == e.ErrCode && t.Detail == ""
}

// CodeOf returns the code of err or of the nearest error in its chain that has
// one, [Internal] for any other error, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var coded interface{ Code() Code }
	if errors.As(err, &coded) {
		return coded.Code()
	}
	return Internal
}
