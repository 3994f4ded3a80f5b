// Package stage starts what the race lab runs against, each the real thing: a
// PostgreSQL that syncs every commit, a redis-server and five more for Redlock, an
// etcd, and fenced. All of them are processes on free loopback ports, with data in
// one temporary directory, and on Linux end with the process that started them.
//
// All stores sync before they answer, Redis too (appendfsync always): a lock that a
// crash of its server forgets is not the same article, and costs less.
//
// etcd runs in a copy of the calling program, which must therefore give
// [ChildMain] its chance first thing in main.
//
// # Errors
//
// [Open] wraps pgtest.ErrNotInstalled where there is no PostgreSQL. A missing
// redis-server is no error: see [Stage.NoRedis].
//
// # Concurrency
//
// Everything may be used from any number of goroutines, but for [Redis.Wipe], which
// is used by one at a time.
package stage
