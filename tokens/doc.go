// Package tokens holds the words that every part of fenced shares about fencing
// tokens: the [Token] itself, the [Claim] a writer makes with it, the [Guard]
// that a store answers the claim with, and how a token travels in HTTP headers,
// JSON, SQL and contexts. It imports the standard library only.
//
// # What a token is for
//
// A lease can end while its holder is paused, and the holder cannot know. So two
// processes may each believe, for a while, that they own a lock. The lease is
// for efficiency: few collide. The fence is for correctness: every grant of a
// lock carries a token higher than all grants before it, each resource in a
// store remembers the highest token it has accepted (its fence), and the store
// refuses a write that presents a lower one. Nothing but the store can do this,
// and it must compare and write in one step.
//
// # What is promised
//
//   - A [Token] that came from this package's decoders is between 1 and [Max]:
//     there is no lax parser. Every such token is exact as a JSON number, also in
//     languages whose numbers are 64-bit floats.
//   - A [Guard] never accepts a token below one that it accepted for the same
//     resource and whose unit of work took effect.
//   - [FromContext] returns the token of the lock asked for, never another's.
//
// # What is not promised
//
//   - Tokens of different locks are not comparable and may be equal. One resource
//     is guarded by one lock.
//   - Tokens have gaps. Only their order means anything.
//   - A look at a fence ([Guard.Peek]) proves nothing about a later write. Only a
//     refusal is conclusive, because fences never fall.
//
// # Refusals are errors
//
// [Guard.Advance] returns a refusal twice: as the [Decision] and as an error, so
// that a caller that looks at one of the two cannot write by mistake. A stale
// claim gives a *[StaleError]; a one-shot claim whose token was used before gives
// an error that wraps [ErrDuplicate].
//
//	d, err := guard.Advance(ctx, tx, tokens.Claim{Resource: "account/42", Token: t})
//	var stale *tokens.StaleError
//	switch {
//	case errors.As(err, &stale):           // a newer holder wrote: stop, answer 412
//	case errors.Is(err, tokens.ErrDuplicate): // this grant wrote before: look up what it did
//	case errors.Is(err, tokens.ErrBusy):   // another unit of work holds the fence: try later
//	case err != nil:                       // see the other sentinels
//	default:                               // d.Outcome == tokens.Accepted: read, then write
//	}
//
// # Errors
//
// [ErrStale], [ErrDuplicate], [ErrInvalid], [ErrMissing], [ErrBusy],
// [ErrRetryable], [ErrUnknownOutcome] and [ErrUnfenced]; each says what to do at
// its declaration. Only ErrStale becomes 412 over HTTP.
//
// # Concurrency
//
// All values are plain data and all functions may be called from any number of
// goroutines.
package tokens
