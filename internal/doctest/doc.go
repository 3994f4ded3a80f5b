// Package doctest runs what the documents print. A block of shell (```sh) in the
// README is run as it stands against a real server; a block of Go (```go) must
// stand, line by line, in a program of examples/, which is run too. A block of
// ```text is output or a picture and is not run. It has no code of its own.
package doctest
