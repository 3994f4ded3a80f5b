// Package memfence is a guard in memory: the shortest complete reading of what a
// guard does, and a store to test with. It keeps one value beside each fence, so
// that examples and tests have something to write.
//
// Its [Store] is to a guard what a database is: units of work ([Tx]) take effect
// whole or not at all, an accepted claim keeps its fence until the unit ends, and
// a write to a resource whose fence the unit has not advanced is refused, as a
// protected table in PostgreSQL refuses it.
//
//	store := memfence.New()
//	tx := store.Begin()
//	defer tx.Rollback()
//	if _, err := store.Advance(ctx, tx, tokens.Claim{Resource: "account/42", Token: 7}); err != nil {
//		return err // a *tokens.StaleError where a higher token was here
//	}
//	if err := tx.Write("account/42", "10"); err != nil {
//		return err
//	}
//	return tx.Commit()
//
// # Not promised
//
// Nothing is kept beyond the process. Two units that advance two resources in
// opposite orders, each with Advance instead of AdvanceAll, wait for each other
// until a deadline or context ends one of them: there is no detection of
// deadlocks.
//
// # Errors
//
// Those of [tokens.Guard]; [ErrEnded] for a unit that has ended.
//
// # Concurrency
//
// A Store may be used from any number of goroutines, a Tx from one at a time.
package memfence
