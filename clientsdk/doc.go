// Package clientsdk acquires distributed locks from fenced servers and keeps them.
//
//	client, err := clientsdk.New(clientsdk.Config{})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	return client.Do(ctx, "orders/42", func(ctx context.Context) error {
//		token, _ := tokens.FromContext(ctx, "orders/42")
//		return pay(ctx, 42, token) // the store refuses the write if token is stale
//	})
//
// # Two lines of defence
//
// A lock is a lease: it ends when its holder does not renew it, because holders die.
// So a holder that is paused, suspended or cut off can find itself without the lock
// in the middle of its work, and no lock service can stop the write that it has
// already begun. The lease is for efficiency: few workers collide. The fence is for
// correctness: every grant carries a token that only rises, the worker sends it with
// its writes, and the store refuses a token lower than the highest it has accepted.
// See package tokens for the fence. A lock alone never protects data.
//
// # What a Hold promises
//
//   - Its [Hold.Context] ends before the lease can have ended, by this machine's
//     clock: deadlines count from the sending of the request that confirmed them,
//     less a tenth of the TTL. On Linux the clock is CLOCK_BOOTTIME, which goes on
//     while the machine sleeps and ignores steps; elsewhere the earlier of the
//     monotonic and the wall clock. Whoever asks the context after a pause sees the
//     loss at once.
//   - It ends exactly once: as lost, released or closed.
//   - Failures that pass before the deadline lose nothing. Only a server's word that
//     the hold is gone, or the clock, does.
//   - Every call is safe to repeat: each attempt has an idempotency key of its own, so
//     an answer that is lost costs time and never a second hold.
//   - A place in the queue survives cut connections and restarts of servers.
//
// It does not promise that a paused process stops in time, nor that writes already
// sent arrive before the lease ends. Both are for the fence.
//
// # Sessions
//
// The holds of a client share one lease for each TTL in use, a session, so that a
// thousand holds cost one renewal. When it is lost, all of them are. A hold taken with
// AcquireOptions.PerHold has a lease of its own, and outlives [Client.Close].
//
// # Errors
//
// [ErrHeld], [ErrLost], [ErrReleased], [ErrUnavailable], [ErrClosed] and [*APIError];
// each says at its declaration what to do. [SafeToRetry] and [OutcomeKnown] answer the
// two questions that a caller has about any of them.
//
// # Concurrency
//
// All methods may be called from any number of goroutines. A [Client] starts
// goroutines for its leases only, and none outlives [Client.Close].
//
// # Tests
//
// Package sdktest has an in-process server for tests: it loses locks and answers on
// command, in virtual time.
package clientsdk
