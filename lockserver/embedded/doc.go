// Package embedded runs etcd inside the process: one node with no open port. It
// is the only package that imports etcd's server.
//
// A data directory belongs to one process at a time. [Start] takes a lock beside
// it first and fails at once where another process has it; etcd itself would wait
// for ever.
//
// etcd ends the process when its disk fails or its state is corrupt: plan for
// crash and restart. [Node.Close] stops it in order; call it after the engine's
// Run has returned, because an in-process watch is not told of the end.
package embedded
