package lockserver

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A server that met its store without an issued-token file cannot know whether that was
// rolled back before. One that can, because its file was there, is asked: through the
// store, so that the answer is about this store, and with a question that no snapshot
// has. So members of a new cluster, and one that joins, are protected at once.

const (
	// askEach is how often a server asks until it is answered.
	askEach = 30 * time.Second
	// askTTL is how long a question lies in the store.
	askTTL = time.Minute
)

// question is the value of a vouch key: who asks, and who has answered.
type question struct {
	Version int    `json:"v"`
	Server  string `json:"n"`
	By      string `json:"b,omitempty"`
}

// seekVouch asks again and again until this server is protected or ctx ends. A node that
// is alone has nobody to ask.
func (s *Server) seekVouch(ctx context.Context) {
	if s.issued == nil || s.config.Alone {
		return
	}
	_ = s.WaitReady(ctx) // closed or not: it has read the store, or ctx has ended
	tick := time.NewTicker(askEach)
	defer tick.Stop()
	for s.ask(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// ask puts a new question; false says that there is nothing to ask. One that cannot be
// put is put the next time.
func (s *Server) ask(ctx context.Context) bool {
	s.mu.Lock()
	unchecked := s.unchecked
	s.asked = newID()
	key := s.keys.vouch(s.asked)
	s.mu.Unlock()
	if !unchecked || ctx.Err() != nil {
		return false
	}
	l, err := s.store.grantLease(ctx, askTTL)
	if err != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	q := question{Version: formatVersion, Server: s.config.Name}
	_, _ = s.store.client.Put(ctx, key, string(encode(q)), clientv3.WithLease(l.ID))
	return true
}

// seeVouch takes a question from a list or a watch: an answer to this server's own, or
// one that it may answer.
func (s *Server) seeVouch(key string, value []byte) error {
	var q question
	if err := decodeValue(value, &q, &q.Version); err != nil {
		return err
	}
	switch {
	case q.By == "" && s.floorLocked() == Protected:
		s.questions = append(s.questions, key)
		signal(s.tellVouch)
	case q.By != "" && s.unchecked && key == s.keys.vouch(s.asked):
		s.unchecked = false
		s.log.Info("another server knows that the store was not rolled back: this one is protected now", "by", q.By)
	}
	return nil
}

// vouch answers what was asked, once for each question among all servers.
func (s *Server) vouch(ctx context.Context) {
	s.mu.Lock()
	keys := s.questions
	s.questions = nil
	if s.floorLocked() != Protected {
		keys = nil
	}
	s.mu.Unlock()
	for _, key := range keys {
		answer := question{Version: formatVersion, By: s.config.Name}
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		_, err := s.store.client.Txn(ctx).If(clientv3.Compare(clientv3.Version(key), "=", 1)).
			Then(clientv3.OpPut(key, string(encode(answer)), clientv3.WithIgnoreLease())).Commit()
		cancel()
		if err != nil {
			s.log.Warn("a server that asked whether the store was rolled back has no answer yet", "error", err)
		}
	}
}
