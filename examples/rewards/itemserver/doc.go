// Package itemserver is the far end of the reward pipeline: an HTTP service with a
// database of its own that grants items, at most one for each reward, however
// often and by whomever it is asked.
//
//	POST /v1/grants        {"player", "event", "amount"}
//	    Idempotency-Key: "reward:<player>:<event>"    Fencing-Token: 1234
//	    answers the reward, also when it had been granted before
//	GET  /v1/grants?key=   what was granted under a key
//	GET  /v1/grants        everything that was granted, in pages: {"grants", "next"}
//	    ?after=<next>      the page behind it
//
// # What a grant goes through, and why in this order
//
//  1. the request is checked: 400, 415, 422, and 428 where the token is missing
//  2. the key is looked up: a known key gets its stored answer again (with
//     Idempotent-Replay: true), or 422 if the payload differs; a key that is being
//     worked on right now gets 409 and Retry-After, for 5 s where its server stands
//     still
//  3. the fence: a token below that of the resource gets 412
//  4. the effect: the grant and the answer under the key, in the transaction that
//     advanced the fence
//
// Were the fence asked first, an honest repeat that arrives after a newer grant
// would hear 412 and conclude that nothing was granted.
//
// # What it promises
//
// One grant for each (player, event), by UNIQUE, also for callers that change
// their keys (422) and also without tokens: Config.Guard nil makes it a service
// that does not understand them, as many are. Then the ledger, which has refused
// the stale worker before anything was sent, is the last authority, and the key
// keeps repeats out. What is lost is the refusal of a stale caller that reaches
// this service past the ledger.
//
// Answers that had no effect (4xx, 5xx) are not stored: the same key may come again.
//
// # Concurrency and errors
//
// A Server may be used by any number of goroutines and instances on one database.
// Errors are problem+json with a stable code: malformed, out_of_bounds,
// idempotency_key_missing, idempotency_key_reused, granted_under_another_key,
// in_progress, stale_token, token_missing, unavailable.
package itemserver
