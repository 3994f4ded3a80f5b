package httpapi

import (
	"context"
	"encoding/base64"
	"fmt"
	"unicode/utf8"

	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver"
)

// locks serves what everybody may see and ask of locks, and the break.
type locks struct{ engine LockService }

func (s locks) routes(a *api) {
	handle(a, listLocksOp, s.list)
	handle(a, getLockOp, s.get)
	handle(a, checkOp, s.check)
	handle(a, breakOp, s.breakHold)
}

func (s locks) list(ctx context.Context, c *call, _ *none) (*wire.LockList, error) {
	q := lockserver.LocksQuery{}
	var err error
	if q.Prefix, err = c.prefix(); err != nil {
		return nil, err
	}
	if err = c.permitPrefix(keys.Read, q.Prefix); err != nil {
		return nil, err
	}
	if q.Limit, err = c.number("limit", lockserver.MaxLocksPerPage); err != nil {
		return nil, err
	}
	if q.After, err = parseCursor(c.query.Get("cursor")); err != nil {
		return nil, err
	}
	page, err := s.engine.Locks(ctx, q)
	if err != nil {
		return nil, err
	}
	return wirePage(page), nil
}

func wirePage(page *lockserver.LockPage) *wire.LockList {
	out := &wire.LockList{Locks: make([]wire.LockSummary, len(page.Locks)), Revision: page.Revision}
	for i := range page.Locks {
		out.Locks[i] = wireSummary(&page.Locks[i])
	}
	if n := len(page.Locks); page.More && n > 0 {
		out.Cursor = cursor(page.Locks[n-1].Name)
	}
	return out
}

// A cursor is the last name of the page before, so that pages stay correct while
// locks come and go. It is encoded to keep clients from making their own.
func cursor(name string) string { return base64.RawURLEncoding.EncodeToString([]byte(name)) }

// parseCursor accepts what cursor writes, and no other spelling of it.
func parseCursor(text string) (string, error) {
	name, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(name) > lockserver.MaxLockName || !utf8.Valid(name) || cursor(string(name)) != text {
		return "", &apierr.Error{ErrCode: apierr.Malformed, Detail: "cursor is not one that a page gave", Field: "cursor"}
	}
	return string(name), nil
}

// prefix reads the filter by name; "" keeps everything.
func (c *call) prefix() (string, error) {
	prefix := c.query.Get("prefix")
	if len(prefix) > lockserver.MaxLockName {
		return "", apierr.Bounds("prefix", fmt.Sprintf("at most %d bytes", lockserver.MaxLockName))
	}
	return prefix, nil
}

func (s locks) get(ctx context.Context, c *call, _ *none) (*wire.Lock, error) {
	name := c.query.Get("name")
	if err := lockserver.ValidateLock(name); err != nil {
		return nil, queryError("name", err)
	}
	c.record.lock = name
	if err := c.permit(keys.Read, name); err != nil {
		return nil, err
	}
	info, err := s.engine.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	return wireLock(info), nil
}

// queryError gives a bounds error of the engine the name that the query uses.
func queryError(name string, err error) error {
	if e, ok := err.(*apierr.Error); ok {
		return apierr.Bounds(name, e.Limit)
	}
	return err
}

// checkError says that not all tokens of a check are valid.
type checkError struct{ results []wire.CheckResult }

// Error implements error.
func (e *checkError) Error() string { return "check: not all tokens are valid" }

// Code returns stale_token where a token is stale, else token_not_valid.
func (e *checkError) Code() apierr.Code {
	for _, r := range e.results {
		if r.Result == lockserver.Stale.String() {
			return apierr.StaleToken
		}
	}
	return apierr.TokenNotValid
}

func (s locks) check(ctx context.Context, c *call, in *[]wire.CheckItem) (*wire.CheckList, error) {
	if len(*in) == 0 {
		return nil, apierr.Bounds("body", "a list of 1 to 1000 items")
	}
	pairs := make([]lockserver.Pair, len(*in))
	for i, item := range *in {
		if err := checkItem(c, i, item); err != nil {
			return nil, err
		}
		pairs[i] = lockserver.Pair{Lock: item.Lock, Token: item.Token}
	}
	verdicts, err := s.engine.Check(ctx, pairs)
	if err != nil {
		return nil, err
	}
	return checked(verdicts)
}

func checkItem(c *call, i int, item wire.CheckItem) error {
	if err := lockserver.ValidateLock(item.Lock); err != nil {
		return queryError(fmt.Sprintf("[%d].lock", i), err)
	}
	if !item.Token.Valid() {
		return apierr.Bounds(fmt.Sprintf("[%d].token", i), "given")
	}
	return c.permit(keys.Read, item.Lock)
}

// checked is the list where all are valid, a *checkError elsewhere.
func checked(verdicts []lockserver.CheckResult) (*wire.CheckList, error) {
	results, valid := make([]wire.CheckResult, len(verdicts)), true
	for i, v := range verdicts {
		results[i] = wire.CheckResult{Lock: v.Lock, Token: v.Token, Result: v.Verdict.String(), Current: v.Current}
		valid = valid && v.Verdict == lockserver.Valid
	}
	if !valid {
		return nil, &checkError{results}
	}
	return &wire.CheckList{Results: results}, nil
}

func (s locks) breakHold(ctx context.Context, c *call, in *wire.BreakRequest) (*wire.Ended, error) {
	c.record.lock, c.record.token, c.record.reason = in.Lock, in.Token, in.Reason
	if !in.Token.Valid() {
		return nil, apierr.Bounds("token", "given: the token of the holder to break")
	}
	if err := c.permit(keys.Admin, in.Lock); err != nil {
		return nil, err
	}
	ended, err := s.engine.Break(ctx, lockserver.BreakRequest{Lock: in.Lock, Token: in.Token, Reason: in.Reason, By: c.who()})
	if err != nil {
		return nil, err
	}
	c.record.ref = ended.Ref
	out := wireEnded(ended)
	return &out, nil
}
