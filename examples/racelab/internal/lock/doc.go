// Package lock takes locks in each of the ways that the race lab compares: not at
// all, with one Redis, with Redlock over five, with etcd's own mutex, and with
// fenced. Each way is used as its own documentation tells.
//
// A [Locker] belongs to one worker. A worker that stalls closes its [Gate]: from
// then on nothing that its clients do in the background, renewals above all,
// leaves it, as nothing leaves a process that is stopped.
//
// # Concurrency
//
// A Locker may be used from any number of goroutines, a Hold from one at a time.
package lock
