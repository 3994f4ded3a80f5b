// Package reload keeps a value that is made from files, and makes it anew when
// one of them changes: API keys and certificates are replaced without a restart.
//
// It promises that a change takes effect within [Interval], and that files that
// cannot be read or are wrong change nothing but the log: the last good value
// stays. It starts no goroutine; [Value.Get] looks at the files when that is due,
// and may be called from any number of goroutines.
package reload
