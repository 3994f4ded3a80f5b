// Package queue is the lock queue as a pure state machine: revisions of the
// store's log go in, decisions come out. It has no clock, no goroutine and no
// etcd, so that every rule of it can be tested by properties and by fuzzing.
//
// [Table] keeps the live holds of all locks in the order of their create
// revisions; the first of a lock is its holder. [Place] says what is to be done
// about one hold that this server answers for, and when: keep its lease alive,
// give its place up, or end it.
//
// Nothing here is safe for concurrent use; the caller holds its own mutex.
package queue
