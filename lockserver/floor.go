package lockserver

import (
	"context"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/tokens"
)

// maxBase bounds the base, so that tokens stay below [tokens.Max] for any number
// of revisions that a store can live to see.
const maxBase = 1 << 52

// issuedSync is how often the issued-token file is synced to disk.
const issuedSync = time.Second

// closeGranting stops all grants until the floor is raised: the store showed less
// than this server had seen of it. The reason goes into the file, so that a
// restart remembers it, and into the store, so that every server stops.
func (s *Server) closeGranting(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLocked(reason)
}

func (s *Server) closeLocked(reason string) {
	if s.mirror.closed != "" {
		return
	}
	s.mirror.closed = reason
	s.log.Error("granting is closed until the token floor is raised", "reason", reason, "repair", "fencectl floor raise")
	if s.issued != nil {
		s.issued.set(true)
	}
	if s.mirror.stopWatch != nil {
		s.mirror.stopWatch() // a watch behind a rollback is silent: read anew
	}
	signal(s.tellClosed)
}

// openLocked lifts the closure after the floor was raised.
func (s *Server) openLocked() {
	if s.mirror.closed == "" {
		return
	}
	s.log.Info("granting is open again", "base", s.mirror.base, "revision", s.mirror.rev)
	s.mirror.closed = ""
	if s.issued != nil {
		s.issued.set(false)
	}
}

// setBase takes a new base from the store. Only a raise makes it higher; one that
// falls is a rollback.
func (s *Server) setBase(base int64) {
	was := s.mirror.base
	s.mirror.base = base
	switch {
	case base > was && s.mirror.complete:
		s.openLocked()
	case base < was:
		s.closeLocked(fmt.Sprintf("the base of the store fell from %d to %d", was, base))
	}
}

// checkAnswer compares an answer of the store with what the mirror had when the
// call was sent: a write that changed something must be above it, and nothing may
// be below it.
func (s *Server) checkAnswer(before, answered int64, changed bool) {
	if answered < before || changed && answered == before {
		s.closeGranting(fmt.Sprintf("the store answered at revision %d after %d had been seen", answered, before))
	}
}

// mirrorRev returns the revision that the mirror has now.
func (s *Server) mirrorRev() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mirror.rev
}

// compareIssued is called with the first list: a store below the file was rolled
// back while nobody looked.
func (s *Server) compareIssued(rev int64) {
	if s.issued == nil {
		return
	}
	now := s.mirror.base + rev
	if s.unchecked {
		s.log.Warn("there was no issued-token file beside this store: whether it was rolled back is not known",
			"file", s.config.IssuedFile, "after a restore", "fencectl floor raise")
	}
	switch {
	case s.issued.closed:
		s.closeLocked("it was closed when the server stopped")
	case s.issued.highest > now:
		s.closeLocked(fmt.Sprintf("the store is at token %d, below %d, which was issued before", now, s.issued.highest))
	}
}

// keepIssued syncs the issued-token file and tells the other servers of a closure,
// until ctx ends.
func (s *Server) keepIssued(ctx context.Context) {
	tick := time.NewTicker(issuedSync)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.tellClosed:
			s.putClosed(ctx)
		case <-tick.C:
			if s.issued == nil {
				continue
			}
			if err := s.issued.sync(); err != nil {
				s.log.Error("the token floor is not kept", "error", err)
			}
		}
	}
}

// putClosed writes the reason into the store, unless the floor has been raised
// since. Where that fails this server stays closed by itself.
func (s *Server) putClosed(ctx context.Context) {
	s.mu.Lock()
	reason, base := s.mirror.closed, s.mirror.base
	s.mu.Unlock()
	if reason == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	tell := s.store.client.Txn(ctx).If(s.baseIs(base)).Then(clientv3.OpPut(s.keys.closed(), reason))
	if _, err := tell.Commit(); err != nil {
		s.log.Error("the other servers were not told that granting is closed", "error", err)
	}
}

// RaiseFloor makes every token to come higher than above, than every token that
// this server knows to have been issued, and than the store's present one. It ends
// all holds and sessions in the same step and opens granting where it was closed.
// It works on a closed server. It returns the new base. Errors: code out_of_bounds
// where the base would pass 2^52, holder_changed where another raise came between,
// no_quorum and outcome_unknown.
func (s *Server) RaiseFloor(ctx context.Context, above tokens.Token) (base int64, err error) {
	if above < 0 || above > maxBase {
		return 0, apierr.Bounds("above", fmt.Sprintf("0 to %d", int64(maxBase)))
	}
	old, rev, err := s.readBase(ctx)
	if err != nil {
		return 0, err
	}
	base = s.raised(old, rev, int64(above))
	if base > maxBase {
		return 0, apierr.Bounds("above", fmt.Sprintf("low enough for a base of at most %d", int64(maxBase)))
	}
	return base, s.commitBase(ctx, old, base)
}

// raised returns the lowest base that is above the old one and puts all tokens to
// come above every one issued.
func (s *Server) raised(old, rev, above int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	highest := max(above, s.mirror.base+s.mirror.rev, old+rev)
	if s.issued != nil {
		highest = max(highest, s.issued.highest)
	}
	return max(old+1, highest-rev)
}

func (s *Server) readBase(ctx context.Context) (base, rev int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	resp, err := s.store.client.Get(ctx, s.keys.base())
	if err != nil {
		return 0, 0, unavailable(err)
	}
	if len(resp.Kvs) > 0 {
		if base, err = strconv.ParseInt(string(resp.Kvs[0].Value), 10, 64); err != nil {
			return 0, 0, &apierr.Error{ErrCode: apierr.Internal, Detail: "the base in the store is no number", Cause: err}
		}
	}
	return base, resp.Header.Revision, nil
}

func (s *Server) commitBase(ctx context.Context, old, base int64) error {
	writeCtx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	resp, err := s.store.client.Txn(writeCtx).If(s.baseIs(old)).Then(
		clientv3.OpDelete(s.keys.holds(), clientv3.WithPrefix()),
		clientv3.OpDelete(s.keys.sessions(), clientv3.WithPrefix()),
		clientv3.OpDelete(s.keys.closed()),
		clientv3.OpPut(s.keys.base(), strconv.FormatInt(base, 10)),
	).Commit()
	switch {
	case err != nil && refused(err):
		return unavailable(err)
	case err != nil:
		return outcomeUnknown(err)
	case !resp.Succeeded:
		return apierr.New(apierr.HolderChanged, "the floor was raised by another call; look at the status and repeat if needed")
	}
	return s.baseSeen(ctx, base)
}

// baseIs compares the base in the store; 0 is a base that was never raised.
func (s *Server) baseIs(base int64) clientv3.Cmp {
	if base == 0 {
		return clientv3.Compare(clientv3.CreateRevision(s.keys.base()), "=", 0)
	}
	return clientv3.Compare(clientv3.Value(s.keys.base()), "=", strconv.FormatInt(base, 10))
}

// baseSeen waits until the mirror has the new base. It is patient: after a rollback
// the mirror reads the store anew first.
func (s *Server) baseSeen(ctx context.Context, base int64) error {
	late := time.NewTimer(listTimeout)
	defer late.Stop()
	for {
		s.mu.Lock()
		seen, moved := s.mirror.base >= base, s.movedLocked()
		s.mu.Unlock()
		if seen {
			return nil
		}
		select {
		case <-moved:
		case <-late.C:
			return outcomeUnknown(behind())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
