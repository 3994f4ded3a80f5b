package lockserver_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver"
)

// faulty stands before a real store and loses answers after the effect, or holds
// them back: the fault that a proxy on the way would be.
type faulty struct {
	mu    sync.Mutex
	send  func(ops int) error
	write func(*clientv3.TxnResponse, error) (*clientv3.TxnResponse, error)
	alive func()
	look  func()
	lease func() error
}

// spoil puts f before the store of a client.
func spoil(client *clientv3.Client) *faulty {
	f := &faulty{}
	client.KV = &faultyKV{client.KV, f}
	client.Lease = &faultyLease{client.Lease, f}
	return f
}

// faultyServer runs a server on a node of its own, behind faults.
func faultyServer(t *testing.T) (*lockserver.Server, *faulty) {
	t.Helper()
	node := etcdtest.Node(t)
	faults := spoil(node.Client())
	s, _ := etcdtest.Run(t, lockserver.Config{Client: node.Client(), Alone: true})
	return s, faults
}

// onWrite makes the answer of every transaction and put pass through fault; nil
// heals.
func (f *faulty) onWrite(fault func(*clientv3.TxnResponse, error) (*clientv3.TxnResponse, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.write = fault
}

// onSend calls fault before a transaction or put is sent, with the number of its
// operations; where it returns an error nothing is sent.
func (f *faulty) onSend(fault func(ops int) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.send = fault
}

func (f *faulty) sending(ops int) error {
	f.mu.Lock()
	fault := f.send
	f.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(ops)
}

// onKeepAlive calls fault before a keep-alive's answer is returned.
func (f *faulty) onKeepAlive(fault func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.alive = fault
}

// onLook calls fault before the time of a lease is asked for.
func (f *faulty) onLook(fault func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look = fault
}

// onLease loses the answer of every grant and keep-alive of a lease for which fault
// returns an error; nil heals.
func (f *faulty) onLease(fault func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lease = fault
}

// lost returns the fault of a lease call that was done.
func (f *faulty) lost() error {
	f.mu.Lock()
	fault := f.lease
	f.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault()
}

type faultyKV struct {
	clientv3.KV
	faults *faulty
}

func (k *faultyKV) Txn(ctx context.Context) clientv3.Txn {
	return &faultyTxn{txn: k.KV.Txn(ctx), faults: k.faults}
}

type faultyTxn struct {
	txn    clientv3.Txn
	faults *faulty
	ops    int
}

func (t *faultyTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { t.txn = t.txn.If(cs...); return t }
func (t *faultyTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.txn = t.txn.Else(ops...); return t }
func (t *faultyTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.txn, t.ops = t.txn.Then(ops...), len(ops)
	return t
}

func (t *faultyTxn) Commit() (*clientv3.TxnResponse, error) {
	if err := t.faults.sending(t.ops); err != nil {
		return nil, err
	}
	resp, err := t.txn.Commit()
	return t.faults.answer(resp, err)
}

func (k *faultyKV) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	if err := k.faults.sending(1); err != nil {
		return nil, err
	}
	resp, err := k.KV.Put(ctx, key, value, opts...)
	answer := &clientv3.TxnResponse{Succeeded: err == nil}
	if err == nil {
		answer.Header = resp.Header
	}
	if _, err = k.faults.answer(answer, err); err != nil {
		return nil, err
	}
	return resp, nil
}

func (f *faulty) answer(resp *clientv3.TxnResponse, err error) (*clientv3.TxnResponse, error) {
	f.mu.Lock()
	fault := f.write
	f.mu.Unlock()
	if fault != nil {
		return fault(resp, err)
	}
	return resp, err
}

type faultyLease struct {
	clientv3.Lease
	faults *faulty
}

func (l *faultyLease) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	resp, err := l.Lease.KeepAliveOnce(ctx, id)
	l.faults.mu.Lock()
	fault := l.faults.alive
	l.faults.mu.Unlock()
	if fault != nil {
		fault()
	}
	if lost := l.faults.lost(); lost != nil {
		return nil, errors.Join(lost, err)
	}
	return resp, err
}

func (l *faultyLease) TimeToLive(ctx context.Context, id clientv3.LeaseID, opts ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	l.faults.mu.Lock()
	fault := l.faults.look
	l.faults.mu.Unlock()
	if fault != nil {
		fault()
	}
	return l.Lease.TimeToLive(ctx, id, opts...)
}

func (l *faultyLease) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	resp, err := l.Lease.Grant(ctx, ttl)
	if lost := l.faults.lost(); lost != nil {
		return nil, errors.Join(lost, err)
	}
	return resp, err
}
