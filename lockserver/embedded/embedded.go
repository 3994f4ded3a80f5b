package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
)

// ErrInUse says that another process has the data directory.
var ErrInUse = errors.New("data directory is in use by another process")

// ErrClosed says that the node was closed before.
var ErrClosed = errors.New("embedded: the node is closed")

// Config tells [Start] where the data is and, for a member of a cluster, who the
// others are.
type Config struct {
	// Dir is the data directory; it is made where it is missing. Required.
	Dir string
	// Cluster makes the node a member of a cluster. Nil means a node that is alone
	// and opens no port.
	Cluster *Cluster
	// QuotaBytes bounds the store's file. Defaults to 8 GiB, etcd's advised maximum.
	QuotaBytes int64
	// NoSync skips fsync: a killed process loses nothing, a lost machine may. For
	// tests only.
	NoSync bool
	// Logger gets etcd's warnings and errors. Defaults to discarding them.
	Logger *slog.Logger
	_      struct{}
}

const (
	// singleName is the member name of a node that is alone.
	singleName   = "fenced"
	singleURL    = "http://127.0.0.1:1"
	quotaBytes   = 8 << 30
	maxTxnOps    = 1024
	snapshotEach = 50_000
)

// Timers in milliseconds. With one member an election cannot be lost to a slow
// peer, so its timers only decide how soon a start is ready. In a cluster a pause
// of a member must not cost an election: each renews all leases.
const (
	singleTick, singleElection   = 10, 100
	clusterTick, clusterElection = 100, 1000
)

// Node is a running etcd.
type Node struct {
	etcd   *embed.Etcd
	client *clientv3.Client
	lock   *os.File
	closed atomic.Bool
}

// Start runs etcd on the data directory. A node that is alone serves when Start
// returns; a member of a cluster may still look for a quorum then, see
// [Node.WaitReady]. Errors: [ErrInUse], a bad config by field, a directory of a member
// of another name, and what etcd says, among it that the data of this member differs
// from the others'.
func Start(ctx context.Context, config Config) (*Node, error) {
	settings, err := config.settings()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(settings.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	lock, err := lockDir(settings.Dir)
	if err != nil {
		return nil, fmt.Errorf("embedded: %s: %w", config.Dir, err)
	}
	etcd, err := startEtcd(settings)
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("embedded: start etcd: %w", err)
	}
	node := &Node{etcd: etcd, client: v3client.New(etcd.Server), lock: lock}
	if config.Cluster == nil {
		if err := node.WaitReady(ctx); err != nil {
			return nil, errors.Join(err, node.Close())
		}
	}
	return node, nil
}

// startEtcd starts etcd on a directory that is locked.
func startEtcd(settings *embed.Config) (*embed.Etcd, error) {
	if err := errors.Join(checkName(settings.Dir, settings.Name), forgetRestore(settings.Dir)); err != nil {
		return nil, err
	}
	return embed.StartEtcd(settings)
}

// settings checks the config and returns what etcd is started with.
func (config Config) settings() (*embed.Config, error) {
	if config.Dir == "" {
		return nil, errors.New("embedded: Config.Dir is required")
	}
	dir, err := Canonical(config.Dir)
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	c := embed.NewConfig()
	c.Dir = dir
	// Clients are in the process: no client port is open.
	c.ListenClientUrls, c.AdvertiseClientUrls = nil, nil
	c.EnableGRPCGateway = false
	c.MaxTxnOps = maxTxnOps
	c.SnapshotCount = snapshotEach
	c.UnsafeNoFsync = config.NoSync
	c.QuotaBackendBytes = config.QuotaBytes
	if c.QuotaBackendBytes == 0 {
		c.QuotaBackendBytes = quotaBytes
	}
	c.LogLevel = "warn"
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapTo(config.Logger))
	if config.Cluster != nil {
		return c, config.Cluster.apply(c)
	}
	// There are no peers; the address is one that is never dialled.
	c.Name, c.InitialCluster = singleName, singleName+"="+singleURL
	c.ListenPeerUrls = nil
	c.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}
	c.TickMs, c.ElectionMs = singleTick, singleElection
	return c, nil
}

// WaitReady blocks until the node has found a quorum and serves, has failed, or
// ctx ends.
func (n *Node) WaitReady(ctx context.Context) error {
	var err error
	select {
	case <-n.etcd.Server.ReadyNotify():
		return nil
	case err = <-n.etcd.Err():
	case <-n.etcd.Server.StopNotify():
		err = errors.New("it stopped before it was ready")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return fmt.Errorf("embedded: start etcd: %w", err)
}

// Client returns a client that talks to the node without a socket. The node
// closes it.
func (n *Node) Client() *clientv3.Client { return n.client }

// Err is sent to when the node fails, and closed when it is closed.
func (n *Node) Err() <-chan error { return n.etcd.Err() }

// Compact drops the history below a revision from the store and waits until the
// log has it; the space is freed in the background. A revision that is compacted
// already is no error: another leader was first.
func (n *Node) Compact(ctx context.Context, rev int64) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := n.client.Compact(ctx, rev); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("embedded: compact: %w", err)
	}
	return nil
}

// Close stops the node and gives the data directory free. A second call returns
// [ErrClosed].
func (n *Node) Close() error {
	if n.closed.Swap(true) {
		return ErrClosed
	}
	err := n.client.Close()
	n.etcd.Close()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, n.lock.Close())
}
