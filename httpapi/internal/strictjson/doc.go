// Package strictjson decodes the request bodies of the HTTP API, once and
// without mercy.
//
// encoding/json is lax where a lock service must not be: it takes the last of two
// equal fields, matches field names in any case, replaces bytes that are not
// UTF-8, and ignores null. Two programs that read such a body may see two
// different requests. This package refuses them.
//
// # What it promises
//
// What [Decode] accepts, encoding/json accepts too, with an equal result. It
// refuses, as malformed: repeated fields and keys, names in another case, bytes
// and escapes that are no Unicode text, anything after the value, and a body
// that breaks off. It refuses, as out_of_bounds with the field named: unknown
// fields, null, values of another type, empty strings and tokens out of range.
//
// No error repeats what the body holds, except the name of an unknown field where
// it is short and plain.
//
// # What it does not do
//
// It knows only the kinds that request bodies use: structs, slices, maps of
// strings, strings, booleans and [tokens.Token]. Fields without a json tag and
// embedded structs are not supported.
//
// # Concurrency
//
// [Decode] may be called from any number of goroutines.
package strictjson
