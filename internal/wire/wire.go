// Package wire holds the JSON bodies and header names of the HTTP API, shared by
// the server (httpapi) and the Go SDK (clientsdk), so that they cannot drift.
//
// Durations come in as Go duration strings ("5s", "1500ms") and go out as
// integer milliseconds in fields that end in _ms. Times are RFC 3339 UTC and for
// people only: no program may compare them with its own clock.
//
// The doc, example, enum and similar tags are read by httpapi when it writes the
// OpenAPI document; they describe and never enforce.
package wire

import (
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/tokens"
)

// Header names beside [tokens.Header].
const (
	// IdempotencyKey names one attempt to acquire: a UUID or 32 hex digits,
	// fresh for each attempt.
	IdempotencyKey = "Idempotency-Key"
	// IdempotentReplay is "true" on an answer that repeats an earlier one.
	IdempotentReplay = "Idempotent-Replay"
)

// States of a hold and of a lock on the wire.
const (
	StateQueued = "queued"
	StateHeld   = "held"
	StateFree   = "free"
)

// AcquireRequest is the body of POST /v1/holds.
type AcquireRequest struct {
	Lock      string            `json:"lock" doc:"Name of the lock: 1 to 512 bytes of UTF-8 in NFC, without control, format, private-use, unassigned and line separator characters" minLength:"1" maxLength:"512" example:"orders/42"`
	Owner     string            `json:"owner" doc:"Names the worker for people: 1 to 128 bytes" minLength:"1" maxLength:"128" example:"worker-7"`
	TTL       string            `json:"ttl,omitempty" doc:"How long the hold lives without a renewal, as a Go duration of 1s to the server's maximum in whole milliseconds. Default: 15s, or the session's" example:"15s"`
	Wait      string            `json:"wait,omitempty" doc:"How long this request may queue, 0s to 30s. 0s, the default, tries once and leaves nothing behind" example:"10s"`
	KeepPlace bool              `json:"keep_place,omitempty" doc:"When the wait is over, answer 202 and keep the place instead of giving it up. Needs an Idempotency-Key"`
	Session   string            `json:"session,omitempty" doc:"Secret id of the session whose lease the hold shares" minLength:"1"`
	Metadata  map[string]string `json:"metadata,omitempty" doc:"Shown to people: at most 16 entries and 1024 bytes" maxProperties:"16"`
}

// Hold is the state of one hold, as its owner sees it.
type Hold struct {
	// Hold is the secret id. It is empty where the caller did not prove to know it.
	Hold     string            `json:"hold,omitempty" doc:"Secret id: whoever knows it can renew and release the hold" example:"mfrggzdfmztwq2lknnwg23tpoa"`
	Ref      string            `json:"ref" doc:"Public name of the hold" example:"nbswy3dpo5xxe3denbswy3dpo4"`
	Lock     string            `json:"lock" doc:"Name of the lock" example:"orders/42"`
	Owner    string            `json:"owner" doc:"Who asked for it" example:"worker-7"`
	State    string            `json:"state" doc:"Where the hold stands" enum:"queued,held" example:"held"`
	Session  string            `json:"session,omitempty" doc:"Ref of the session whose lease the hold shares"`
	Metadata map[string]string `json:"metadata,omitempty" doc:"As given with the request"`
	// Token is 0 while queued.
	Token tokens.Token `json:"token,omitempty" doc:"The fencing token; absent while queued. Send it with every write" example:"7341"`
	TTLMS int64        `json:"ttl_ms" doc:"How long the hold lives without a renewal" example:"15000"`
	// ExpiresInMS counts from the answer; absent while queued or not known here.
	ExpiresInMS *int64 `json:"expires_in_ms,omitempty" doc:"Time left, counted from the answer; absent while queued or not known on this server" example:"14998"`
	// Position is 1 for the next in line; 0 when held.
	Position int `json:"position,omitempty" doc:"Place in the queue, 1 for the next in line; absent when held" example:"1"`
	// Revision is the store's revision that this answer stands for.
	Revision int64 `json:"revision" doc:"The store's revision that this answer stands for" example:"7341"`
	// Previous is how the lock's hold before this one ended; only on held holds.
	// Null means that there was none; Ended "unknown" that nobody remembers.
	Previous *Previous `json:"previous" doc:"How the lock's hold before this one ended; null where there was none"`
	Created  time.Time `json:"created_at" doc:"When the hold was asked for; for people only"`
}

// Previous tells a new holder whether its predecessor left cleanly.
type Previous struct {
	Token tokens.Token `json:"token,omitempty" doc:"Its token" example:"7302"`
	Owner string       `json:"owner,omitempty" doc:"Its owner" example:"worker-3"`
	Ref   string       `json:"ref,omitempty" doc:"Its public name" example:"ovxgs5dfonwgk43tmf2gk43uoi"`
	// Ended is released, expired, broken, cancelled or unknown.
	Ended   string     `json:"ended" doc:"How it ended; treat unknown like a crash" enum:"released,expired,broken,cancelled,unknown" example:"released"`
	EndedAt *time.Time `json:"ended_at,omitempty" doc:"When it ended; for people only"`
}

// SessionRequest is the body of POST /v1/sessions.
type SessionRequest struct {
	Owner string `json:"owner" doc:"Names the process for people: 1 to 128 bytes" minLength:"1" maxLength:"128" example:"worker-7"`
	TTL   string `json:"ttl,omitempty" doc:"How long the session lives without a renewal, as a Go duration of 1s to the server's maximum in whole milliseconds. Default: 15s" example:"15s"`
}

// Session is the state of a session.
type Session struct {
	Session     string    `json:"session,omitempty" doc:"Secret id, told to its owner only" example:"onswg4tforuwg2lenfzxg2lpny"`
	Ref         string    `json:"ref" doc:"Public name of the session" example:"obzgk5tjmuqgc3ten5xgkzldoi"`
	Owner       string    `json:"owner" doc:"Who made it" example:"worker-7"`
	TTLMS       int64     `json:"ttl_ms" doc:"How long it lives without a renewal" example:"15000"`
	ExpiresInMS *int64    `json:"expires_in_ms,omitempty" doc:"Time left, counted from the answer; absent where this server does not know it" example:"14998"`
	Created     time.Time `json:"created_at" doc:"When it was made; for people only"`
	// Live lists the refs of the session's holds that exist at Revision.
	Live     []string `json:"live" doc:"Refs of its holds that exist at revision, in no particular order"`
	Revision int64    `json:"revision" doc:"The store's revision that this answer stands for" example:"7341"`
}

// SessionList is the answer of GET /v1/sessions.
type SessionList struct {
	Sessions []Session `json:"sessions" doc:"Without their secret ids"`
}

// Holder is the public side of a live hold.
type Holder struct {
	Ref      string            `json:"ref" doc:"Public name of the hold" example:"nbswy3dpo5xxe3denbswy3dpo4"`
	Owner    string            `json:"owner" doc:"Who holds the lock" example:"worker-7"`
	Token    tokens.Token      `json:"token" doc:"Its fencing token" example:"7341"`
	Session  string            `json:"session,omitempty" doc:"Ref of the session whose lease it shares"`
	Metadata map[string]string `json:"metadata,omitempty" doc:"As given by the holder"`
	TTLMS    int64             `json:"ttl_ms" doc:"How long it lives without a renewal" example:"15000"`
	Since    time.Time         `json:"since" doc:"When it was granted, as this server saw it, or asked for where it did not see that; for people only"`
	// ExpiresInMS is absent where this server does not know it.
	ExpiresInMS *int64 `json:"expires_in_ms,omitempty" doc:"Time left at least; absent where this server does not know it" example:"9120"`
}

// Waiter is one place in a lock's queue.
type Waiter struct {
	Position int       `json:"position" doc:"1 for the next in line" example:"1"`
	Ref      string    `json:"ref" doc:"Public name of the hold" example:"ovxgs5dfonwgk43tmf2gk43uoi"`
	Owner    string    `json:"owner" doc:"Who waits" example:"worker-3"`
	Since    time.Time `json:"since" doc:"When it was asked for; for people only"`
}

// Ended is one hold that is over.
type Ended struct {
	Ref     string       `json:"ref" doc:"Public name of the hold" example:"nbswy3dpo5xxe3denbswy3dpo4"`
	Owner   string       `json:"owner" doc:"Who held the lock" example:"worker-7"`
	Token   tokens.Token `json:"token,omitempty" doc:"Its fencing token; absent where nobody remembers it" example:"7341"`
	Since   time.Time    `json:"since" doc:"When it was granted, as this server saw it, or asked for where it did not see that; for people only"`
	EndedAt time.Time    `json:"ended_at" doc:"When it ended; for people only"`
	Ended   string       `json:"ended" doc:"How it ended; treat unknown like a crash" enum:"released,expired,broken,cancelled,unknown" example:"broken"`
	// Reason is the text given to a break.
	Reason string `json:"reason,omitempty" doc:"The text given to a break" example:"host is down"`
}

// LockSummary is one row of GET /v1/locks.
type LockSummary struct {
	Lock    string  `json:"lock" doc:"Name of the lock" example:"orders/42"`
	State   string  `json:"state" doc:"Whether somebody holds it" enum:"held,free" example:"held"`
	Holder  *Holder `json:"holder,omitempty" doc:"Who holds it; absent when free"`
	Waiters int     `json:"waiters" doc:"How many wait for it" example:"2"`
}

// LockList is the answer of GET /v1/locks.
type LockList struct {
	Locks []LockSummary `json:"locks" doc:"Locks in use, in the order of their names' bytes"`
	// Cursor fetches the next page; empty on the last one.
	Cursor   string `json:"cursor,omitempty" doc:"Fetches the next page; absent on the last one"`
	Revision int64  `json:"revision" doc:"The store's revision that this answer stands for" example:"7341"`
}

// Lock is the answer of GET /v1/lock.
type Lock struct {
	LockSummary
	Queue   []Waiter `json:"queue" doc:"The first 1000 waiters"`
	History []Ended  `json:"history" doc:"The last 100 grants that ended, newest first"`
	// HistorySince is how far this server's memory of ended holds reaches.
	HistorySince time.Time `json:"history_since" doc:"How far this server's memory of ended holds reaches"`
	Revision     int64     `json:"revision" doc:"The store's revision that this answer stands for" example:"7341"`
}

// CheckItem is one pair of POST /v1/check, whose body is a list of them.
type CheckItem struct {
	Lock  string       `json:"lock" doc:"Name of the lock" minLength:"1" maxLength:"512" example:"orders/42"`
	Token tokens.Token `json:"token" doc:"The token that somebody presents" example:"7341"`
}

// CheckResult is the verdict on one pair: valid, stale, ended or unknown.
type CheckResult struct {
	Lock    string       `json:"lock" doc:"Name of the lock" example:"orders/42"`
	Token   tokens.Token `json:"token" doc:"The token presented" example:"7341"`
	Result  string       `json:"result" doc:"valid: the live holder's. stale: lower than the newest grant's. ended: the newest grant's, whose hold is over. unknown: this server cannot place it" enum:"valid,stale,ended,unknown" example:"valid"`
	Current tokens.Token `json:"current,omitempty" doc:"The newest token of the lock, where known" example:"7341"`
}

// CheckList is the answer of POST /v1/check when all tokens are valid. When one
// is not, the answer is a [Problem] whose Results list them.
type CheckList struct {
	Results []CheckResult `json:"results" doc:"In the order of the request"`
}

// BreakRequest is the body of POST /v1/break.
type BreakRequest struct {
	Lock   string       `json:"lock" doc:"Name of the lock" minLength:"1" maxLength:"512" example:"orders/42"`
	Token  tokens.Token `json:"token" doc:"The holder's token as it was seen, so that a newcomer is never hit" example:"7341"`
	Reason string       `json:"reason" doc:"Why, for the record: 1 to 256 bytes" minLength:"1" maxLength:"256" example:"host is down"`
}

// Status is the answer of GET /v1/status.
type Status struct {
	Name    string `json:"name" doc:"Name of the server" example:"fenced-1"`
	Version string `json:"version" doc:"Version of the server" example:"0.1.0"`
	Build   string `json:"build,omitempty" doc:"Commit and Go version that the server was built from"`
	Mode    string `json:"mode" doc:"How the server reaches etcd" enum:"embedded,cluster,external" example:"embedded"`
	Ready   bool   `json:"ready" doc:"Whether this server can grant"`
	// NotReady says why Ready is false.
	NotReady string       `json:"not_ready,omitempty" doc:"Why it cannot grant"`
	Cluster  string       `json:"cluster" doc:"Random id of the deployment" example:"nbswy3dpo5xxe3denbswy3dpo4"`
	Leader   string       `json:"leader,omitempty" doc:"Name of the member that leads the store, its id where it has none; absent where none is known" example:"fenced-1"`
	Leads    bool         `json:"leads" doc:"Whether that is this server's own member"`
	Store    Store        `json:"store" doc:"How the store stands; what is not known is absent"`
	Revision int64        `json:"revision" doc:"The store's revision that this server has applied" example:"7341"`
	Base     int64        `json:"base" doc:"What is added to a revision to make a token" example:"0"`
	Highest  tokens.Token `json:"highest_token,omitempty" doc:"The highest token that can have been issued; absent before the first" example:"7341"`
	LagMS    int64        `json:"mirror_lag_ms" doc:"How long the oldest answer has waited for this server to see its own write: 0 when none waits, about 1000 at most" example:"3"`
	Holds    int          `json:"holds" doc:"Live holds, held and queued" example:"12"`
	Waiters  int          `json:"waiters" doc:"Queued holds" example:"2"`
	Locks    int          `json:"locks" doc:"Locks in use" example:"10"`
	Sessions int          `json:"sessions" doc:"Live sessions" example:"4"`
	// Floor is protected, unprotected or closed: whether an issued-token file
	// guards this server against a store that was rolled back.
	Floor        string    `json:"floor" doc:"Whether an issued-token file guards this server against a store that was rolled back; closed: granting waits for a floor raise" enum:"unprotected,protected,closed" example:"protected"`
	Started      time.Time `json:"started_at" doc:"When the server started; for people only"`
	HistorySince time.Time `json:"history_since" doc:"How far this server's memory of ended holds reaches"`
}

// Store is the part of a [Status] that is about etcd and its disk. An external etcd
// tells less than an embedded one, and one that does not answer tells nothing.
type Store struct {
	EtcdVersion string `json:"etcd_version,omitempty" doc:"Version of etcd" example:"3.7.3"`
	// Members counts those without a vote, too.
	Members int `json:"members,omitempty" doc:"Members of the cluster, those without a vote included" example:"3"`
	// Bytes is what counts against QuotaBytes; UsedBytes the part of it in use.
	Bytes      int64  `json:"bytes,omitempty" doc:"Size of the store's file, which counts against the quota" example:"1048576"`
	UsedBytes  int64  `json:"used_bytes,omitempty" doc:"Part of it that is in use" example:"524288"`
	QuotaBytes int64  `json:"quota_bytes,omitempty" doc:"Size at which the store takes no more holds" example:"8589934592"`
	DiskFree   *int64 `json:"disk_free_bytes,omitempty" doc:"Free space on the disk of the data directory" example:"68719476736"`
	// Faults is in etcd's words, alarms among them.
	Faults []string `json:"faults,omitempty" doc:"What the store complains of, in etcd's words" example:"[\"memberID:1 alarm:NOSPACE\"]"`
	// LastBackup is absent where this server has sent no snapshot that it knows of.
	LastBackup *time.Time `json:"last_backup_at,omitempty" doc:"When this server last sent a whole snapshot; absent where it knows of none"`
}

// Caller is the answer of GET /v1/whoami: what the API key of the request may do.
type Caller struct {
	// Key and Name are absent where the server has no keys.
	Key  string `json:"key,omitempty" doc:"Public id of the API key; absent where the server has no keys" example:"mfrggzdfmz"`
	Name string `json:"name,omitempty" doc:"Whose key it is; without keys, whose client certificate, if any" example:"ops"`
	// Grants is one admin grant over every name where the server has no keys.
	Grants []Grant `json:"grants" doc:"What the caller may do; everything where the server has no keys"`
}

// Grant is a role over the locks whose names start with one of Prefixes.
type Grant struct {
	Role     string   `json:"role" doc:"What may be done; a higher role includes the lower ones" enum:"read,lock,admin" example:"admin"`
	Prefixes []string `json:"prefixes" doc:"With which locks: those whose names start with one of these, byte by byte; an empty one is every name" example:"[\"orders/\"]"`
}

// MaxFloor is the highest token that a floor can be raised above: half of the tokens
// stay for revisions.
const MaxFloor = 1 << 52

// FloorRequest is the body of POST /v1/floor.
type FloorRequest struct {
	Above tokens.Token `json:"above,omitempty" doc:"New tokens will be higher than this one. Default: higher than every token this server knows of" maximum:"4503599627370496" example:"7341"`
}

// Floor is the answer of POST /v1/floor.
type Floor struct {
	Base int64 `json:"base" doc:"What is now added to a revision to make a token" example:"1000000"`
}

// Event is the data of one server-sent event of GET /v1/events. Its kind is the
// event's name, and its id is "<revision>.<index>", equal on all servers.
type Event struct {
	Lock  string `json:"lock" doc:"Name of the lock" example:"orders/42"`
	Ref   string `json:"ref" doc:"Public name of the hold" example:"nbswy3dpo5xxe3denbswy3dpo4"`
	Owner string `json:"owner,omitempty" doc:"Who asked for the hold" example:"worker-7"`
	// Token is 0 for a hold that was never granted.
	Token  tokens.Token `json:"token,omitempty" doc:"Its token; absent for a hold that was never granted" example:"7341"`
	Reason string       `json:"reason,omitempty" doc:"The text given to a break"`
	Time   time.Time    `json:"time" doc:"When this server saw it; for people only"`
}

// Names of events. EventResync says that events were lost: list again.
const (
	EventQueued    = "queued"
	EventGranted   = "granted"
	EventReleased  = "released"
	EventExpired   = "expired"
	EventBroken    = "broken"
	EventCancelled = "cancelled"
	EventUnknown   = "unknown"
	EventResync    = "resync"
)

// Health is the answer of GET /healthz and GET /readyz.
type Health struct {
	Status string `json:"status" doc:"ok, or the answer is a problem" enum:"ok" example:"ok"`
}

// Problem is the application/problem+json body of every error (RFC 9457).
type Problem struct {
	Type   string      `json:"type" doc:"Where the code is explained, relative to the server" example:"/docs#lock_held"`
	Title  string      `json:"title" doc:"What the code means" example:"The lock is held by another"`
	Status int         `json:"status" doc:"The HTTP status" example:"409"`
	Code   apierr.Code `json:"code" doc:"The stable name of the error: branch on this one" example:"lock_held"`
	Detail string      `json:"detail,omitempty" doc:"One sentence about this occurrence"`
	// Field and Limit name what was out of bounds.
	Field string `json:"field,omitempty" doc:"The field, query value or header at fault"`
	Limit string `json:"limit,omitempty" doc:"What it must be"`
	// Holder, Waiters and WaitedMS come with lock_held.
	Holder   *Holder `json:"holder,omitempty" doc:"With lock_held: who holds it"`
	Waiters  int     `json:"waiters,omitempty" doc:"With lock_held: how many wait"`
	WaitedMS *int64  `json:"waited_ms,omitempty" doc:"With lock_held: how long this request waited"`
	// Ended comes with hold_gone and session_gone.
	Ended string `json:"ended,omitempty" doc:"With hold_gone and session_gone: how it ended; treat unknown like a crash"`
	// Resource, Presented and Current come with stale_token.
	Resource  string       `json:"resource,omitempty" doc:"With stale_token: the resource or lock"`
	Presented tokens.Token `json:"presented,omitempty" doc:"With stale_token: the token that was refused"`
	Current   tokens.Token `json:"current,omitempty" doc:"With stale_token: the highest accepted or granted token"`
	// Results comes with the 412 of POST /v1/check.
	Results []CheckResult `json:"results,omitempty" doc:"With the 412 of a check: all verdicts, in the order of the request"`
	// RequestID finds the request in the server's log.
	RequestID string `json:"request_id,omitempty" doc:"Finds the request in the server's log"`
}
