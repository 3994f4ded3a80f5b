// Package ledger is what the workers of the race lab write to: accounts and
// payments in PostgreSQL, one schema for each way of locking, beside a log of every
// read, stall, write and refusal.
//
// A worker reads and writes in two short units of work and may stand still between
// them. What keeps a unit from doing harm is the [Guard]: none, pgfence's central
// guard table, or pgfence's column. Nothing else differs: no table has a constraint
// that would stop a lost update or a second payment.
//
// The log is append-only, is written in the transaction that it tells of, and is
// all that [Ledger.Count] looks at. Workers report nothing.
//
// # Errors
//
// A refusal comes back as a *tokens.StaleError; everything else is a failure of the
// lab.
//
// # Concurrency
//
// A Ledger may be used from any number of goroutines and processes.
package ledger
