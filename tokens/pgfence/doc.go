// Package pgfence makes PostgreSQL refuse the writes of a holder whose lock has
// passed on. It checks a fencing token and writes in one transaction of the
// caller's, on pgx.
//
// # Three strengths
//
//   - A column in your own table, [Row]: one statement, nothing to install. It
//     guards that row alone, and forgets when the row is deleted.
//   - The guard table, [Guard] and [WithFence]: a resource is any name, so one
//     fence covers many rows and tables, and outlives them. This is the usual
//     choice.
//   - The guard table with a trigger, [Protect]: PostgreSQL itself refuses every
//     write to the table by a transaction that has not advanced the row's
//     resource, whoever sends it: a cron job, a migration, psql.
//
// The last two need the schema: [Install] it, or review and run [Schema].
//
// # Advance first, then read, then write
//
// A value read before the fence was advanced may lack the previous holder's last
// write. [WithFence] leaves no other order: it begins the transaction, advances,
// and only then calls the function it was given.
//
//	claim := tokens.Claim{Resource: "account/42", Token: token, Mode: tokens.Renewable, Deadline: leaseEnd}
//	err := pgfence.WithFence(ctx, pool, claim, func(ctx context.Context, tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, "UPDATE account SET balance = balance + 10 WHERE id = 42")
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
//   - A refusal aborts the transaction in the database, so that a caller that
//     ignores the error still writes nothing.
//   - Tokens out of bounds reach no fence; the database checks again.
//   - A stalled client's transaction is ended by PostgreSQL when the lease is
//     over; see [WithFence] for the exact bound.
//
// # What is not promised
//
//   - A fence is as durable as the commit that advanced it. After a failover that
//     lost commits, or a restored backup, use [RaiseFloor] before the application
//     may connect.
//   - Superusers and the owner of a table can switch triggers off.
//   - Nothing here works across several writable primaries, or in a logical
//     replica that others write to.
//
// # Isolation, poolers
//
// Use READ COMMITTED, as WithFence does. Under REPEATABLE READ and SERIALIZABLE
// nothing is unsafe, but a refusal after a wait comes as [tokens.ErrRetryable]
// (SQLSTATE 40001): only the next try can tell it from stale. Behind a pooler in
// transaction mode set default_query_exec_mode=exec in the connection string; no
// setting of this package outlives its transaction.
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
package pgfence
