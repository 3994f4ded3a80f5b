package lockserver

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The line of restores is restoreBump at lineStart and climbs by one each lineTick, which
// is faster than a store writes. So at any time all that was ever issued is below it, but
// for what a floor adds that was raised above it by hand. From lineEnd on the clock is
// not believed: the line is then 7 % of the way to the highest base.
var (
	lineStart = time.Date(2020, time.January, 1, 0, 0, 0, 0, time.UTC)
	lineEnd   = time.Date(2120, time.January, 1, 0, 0, 0, 0, time.UTC)
)

const (
	lineTick = 10 * time.Microsecond
	// restoreBump is what a restore has added to the revision of its snapshot.
	restoreBump = 1_000_000_000_000
)

// lineAt returns where the line is; false says that the clock cannot be right.
func lineAt(now time.Time) (line int64, ok bool) {
	return restoreBump + int64(now.Sub(lineStart)/lineTick), !now.Before(lineStart) && now.Before(lineEnd)
}

// restored is what a store that was restored says before anybody acts on it.
type restored struct {
	rev   int64 // of the store, with the bump
	base  int64
	clock int64 // what of the base keeps tokens on the line: the key clock
	done  bool  // somebody has acted on this restore
}

// lifted returns the base that puts the tokens to come on the line at now. A snapshot
// does not tell what was issued after it, nor whether it was restored before: each
// restore of one goes on at the same revision. The line is above what all earlier
// restores have issued, whichever snapshot they were of. The base may fall by less than
// the bump here, never the tokens.
//
// Where the clock is behind the snapshot, or is not believed, ok is false and the base
// stays: the bump alone must do.
func (r restored) lifted(now time.Time) (base, clock int64, ok bool) {
	line, ok := lineAt(now)
	clock = line - r.rev
	base = r.base - r.clock + clock
	snapshot := r.clock + r.rev - restoreBump
	if !ok || line <= snapshot || base < 0 || base > maxBase {
		return r.base, r.clock, false
	}
	return base, clock, true
}

// endRestored ends all holds and sessions that a restore brought back, and lifts the
// base, once for each restore, whichever server comes first. The create revisions of
// those holds are older than tokens that were issued after the snapshot was taken, so
// none of them may be granted (R13). No server of the restored store has read its base
// before.
func (s *Server) endRestored(ctx context.Context) error {
	if s.config.Restored == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	for range maxRaises {
		found, err := s.readRestored(ctx)
		if err != nil || found.done {
			return err
		}
		done, err := s.commitRestored(ctx, found, time.Now())
		if err != nil || done {
			return err
		}
	}
	return errors.New("the base changes again and again")
}

func (s *Server) readRestored(ctx context.Context) (restored, error) {
	resp, err := s.store.client.Txn(ctx).Then(
		clientv3.OpGet(s.keys.base()), clientv3.OpGet(s.keys.clock()), clientv3.OpGet(s.keys.restored(s.config.Restored)),
	).Commit()
	if err != nil {
		return restored{}, err
	}
	found := restored{rev: resp.Header.Revision, done: resp.Responses[2].GetResponseRange().Count > 0}
	if found.base, err = parseNumber("base", resp.Responses[0]); err != nil {
		return restored{}, err
	}
	found.clock, err = parseNumber("clock", resp.Responses[1])
	return found, err
}

// commitRestored acts on a restore where the store is still as it was found; false says
// that it is not.
func (s *Server) commitRestored(ctx context.Context, found restored, now time.Time) (done bool, err error) {
	base, clock, ok := found.lifted(now)
	key := s.keys.restored(s.config.Restored)
	ops := []clientv3.Op{
		clientv3.OpDelete(s.keys.holds(), clientv3.WithPrefix()),
		clientv3.OpDelete(s.keys.sessions(), clientv3.WithPrefix()),
		clientv3.OpPut(key, s.config.Name),
	}
	if ok {
		ops = append(ops, putNumber(s.keys.base(), base), putNumber(s.keys.clock(), clock))
	}
	resp, err := s.store.client.Txn(ctx).If(absent(key), s.baseIs(found.base)).Then(ops...).Commit()
	if err != nil || !resp.Succeeded {
		return false, err
	}
	s.tellRestored(ok, base, now)
	return true, nil
}

func (s *Server) tellRestored(lifted bool, base int64, now time.Time) {
	clock := now.UTC().Format(time.RFC3339)
	s.log.Info("the store was restored: all holds and sessions of the snapshot are ended",
		"restore", s.config.Restored, "base", base, "clock", clock)
	if !lifted {
		s.log.Warn("the clock is behind the snapshot or cannot be right, or the base has no room: "+
			"tokens go on 10^12 above the snapshot's, and where it was restored before, those of that time come again",
			"clock", clock, "repair", "fencectl floor raise --above N")
	}
}
