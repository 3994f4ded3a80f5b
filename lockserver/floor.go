package lockserver

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
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
	s.log.Error("granting is closed until the token floor is raised", "reason", reason, "repair", s.repair())
	if s.issued != nil {
		s.issued.set(true)
	}
	if s.mirror.stopWatch != nil {
		s.mirror.stopWatch() // a watch behind a rollback is silent: read anew
	}
	signal(s.tellClosed)
}

// repair says how granting is opened again.
func (s *Server) repair() string {
	if !s.config.Throwaway {
		return "fencectl floor raise"
	}
	file := strings.ReplaceAll(s.config.IssuedFile, "'", `'\''`)
	return "fencectl floor raise; where no database has fences of this node, it may be stopped instead, and started after: rm '" + file + "'"
}

// openLocked lifts the closure after the floor was raised at rev, if it was raised
// far enough: a raise through a server that had seen less than this one was not.
// The tokens to come are above those that were issued before this server had a file,
// too.
func (s *Server) openLocked(rev int64) {
	s.unchecked = false
	now := s.mirror.base + rev
	if highest := s.highestLocked(); highest > now {
		s.mirror.closed = ""
		s.closeLocked(s.belowIssued(now, highest))
		return
	}
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
func (s *Server) setBase(base, rev int64) {
	was := s.mirror.base
	s.mirror.base = base
	switch {
	case base > was && s.mirror.complete:
		s.openLocked(rev)
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
// back while nobody looked. One that was closed is open again where the floor was raised
// meanwhile, or a backup restored above it; where it is still closed, the store says so.
func (s *Server) compareIssued(kvs []*mvccpb.KeyValue, rev int64) {
	if s.issued == nil {
		return
	}
	now := s.mirror.base + rev
	if s.unchecked {
		s.log.Warn("there was no issued-token file beside this store: whether it was rolled back is not known",
			"file", s.config.IssuedFile, "after a restore", "fencectl floor raise")
	}
	switch {
	case s.issued.highest > now:
		s.closeLocked(s.belowIssued(now, s.issued.highest))
	case s.issued.closed && !s.aboveIssued(kvs):
		s.closeLocked("it was closed when the server stopped")
	default:
		s.issued.set(false)
	}
}

// aboveIssued reports whether all holds of a list have higher tokens than this server
// knows to have been issued, as a raise leaves them.
func (s *Server) aboveIssued(kvs []*mvccpb.KeyValue) bool {
	for _, kv := range kvs {
		kind, _ := s.keys.parse(kv.Key)
		if kind == holdKey && s.mirror.base+kv.CreateRevision <= s.issued.highest {
			return false
		}
	}
	return true
}

func (s *Server) belowIssued(now, highest int64) string {
	return fmt.Sprintf("the store is at token %d, below %d, which server %s knows to have been issued before", now, highest, s.config.Name)
}

// highestLocked returns the highest token that this server's file knows of.
func (s *Server) highestLocked() int64 {
	if s.issued == nil {
		return 0
	}
	return s.issued.highest
}

// keepIssued syncs the issued-token file, tells the other servers of a closure and
// vouches for the store, until ctx ends.
func (s *Server) keepIssued(ctx context.Context) {
	tick := time.NewTicker(issuedSync)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.tellClosed:
			s.putClosed(ctx)
		case <-s.tellVouch:
			s.vouch(ctx)
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

// putClosed writes why granting is closed and the highest token that is known to
// have been issued into the store, unless the floor has been raised since or the
// store knows of a higher one. Where that fails this server stays closed by itself, as
// one does that has nobody to tell.
func (s *Server) putClosed(ctx context.Context) {
	s.mu.Lock()
	c := closure{Version: formatVersion, Highest: s.highestLocked(), Reason: s.mirror.closed}
	told, base := s.toldLocked(), s.mirror.base
	s.mu.Unlock()
	if c.Reason == "" || told || s.config.Throwaway {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	tell := s.store.client.Txn(ctx).If(s.baseIs(base)).Then(clientv3.OpPut(s.keys.closed(), string(encode(c))))
	if _, err := tell.Commit(); err != nil {
		s.log.Error("the other servers were not told that granting is closed", "error", err)
	}
}

// seeClosed takes a closure from the store. Two servers that close at the same time
// may overwrite each other: the one that knows of the higher token writes again. The
// other keeps it in its file, because the next store may not tell.
func (s *Server) seeClosed(value []byte) {
	c := decodeClosure(value)
	s.mirror.told = c.Highest
	if s.issued != nil {
		s.issued.raise(c.Highest)
	}
	s.closeLocked(c.Reason)
	if !s.toldLocked() {
		signal(s.tellClosed)
	}
}

// toldLocked reports whether the store says that granting is closed, and this server knows
// of no token above all that the store knows of. The store's own revision counts, too: to
// tell of it makes one more, and two servers would tell each other for ever.
func (s *Server) toldLocked() bool {
	return s.mirror.told != notTold && s.highestLocked() <= max(s.mirror.told, s.mirror.base+s.mirror.rev)
}

// RaiseFloor makes every token to come higher than above, than every token that
// this server, or one that closed granting, knows to have been issued, and than the
// store's present one. It ends all holds and sessions in the same step and opens
// granting where it was closed; a server that was away meanwhile and knows of a
// higher token closes it again. It works on a closed server. It returns the new
// base. Errors: code out_of_bounds where the base would pass 2^52, holder_changed
// where another raise came between, no_quorum and outcome_unknown.
func (s *Server) RaiseFloor(ctx context.Context, above tokens.Token) (base int64, err error) {
	if above < 0 || above > maxBase {
		return 0, apierr.Bounds("above", fmt.Sprintf("1 to %d, or absent", int64(maxBase)))
	}
	for range maxRaises {
		old, err := s.readFloor(ctx)
		if err != nil {
			return 0, err
		}
		base = s.raised(old, int64(above))
		if base > maxBase {
			return 0, apierr.New(apierr.OutOfBounds, "the floor cannot be raised any more: what is added to a revision would pass %d", int64(maxBase))
		}
		done, err := s.commitBase(ctx, old, base)
		if err != nil || done {
			return base, err
		}
	}
	return 0, apierr.New(apierr.HolderChanged, "the floor was raised, or closed, by another call; look at the status and repeat if needed")
}

// maxRaises bounds how often a raise begins anew: each server that closes granting
// may come between once.
const maxRaises = 8

// floor is what the store says about tokens.
type floor struct {
	base, rev int64
	clock     int64 // what of the base keeps tokens on the line of restores
	highest   int64 // of the closure, 0 where granting is open
	closedRev int64 // when the closure was written
}

// raised returns the lowest base that is above the old one and puts all tokens to
// come above every one issued.
func (s *Server) raised(old floor, above int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	highest := max(above, s.mirror.base+s.mirror.rev, old.base+old.rev, old.highest, s.highestLocked())
	return max(old.base+1, highest-old.rev)
}

func (s *Server) readFloor(ctx context.Context) (floor, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	resp, err := s.store.client.Txn(ctx).Then(
		clientv3.OpGet(s.keys.base()), clientv3.OpGet(s.keys.clock()), clientv3.OpGet(s.keys.closed()),
	).Commit()
	if err != nil {
		return floor{}, unavailable(err)
	}
	f := floor{rev: resp.Header.Revision}
	if f.base, err = parseNumber("base", resp.Responses[0]); err != nil {
		return floor{}, err
	}
	if f.clock, err = parseNumber("clock", resp.Responses[1]); err != nil {
		return floor{}, err
	}
	for _, kv := range resp.Responses[2].GetResponseRange().Kvs {
		f.highest, f.closedRev = decodeClosure(kv.Value).Highest, kv.ModRevision
	}
	return f, nil
}

// parseNumber reads what was found of the base, or of what of it comes from the clock;
// none is 0.
func parseNumber(what string, found *etcdserverpb.ResponseOp) (n int64, err error) {
	for _, kv := range found.GetResponseRange().Kvs {
		if n, err = strconv.ParseInt(string(kv.Value), 10, 64); err != nil {
			return 0, &apierr.Error{ErrCode: apierr.Internal, Detail: "the " + what + " in the store is no number", Cause: err}
		}
	}
	return n, nil
}

func putNumber(key string, n int64) clientv3.Op {
	return clientv3.OpPut(key, strconv.FormatInt(n, 10))
}

// commitBase writes the base where the floor is still the old one; false says that
// it is not.
func (s *Server) commitBase(ctx context.Context, old floor, base int64) (done bool, err error) {
	writeCtx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	ops := []clientv3.Op{
		clientv3.OpDelete(s.keys.holds(), clientv3.WithPrefix()),
		clientv3.OpDelete(s.keys.sessions(), clientv3.WithPrefix()),
		clientv3.OpDelete(s.keys.closed()),
		putNumber(s.keys.base(), base),
	}
	// A raise that stays below the line adds nothing to it: a restore of an older
	// snapshot, which does not know of the raise, begins at the line alone.
	if line, ok := lineAt(time.Now()); ok && base+old.rev <= line {
		ops = append(ops, putNumber(s.keys.clock(), old.clock+base-old.base))
	}
	resp, err := s.store.client.Txn(writeCtx).If(
		s.baseIs(old.base), clientv3.Compare(clientv3.ModRevision(s.keys.closed()), "=", old.closedRev),
	).Then(ops...).Commit()
	switch {
	case err != nil && refused(err):
		return false, unavailable(err)
	case err != nil:
		return false, outcomeUnknown(err)
	case !resp.Succeeded:
		return false, nil
	}
	return true, s.baseSeen(ctx, base)
}

// baseIs compares the base in the store; 0 is a base that was never raised.
func (s *Server) baseIs(base int64) clientv3.Cmp {
	if base == 0 {
		return absent(s.keys.base())
	}
	return clientv3.Compare(clientv3.Value(s.keys.base()), "=", strconv.FormatInt(base, 10))
}

// baseSeen waits until the mirror has the new base. It is patient: after a rollback
// the mirror reads the store anew first.
func (s *Server) baseSeen(ctx context.Context, base int64) error {
	err := s.mirrorShows(ctx, listTimeout, func() bool { return s.mirror.base >= base })
	if err != nil && ctx.Err() == nil {
		return outcomeUnknown(err) // the store has it
	}
	return err
}
