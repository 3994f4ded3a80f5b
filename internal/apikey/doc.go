// Package apikey is the format of API keys and of the file that lists them, shared
// by the server, which checks keys, and by fencectl, which makes them.
//
// A key is text of the form fk_<id>_<secret>, shown once when it is made. The
// file holds the SHA-256 of the secret: it has 256 random bits, so a slow hash
// would guard nothing more. The id finds the entry, and the hash is compared in
// constant time.
//
//	{"keys": [{
//	  "id": "mfrggzdfmy", "name": "worker fleet", "sha256": "9f86d0...",
//	  "grants": [{"role": "lock", "prefixes": ["orders/"]}],
//	  "quota": {"held": 100, "waiting": 50, "requests_per_second": 200}
//	}]}
//
// # Roles
//
// A grant is a role over the locks whose names start with one of its prefixes;
// the prefix "" is every name. [Lock] includes [Read], and [Admin] includes both.
//
// # What it promises
//
//   - A file that others may write is refused, and so is one with a field or role
//     that this build does not know.
//   - The file is replaced as a whole ([Add], [Remove]): no reader sees a half.
//
// It does not keep two writers apart: the later of two who write at the same moment
// wins.
//
// # Errors
//
// Errors name the file and the entry at fault. A key that is not known is no error:
// [Set.Lookup] returns nil.
//
// # Concurrency
//
// A [Set] may be read by any number of goroutines.
package apikey
