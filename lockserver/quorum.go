package lockserver

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/apierr"
)

// quorumProbe is how often a server that shares its store asks it for a sign of
// life, so that [Server.Ready] knows of a lost quorum before a caller does.
const quorumProbe = time.Second

// watchQuorum reads one key, linearizably, again and again until ctx ends. It also
// notices a store that was rolled back while nobody writes. A node that is alone is
// its own quorum.
func (s *Server) watchQuorum(ctx context.Context) {
	if s.config.Alone {
		return
	}
	tick := time.NewTicker(quorumProbe)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := s.probeQuorum(ctx)
		s.mu.Lock()
		s.mirror.quorum = err
		s.mu.Unlock()
	}
}

func (s *Server) probeQuorum(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	before := s.mirrorRev()
	resp, err := s.store.client.Get(ctx, s.keys.cluster(), clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	s.checkAnswer(before, resp.Header.Revision, false)
	return nil
}

// quorumLocked returns the error of the last probe with its code. Requests are
// tried regardless: the quorum may be back.
func (s *Server) quorumLocked() error {
	if s.mirror.quorum == nil {
		return nil
	}
	return &apierr.Error{
		ErrCode: apierr.NoQuorum, RetryAfter: time.Second, Cause: s.mirror.quorum,
		Detail: "the store does not answer",
	}
}
