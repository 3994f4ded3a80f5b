// Package fencetest is the conformance suite that every guard must pass. A guard
// is code whose faults show only when two writers meet in the worst order, so the
// suite brings about those orders, and is itself tested with guards that have one
// planted fault each.
//
// An adapter describes itself with a small [Harness] and runs everything that its
// capabilities allow:
//
//	func TestConformance(t *testing.T) {
//		fencetest.Run(t, func(t *testing.T) fencetest.Harness[*memfence.Tx] {
//			return harness{memfence.New()}
//		})
//	}
//
// # Cases
//
// The numbers are those of the list that every adapter answers for. The suite
// covers
//
//	order     1 first token, 2 higher, 3 lower, 4 equal in both modes, 5 equal twice in one unit
//	values    6 out of bounds, 7 exact comparison up to Max, 29 resource names
//	race      8 first-ever race, 9 older waits and newer commits, 10 newer rolls back,
//	          11 an open unit keeps its fence, 23 a cancelled wait leaves nothing,
//	          30 many renewables of one holder, 32 random histories
//	rollback  12 rollback, 14 an open lower unit is refused, 15 a refused unit writes nothing,
//	          24 savepoints, 26 deleted data keeps its fence, 27 unfenced writes
//	batch     25 several resources at once
//	answer    18 the answer to a commit is lost, 19 the unit is lost before it commits
//
// and leaves to the adapter's own tests what needs its own kind of store: 16
// isolation levels, 17 a retry budget that runs out, 20 to 22 stalled processes
// and readers, 28 failover, 31 poolers. Case 13, mutants, is this package's own
// test.
//
// # Concurrency
//
// A Harness is used from many goroutines at once; each unit of work from one.
package fencetest
