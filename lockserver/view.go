package lockserver

import (
	"context"
	"fmt"
	"strings"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/tokens"
)

// Lock returns what this server knows of one lock; a lock that nobody has used is
// free. It does not block. Errors: codes out_of_bounds and no_quorum.
func (s *Server) Lock(_ context.Context, name string) (*LockInfo, error) {
	if err := ValidateLock(name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mirror.complete {
		return nil, s.readyLocked()
	}
	info := &LockInfo{
		LockSummary:  s.summaryLocked(name),
		History:      s.history.grants(name, MaxHistoryShown),
		HistorySince: s.history.since,
		Revision:     s.mirror.rev,
	}
	if head := s.table.Head(name); head != nil {
		for h := head.Next(); h != nil && len(info.Queue) < MaxQueueShown; h = h.Next() {
			info.Queue = append(info.Queue, Waiter{
				Position: len(info.Queue) + 1, Ref: refText(h.Ref), Owner: h.Owner, Since: h.Created,
			})
		}
	}
	return info, nil
}

func (s *Server) summaryLocked(name string) LockSummary {
	summary := LockSummary{Name: name}
	if head := s.table.Head(name); head != nil {
		holder := s.holderLocked(head)
		summary.Holder, summary.Waiters = &holder, s.table.Waiters(name)
	}
	return summary
}

// Locks returns one page of the locks that have a holder, in byte order of their
// names. A page shows one moment; locks that come and go between pages are never
// listed twice, and one that stays is never missed. It does not block. Errors:
// codes out_of_bounds and no_quorum.
func (s *Server) Locks(_ context.Context, q LocksQuery) (*LockPage, error) {
	if q.Limit == 0 {
		q.Limit = 100
	}
	if q.Limit < 1 || q.Limit > MaxLocksPerPage {
		return nil, apierr.Bounds("limit", fmt.Sprintf("1 to %d", MaxLocksPerPage))
	}
	if q.Prefix != "" {
		if err := validateText("prefix", q.Prefix, 1, MaxLockName); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mirror.complete {
		return nil, s.readyLocked()
	}
	page := &LockPage{Revision: s.mirror.rev}
	from := max(q.Prefix, q.After)
	s.table.Names(from, func(name string) bool {
		switch {
		case name == q.After:
			return true
		case !strings.HasPrefix(name, q.Prefix):
			return false // names are in order: no later one has the prefix
		case len(page.Locks) == q.Limit:
			page.More = true
			return false
		}
		page.Locks = append(page.Locks, s.summaryLocked(name))
		return true
	})
	return page, nil
}

// MaxChecks bounds one [Server.Check].
const MaxChecks = 1000

// Check says of each pair whether its token is the live holder's. It is a
// moment's truth: only a guard protects a write. Errors: codes out_of_bounds,
// no_quorum and behind.
func (s *Server) Check(ctx context.Context, pairs []Pair) ([]CheckResult, error) {
	if len(pairs) < 1 || len(pairs) > MaxChecks {
		return nil, apierr.Bounds("items", fmt.Sprintf("1 to %d", MaxChecks))
	}
	for i, p := range pairs {
		if err := ValidateLock(p.Lock); err != nil {
			return nil, err
		}
		if !p.Token.Valid() {
			return nil, apierr.Bounds(fmt.Sprintf("items[%d].token", i), fmt.Sprintf("1 to %d", tokens.Max))
		}
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	results := make([]CheckResult, 0, len(pairs))
	for _, p := range pairs {
		r, err := s.check(ctx, p)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

// check judges one pair, after the holder that the mirror shows was confirmed.
func (s *Server) check(ctx context.Context, p Pair) (CheckResult, error) {
	if err := s.sync(ctx, p.Lock); err != nil {
		return CheckResult{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := CheckResult{Pair: p, Verdict: UnknownVerdict}
	if h := s.table.Head(p.Lock); h != nil {
		r.Current = tokenOf(h.Token)
	}
	last := s.history.grants(p.Lock, 1)
	newest := r.Current
	if newest == 0 && len(last) == 1 {
		newest = last[0].Token
	}
	switch {
	case r.Current == p.Token:
		r.Verdict = Valid
	case p.Token < newest:
		r.Verdict = Stale
	case p.Token == newest:
		r.Verdict = EndedVerdict
	}
	if r.Current == 0 {
		r.Current = newest
	}
	return r, nil
}

// sync brings the mirror to the present as far as the lock goes. A server that is
// alone with its store is always there.
func (s *Server) sync(ctx context.Context, lock string) error {
	if s.config.Alone {
		return nil
	}
	for {
		s.mu.Lock()
		head := s.table.Head(lock)
		s.mu.Unlock()
		if head == nil {
			return s.syncRevision(ctx)
		}
		there, err := s.confirm(ctx, head.Ref)
		if err != nil || there {
			return err
		}
	}
}

// Break ends the live hold that has the given token, against its owner's will. It
// does not fence by itself: the old holder's writes are refused once a higher
// token has reached the store. Errors: code holder_changed when another, or
// nobody, holds the lock; out_of_bounds; outcome_unknown.
func (s *Server) Break(ctx context.Context, req BreakRequest) (*Ended, error) {
	if err := validateBreak(req); err != nil {
		return nil, err
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := s.sync(ctx, req.Lock); err != nil {
		return nil, err
	}
	s.mu.Lock()
	head := s.table.Head(req.Lock)
	s.mu.Unlock()
	if head == nil || tokenOf(head.Token) != req.Token {
		return nil, s.holderChanged(req)
	}
	d := &deletion{
		ref: head.Ref, done: make(chan struct{}),
		entry: endEntry{End: Broken, By: req.By, Reason: req.Reason},
	}
	s.deletes.add(d)
	if err := d.wait(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.history.find(head.Ref)
	// A store that becomes full may apply a delete and refuse it: the repeat finds nothing.
	mine := p != nil && p.end == Broken && p.by == req.By && p.reason == req.Reason
	if !d.deleted && !mine {
		return nil, s.holderChanged(req)
	}
	if p != nil {
		ended := p.public()
		return &ended, nil
	}
	return &Ended{Ref: refText(head.Ref), Lock: req.Lock, Owner: head.Owner, Token: req.Token, End: Broken}, nil
}

func validateBreak(req BreakRequest) error {
	if err := ValidateLock(req.Lock); err != nil {
		return err
	}
	if !req.Token.Valid() {
		return apierr.Bounds("token", fmt.Sprintf("1 to %d", tokens.Max))
	}
	if err := validateText("reason", req.Reason, 1, MaxReason); err != nil {
		return err
	}
	return validateText("by", req.By, 0, MaxOwner)
}

func (s *Server) holderChanged(req BreakRequest) error {
	return apierr.New(apierr.HolderChanged, "token %d is not the one of the lock's holder", req.Token)
}
