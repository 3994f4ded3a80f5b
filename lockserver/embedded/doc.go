// Package embedded runs etcd inside the process: one node with no open port, or a
// member of a cluster of 3 or 5 that listens for the other members only. It is the
// only package that imports etcd's server.
//
// A data directory belongs to one process at a time. [Start] takes a lock beside
// it first and fails at once where another process has it; etcd itself would wait
// for ever. It belongs to one member, too: under another name it is refused.
//
// Peers are not authenticated unless [Cluster.TLS] is set: whoever reaches the
// port of a member can read and write the store. So peers on addresses that other
// machines can reach need TLS, or [Cluster.Insecure].
//
// The data of members can be compared, because all apply one log. A member whose
// data differs from the others' at its start does not start; where a difference
// shows later, the leader raises etcd's alarm CORRUPT, which stops all writes of
// the cluster and with them all grants.
//
// etcd ends the process when its disk fails or its state is corrupt: plan for
// crash and restart. [Node.Close] stops it in order; call it after the engine's
// Run has returned, because an in-process watch is not told of the end.
package embedded
