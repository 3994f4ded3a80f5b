package lockserver

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/fenced/fenced/internal/apierr"
)

// quorumProbe is how often a server that shares its store asks it for a sign of
// life, so that [Server.Ready] knows of a lost quorum before a caller does.
const quorumProbe = time.Second

// watchQuorum looks again and again until ctx ends whether the store can be read
// and written.
func (s *Server) watchQuorum(ctx context.Context) {
	tick := time.NewTicker(quorumProbe)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := s.probe(ctx)
		s.mu.Lock()
		s.mirror.quorum = err
		s.mu.Unlock()
	}
}

// probe reads one key, linearizably, which also notices a store that was rolled
// back while nobody writes; a node that is alone is its own quorum. Where a write
// was refused before it asks for a lease, which a store refuses as long as it
// refuses puts, and which lapses soon.
func (s *Server) probe(ctx context.Context) error {
	s.mu.Lock()
	refused := s.mirror.refuses
	s.mu.Unlock()
	if refused {
		probed, err := s.store.grantLease(ctx, leaseTTL(MinTTL))
		if refusesWrites(err) {
			return err
		}
		if err == nil {
			_, _ = s.store.client.Revoke(ctx, probed.ID) // it lapses otherwise
		}
		s.mu.Lock()
		s.mirror.refuses = false
		s.mu.Unlock()
	}
	if s.config.Alone {
		return nil
	}
	return s.probeQuorum(ctx)
}

// refusesWrites reports whether the store has refused a write because it is full or
// its members differ. It answers reads all the while.
func refusesWrites(err error) bool {
	return errors.Is(err, rpctypes.ErrNoSpace) || errors.Is(err, rpctypes.ErrCorrupt)
}

// noteRefusalLocked makes [Server.Ready] tell of a store that refuses writes.
func (s *Server) noteRefusalLocked(err error) {
	if refusesWrites(err) {
		s.mirror.refuses, s.mirror.quorum = true, err
	}
}

func (s *Server) probeQuorum(ctx context.Context) error {
	_, _, err := s.readQuorum(ctx)
	return err
}

// readQuorum returns the store's present revision and term, confirmed by a quorum. It
// reads one key of ours, because a role may be for our prefix alone.
func (s *Server) readQuorum(ctx context.Context) (rev int64, term uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	before := s.mirrorRev()
	resp, err := s.store.client.Get(ctx, s.keys.cluster())
	if err != nil {
		return 0, 0, err
	}
	if err := s.stillOurs(resp.Kvs); err != nil {
		return 0, 0, err
	}
	s.checkAnswer(before, resp.Header.Revision, false)
	return resp.Header.Revision, resp.Header.RaftTerm, nil
}

// stillOurs ends a server whose store has become another deployment's while it runs: the
// prefix was wiped and claimed anew, or the endpoints lead elsewhere.
func (s *Server) stillOurs(cluster []*mvccpb.KeyValue) error {
	err := s.compareCluster(cluster)
	if err == nil {
		return nil
	}
	s.mu.Lock()
	s.stopped = true // grants nothing in the meantime
	s.mu.Unlock()
	s.fail(err)
	return err
}

// quorumLocked returns the error of the last probe with its code. Requests are
// tried regardless: the quorum may be back.
func (s *Server) quorumLocked() error {
	if s.mirror.quorum == nil {
		return nil
	}
	return &apierr.Error{
		ErrCode: apierr.NoQuorum, RetryAfter: time.Second, Cause: s.mirror.quorum,
		Detail: "the store does not answer, or refuses writes",
	}
}
