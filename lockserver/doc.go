// Package lockserver is the lock engine of fenced: holds, queues, tokens and
// sessions over an etcd client. It knows no HTTP and no SQL. This page is its
// specification.
//
// # What it promises
//
// At most one live hold of a lock is granted at a time, as the store's log orders
// them, and every grant carries a token that is higher than the token of every
// grant of that lock before it. It does not promise that a holder stops: a lease
// is a promise about time, and a stalled holder keeps none. Only a store that
// compares tokens can refuse its writes; see package tokens. The lease is for
// efficiency, the fence is for correctness.
//
// # Keys
//
// Everything lives under one prefix, by default /fenced/v1/:
//
//	h/<ref>   one key a hold; put only if absent, written once, on a lease
//	s/<ref>   one key a session, on its lease
//	ends      overwritten by each batch that ends holds: who, how, by whom
//	base      what is added to a revision to make a token; absent means 0
//	cluster   the id of the deployment that owns the prefix; a server of another
//	          one ends with a [*ForeignError]
//	format    the major version of all this; a build that does not know it ends
//	          with a [*FormatError]
//	closed    why granting is closed on all servers, until the floor is raised
//	vouch/<id>
//	          a question of a server that met the store without an issued-token file,
//	          whether it was rolled back, and the answer of one that had its file
//	restored/<id>
//	          that the holds of a restored store have been ended
//	clock     what of the base keeps tokens on the line of restores, see below; absent
//	          means 0
//
// A ref is a digest of the secret id, so neither the store nor a list nor a log
// ever holds the capability itself. No name is part of a key: names need no
// encoding and cannot meet.
//
// # Who is authoritative
//
// The store's log. The holder of a lock is its live key with the lowest create
// revision (never the mod revision: a re-put key would take a newer token than
// its successor), and the token is base + that revision. Each server keeps one
// watch on the prefix and a mirror in memory. A hold may be granted when the
// mirror is complete up to the hold's own put, shows no earlier key of the lock,
// and shows the hold's own key alive. Revisions only grow, so once the mirror
// shows no earlier key, none can appear: a lagging mirror grants late, never
// wrongly.
//
// That an end has come, a lagging mirror hears late. Where servers share the store, a
// renewal of what was held before, and a look at it, read its key at a quorum first:
// none of them says held after another server has told the end. So does the end of a
// wait that keeps its place: without a quorum it is no_quorum, never "still queued".
//
// # Restores
//
// A restore of a snapshot bumps the revision by 10^12 on each member, which is the same
// number each time. The first server with a quorum knows of it by an id, deletes all
// holds and sessions and puts the base, in one transaction, to where tokens go on at
// 10^12 and 10^5 for each second since 2020: above all that any store has issued so far,
// whichever snapshots were restored before. Only a floor that was raised above that line
// goes on top of it, so a raise says in the key clock whether it stayed below. Where
// its wall clock is behind the snapshot the bump alone must do. It is the only promise
// about tokens that hangs on a clock, and only where all issued-token files are lost.
//
// # States of a hold
//
//	        put applied              head of its lock
//	(sent) -------------> queued ------------------------> held
//	   |                    |                               |
//	   | refused            | cancelled, broken, expired    | released, expired, broken
//	   v                    v                               v
//	 nothing               ended ------------------------> ended
//
// An ended hold never comes back. "unknown" is the end of a key that vanished
// without an entry in ends: its lease ran out in the store, as after a crash of
// the server that kept it.
//
// # Time
//
// A deadline counts from the sending of the LeaseGrant or KeepAlive whose answer
// confirmed it: an answer that arrives late proves nothing about the time after
// it. Before an answer says held, the deadline has at least two thirds of the TTL
// left, and a waiter's grant relies on a KeepAlive of the last second (of a tenth
// of the TTL, where that is less): only a leader with a recent quorum answers it.
// A hold that is past its deadline here is never renewed again, unless the store tells
// of a renewal through another server.
//
// Expiry is this package's own: the server that last granted or renewed a hold
// deletes it at its deadline. The lease in the store runs TTL + 5 s, rounded up
// to a second, and acts only when that server is gone.
//
// # Writes
//
// Puts of different locks that arrive together go into one transaction; two holds
// of one lock never share one, because they would tie on the revision. Deletes
// batch apart from puts, so that a refused put (a full store, a dead lease) never
// stops a release. A batch leaves when the one before it has answered, never on a
// timer. A write is answered only after the mirror has applied its revision.
//
// A write whose answer is lost is of unknown outcome. Without an idempotency key
// nobody can ask for such a hold again, so it is remembered as abandoned and
// deleted on sight. With one, its id is derived from lock and key, every server
// maps a repeat to the same hold, and it stands like any other place. So whatever
// nobody asks for any more is gone [PlaceTimeout] + TTL + 6 s later at the latest.
//
// # Places
//
// A queued hold keeps its place while somebody asks for it, at any server. When its
// last request ends, a hold without an idempotency key leaves at once, one with a key
// after [PlaceTimeout]. When the server stops, all places stay.
//
// Where servers share the store, none of them knows what is asked of the others. One
// that is asked renews the place every 5 s, or more often, and one that is not asked
// any more watches for up to 8 s whether somebody else does, before it deletes the
// place. It does not delete a head, which another server may have said held: where
// nobody claims it, its lease ends it, and where the lease is a session's, the session
// does.
//
// # Errors
//
// [*HeldError], [*GoneError] and [*apierr.Error]; each has a code, which
// apierr.CodeOf finds. Errors with code outcome_unknown are the only ones after
// which the call may have taken effect; repeat it with the same idempotency key.
//
// # Concurrency
//
// All methods of [Server] may be called at once. [Server.Run] owns all
// goroutines and returns when they are gone.
package lockserver
