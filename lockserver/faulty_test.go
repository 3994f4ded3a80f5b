package lockserver_test

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// faulty stands before a real store and loses answers after the effect, or holds
// them back: the fault that a proxy on the way would be.
type faulty struct {
	mu    sync.Mutex
	txn   func(*clientv3.TxnResponse, error) (*clientv3.TxnResponse, error)
	alive func()
}

// spoil puts f before the store of a client.
func spoil(client *clientv3.Client) *faulty {
	f := &faulty{}
	client.KV = &faultyKV{client.KV, f}
	client.Lease = &faultyLease{client.Lease, f}
	return f
}

// onTxn makes every transaction's answer pass through fault; nil heals.
func (f *faulty) onTxn(fault func(*clientv3.TxnResponse, error) (*clientv3.TxnResponse, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.txn = fault
}

// onKeepAlive calls fault before a keep-alive's answer is returned.
func (f *faulty) onKeepAlive(fault func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.alive = fault
}

type faultyKV struct {
	clientv3.KV
	faults *faulty
}

func (k *faultyKV) Txn(ctx context.Context) clientv3.Txn {
	return &faultyTxn{k.KV.Txn(ctx), k.faults}
}

type faultyTxn struct {
	txn    clientv3.Txn
	faults *faulty
}

func (t *faultyTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { t.txn = t.txn.If(cs...); return t }
func (t *faultyTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.txn = t.txn.Then(ops...); return t }
func (t *faultyTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.txn = t.txn.Else(ops...); return t }

func (t *faultyTxn) Commit() (*clientv3.TxnResponse, error) {
	resp, err := t.txn.Commit()
	t.faults.mu.Lock()
	fault := t.faults.txn
	t.faults.mu.Unlock()
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
	return resp, err
}
