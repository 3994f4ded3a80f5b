// Package rewards pays the rewards of a game so that nobody is paid twice and
// nobody is forgotten, whatever stalls, dies or is delivered twice. It is an
// example to copy from: each file stands for one part, and cmd rewardctl runs them.
//
//	broker --> reward_message --> Worker --> reward_claim    one statement
//	           (inbox, at least            + reward_ledger
//	            once)                      + reward_outbox --> Publisher --> item server
//
// # Three lines of defence
//
//  1. The lock of a reward (the lease) keeps two workers from doing the same
//     work at once. It is for efficiency: a worker that stalls loses it without
//     knowing.
//  2. The token of the grant (the fence) is compared in the statement that writes,
//     so a worker that stalled and woke up is refused with a *tokens.StaleError
//     once its successor has been at the reward. Nothing it does in time or out of
//     time can change that.
//  3. The identity of the reward, (player, event), is UNIQUE in claim, ledger,
//     outbox and item server. It stands by itself when the others are lost, for
//     example the claim in a failover.
//
// # States of a claim
//
//	          Claim, token t              Apply, token >= t
//	(no row) ----------------> CLAIMED -----------------------> APPLIED
//	   |                        |    ^                             |
//	   |                        +----+                             | never changes
//	   |                  Claim, higher token                      v
//	   |                                                    replayed, already_applied
//	   +---------------------------------------------------------> or stale
//	                     Apply (no Claim before it)
//
// A token below the row's is stale in both states. Equality is allowed on the way
// from CLAIMED to APPLIED, since it is the same grant.
//
// # What it promises
//
//   - Each reward of the inbox is in the ledger exactly once, with its amount: a
//     message is settled only after the ledger has the reward, and comes back
//     otherwise.
//   - Each ledger row is told to the item server under a key that is the same on
//     every attempt, and is granted there once.
//   - Two messages that name one reward with different amounts pay once, the first
//     amount; the other message becomes DEAD, and [Verdict] says so.
//
// It does not promise order between players, nor that a ledger row survives a
// failover that lost its commit; then the message must be delivered again, and the
// item server recognises the key.
//
// # Concurrency and errors
//
// Everything may be used from any number of goroutines and processes. The errors
// are [ErrEventID], [ErrReward], [ErrMismatch] and those of package tokens:
// ErrStale (never repeat with this token), ErrBusy, ErrRetryable and
// ErrUnknownOutcome (repeat, with a newer token if need be), ErrInvalid.
//
// # Example
//
//	err := locks.Do(ctx, r.Lock(), func(ctx context.Context) error {
//		token, _ := tokens.FromContext(ctx, r.Lock())
//		outcome, err := rewards.Apply(ctx, pool, r, token)
//		...
//	})
package rewards
