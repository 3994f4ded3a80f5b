// Package keys holds the API keys of a server: what they may do, the file that
// lists them, and how a presented key is checked.
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
//   - A change of the file takes effect within [ReloadInterval], without a
//     restart. A file that cannot be read or is wrong changes nothing: the keys
//     that were in force stay in force, and the error is logged once.
//   - A file that others may write is refused.
//   - The file is replaced as a whole ([Add], [Remove]): no reader sees a half.
//
// # What it does not promise
//
// A removed key does not end the holds that were made with it: their ids are
// capabilities of their own, but need a key with the role lock to be used.
//
// # Errors
//
// Errors of [Open], [Add] and [Remove] name the file and the entry at fault. A
// key that is not known is no error: [Store.Lookup] returns nil.
//
// # Concurrency
//
// A [Store] may be used by any number of goroutines and starts none.
package keys
