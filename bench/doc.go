// Command bench measures fenced beside its peers, all on one machine and in one
// run: etcd's v3lock and concurrency.Mutex over gRPC, ZooKeeper's lock recipe,
// Redis, and etcd's put and delete as the limit of what any of it can reach.
//
//	go run ./bench               all of it, in under 10 minutes; writes bench/RESULTS.md
//	go run ./bench -quick -json  all of it in short rounds, in under 50 s; prints one JSON object
//	go run ./bench -profile DIR  CPU and heap profiles of the server on each hot path
//	go run ./bench -load 60s     10,000 requests a second, valid and not, and what is left of them
//	go run ./bench -growth 1h    how the store's file grows under 10,000 cycles a second
//
// # How it measures
//
// Absolute numbers say little on a machine that does other things too, so what
// counts are ratios. The measures of a group take turns: each round runs all of
// them for less than a second, one after the other and every other round backwards,
// and a ratio is the median of the ratios of the rounds. The spread beside it is
// the lowest and the highest of them.
//
// Every server is a process of its own with its data on a disk and its own default
// of durability: etcd, ZooKeeper and fenced fsync before they answer, and Redis is
// told to (appendfsync always). The load comes from this process, and is the same
// for all: as many goroutines as clients, and each client with a connection of its
// own; what v3lock gains where all share one is a figure beside it. fenced is the
// real binary, except where the inside of the server must be seen (memory, growth,
// profiles): there this binary runs the same packages.
//
// A client that works over HTTP by hand writes requests and reads answers on a
// plain connection, as wrk does; what the Go SDK costs on top is a figure of its
// own. Every hold of such a client has its own lease. "Lease per lock" of v3lock
// is LeaseGrant, Lock and LeaseRevoke, which also releases the lock: one call less
// than with Unlock.
//
// What is not installed is left out, with one line that says so, and its ratios
// are null. Nothing here is a test of correctness.
package main
