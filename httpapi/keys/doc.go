// Package keys follows the file of API keys while the server runs, and says whose
// a presented key is. Package apikey has the format of the file.
//
// # What it promises
//
//   - A change of the file takes effect within [ReloadInterval], without a
//     restart. A file that cannot be read or is wrong changes nothing: the keys
//     that were in force stay in force, and the error is logged once.
//
// # What it does not promise
//
// A removed key does not end the holds that were made with it: their ids are
// capabilities of their own, but need a key with the role lock to be used.
//
// # Errors
//
// Errors of [Open] name the file and the entry at fault. A key that is not known is
// no error: [Store.Lookup] returns nil.
//
// # Concurrency
//
// A [Store] may be used by any number of goroutines and starts none.
package keys
