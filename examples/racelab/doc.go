// Command racelab shows what a lock alone cannot do.
//
// It runs one workload, updates of account balances and payments of rewards in
// PostgreSQL, under seven ways of locking. Some workers stand still while they hold
// the lock, for longer than the lock lasts, as a garbage collection, a frozen
// virtual machine or a cut network makes them, and then go on as if nothing had
// happened. Afterwards it counts in the database what was lost and what was paid
// twice, prints a table, and writes racelab-report.html, which explains itself.
//
//	go run ./examples/racelab          the full run, about four minutes
//	go run ./examples/racelab -quick   less than 50 seconds
//	go run ./examples/racelab -json    the numbers for scripts, on stdout
//	go run ./examples/racelab -real    workers are processes, stopped with SIGSTOP
//
// It needs PostgreSQL's server binaries and, for the rows of Redis, redis-server; it
// starts servers of its own and removes them.
//
// Exit codes: 0, the guarded ways let nothing through; 1, one of them did, or the
// run means nothing because too few workers stalled; 2, bad usage; 3, the lab could
// not run. See docs/race.md for a walk through a run.
package main
