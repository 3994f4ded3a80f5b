// Package daemon is what the throwaway database servers of this module's tests
// have in common: a process that runs without root's rights and dies with the one
// that started it, and a server that the tests of a package share.
//
// It promises nothing to anybody but pgtest and mysqltest.
package daemon
