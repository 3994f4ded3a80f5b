// Package packaging has what fenced needs beside its binaries where it is run for
// real: the unit for systemd, the alert rules for Prometheus with their own tests, and
// the dashboard for Grafana. It has no code of its own; its test has systemd look at
// the unit, and internal/doctest compares rules and dashboard with a running server.
package packaging
