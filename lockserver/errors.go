package lockserver

import (
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/tokens"
)

// HeldError says that the lock is held by another and the wait is over. The
// hold's place is given up. Its code is lock_held. Holder is zero where the holder
// left before it could be described: try again.
type HeldError struct {
	Lock    string
	Holder  Holder
	Waiters int
	Waited  time.Duration
}

// Error implements error.
func (e *HeldError) Error() string {
	return fmt.Sprintf("acquire %q: held by %q with token %d", e.Lock, e.Holder.Owner, e.Holder.Token)
}

// Code returns lock_held.
func (e *HeldError) Code() apierr.Code { return apierr.LockHeld }

// GoneError says that a hold or a session has ended. Its code is hold_gone or
// session_gone. Treat [EndUnknown] like a crash.
type GoneError struct {
	Ref     string
	End     End
	Session bool
	// Lock and Token are what the hold was of, where that is remembered; a hold that
	// never was the holder had no token.
	Lock  string
	Token tokens.Token
}

// Error implements error.
func (e *GoneError) Error() string {
	what := "hold"
	if e.Session {
		what = "session"
	}
	return fmt.Sprintf("%s %s is gone: %s", what, e.Ref, e.End)
}

// Code returns hold_gone or session_gone.
func (e *GoneError) Code() apierr.Code {
	if e.Session {
		return apierr.SessionGone
	}
	return apierr.HoldGone
}
