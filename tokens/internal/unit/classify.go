package unit

import (
	"errors"
	"io"
	"net"

	"github.com/fenced/fenced/tokens"
)

// classes are the errors that an adapter sorts those of its store into.
var classes = []error{
	tokens.ErrStale, tokens.ErrDuplicate, tokens.ErrInvalid, tokens.ErrBusy,
	tokens.ErrRetryable, tokens.ErrUnknownOutcome, tokens.ErrUnfenced, tokens.ErrMissing,
}

// Classified reports whether err has been sorted before.
func Classified(err error) bool { return isAny(err, classes) }

// ConnectionLost reports whether err is about the connection, not about SQL: one of
// the network's, or one of those that the driver has for it.
func ConnectionLost(err error, drivers ...error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || isAny(err, []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed}) || isAny(err, drivers)
}

func isAny(err error, targets []error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
