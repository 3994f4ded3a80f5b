package tokens

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxResourceLen is the greatest length of a resource name, in bytes.
const MaxResourceLen = 1024

// A Mode says what equality with the fence means for a claim.
type Mode uint8

const (
	// OneShot accepts a token higher than the fence: one unit of work a grant.
	// Equality is a [Duplicate].
	OneShot Mode = iota
	// Renewable accepts a token equal to the fence or higher: a holder that
	// writes several times under one grant.
	Renewable
)

// String returns "one-shot" or "renewable".
func (m Mode) String() string {
	switch m {
	case OneShot:
		return "one-shot"
	case Renewable:
		return "renewable"
	default:
		return fmt.Sprintf("Mode(%d)", uint8(m))
	}
}

// An Outcome is a guard's answer to a claim. The zero value is none of them, so
// that a forgotten Outcome is not an acceptance.
type Outcome uint8

const (
	// Accepted: the fence stands at the claim's token and stays there until the
	// unit of work ends; now read, then write.
	Accepted Outcome = iota + 1
	// Duplicate: a [OneShot] claim's token equals the fence.
	Duplicate
	// Stale: the claim's token is lower than the fence.
	Stale
)

// String returns "accepted", "duplicate" or "stale".
func (o Outcome) String() string {
	switch o {
	case Accepted:
		return "accepted"
	case Duplicate:
		return "duplicate"
	case Stale:
		return "stale"
	default:
		return fmt.Sprintf("Outcome(%d)", uint8(o))
	}
}

// A Claim is what a writer presents to a guard.
type Claim struct {
	// Resource names the fence: 1 to [MaxResourceLen] bytes of UTF-8 without NUL.
	// By habit it is the lock's name. Names are compared byte by byte.
	Resource string
	// Token is the token of the writer's grant.
	Token Token
	// Mode says whether the token may equal the fence. Defaults to [OneShot], the
	// stricter one.
	Mode Mode
	// Deadline is the end of the writer's lease by its own clock. Guards that can
	// wait do not wait beyond it, and stores that can free a stalled writer's row
	// locks do so then. The zero value means no deadline.
	Deadline time.Time
}

// Validate returns an error that wraps [ErrInvalid] and names the field unless
// resource, token and mode are within their bounds. A deadline in the past is
// valid here: the guard finds the time over.
func (c Claim) Validate() error {
	if err := ValidateResource(c.Resource); err != nil {
		return err
	}
	if err := c.Token.check(); err != nil {
		return fmt.Errorf("resource %q: %w", c.Resource, err)
	}
	if c.Mode > Renewable {
		return fmt.Errorf("resource %q: %v is no mode: %w", c.Resource, c.Mode, ErrInvalid)
	}
	return nil
}

// ValidateResource returns an error that wraps [ErrInvalid] unless name is 1 to
// [MaxResourceLen] bytes of UTF-8 without NUL. NUL is refused because not every
// store can hold it in a text key.
func ValidateResource(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("resource: the name is empty: %w", ErrInvalid)
	case len(name) > MaxResourceLen:
		return fmt.Errorf("resource %.32q...: %d bytes, limit is %d: %w", name, len(name), MaxResourceLen, ErrInvalid)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return fmt.Errorf("resource %.32q: not UTF-8 without NUL: %w", name, ErrInvalid)
	}
	return nil
}

// A Decision is a guard's answer with the fence it rests on.
type Decision struct {
	// Outcome says what became of the claim.
	Outcome Outcome
	// Current is the fence after the answer: the claim's own token where it was
	// accepted or a duplicate, a higher one where it was stale.
	Current Token
}

// Err returns the error that goes with d as the answer to c: nil for [Accepted],
// a *[StaleError] for [Stale], an error that wraps [ErrDuplicate] for
// [Duplicate]. Every guard returns it, so that a refusal cannot be overlooked.
func (d Decision) Err(c Claim) error {
	switch d.Outcome {
	case Accepted:
		return nil
	case Duplicate:
		return fmt.Errorf("resource %q: token %d: %w", c.Resource, int64(c.Token), ErrDuplicate)
	case Stale:
		return &StaleError{Resource: c.Resource, Presented: c.Token, Current: d.Current}
	default:
		return fmt.Errorf("resource %q: no decision: %w", c.Resource, ErrInvalid)
	}
}

// Decide is the comparison that every guard makes: what becomes of token t, in
// mode m, at a fence that stands at current (0 where the resource has none).
// It is for implementing guards whose store cannot compare by itself, under a
// lock on the resource; calling it on a value read earlier is the race that
// guards exist to end.
func Decide(current, t Token, m Mode) Decision {
	switch {
	case t > current, t == current && m == Renewable:
		return Decision{Outcome: Accepted, Current: t}
	case t == current:
		return Decision{Outcome: Duplicate, Current: current}
	default:
		return Decision{Outcome: Stale, Current: current}
	}
}

// A Guard checks claims against the fences of a store and raises them. U is the
// store's unit of work, for example a transaction: what Advance did and what the
// caller then writes take effect together or not at all.
//
// Advance first, then read, then write, all in one unit. A value that was read
// before the fence was advanced may be older than the previous holder's last
// write.
//
// There is no method that only checks. A check and a later write are the race
// that fencing exists to end.
//
// Implementations may be used by any number of goroutines; one unit of work is
// used by one goroutine at a time. Package fencetest holds the suite that every
// implementation must pass.
type Guard[U any] interface {
	// Advance raises the fence of c.Resource to c.Token within u, or refuses.
	// It waits for another unit that holds the same fence, at most until
	// c.Deadline or the end of ctx.
	//
	// A refusal is in the Decision and in the error: a *[StaleError], or an error
	// that wraps [ErrDuplicate]. A second Advance of an equal token in the same
	// unit is accepted in both modes. Other errors wrap [ErrInvalid], [ErrBusy],
	// [ErrRetryable] or [ErrUnfenced] and come with the zero Decision. After any
	// error the caller must end u without effect.
	Advance(ctx context.Context, u U, c Claim) (Decision, error)

	// AdvanceAll advances several resources, all or nothing, in an order of its
	// own that keeps opposing callers from blocking each other for ever. The
	// decisions stand in the order of cs. The error is that of the claim which was
	// refused first, in the guard's order. Two claims on one resource give
	// [ErrInvalid]; an empty cs is no work. After any error the caller must end u
	// without effect.
	AdvanceAll(ctx context.Context, u U, cs []Claim) ([]Decision, error)

	// Peek returns the fence of resource as last committed, 0 where it has none.
	// Only a refusal that follows from it is conclusive: a token below it is
	// stale for ever; a token at or above it may be stale a moment later.
	Peek(ctx context.Context, resource string) (Token, error)

	// Capabilities says what the store can do, so that code and tests need not
	// guess.
	Capabilities() Capabilities
}

// Capabilities says what a store can do for a guard beyond comparing tokens.
type Capabilities struct {
	// HoldsUntilEnd: once a claim is accepted, no higher token is accepted for
	// that resource until the unit of work has ended.
	HoldsUntilEnd bool
	// Rollback: a unit of work that ends without effect leaves fences as they were.
	Rollback bool
	// Multi: [Guard.AdvanceAll] takes more than one claim.
	Multi bool
	// Durable: fences outlive the process that keeps them.
	Durable bool
	_       struct{}
}
