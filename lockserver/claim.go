package lockserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

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

// FormatError says that the prefix is written in a format that this build does not
// know, by a newer major version: it would take the store for another than it is,
// and grant what is held.
type FormatError struct {
	Prefix string
	Found  string // what the store says of its format
}

// Error implements error.
func (e *FormatError) Error() string {
	return fmt.Sprintf("prefix %s is written in format %q, this build knows up to %d: start the version that wrote it, or a newer one",
		e.Prefix, e.Found, formatVersion)
}

// claim makes sure that the store may be read: this build knows its format, the
// prefix is this deployment's, and what a restore brought back is ended.
func (s *Server) claim(ctx context.Context) error {
	if err := s.claimPrefix(ctx); err != nil {
		return fmt.Errorf("claim the prefix: %w", err)
	}
	if err := s.endRestored(ctx); err != nil {
		return fmt.Errorf("end the holds of the restored store: %w", err)
	}
	return nil
}

// claimPrefix writes the deployment's id and the format where there are none, else
// compares them. The first server of a prefix knows that nothing came before it.
func (s *Server) claimPrefix(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	id := cmp.Or(s.config.Cluster, s.freshID)
	cluster, format := s.keys.cluster(), s.keys.format()
	resp, err := s.store.client.Txn(ctx).
		If(absent(cluster), absent(format)).
		Then(clientv3.OpPut(cluster, id), clientv3.OpPut(format, formatText)).
		Else(clientv3.OpGet(cluster), clientv3.OpGet(format)).
		Commit()
	if err != nil {
		return err
	}
	if !resp.Succeeded {
		return s.compareClaim(ctx, resp)
	}
	s.wasEmpty()
	return nil
}

// wasEmpty notes that the store was empty when this server claimed it.
func (s *Server) wasEmpty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mirror.complete {
		return // it has been read since, and is read anew
	}
	s.history.whole = true
	s.unchecked = false // an empty store has issued nothing
}

// absent compares a key that must not exist.
func absent(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "=", 0) }

// compareClaim checks the id and the format that were found. An id that a server
// was not told is one that it takes over.
func (s *Server) compareClaim(ctx context.Context, resp *clientv3.TxnResponse) error {
	cluster, format := resp.Responses[0].GetResponseRange().Kvs, resp.Responses[1].GetResponseRange().Kvs
	if len(format) > 0 {
		if err := s.checkFormat(format[0].Value); err != nil {
			return err
		}
	}
	if len(cluster) > 0 && string(cluster[0].Value) == s.freshID {
		s.wasEmpty() // the answer to the claim was lost
	}
	if err := s.compareCluster(cluster); err != nil {
		return err
	}
	if len(format) > 0 {
		return nil
	}
	return s.writeFormat(ctx)
}

// compareCluster refuses the id of another deployment, where this server was told its own.
func (s *Server) compareCluster(found []*mvccpb.KeyValue) error {
	if len(found) == 0 || s.config.Cluster == "" || string(found[0].Value) == s.config.Cluster {
		return nil
	}
	return &ForeignError{Prefix: s.config.Prefix, Want: s.config.Cluster, Found: string(found[0].Value)}
}

// writeFormat puts the format into a store of a build that did not write it yet.
// What came in between is seen by the watch.
func (s *Server) writeFormat(ctx context.Context) error {
	key := s.keys.format()
	_, err := s.store.client.Txn(ctx).If(absent(key)).Then(clientv3.OpPut(key, formatText)).Commit()
	return err
}

// checkFormat refuses every format but those that this build knows.
func (s *Server) checkFormat(value []byte) error {
	v, err := strconv.Atoi(string(value))
	if err != nil || v < 1 || v > formatVersion {
		return &FormatError{Prefix: s.config.Prefix, Found: string(value)}
	}
	return nil
}

// seeFormat takes the format from a list or a watch. A newer version that takes the
// store over while this server runs ends it: from then on the keys may mean
// something else.
func (s *Server) seeFormat(value []byte) {
	err := s.checkFormat(value)
	if err == nil {
		return
	}
	s.stopped = true // grants nothing in the meantime
	s.fail(err)
}

// fail ends Run with err, unless something else ends it already.
func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// untouchable reports whether the store is one that this server must not touch.
func untouchable(err error) bool {
	var foreign *ForeignError
	var format *FormatError
	return errors.As(err, &foreign) || errors.As(err, &format)
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
		if kind != holdKey || kv.CreateRevision > before.rev || kv.Version != 1 {
			continue
		}
		if h := s.table.Get(ref); h != nil && h.Rev <= kv.CreateRevision {
			continue
		}
		if _, err := decodeHold(ref, kv.Value); err == nil {
			s.closeLocked(fmt.Sprintf("hold %s of revision %d is back after it had ended", refText(ref), kv.CreateRevision))
		}
	}
}
