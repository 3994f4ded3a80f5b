package clientsdk

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/tokens"
)

// What the servers tell, as it stands in their JSON answers: durations in
// milliseconds, times for people only.
type (
	// Previous tells a new holder how its predecessor ended: Token, Owner, Ref,
	// Ended ("released", "expired", "broken", "cancelled" or "unknown"), EndedAt.
	Previous = wire.Previous
	// Holder is who holds a lock: Ref, Owner, Token, Session, Metadata, TTLMS,
	// Since, and ExpiresInMS where the server knows it.
	Holder = wire.Holder
	// LockSummary is one row of a list: Lock, State, Holder, Waiters.
	LockSummary = wire.LockSummary
	// LockInfo is all about one lock: a LockSummary, Queue, History, HistorySince.
	LockInfo = wire.Lock
	// LockPage is one page of a list: Locks, and the Cursor of the next page.
	LockPage = wire.LockList
	// CheckItem is a token that somebody presents for a lock.
	CheckItem = wire.CheckItem
	// CheckResult is the verdict on a CheckItem: "valid", "stale", "ended" or
	// "unknown", and the newest token where that is known.
	CheckResult = wire.CheckResult
	// SessionInfo is one session: Ref, Owner, TTLMS, Live (refs of its holds).
	SessionInfo = wire.Session
	// Status describes one server and its view of the store.
	Status = wire.Status
	// Caller is what an API key may do: Key (its public id), Name, Grants.
	Caller = wire.Caller
	// HoldInfo is the state of one hold as its owner sees it.
	HoldInfo = wire.Hold
)

// LocksQuery asks for one page of locks in the order of their names.
type LocksQuery struct {
	// Prefix keeps the names that start with it.
	Prefix string
	// Limit is 1 to 1000. Defaults to 100.
	Limit int
	// Cursor is that of the page before. Defaults to the first page.
	Cursor string
	_      struct{}
}

// Lock returns the holder, the queue and the last grants of a lock. A lock that
// nobody has used is "free". It blocks until answered; see [ErrUnavailable] and
// [*APIError], as for all calls of this file.
func (c *Client) Lock(ctx context.Context, name string) (*LockInfo, error) {
	out := new(LockInfo)
	r := request{op: fmt.Sprintf("get lock %q", name), method: http.MethodGet, path: "/v1/lock?name=" + url.QueryEscape(name)}
	r.check = func() error {
		if out.Lock != name {
			return errForeign("lock", out.Lock, name)
		}
		return nil
	}
	if err := c.read(ctx, r, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Locks returns one page of the locks that are held. nil asks for the first.
func (c *Client) Locks(ctx context.Context, q *LocksQuery) (*LockPage, error) {
	v := url.Values{}
	if q != nil && q.Prefix != "" {
		v.Set("prefix", q.Prefix)
	}
	if q != nil && q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q != nil && q.Cursor != "" {
		v.Set("cursor", q.Cursor)
	}
	out := new(LockPage)
	if err := c.read(ctx, request{op: "list locks", method: http.MethodGet, path: "/v1/locks?" + v.Encode()}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Check asks what the servers can say of each token at this moment. It is for people
// and diagnosis: a token that is valid now may be stale when a write arrives, and
// only a guard at the store can refuse that write. A verdict that is not "valid" is
// no error.
func (c *Client) Check(ctx context.Context, items []CheckItem) ([]CheckResult, error) {
	for i, item := range items {
		err := cmp.Or(checkText("check", fmt.Sprintf("[%d].lock", i), item.Lock), checkToken("check", fmt.Sprintf("[%d].token", i), item.Token))
		if err != nil {
			return nil, err
		}
	}
	var out wire.CheckList
	r := request{op: "check", method: http.MethodPost, path: "/v1/check", body: items,
		answer: http.StatusPreconditionFailed}
	r.check = func() error {
		if len(out.Results) != len(items) {
			return fmt.Errorf("answer has %d results for %d tokens", len(out.Results), len(items))
		}
		return nil
	}
	err := c.read(ctx, r, &out)
	return out.Results, err
}

// Break ends the hold that has this token against its owner's will. When another
// has the lock by now it does nothing and returns an [*APIError] with code
// holder_changed. A break does not fence: the old holder's writes are refused once a
// higher token has reached the store.
//
// It is not repeated once it may have arrived; see [OutcomeKnown].
func (c *Client) Break(ctx context.Context, lock string, token tokens.Token, reason string) error {
	op := fmt.Sprintf("break %q", lock)
	if err := cmp.Or(checkText(op, "lock", lock), checkToken(op, "token", token), checkText(op, "reason", reason)); err != nil {
		return err
	}
	var ignored any
	return c.once(ctx, request{op: op, method: http.MethodPost, path: "/v1/break",
		body: wire.BreakRequest{Lock: lock, Token: token, Reason: reason}}, &ignored)
}

// Sessions lists the live sessions by their refs.
func (c *Client) Sessions(ctx context.Context) ([]SessionInfo, error) {
	var out wire.SessionList
	err := c.read(ctx, request{op: "list sessions", method: http.MethodGet, path: "/v1/sessions"}, &out)
	return out.Sessions, err
}

// Status describes the server that answers.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	out := new(Status)
	if err := c.read(ctx, request{op: "status", method: http.MethodGet, path: "/v1/status"}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// WhoAmI tells what the client's API key may do. A server without keys answers one
// grant, of the role admin over every lock.
func (c *Client) WhoAmI(ctx context.Context) (*Caller, error) {
	out := new(Caller)
	if err := c.read(ctx, request{op: "whoami", method: http.MethodGet, path: "/v1/whoami"}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// read makes a call that changes nothing, as often as it takes.
func (c *Client) read(ctx context.Context, r request, out any) error {
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", r.op, err)
	}
	defer end()
	r.reads = r.method == http.MethodGet
	return c.t.retry(ctx, c.cfg.RetryFor, func(ctx context.Context) error {
		_, err := c.t.exchange(ctx, r, out)
		return err
	})
}
