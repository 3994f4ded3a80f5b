package main

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"go.uber.org/zap"
)

func dialEtcd(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: []string{addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
}

const leaseSeconds = int64(benchTTL / time.Second)

// v3lockClient is a client of etcd's lock service.
type v3lockClient struct {
	etcd  *clientv3.Client
	locks v3lockpb.LockClient
	// lease is shared with the other clients; 0 takes one for each lock.
	lease clientv3.LeaseID
}

func newV3lock(addr string, lease clientv3.LeaseID) (*v3lockClient, error) {
	etcd, err := dialEtcd(addr)
	if err != nil {
		return nil, err
	}
	return &v3lockClient{etcd: etcd, locks: v3lockpb.NewLockClient(etcd.ActiveConnection()), lease: lease}, nil
}

func (c *v3lockClient) cycle(ctx context.Context, lock string) error {
	if c.lease != 0 {
		held, err := c.locks.Lock(ctx, &v3lockpb.LockRequest{Name: []byte(lock), Lease: int64(c.lease)})
		if err != nil {
			return err
		}
		_, err = c.locks.Unlock(ctx, &v3lockpb.UnlockRequest{Key: held.Key})
		return err
	}
	lease, err := c.etcd.Grant(ctx, leaseSeconds)
	if err != nil {
		return err
	}
	if _, err := c.locks.Lock(ctx, &v3lockpb.LockRequest{Name: []byte(lock), Lease: int64(lease.ID)}); err != nil {
		return err
	}
	_, err = c.etcd.Revoke(ctx, lease.ID)
	return err
}

func (c *v3lockClient) close() { _ = c.etcd.Close() }

// mutexClient uses etcd's own Go recipe, with one session for all its locks.
type mutexClient struct {
	etcd    *clientv3.Client
	session *concurrency.Session
}

func newMutex(addr string) (*mutexClient, error) {
	etcd, err := dialEtcd(addr)
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(etcd, concurrency.WithTTL(int(leaseSeconds)))
	if err != nil {
		_ = etcd.Close()
		return nil, err
	}
	return &mutexClient{etcd, session}, nil
}

func (c *mutexClient) cycle(ctx context.Context, lock string) error {
	m := concurrency.NewMutex(c.session, lock)
	if err := m.Lock(ctx); err != nil {
		return err
	}
	return m.Unlock(ctx)
}

func (c *mutexClient) close() {
	c.session.Orphan()
	_ = c.etcd.Close()
}

// rawClient puts a key and deletes it: no lock, the limit of what one can reach.
type rawClient struct{ etcd *clientv3.Client }

func newRaw(addr string) (*rawClient, error) {
	etcd, err := dialEtcd(addr)
	if err != nil {
		return nil, err
	}
	return &rawClient{etcd}, nil
}

func (c *rawClient) cycle(ctx context.Context, lock string) error {
	if err := c.put(ctx, lock); err != nil {
		return err
	}
	_, err := c.etcd.Delete(ctx, lock)
	return err
}

func (c *rawClient) put(ctx context.Context, key string) error {
	_, err := c.etcd.Put(ctx, key, "x")
	return err
}

func (c *rawClient) close() { _ = c.etcd.Close() }

// sharedLease grants the lease that many clients of v3lock share, long enough to
// outlast the run without a renewal.
func sharedLease(ctx context.Context, addr string) (clientv3.LeaseID, error) {
	etcd, err := dialEtcd(addr)
	if err != nil {
		return 0, err
	}
	defer func() { _ = etcd.Close() }()
	lease, err := etcd.Grant(ctx, int64(time.Hour/time.Second))
	if err != nil {
		return 0, fmt.Errorf("shared lease: %w", err)
	}
	return lease.ID, nil
}
