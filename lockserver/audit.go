package lockserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/lockserver/internal/queue"
)

// auditEvery is how often the mirror is compared with the store. Older versions of
// etcd lost events on a watch, and a lost delete would block a lock for ever.
const auditEvery = time.Minute

// keepAudit compares the mirror with the store until ctx ends, and has it read anew
// where they differ.
func (s *Server) keepAudit(ctx context.Context) {
	tick := time.NewTicker(auditEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := s.audit(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("the mirror was not compared with the store", "error", err)
			}
		}
	}
}

// audit compares the mirror with the store. Where other keys share the store, nothing
// moves a mirror that has no event, and compaction passes its revision: it is brought up
// to the present first.
func (s *Server) audit(ctx context.Context) error {
	err := s.compare(ctx)
	if !errors.Is(err, rpctypes.ErrCompacted) {
		return err
	}
	if err := s.syncRevision(ctx); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return s.compare(ctx)
}

// compare looks at the holds of both at the mirror's own revision: there is no later one
// at which they could be compared.
func (s *Server) compare(ctx context.Context) error {
	mirrored, rev, complete := s.mirrored()
	if !complete {
		return nil
	}
	stored, err := s.stored(ctx, rev)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	missing, extra := differences(mirrored, stored)
	if missing+extra == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mirror.differences++
	s.fault("the mirror differs from the store and is read anew", "revision", rev, "missing", missing, "extra", extra)
	if s.mirror.stopWatch != nil {
		s.mirror.stopWatch()
	}
	return nil
}

// mirrored copies what the mirror has: each hold's create revision, by ref.
func (s *Server) mirrored() (holds map[queue.Ref]int64, rev int64, complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	holds = make(map[queue.Ref]int64, s.table.Holds())
	s.table.All(func(h *queue.Hold) { holds[h.Ref] = h.Rev })
	return holds, s.mirror.rev, s.mirror.complete
}

// stored reads the same from the store, a page at a time, at one revision.
func (s *Server) stored(ctx context.Context, rev int64) (map[queue.Ref]int64, error) {
	holds := make(map[queue.Ref]int64)
	from, end := s.keys.holds(), clientv3.GetPrefixRangeEnd(s.keys.holds())
	for {
		resp, err := s.page(ctx, from, end, rev, clientv3.WithKeysOnly())
		if err != nil {
			return nil, err
		}
		for _, kv := range resp.Kvs {
			if kind, ref := s.keys.parse(kv.Key); kind == holdKey {
				holds[ref] = kv.CreateRevision
			}
		}
		if !resp.More {
			return holds, nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

// differences counts the holds of the store that the mirror lacks or has at another
// revision, and those of the mirror that the store lacks.
func differences(mirrored, stored map[queue.Ref]int64) (missing, extra int) {
	for ref, rev := range stored {
		if mirrored[ref] != rev {
			missing++
		}
	}
	for ref := range mirrored {
		if _, there := stored[ref]; !there {
			extra++
		}
	}
	return missing, extra
}
