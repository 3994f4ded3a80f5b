package lockserver

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/lockserver/internal/queue"
)

// The tests of this file are named after rules of DESIGN.md whose breach only shows
// inside.

func response(header int64, events ...*clientv3.Event) clientv3.WatchResponse {
	r := clientv3.WatchResponse{Events: events}
	r.Header = &etcdserverpb.ResponseHeader{Revision: header}
	return r
}

func TestR5_OnlyEventsAndProgressMoveTheMirror(t *testing.T) {
	t.Parallel()
	s := internalServer(t)
	rev := s.mirrorRev()
	created := response(rev + 1000)
	created.Created = true
	if s.applyWatch(created); s.mirrorRev() != rev {
		t.Fatalf("the header of a created response moved the mirror from %d to %d", rev, s.mirrorRev())
	}
	ends := &mvccpb.KeyValue{Key: []byte(s.keys.ends()), Value: encodeEnds(nil), ModRevision: rev + 1}
	s.applyWatch(response(rev+1000, &clientv3.Event{Type: clientv3.EventTypePut, Kv: ends}))
	if s.mirrorRev() != rev+1 {
		t.Fatalf("an event of revision %d moved the mirror to %d", rev+1, s.mirrorRev())
	}
	if s.applyWatch(response(rev + 1000)); s.mirrorRev() != rev+1000 {
		t.Fatalf("a progress notice of %d left the mirror at %d", rev+1000, s.mirrorRev())
	}
}

func TestR6_WhatWasSeenIsNotSeenAgain(t *testing.T) {
	t.Parallel()
	s := internalServer(t)
	h, err := s.Acquire(t.Context(), AcquireRequest{Lock: "a", Owner: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	ref := refOf(h.ID)
	old := &mvccpb.KeyValue{Key: []byte(s.keys.hold(ref)), ModRevision: s.mirrorRev()}
	s.applyWatch(response(s.mirrorRev(), &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: old}))
	if _, err := s.Hold(t.Context(), h.ID); err != nil {
		t.Fatalf("a delete that the mirror is past took the hold: %v", err)
	}
}

func TestR6_AListBelowTheMirrorIsARollback(t *testing.T) {
	t.Parallel()
	s := internalServer(t)
	if err := s.applyList(nil, s.mirrorRev()-1); err != nil {
		t.Fatal(err)
	}
	st, err := s.Status(t.Context())
	if err != nil || st.Floor != Closed {
		t.Fatalf("the floor is %v after a list below the mirror, %v", st.Floor, err)
	}
}

// TestR6_ASubscriberIsToldOfARollback: events begin again below the last id that it has
// seen, and would be taken for old ones.
func TestR6_ASubscriberIsToldOfARollback(t *testing.T) {
	t.Parallel()
	s := internalServer(t)
	sub, err := s.Subscribe(t.Context(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.applyList(nil, s.mirrorRev()-1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := sub.read(); !errors.Is(err, ErrResync) {
		t.Fatalf("a subscriber of the time before the rollback reads on: %v", err)
	}
}

func TestR10_ALeaseInUseIsNotReused(t *testing.T) {
	t.Parallel()
	s := internalServer(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range []struct {
		name  string
		local local
		want  int
	}{
		{"a put whose outcome is unknown", local{owned: true, unsure: true, end: Cancelled}, 0},
		{"an open call on the lease", local{owned: true, calls: 1, end: Released}, 0},
		{"a live hold", local{owned: true, live: true}, 0},
		{"a hold on another's lease", local{end: Released}, 0},
		{"nothing left", local{owned: true, end: Released}, 1},
	} {
		s.pool = pool{}
		l := c.local
		l.hold = &queue.Hold{Ref: queue.Ref{1}}
		l.lease = lease{ID: 1, TTL: time.Minute, Sent: time.Now()}
		if s.dropLocked(&l); s.pool.size != c.want {
			t.Errorf("%s: %d leases in the pool, want %d", c.name, s.pool.size, c.want)
		}
	}
}

// skewed is a real watch whose store is said to be far ahead of its events.
type skewed struct {
	clientv3.Watcher
	calls atomic.Int32
	again chan struct{}
}

func (w *skewed) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	in := w.Watcher.Watch(ctx, key, opts...)
	if w.calls.Add(1) == 2 {
		close(w.again)
		return in
	}
	out := make(chan clientv3.WatchResponse)
	go func() {
		defer close(out)
		for resp := range in {
			resp.Header = &etcdserverpb.ResponseHeader{Revision: resp.Header.Revision + relistBehind + 1}
			select {
			case out <- resp:
			case <-ctx.Done():
			}
		}
	}()
	return out
}

func TestR12_AWatchFarBehindIsLeftForAList(t *testing.T) {
	t.Parallel()
	s := internalServer(t)
	w := &skewed{Watcher: s.config.Client.Watcher, again: make(chan struct{})}
	watch := clientv3.NewCtxClient(t.Context())
	watch.Watcher = w
	late, err := New(Config{Client: s.config.Client, Watch: watch, Name: "late"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- late.Run(ctx) }()
	if err := late.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	h, err := s.Acquire(t.Context(), AcquireRequest{Lock: "a", Owner: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-w.again:
	case <-time.After(10 * time.Second):
		t.Fatal("the watch goes on")
	}
	if _, err := late.Renew(t.Context(), h.ID); err != nil {
		t.Fatalf("after the list: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
