package tokens

import (
	"errors"
	"fmt"
)

// What a guard or a decoder can say, each its own meaning. Compare with
// errors.Is; the returned errors carry details around them.
var (
	// ErrStale: the token is lower than the fence of its resource, so a newer
	// grant has written. Nothing was written. Never repeat with the same token.
	// It always comes as a *[StaleError]. Over HTTP: 412.
	ErrStale = errors.New("stale token")

	// ErrDuplicate: a [OneShot] claim presented a token that was accepted
	// before. This grant, or somebody with its token, has written. Look up what
	// that write did; do not write again.
	ErrDuplicate = errors.New("token was used before")

	// ErrInvalid: a token, a resource name or a claim is malformed or out of
	// bounds. No fence was asked.
	ErrInvalid = errors.New("invalid")

	// ErrMissing: a request carries no token. Over HTTP: 428.
	ErrMissing = errors.New("no token given")

	// ErrBusy: another unit of work kept the fence until the time for waiting
	// was over. Nothing was written; the same claim may be made again.
	ErrBusy = errors.New("fence is in use")

	// ErrRetryable: the store undid the unit of work for reasons of its own, such
	// as a deadlock or a lost connection. Nothing was written; the whole unit may
	// be repeated with the same token.
	ErrRetryable = errors.New("can be repeated")

	// ErrUnknownOutcome: the answer to the commit was lost, so the write may have
	// taken effect. Repeat the same idempotent write with the same token, or look.
	ErrUnknownOutcome = errors.New("outcome unknown")

	// ErrUnfenced: the store refused a write because its unit of work had not
	// advanced the fence of that resource, or the writer lacks the rights to do
	// so. It is a bug or a fault of configuration, never a reason for 412.
	ErrUnfenced = errors.New("write without a fence")
)

// A StaleError says which claim was refused and why. errors.Is(err, [ErrStale])
// holds for it.
type StaleError struct {
	// Resource is the name whose fence refused.
	Resource string
	// Presented is the token of the refused claim.
	Presented Token
	// Current is the fence at the time of the refusal, always higher than
	// Presented. It may have risen since.
	Current Token
}

// Error names the resource and both tokens.
func (e *StaleError) Error() string {
	return fmt.Sprintf("resource %q: stale token %d, current is %d", e.Resource, int64(e.Presented), int64(e.Current))
}

// Is makes a StaleError match [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }
