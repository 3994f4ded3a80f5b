// Package stage starts the processes of the reward pipeline, each the real one:
// fenced, a throwaway PostgreSQL, and rewardctl as workers, publishers and item
// server. The demonstration plays on it, and so do the tests of faults.
//
// What a process prints is kept and can be waited for; what it suffers is sent as a
// signal. Nothing here waits for a length of time.
//
// A Stage and its processes may be used from any number of goroutines. The
// processes end with the process that started them, also when it is killed; that,
// and a signal that stops a chosen thread, is why all this needs Linux.
package stage
