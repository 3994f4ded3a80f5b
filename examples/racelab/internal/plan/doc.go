// Package plan says what a run of the race lab will do, step by step, before
// anything runs: which account or reward a step is about, and whether the worker
// that does it stalls, and for how long. One seed gives one plan, so every way of
// locking faces the same steps and the same stalls, and a run can be repeated.
//
// A plan is plain data and safe to share.
package plan
