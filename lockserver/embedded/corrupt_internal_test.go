package embedded

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/lease"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/freeport"
	"github.com/fenced/fenced/lockserver"
)

// watchful starts three members that compare their hashes every half second, where
// a real one takes a minute.
func watchful(t *testing.T) []*Node {
	t.Helper()
	var list []string
	for i := range 3 {
		addr, err := freeport.Addr()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("n%d=http://%s", i, addr))
	}
	nodes := make([]*Node, 3)
	for i := range nodes {
		config := Config{
			Dir: filepath.Join(t.TempDir(), "data"), NoSync: true,
			Cluster: &Cluster{Name: fmt.Sprintf("n%d", i), Initial: strings.Join(list, ",")},
		}
		settings, err := config.settings()
		if err != nil {
			t.Fatal(err)
		}
		settings.CompactHashCheckTime = 500 * time.Millisecond
		etcd, err := embed.StartEtcd(settings)
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = &Node{etcd: etcd, client: v3client.New(etcd.Server)}
		t.Cleanup(func() { _ = nodes[i].client.Close(); etcd.Close() })
	}
	for _, n := range nodes {
		if err := n.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return nodes
}

// TestCluster_AMemberThatBeginsToDifferStopsAllGrants plants a value in the memory
// of one running member, as a fault of its disk would.
func TestCluster_AMemberThatBeginsToDifferStopsAllGrants(t *testing.T) {
	nodes := watchful(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	server, err := lockserver.New(lockserver.Config{Client: nodes[0].client, Managed: true})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- server.Run(running) }()
	defer func() { stop(); <-done }()
	if err := server.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	acquire := func(lock string) error {
		_, err := server.Acquire(ctx, lockserver.AcquireRequest{Lock: lock, Owner: "worker"})
		return err
	}
	if err := acquire("a"); err != nil {
		t.Fatal(err)
	}

	nodes[1].etcd.Server.KV().Put([]byte("planted"), []byte("wrong"), lease.NoLease)
	var last *clientv3.PutResponse
	for !errors.Is(err, rpctypes.ErrCorrupt) {
		if ctx.Err() != nil {
			t.Fatalf("writes go on: %v", err)
		}
		if last, err = nodes[0].client.Put(ctx, "k", "v"); err == nil {
			_, err = nodes[0].client.Compact(ctx, last.Header.Revision)
		}
		time.Sleep(100 * time.Millisecond) // hashes are compared every half second
	}
	alarms, err := nodes[0].client.AlarmList(ctx)
	if err != nil || len(alarms.Alarms) == 0 || alarms.Alarms[0].Alarm != etcdserverpb.AlarmType_CORRUPT {
		t.Fatalf("alarms: %v, %v", alarms, err)
	}
	if err := acquire("b"); !apierr.CodeOf(err).Info().Retryable {
		t.Fatalf("an acquire in a cluster whose members differ ended in %v", err)
	}
	if err := server.Ready(); !errors.Is(err, rpctypes.ErrCorrupt) {
		t.Fatalf("ready: %v", err)
	}
	time.Sleep(1500 * time.Millisecond) // it asks its store once a second
	if err := server.Ready(); !errors.Is(err, rpctypes.ErrCorrupt) {
		t.Fatalf("ready after it has asked again: %v", err)
	}
}
