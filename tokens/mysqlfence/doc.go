// Package mysqlfence makes MySQL and MariaDB refuse the writes of a holder whose
// lock has passed on. It checks a fencing token and writes in one transaction of
// the caller's, on database/sql with github.com/go-sql-driver/mysql.
//
// A resource is any name; its fence is a row of the table fence_guard in the
// database of the connection, so one fence covers many rows and tables, and
// outlives them. [Install] the table, or review and run [Schema]. It needs InnoDB,
// and MySQL 8.0.16 or MariaDB 10.3 for the checks in it. The package is tested
// against MariaDB.
//
// # Advance first, then read, then write
//
// A value read before the fence was advanced may lack the previous holder's last
// write. [WithFence] leaves no other order: it begins the transaction, advances,
// and only then calls the function it was given.
//
//	claim := tokens.Claim{Resource: "account/42", Token: token, Mode: tokens.Renewable, Deadline: leaseEnd}
//	err := mysqlfence.WithFence(ctx, db, claim, func(ctx context.Context, tx *mysqlfence.Tx) error {
//		_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + 10 WHERE id = 42")
//		return err
//	})
//	var stale *tokens.StaleError
//	if errors.As(err, &stale) {
//		// A newer holder has written. Stop; over HTTP, answer 412.
//	}
//
// # What is promised
//
//   - Once a transaction that advanced a resource to a token has committed, no
//     transaction with a lower token for it commits. Until a transaction that was
//     accepted ends, no higher token is accepted: it waits.
//   - A refusal, like every error of a [Guard], ends the transaction, so that a
//     caller that ignores the error can neither write in it nor commit it.
//   - Tokens out of bounds reach no fence; the table checks again.
//   - A stalled client's transaction is ended by the server when the lease is over;
//     see [WithFence] for the exact bound.
//
// # What is not promised
//
//   - The database does not refuse writes by those who do not use this package;
//     pgfence.Protect has no counterpart here.
//   - A fence is as durable as the commit that advanced it. Replication is
//     asynchronous by default: after a failover or a restored backup, let the
//     application connect only when every lease from before is over.
//   - Nothing here works across several writable primaries.
//
// # What MySQL does to a transaction
//
// Some errors end a transaction behind the caller's back, and what is written next
// is committed at once, unfenced: a deadlock (1213) does, and a statement like
// ALTER TABLE commits implicitly. A lock timeout (1205) undoes its statement alone
// and leaves half a transaction to commit. WithFence repeats the unit after a
// deadlock or lock timeout, and gives ErrUnfenced wherever the transaction that
// advanced has ended inside the function; what was committed with that end, and
// what was written with autocommit on, stays. Whoever advances in a transaction of
// their own must end it after every error but those they expect, such as 1062, and
// run no DDL in it.
//
// # Isolation
//
// Use READ COMMITTED, as WithFence does. The server's default, REPEATABLE READ, is
// safe too as long as the fence is advanced before the first read, which fixes
// what the transaction sees.
//
// # Errors
//
// Errors match the sentinels of package tokens; [Classify] is the table. None but
// *[tokens.StaleError] means that a newer holder wrote.
//
// # Concurrency
//
// Everything may be used from any number of goroutines, except that a
// transaction belongs to one at a time.
package mysqlfence
