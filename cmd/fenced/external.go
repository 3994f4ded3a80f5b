package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/fenced/fenced/internal/etcdversion"
	"github.com/fenced/fenced/lockserver"
)

// externalTimeout bounds each look at an external etcd at the start.
const externalTimeout = 5 * time.Second

// openExternal connects to an etcd that runs by itself, and refuses one that
// cannot carry locks.
func openExternal(ctx context.Context, config *Config, log *slog.Logger, dial []grpc.DialOption) (*store, error) {
	// The engine outlives ctx: it still has waiters to answer and deletes to send.
	settings, err := config.etcdClient(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	settings.DialOptions = dial
	var clients []*clientv3.Client
	closeAll := func() error {
		var errs []error
		for _, c := range clients {
			if err := c.Close(); err != nil && !errors.Is(err, context.Canceled) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	}
	// Two connections, so that a crowd of writes does not starve the watch.
	for range 2 {
		client, err := clientv3.New(settings)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect to etcd: %w", err), closeAll())
		}
		clients = append(clients, client)
	}
	s, err := checkExternal(ctx, config, clients[0], log)
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	s.engine.Client, s.engine.Watch, s.engine.Prefix = clients[0], clients[1], config.Prefix
	s.upkeep = func(context.Context, func() int64) {} // its operator compacts it
	s.state = state(clients[0], config.EtcdEndpoints, false)
	s.close = closeAll
	return s, nil
}

// etcdClient returns how to connect. No write is ever repeated by the client: a
// repeated put could come after our own cleanup of the first.
func (c *Config) etcdClient(ctx context.Context) (clientv3.Config, error) {
	settings := clientv3.Config{
		Endpoints: c.EtcdEndpoints, DialTimeout: externalTimeout, Context: ctx,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
		Username: c.EtcdUser, Password: c.EtcdPassword,
		MaxUnaryRetries: 1, Logger: zap.NewNop(),
	}
	if c.EtcdPasswordFile != "" {
		text, err := os.ReadFile(c.EtcdPasswordFile)
		if err != nil {
			return settings, fmt.Errorf("--etcd-password-file: %w", err)
		}
		settings.Password = strings.TrimRight(string(text), "\r\n")
	}
	secured, err := c.etcdTLS()
	settings.TLS = secured
	return settings, err
}

// etcdTLS returns nil where all endpoints are plain.
func (c *Config) etcdTLS() (*tls.Config, error) {
	files := transport.TLSInfo{CertFile: c.EtcdCert, KeyFile: c.EtcdKey, TrustedCAFile: c.EtcdCA}
	https := 0
	for _, endpoint := range c.EtcdEndpoints {
		if strings.HasPrefix(endpoint, "https://") {
			https++
		}
	}
	switch {
	case https == 0 && (c.EtcdCert != "" || c.EtcdCA != ""):
		return nil, errors.New("--etcd-endpoints must start with https:// where certificates are given")
	case https == 0:
		return nil, nil
	case https < len(c.EtcdEndpoints):
		return nil, errors.New("--etcd-endpoints must all start with https:// or none")
	}
	secured, err := files.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--etcd-cert, --etcd-key, --etcd-ca: %w", err)
	}
	return secured, nil
}

// checkExternal looks at the version and the limits of an etcd, and finds the id
// of this deployment.
func checkExternal(ctx context.Context, config *Config, client *clientv3.Client, log *slog.Logger) (*store, error) {
	if err := checkVersions(ctx, client, config.AllowOldEtcd, log); err != nil {
		return nil, err
	}
	ops, err := probeOps(ctx, client, config.Prefix)
	if err != nil {
		return nil, err
	}
	id, err := config.clusterID()
	if err != nil {
		return nil, err
	}
	log.Info("external etcd", "endpoints", config.EtcdEndpoints, "prefix", config.Prefix, "cluster_id", id, "max_txn_ops", ops)
	return &store{engine: lockserver.Config{Cluster: id, MaxOps: ops}}, nil
}

// checkVersions asks every endpoint that answers; one must.
func checkVersions(ctx context.Context, client *clientv3.Client, allowOld bool, log *slog.Logger) error {
	var unreachable []error
	for _, endpoint := range client.Endpoints() {
		ask, cancel := context.WithTimeout(ctx, externalTimeout)
		status, err := client.Status(ask, endpoint)
		cancel()
		if err != nil {
			unreachable = append(unreachable, fmt.Errorf("etcd at %s: %w", endpoint, err))
			continue
		}
		switch err := etcdversion.Check(status.Version); {
		case err != nil && !allowOld:
			return fmt.Errorf("etcd at %s: %w; upgrade it, or accept that with --allow-old-etcd", endpoint, err)
		case err != nil:
			log.Warn("an old etcd was allowed", "endpoint", endpoint, "fault", err)
		}
	}
	if len(unreachable) == len(client.Endpoints()) {
		return errors.Join(unreachable...)
	}
	for _, err := range unreachable {
		log.Warn("an endpoint does not answer and was not checked", "error", err)
	}
	return nil
}

// maxOps is where the probe starts; the engine uses no more.
const maxOps = 128

// probeOps finds how many operations the etcd takes in one transaction: nothing
// tells it. It only reads.
func probeOps(ctx context.Context, client *clientv3.Client, prefix string) (int, error) {
	for n := maxOps; n >= 2; n /= 2 {
		ops := make([]clientv3.Op, n)
		for i := range ops {
			ops[i] = clientv3.OpGet(prefix+"cluster", clientv3.WithCountOnly())
		}
		ask, cancel := context.WithTimeout(ctx, externalTimeout)
		_, err := client.Txn(ask).Then(ops...).Commit()
		cancel()
		if err == nil {
			return n, nil
		}
		if !errors.Is(err, rpctypes.ErrTooManyOps) {
			return 0, fmt.Errorf("etcd: %w", err)
		}
	}
	return 0, errors.New("etcd takes only one operation a transaction; raise its --max-txn-ops")
}

// clusterID returns the id of this deployment: what --cluster-id says, else what
// this server has remembered beside its data directory, else a new one. It is
// remembered before it is used, so that a crash does not lock the server out.
func (c *Config) clusterID() (string, error) {
	path := c.beside(".cluster")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cluster id: %w", err)
	}
	id := strings.TrimSpace(string(text))
	switch {
	case c.ClusterID == "" && id != "", c.ClusterID == id && id != "":
		return id, nil
	case c.ClusterID != "":
		id = c.ClusterID
	default:
		id = strings.ToLower(rand.Text())
	}
	err = os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(id+"\n"), 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("cluster id: %w", err)
	}
	return id, nil
}

// foreign adds to the engine's refusal of another deployment's prefix how to go on.
func foreign(err error) error {
	var f *lockserver.ForeignError
	if !errors.As(err, &f) {
		return err
	}
	return fmt.Errorf("%w; where this server is one of that deployment, start it with --cluster-id %s, else give it a --prefix of its own", err, f.Found)
}
