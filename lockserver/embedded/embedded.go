package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
)

// ErrInUse says that another process has the data directory.
var ErrInUse = errors.New("data directory is in use by another process")

// ErrClosed says that the node was closed before.
var ErrClosed = errors.New("embedded: the node is closed")

// Config tells [Start] where the data is.
type Config struct {
	// Dir is the data directory; it is made where it is missing. Required.
	Dir string
	// QuotaBytes bounds the store's file. Defaults to 8 GiB, etcd's advised maximum.
	QuotaBytes int64
	// NoSync skips fsync: a killed process loses nothing, a lost machine may. For
	// tests only.
	NoSync bool
	// Logger gets etcd's warnings and errors. Defaults to discarding them.
	Logger *slog.Logger
	_      struct{}
}

// Settings of the single node. With one member an election cannot be lost to a
// slow peer, so its timers only decide how soon a start is ready.
const (
	nodeName     = "fenced"
	tick         = 10  // ms
	election     = 100 // ms
	quotaBytes   = 8 << 30
	maxTxnOps    = 1024
	snapshotEach = 50_000
)

// Node is a running etcd.
type Node struct {
	etcd   *embed.Etcd
	client *clientv3.Client
	lock   *os.File
	closed atomic.Bool
}

// Start runs etcd on the data directory and blocks until it serves or ctx ends.
// Errors: [ErrInUse], and what etcd says.
func Start(ctx context.Context, config Config) (*Node, error) {
	if config.Dir == "" {
		return nil, errors.New("embedded: Config.Dir is required")
	}
	dir, err := filepath.Abs(config.Dir)
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, fmt.Errorf("embedded: %s: %w", config.Dir, err)
	}
	etcd, err := start(ctx, settings(dir, config))
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("embedded: start etcd: %w", err)
	}
	return &Node{etcd: etcd, client: v3client.New(etcd.Server), lock: lock}, nil
}

func settings(dir string, config Config) *embed.Config {
	c := embed.NewConfig()
	c.Name = nodeName
	c.Dir = dir
	// No port is open: clients are in the process and there are no peers. The peer
	// address is a name that is never dialled.
	c.ListenClientUrls, c.AdvertiseClientUrls, c.ListenPeerUrls = nil, nil, nil
	c.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}
	c.InitialCluster = nodeName + "=http://127.0.0.1:1"
	c.EnableGRPCGateway = false
	c.TickMs, c.ElectionMs = tick, election
	c.MaxTxnOps = maxTxnOps
	c.SnapshotCount = snapshotEach
	c.UnsafeNoFsync = config.NoSync
	c.QuotaBackendBytes = config.QuotaBytes
	if c.QuotaBackendBytes == 0 {
		c.QuotaBackendBytes = quotaBytes
	}
	c.LogLevel = "warn"
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapTo(config.Logger))
	return c
}

func start(ctx context.Context, c *embed.Config) (*embed.Etcd, error) {
	etcd, err := embed.StartEtcd(c)
	if err != nil {
		return nil, err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err = <-etcd.Err():
	case <-etcd.Server.StopNotify():
		err = errors.New("it stopped before it was ready")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	etcd.Close()
	return nil, err
}

// Client returns a client that talks to the node without a socket. The node
// closes it.
func (n *Node) Client() *clientv3.Client { return n.client }

// Err is sent to when the node fails, and closed when it is closed.
func (n *Node) Err() <-chan error { return n.etcd.Err() }

// Compact drops the history below a revision from the store and waits until the
// log has it; the space is freed in the background.
func (n *Node) Compact(ctx context.Context, rev int64) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := n.client.Compact(ctx, rev); err != nil {
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
