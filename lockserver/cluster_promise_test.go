package lockserver_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver"
)

// crowd renews through any of three servers what another has granted, with answers that
// are slow or lost, and remembers what it was promised.
type crowd struct {
	t       *testing.T
	servers []*lockserver.Server

	mu      sync.Mutex
	held    map[string]promise // by lock
	renewed int
}

// promise is what the holder of a lock was told last: until when nobody else gets it.
type promise struct {
	token int64
	until time.Time
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{t: t, held: make(map[string]promise)}
	store := etcdtest.Node(t).Client()
	for i := range 3 {
		client := clientv3.NewCtxClient(t.Context())
		client.KV, client.Lease, client.Watcher = store.KV, store.Lease, store.Watcher
		faults := spoil(client)
		s, _ := etcdtest.Run(t, lockserver.Config{Client: client, Name: fmt.Sprint("s", i)})
		c.servers = append(c.servers, s)
		faults.onWrite(func(resp *clientv3.TxnResponse, err error) (*clientv3.TxnResponse, error) {
			if rand.IntN(20) == 0 {
				return nil, errors.Join(errLost, err)
			}
			return resp, err
		})
		faults.onKeepAlive(func() { <-time.After(rand.N(50 * time.Millisecond)) })
	}
	return c
}

func (c *crowd) any() *lockserver.Server { return c.servers[rand.IntN(len(c.servers))] }

// told remembers an answer that said held, to a call that was sent at sent.
func (c *crowd) told(h *lockserver.Hold, sent time.Time, left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.held[h.Lock]
	switch token := int64(h.Token); {
	case token < last.token:
		c.t.Errorf("%s: token %d after %d", h.Lock, token, last.token)
	case token > last.token && time.Now().Before(last.until):
		c.t.Errorf("%s: granted %v before the deadline that the holder was told", h.Lock, time.Until(last.until))
	case token > last.token || sent.Add(left).After(last.until):
		c.held[h.Lock] = promise{token, sent.Add(left)}
	}
	c.renewed++
}

// over is called before a hold is released; early where it was told gone.
func (c *crowd) over(h *lockserver.Hold, gone error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.held[h.Lock]
	if last.token != int64(h.Token) {
		return
	}
	if gone != nil && time.Now().Before(last.until) {
		c.t.Errorf("%s: %v, %v before the deadline that was told", h.Lock, gone, time.Until(last.until))
	}
	c.held[h.Lock] = promise{token: last.token}
}

// work holds one lock for a while, in a session or not.
func (c *crowd) work(ctx context.Context) {
	req := lockserver.AcquireRequest{
		Lock: fmt.Sprint("lock", rand.IntN(30)), Owner: "worker", Wait: time.Second,
		TTL: 2*time.Second + time.Duration(rand.IntN(2000))*time.Millisecond, IdempotencyKey: fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()),
	}
	var session *lockserver.Session
	if rand.IntN(2) == 0 {
		var err error
		if session, err = c.any().CreateSession(ctx, "worker", req.TTL); err != nil {
			return
		}
		req.Session, req.TTL = session.ID, 0
	}
	sent := time.Now()
	h, err := c.any().Acquire(ctx, req)
	if err != nil {
		return
	}
	c.told(h, sent, h.ExpiresIn)
	for range 5 {
		<-time.After(rand.N(h.TTL * 5 / 4)) // sometimes too late
		if code := apierr.CodeOf(c.renew(ctx, h, session)); code == apierr.HoldGone || code == apierr.SessionGone {
			return
		}
	}
	c.over(h, nil)
	_ = c.any().Release(ctx, h.ID)
}

func (c *crowd) renew(ctx context.Context, h *lockserver.Hold, session *lockserver.Session) error {
	sent := time.Now()
	var left time.Duration
	var err error
	if session != nil && rand.IntN(2) == 0 {
		var renewed *lockserver.Session
		if renewed, err = c.any().RenewSession(ctx, session.ID); err == nil {
			left = renewed.ExpiresIn
		}
	} else {
		var renewed *lockserver.Hold
		if renewed, err = c.any().Renew(ctx, h.ID); err == nil {
			left = renewed.ExpiresIn
		}
	}
	switch code := apierr.CodeOf(err); {
	case err == nil:
		c.told(h, sent, left)
	case code == apierr.HoldGone || code == apierr.SessionGone:
		c.over(h, err)
	}
	return err
}

// TestCluster_WhatWasToldHeldLastsUntilItsDeadline has a crowd renew through any server:
// none says gone, and none grants to another, before the last deadline that one has told.
func TestCluster_WhatWasToldHeldLastsUntilItsDeadline(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
	defer cancel()
	var workers sync.WaitGroup
	for range 24 {
		workers.Go(func() {
			for ctx.Err() == nil {
				c.work(t.Context())
			}
		})
	}
	workers.Wait()
	if c.renewed < 100 {
		t.Errorf("only %d answers said held", c.renewed)
	}
	for _, s := range c.servers {
		waitEmpty(t, s)
	}
}
