// Package archtest holds the rules of the house as tests: who may import whom,
// that every package says what it is, that every exported name is documented, and
// how long a file may be. It has no code of its own.
package archtest
