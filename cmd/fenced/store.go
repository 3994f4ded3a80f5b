package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/lockserver"
	"github.com/fenced/fenced/lockserver/embedded"
)

// startTimeout bounds the start of a single node; it takes less than a second.
const startTimeout = 30 * time.Second

// store is where the engine keeps its log: an etcd in this process or another's.
type store struct {
	engine lockserver.Config // what the engine must know of it
	failed <-chan error      // the end of the store; nil where it is not ours
	upkeep func(ctx context.Context, revision func() int64)
	state  func(context.Context) httpapi.StoreState
	close  func() error
}

// openStore opens the store that the config names. dial is for an external etcd.
func openStore(ctx context.Context, config *Config, log *slog.Logger, dial ...grpc.DialOption) (s *store, err error) {
	if config.mode() == modeExternal {
		s, err = openExternal(ctx, config, log, dial)
	} else {
		s, err = openEmbedded(ctx, config, log)
	}
	if err != nil {
		return nil, err
	}
	s.engine.Name, s.engine.MaxTTL, s.engine.Logger = config.Name, config.MaxTTL, log
	s.engine.IssuedFile = config.IssuedFile
	s.engine.Throwaway = s.engine.Alone && loopback(config.Listen)
	return s, nil
}

// openEmbedded starts an etcd in this process. A member of a cluster serves from
// the start and answers no_quorum until it has found the others.
func openEmbedded(ctx context.Context, config *Config, log *slog.Logger) (*store, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	node, err := embedded.Start(ctx, config.embedded(log))
	if err != nil {
		return nil, err
	}
	restored, err := embedded.RestoreID(config.beside(""))
	if err != nil {
		return nil, errors.Join(err, node.Close())
	}
	look := state(node.Client(), []string{""}, true)
	return &store{
		state: func(ctx context.Context) httpapi.StoreState {
			st := look(ctx)
			st.DiskFree = diskFree(config.DataDir)
			return st
		},
		engine: lockserver.Config{
			Client: node.Client(), Alone: config.mode() == modeEmbedded, Managed: true, Restored: restored,
		},
		failed: node.Err(),
		upkeep: func(ctx context.Context, revision func() int64) { node.Upkeep(ctx, revision, log) },
		close:  node.Close,
	}, nil
}

func (c *Config) embedded(log *slog.Logger) embedded.Config {
	config := embedded.Config{Dir: c.DataDir, Logger: log}
	if c.mode() == modeCluster {
		config.Cluster = &embedded.Cluster{
			Name: c.Name, Initial: c.InitialCluster, Listen: c.ListenPeer, Existing: c.Join,
			TLS:      embedded.PeerTLS{Cert: c.PeerCert, Key: c.PeerKey, CA: c.PeerCA},
			Insecure: c.InsecurePeers,
		}
	}
	return config
}
