package httpapi

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver"
	"github.com/fenced/fenced/tokens"
)

const documentText = `A distributed lock service whose grants carry fencing tokens.

Send the token of your grant with every write, and let the store refuse a token lower than the highest it has accepted: the lease is for efficiency, only the fence makes a stale write impossible.

Durations go in as Go duration strings (` + "`5s`, `1500ms`" + `) and come out as integer milliseconds. Times are for people. Every error is a problem (RFC 9457) with a stable ` + "`code`" + `; branch on the code.

Count a deadline from the sending of the request whose answer confirmed the hold. If less than two thirds of the TTL are left by that count when a grant arrives, renew before you begin.

A wait is given up when its connection closes. Do not send bytes behind a waiting request on the same connection: they hide its end until the wait is over.`

const (
	tagHolds    = "holds"
	tagSessions = "sessions"
	tagLocks    = "locks"
	tagAdmin    = "admin"
	tagServer   = "server"
)

var documentTags = []*huma.Tag{
	{Name: tagHolds, Description: "Acquire, keep and release"},
	{Name: tagSessions, Description: "One lease for many holds"},
	{Name: tagLocks, Description: "See and check"},
	{Name: tagAdmin, Description: "For people on call"},
	{Name: tagServer, Description: "This server"},
}

// Parameters that several operations share.
var (
	waitParam   = param{name: "wait", text: "How long this request may wait, 0s to 30s, as a Go duration", example: "10s"}
	prefixParam = param{name: "prefix", text: "Keep locks whose names start with it: a filter for people, never a namespace", example: "orders/"}
	tokenHeader = param{name: tokens.Header, text: "The fencing token, where the hold is held", example: "7341", integer: true}
	location    = param{name: "Location", text: "Path by which it is renewed and released"}
	replay      = param{name: wire.IdempotentReplay, text: "true where the Idempotency-Key found a hold that was there", example: "true"}
)

// Codes that go together: what any read, any write and any grant may meet.
var (
	readCodes  = []apierr.Code{apierr.NoQuorum, apierr.Behind, apierr.ShuttingDown}
	writeCodes = append([]apierr.Code{apierr.OutcomeUnknown}, readCodes...)
	grantCodes = append([]apierr.Code{apierr.TokenFloor}, writeCodes...)
)

func with(codes []apierr.Code, more ...apierr.Code) []apierr.Code {
	return append(more, codes...)
}

var acquireOp = operation{
	method: http.MethodPost, path: "/v1/holds", id: "acquireHold", tag: tagHolds,
	role: keys.Lock, audited: true,
	summary: "Acquire a lock",
	text:    "Tries once, or queues for up to `wait`. 201: the lock is held. 202: the wait is over and the place is kept (only with `keep_place`); ask for the hold with `wait` to go on. An Idempotency-Key makes the call safe to repeat: it names one attempt, so make a fresh one for every acquire and never derive it from the work.",
	headers: []param{{name: wire.IdempotencyKey, text: "A UUID or 32 hex digits, fresh for every attempt", example: "9f1c8c3e0a9b4d6f8e2b7a5d4c3b2a19"}},
	status:  http.StatusCreated, also: http.StatusAccepted, answers: []param{tokenHeader, location, replay},
	example: wire.AcquireRequest{Lock: "orders/42", Owner: "worker-7", TTL: "15s", Wait: "10s"},
	codes: with(grantCodes, apierr.LockHeld, apierr.BadIdempotencyKey, apierr.IdempotencyKeyReused,
		apierr.SessionFull, apierr.SessionGone, apierr.HoldGone),
}

var getHoldOp = operation{
	method: http.MethodGet, path: "/v1/holds/{hold}", id: "getHold", tag: tagHolds,
	role:    keys.Lock,
	summary: "See a hold, or wait for it",
	text:    "Without `wait` it changes nothing. With it, it means \"I am here\": it keeps the place while queued, renews when held, and answers at the grant.",
	query:   []param{waitParam}, waits: true,
	status: http.StatusOK, answers: []param{tokenHeader},
	codes: with(grantCodes, apierr.HoldGone),
}

var renewHoldOp = operation{
	method: http.MethodPost, path: "/v1/holds/{hold}/renew", id: "renewHold", tag: tagHolds,
	role:    keys.Lock,
	summary: "Renew a hold",
	text:    "Starts its TTL anew, counted from the sending of this request. Never brings back a hold that has ended.",
	status:  http.StatusOK, answers: []param{tokenHeader},
	codes: with(writeCodes, apierr.HoldGone, apierr.NotHeld),
}

var releaseHoldOp = operation{
	method: http.MethodDelete, path: "/v1/holds/{hold}", id: "releaseHold", tag: tagHolds,
	role: keys.Lock, audited: true,
	summary: "Release a hold, or leave the queue",
	text:    "Also 204 when it was released before, so that it is safe to repeat.",
	status:  http.StatusNoContent,
	codes:   with(writeCodes, apierr.HoldGone),
}

var createSessionOp = operation{
	method: http.MethodPost, path: "/v1/sessions", id: "createSession", tag: tagSessions,
	role: keys.Lock, audited: true,
	summary: "Make a session",
	text:    "A session is one lease that the holds of one process share: one renewal keeps up to 1000 holds, and when it ends, they end.",
	status:  http.StatusCreated, answers: []param{location},
	example: wire.SessionRequest{Owner: "worker-7", TTL: "15s"},
	codes:   grantCodes,
}

var listSessionsOp = operation{
	method: http.MethodGet, path: "/v1/sessions", id: "listSessions", tag: tagSessions,
	role:    keys.Read,
	summary: "List sessions",
	text:    "Public names only, never secret ids.",
	status:  http.StatusOK, codes: readCodes,
}

var getSessionOp = operation{
	method: http.MethodGet, path: "/v1/sessions/{session}", id: "getSession", tag: tagSessions,
	role:    keys.Lock,
	summary: "See a session, or wait for its next change",
	text:    "With `wait` it answers at the next change of the session or of its holds. It does not renew.",
	query:   []param{waitParam}, waits: true,
	status: http.StatusOK, codes: with(readCodes, apierr.SessionGone),
}

var renewSessionOp = operation{
	method: http.MethodPost, path: "/v1/sessions/{session}/renew", id: "renewSession", tag: tagSessions,
	role:    keys.Lock,
	summary: "Renew a session",
	text:    "Answers the refs of its live holds. A hold whose own revision is at or below the answer's and that is missing in `live` has ended.",
	status:  http.StatusOK, codes: with(writeCodes, apierr.SessionGone),
}

var endSessionOp = operation{
	method: http.MethodDelete, path: "/v1/sessions/{session}", id: "endSession", tag: tagSessions,
	role: keys.Lock, audited: true,
	summary: "End a session",
	text:    "Releases its holds. Also 204 when it was ended before.",
	status:  http.StatusNoContent, codes: with(writeCodes, apierr.SessionGone),
}

var listLocksOp = operation{
	method: http.MethodGet, path: "/v1/locks", id: "listLocks", tag: tagLocks,
	role:    keys.Read,
	summary: "List the locks in use",
	text:    "In the order of their names' bytes, page by page. A page is right for its revision; locks may come and go between pages, and none that stays is left out or shown twice.",
	query: []param{
		prefixParam,
		{name: "limit", text: "Locks a page, 1 to 1000. Default: 100", example: "100", integer: true},
		{name: "cursor", text: "From the page before"},
	},
	status: http.StatusOK, codes: readCodes,
}

var getLockOp = operation{
	method: http.MethodGet, path: "/v1/lock", id: "getLock", tag: tagLocks,
	role:    keys.Read,
	summary: "See one lock",
	text:    "Its holder, its queue, and how its last grants ended. A lock that nobody has used is free.",
	query:   []param{{name: "name", text: "Name of the lock, percent-encoded", example: "orders/42", required: true}},
	status:  http.StatusOK, codes: readCodes,
}

var checkOp = operation{
	method: http.MethodPost, path: "/v1/check", id: "checkTokens", tag: tagLocks,
	role:    keys.Read,
	summary: "Check tokens against live holds",
	text:    "200 where every token is the one of a live holder, else 412 with all verdicts in `results`. A moment's truth: it proves nothing about a write that comes later, which only a guard in the store protects.",
	status:  http.StatusOK, maxBody: 1 << 20,
	example: []wire.CheckItem{{Lock: "orders/42", Token: 7341}},
	codes:   with(readCodes, apierr.StaleToken, apierr.TokenNotValid),
}

var breakOp = operation{
	method: http.MethodPost, path: "/v1/break", id: "breakHold", tag: tagAdmin,
	role: keys.Admin, audited: true,
	summary: "Break a hold",
	text:    "Ends a hold against its owner's will. The token is the one that was seen, so that a newcomer is never hit. The owner is not stopped: its writes are refused once a higher token has reached the store.",
	status:  http.StatusOK,
	example: wire.BreakRequest{Lock: "orders/42", Token: 7341, Reason: "host is down"},
	codes:   with(writeCodes, apierr.HolderChanged),
}

var eventsOp = operation{
	method: http.MethodGet, path: "/v1/events", id: "streamEvents", tag: tagLocks,
	role:    keys.Read,
	summary: "Follow what happens to holds",
	text:    "Server-sent events named queued, granted, released, expired, broken, cancelled and unknown, each with an Event as data. Ids are `<revision>.<index>`, equal on all servers: send the last one as Last-Event-ID to resume, on any server. `resync` means that events were lost: list the locks again. A comment comes at least every 10 s.",
	query:   []param{prefixParam}, waits: true,
	headers: []param{{name: lastEventID, text: "Id of the last event seen", example: "7341.0"}},
	status:  http.StatusOK, content: "text/event-stream", codes: readCodes,
}

var statusOp = operation{
	method: http.MethodGet, path: "/v1/status", id: "getStatus", tag: tagServer,
	role:    keys.Read,
	summary: "Describe this server", status: http.StatusOK, codes: readCodes,
}

var whoamiOp = operation{
	method: http.MethodGet, path: "/v1/whoami", id: "whoAmI", tag: tagServer,
	role:    keys.Read,
	summary: "Tell what the caller may do",
	text:    "The grants of the API key that the request presents. Where the server has no keys, everybody may do everything.",
	status:  http.StatusOK,
}

var raiseFloorOp = operation{
	method: http.MethodPost, path: "/v1/floor", id: "raiseFloor", tag: tagAdmin,
	role: keys.Admin, audited: true,
	summary: "Raise the token floor",
	text:    "After a restore: ends all holds and sessions, and makes every token to come higher than `above` and than all that this server knows of.",
	status:  http.StatusOK, example: wire.FloorRequest{Above: 7341},
	codes: writeCodes,
}

var healthOp = operation{
	method: http.MethodGet, path: "/healthz", id: "getHealth", tag: tagServer,
	summary: "Whether the process answers",
	text:    "Says nothing about the store: a restart does not bring back a quorum.",
	status:  http.StatusOK,
}

var readyOp = operation{
	method: http.MethodGet, path: "/readyz", id: "getReadiness", tag: tagServer,
	summary: "Whether this server can grant",
	status:  http.StatusOK, codes: with(readCodes, apierr.TokenFloor),
}

// exampleProblems are the problems that say more than their code.
var exampleProblems = map[apierr.Code]error{
	apierr.LockHeld: &lockserver.HeldError{
		Lock: "orders/42", Waiters: 2,
		Holder: lockserver.Holder{Ref: "nbswy3dpo5xxe3denbswy3dpo4", Owner: "worker-7", Token: 7341, TTL: lockserver.DefaultTTL},
	},
	apierr.HoldGone:    &lockserver.GoneError{End: lockserver.Expired},
	apierr.SessionGone: &lockserver.GoneError{End: lockserver.Released, Session: true},
	apierr.OutOfBounds: apierr.Bounds("wait", "0s to 30s in whole milliseconds"),
	apierr.StaleToken: &checkError{[]wire.CheckResult{
		{Lock: "orders/42", Token: 7302, Result: lockserver.Stale.String(), Current: 7341},
	}},
	apierr.TokenNotValid: &checkError{[]wire.CheckResult{
		{Lock: "orders/42", Token: 7341, Result: lockserver.EndedVerdict.String(), Current: 7341},
	}},
}
