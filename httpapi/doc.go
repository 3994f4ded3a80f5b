// Package httpapi serves the lock engine over HTTP: JSON in and out, RFC 9457
// problems, server-sent events, and an OpenAPI document of all of it.
//
// # What it promises
//
//   - Every error is an application/problem+json body with a stable code; the
//     table of codes is package apierr. Never 200 for "no", never 500 for a
//     caller's fault, and the text of an unexpected error never leaves the log.
//   - A request means one thing or is refused: repeated fields and query values,
//     names in another case, unknown fields, bytes that are not UTF-8 and trailing
//     data are errors. See package strictjson.
//   - No page of another site can use it: every route is behind
//     [http.CrossOriginProtection] and a check of the Host header, there is no
//     CORS and no cookie.
//   - A waiter whose close, reset or half-close reached the server before its
//     grant keeps no lock: the grant is taken back at once. There are two
//     exceptions. Bytes that a client sent behind its request on the same
//     connection hide the end of the stream until the wait is over. And the end of
//     a TLS stream that is left open below it, a half-close, is a record like any
//     other until it is read: it is seen soon, and no promise is made. A place with
//     an idempotency key is kept, for its owner may come back and ask.
//   - With a key file, every call but /healthz, /readyz and the document needs a
//     key with its role over the lock that it concerns; see package keys. Secret
//     ids and keys stand in no log, metric, list, event or error.
//   - The document and the routes agree: both come from the same operations, and
//     tests walk them both ways.
//
// # What it does not promise
//
// A grant is not proof that its holder is still the holder when a write arrives,
// and neither is POST /v1/check. The lease is for efficiency; only a guard in the
// store makes a stale write impossible. See package tokens.
//
// # How a request passes
//
//	recorder, request id, recover, access line     middleware.go
//	Host, cross-origin, headers                    guard.go
//	chi route                                      router.go
//	key and role, rate, query                      router.go, access.go, quota.go
//	body, handler, answer or problem               call.go, problem.go
//	audit line, metrics                            audit.go, metrics.go
//
// huma writes the OpenAPI document from the Go types of package wire. Reading
// requests and writing answers is this package's own: huma's reader takes a body
// that breaks off for a fault of the server, repeats bodies in errors and takes
// the first of two query values. POST /v1/holds with all of the above takes 7 us
// and the same handler behind huma alone 12 us.
//
// # Limits
//
// Quotas are counted on each server by itself. A hold that ends without a release
// through this server makes room within a second. A rate is an average over one
// second.
//
// # Errors
//
// [New] returns an error that names the field of [Config] that is wrong. Handlers
// return errors; one function, problem.go, turns them into answers.
//
// # Concurrency
//
// The handler may be used by any number of goroutines. It starts none of its own,
// and what it remembers is bounded by the number of keys and their quotas.
//
//	handler, err := httpapi.New(httpapi.Config{Engine: engine, Version: "1.0.0"})
//	if err != nil {
//		return err
//	}
//	listener, err := httpapi.Listen(ctx, "127.0.0.1:7420")
//	if err != nil {
//		return err
//	}
//	return httpapi.NewServer(handler).Serve(listener)
package httpapi
