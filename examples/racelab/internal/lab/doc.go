// Package lab is the experiment: it takes one plan through every way of locking,
// lets workers stall while they hold a lock, and counts from the database what that
// has done.
//
// The contended pass runs the ways one after the other, each with the same steps and
// the same stalls. The latency pass has no stalls and no contention, and visits the
// ways in turn, over and over, so that what else the machine does meets all alike.
//
// The workers of every way are those that forgot: they never ask whether their lease
// is still good. What protects the data must not depend on it.
//
// # Errors
//
// [Run] fails where something breaks. What it finds out, however bad, is in the
// [Result]; see [Result.Problems].
package lab
