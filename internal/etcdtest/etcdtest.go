// Package etcdtest starts a real embedded etcd, and a lock server on it, for
// tests.
package etcdtest

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/lockserver"
	"github.com/fenced/fenced/lockserver/embedded"
)

// startTimeout bounds the start of a node; it takes some 200 ms.
const startTimeout = 30 * time.Second

// Node starts etcd on a directory of its own and stops it after the test.
func Node(t testing.TB) *embedded.Node {
	t.Helper()
	return NodeAt(t, filepath.Join(t.TempDir(), "data"))
}

// NodeAt starts etcd on the given directory and stops it after the test.
func NodeAt(t testing.TB, dir string) *embedded.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	node, err := embedded.Start(ctx, embedded.Config{Dir: dir, NoSync: true})
	if err != nil {
		t.Fatalf("start etcd: %v", err)
	}
	t.Cleanup(func() {
		if err := node.Close(); err != nil && !errors.Is(err, embedded.ErrClosed) {
			t.Errorf("close etcd: %v", err)
		}
	})
	return node
}

// Server starts an etcd and a lock server that is alone on it, waits until it can
// grant, and stops both after the test.
func Server(t testing.TB) *lockserver.Server {
	t.Helper()
	server, _ := Run(t, lockserver.Config{Client: Node(t).Client(), Alone: true})
	return server
}

// Run runs a lock server of the given config until stop is called or the test
// ends, and waits until it has read its store. It may be closed for granting.
func Run(t testing.TB, config lockserver.Config) (server *lockserver.Server, stop func()) {
	t.Helper()
	if config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	server, err := lockserver.New(config)
	if err != nil {
		t.Fatalf("new lock server: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run lock server: %v", err)
		}
	}
	t.Cleanup(stop)
	if err := server.WaitReady(t.Context()); err != nil && apierr.CodeOf(err) != apierr.TokenFloor {
		t.Fatalf("lock server: %v", err)
	}
	return server, stop
}
