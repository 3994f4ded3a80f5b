package lockserver

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ForeignError says that the prefix belongs to another deployment: two on one
// prefix would expire, cancel and floor each other's holds.
type ForeignError struct {
	Prefix string
	Want   string // the id of this server's deployment
	Found  string // the id in the store
}

// Error implements error.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("prefix %s belongs to deployment %q, this server to %q", e.Prefix, e.Found, e.Want)
}

// claim makes sure that the store may be read: the prefix is this deployment's,
// and what a restore brought back is ended.
func (s *Server) claim(ctx context.Context) error {
	if err := s.claimPrefix(ctx); err != nil {
		return fmt.Errorf("claim the prefix: %w", err)
	}
	if err := s.endRestored(ctx); err != nil {
		return fmt.Errorf("end the holds of the restored store: %w", err)
	}
	return nil
}

// claimPrefix writes the deployment's id where there is none, else compares it.
// The first server of a prefix knows that nothing came before it.
func (s *Server) claimPrefix(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	id := s.config.Cluster
	if id == "" {
		id = newID()
	}
	key := s.keys.cluster()
	resp, err := s.store.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, id)).
		Else(clientv3.OpGet(key)).
		Commit()
	if err != nil {
		return err
	}
	if !resp.Succeeded {
		return s.compareCluster(resp)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.whole = true
	s.unchecked = false // an empty store has issued nothing
	return nil
}

// compareCluster checks the id that was found. An id that a server was not told is
// one that it takes over.
func (s *Server) compareCluster(resp *clientv3.TxnResponse) error {
	kvs := resp.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 || s.config.Cluster == "" || string(kvs[0].Value) == s.config.Cluster {
		return nil
	}
	return &ForeignError{Prefix: s.config.Prefix, Want: s.config.Cluster, Found: string(kvs[0].Value)}
}

// foreign reports whether the store is one that this server must not touch.
func foreign(err error) bool {
	var f *ForeignError
	return errors.As(err, &f)
}

// endRestored ends all holds and sessions that a restore brought back, once for
// each restore, whichever server comes first. Their create revisions are older
// than tokens that were issued after the snapshot was taken, so none of them may
// be granted (R13).
func (s *Server) endRestored(ctx context.Context) error {
	if s.config.Restored == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	key := s.keys.restored(s.config.Restored)
	resp, err := s.store.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(
			clientv3.OpDelete(s.keys.holds(), clientv3.WithPrefix()),
			clientv3.OpDelete(s.keys.sessions(), clientv3.WithPrefix()),
			clientv3.OpPut(key, s.config.Name),
		).Commit()
	if err != nil {
		return err
	}
	if resp.Succeeded {
		s.log.Info("the store was restored: all holds and sessions of the snapshot are ended",
			"restore", s.config.Restored)
	}
	return nil
}

// findRisen looks for holds in a fresh list that the mirror, which was exact up to
// before.rev, has seen end, or never saw: only a store that was rolled back has
// them, also where its revision was bumped. They are older than tokens issued since.
func (s *Server) findRisen(before mirrorState, kvs []*mvccpb.KeyValue) {
	if !before.complete {
		return
	}
	for _, kv := range kvs {
		kind, ref := s.keys.parse(kv.Key)
		if kind != holdKey || kv.CreateRevision > before.rev || s.table.Get(ref) != nil || kv.Version != 1 {
			continue
		}
		if _, err := decodeHold(ref, kv.Value); err == nil {
			s.closeLocked(fmt.Sprintf("hold %s of revision %d is back after it had ended", refText(ref), kv.CreateRevision))
		}
	}
}
