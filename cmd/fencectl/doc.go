// Command fencectl is the command line of fenced: it shows who holds which lock, runs
// commands under a lock, and ends a hold that is stuck.
//
//	fencectl run jobs/nightly -- ./nightly.sh
//	fencectl ls orders/
//	fencectl get orders/42
//
// FENCED_ADDR names the servers and FENCED_API_KEY the key, or a context of the config
// file both; see "fencectl help contexts". What a command writes to
// standard output is made for pipes: a table, or JSON with -o json. Errors are one
// line on standard error with the next thing to try. The exit codes stand in one table;
// see "fencectl help exit-codes".
//
// A lock alone never protects data. A command under "fencectl run" is stopped before
// its lease can end, but what it has already sent is for the store to refuse: give it
// FENCED_TOKEN and let the store compare.
package main
