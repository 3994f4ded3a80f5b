// Package packaging has what a Debian-style package of fenced needs beside the
// binaries: the unit for systemd. It has no code of its own; its test has systemd
// look at the unit.
package packaging
