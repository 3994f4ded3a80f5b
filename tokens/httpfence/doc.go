// Package httpfence carries fencing tokens through net/http: a middleware that
// takes the token of a request into its context, a handler form whose stale
// writes become 412, and a transport that sends the token.
//
// # It never accepts a write
//
// The middleware reads the token and may refuse early. It cannot accept: between
// its look and the handler's write a newer holder may write, and that is the very
// race that fencing ends. Acceptance happens in the handler, in the transaction
// that writes:
//
//	fence, err := httpfence.New(httpfence.Config{
//		Lock: func(r *http.Request) (string, error) { return "account/" + r.PathValue("id"), nil },
//	})
//	mux.Handle("POST /account/{id}", fence.Handle(func(w http.ResponseWriter, r *http.Request) error {
//		lock := "account/" + r.PathValue("id")
//		token, _ := tokens.FromContext(r.Context(), lock)
//		claim := tokens.Claim{Resource: lock, Token: token, Mode: tokens.Renewable}
//		return pgfence.WithFence(r.Context(), pool, claim, func(ctx context.Context, tx pgx.Tx) error { ... })
//	}))
//
// # Answers
//
// All are application/problem+json (RFC 9457) with a stable code, and none may be
// cached:
//
//	428 token_missing     no Fencing-Token header
//	400 malformed         the header is malformed or repeated, or the request names no lock
//	412 stale_token       a *tokens.StaleError; with resource, presented, current
//	409 duplicate         tokens.ErrDuplicate
//	503 busy              tokens.ErrBusy or ErrRetryable: nothing was written; Retry-After: 1
//	503 outcome_unknown   tokens.ErrUnknownOutcome: repeat with the same token
//	500 internal          any other error, without its text
//
// # What if the handler had written already
//
// A handler under [Fence.Handle] writes into a buffer that is sent when it
// returns nil. When it returns an error, what it wrote, headers included, is
// dropped and the problem is sent instead: no client sees 200 for a write that
// was refused afterwards. The price is a limit, [MaxAnswer], and no streaming.
//
// # Concurrency
//
// A [Fence] and a [Transport] may be used from any number of goroutines.
package httpfence
