package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/lockserver"
)

// stopTimeout bounds the open requests at the end; the engine gives waiters their
// answer in less.
const stopTimeout = 5 * time.Second

// Program is a running server: etcd, the engine and the HTTP service, wired.
type Program struct {
	config   *Config
	log      *slog.Logger
	out      io.Writer
	listener net.Listener
	admin    net.Listener // nil without --admin-listen
	traces   *traces      // nil without --otlp-endpoint
}

// New checks the config and opens the listeners, so that a taken port is reported
// before anything else starts. Run must follow.
func New(config *Config, out, logs io.Writer) (*Program, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	listener, err := httpapi.Listen(context.Background(), config.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	admin, err := config.listenAdmin(context.Background())
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return &Program{config: config, log: newLogger(config, logs), out: out, listener: listener, admin: admin}, nil
}

func newLogger(config *Config, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(config.LogLevel)) // validate has seen it
	options := &slog.HandlerOptions{Level: level}
	if config.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// Addr is where the service listens.
func (p *Program) Addr() string { return p.listener.Addr().String() }

// Run serves until ctx ends or a part fails, then stops everything in order:
// waiters get a retryable answer, holds stay held.
func (p *Program) Run(ctx context.Context) error {
	defer func() { _ = p.listener.Close() }()
	defer serveAdmin(p.admin)()
	var err error
	if p.traces, err = openTraces(ctx, p.config, p.log); err != nil {
		return err
	}
	defer p.traces.close()
	access, err := openAccess(p.config, p.log)
	if err != nil {
		return err
	}
	defer access.close()
	store, err := openStore(ctx, p.config, p.log, p.traces.dialOptions()...)
	if err != nil {
		return err
	}
	err = p.serve(ctx, store, access)
	return errors.Join(foreign(err), store.close())
}

// heapFloor is memory that is never touched, and so never resident: the collector
// lets the heap grow by twice as much. The few MiB that a server with few holds
// needs would be collected hundreds of times a second under load, for a sixth of
// the throughput.
const heapFloor = 32 << 20

// serve runs the engine and the HTTP service on the store.
func (p *Program) serve(ctx context.Context, store *store, access *access) error {
	metrics := prometheus.NewRegistry()
	observer, err := httpapi.Observe(metrics)
	if err != nil {
		return err
	}
	store.engine.Observer = observer
	engine, err := lockserver.New(store.engine)
	if err != nil {
		return err
	}
	service, err := p.newService(engine, store, access, metrics)
	if err != nil {
		return err
	}
	floor := make([]byte, heapFloor)
	defer runtime.KeepAlive(floor)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 3)
	var parts sync.WaitGroup
	parts.Go(func() { failed <- engine.Run(ctx) })
	parts.Go(func() { store.upkeep(ctx, revisionOf(engine)) })
	parts.Go(func() {
		if err := service.serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve: %w", err)
		}
	})
	parts.Go(func() { p.greet(ctx, engine) })
	select {
	case <-ctx.Done():
	case err = <-failed:
	case err = <-store.failed:
	}
	cancel() // the engine answers its waiters, then Shutdown finds no request open
	stop, done := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer done()
	err = errors.Join(err, service.stop(stop))
	parts.Wait()
	return err
}

// revisionOf returns the revision of the engine's mirror.
func revisionOf(engine *lockserver.Server) func() int64 {
	return func() int64 {
		status, err := engine.Status(context.Background())
		if err != nil {
			return 0
		}
		return status.Revision
	}
}

// greet tells where the server is and how to try it, once it can grant.
func (p *Program) greet(ctx context.Context, engine *lockserver.Server) {
	if engine.WaitReady(ctx) != nil {
		return
	}
	key := ""
	if p.config.Keys != "" {
		key = ` -H "Authorization: Bearer $FENCED_API_KEY"`
	}
	url := p.config.scheme() + "://" + p.Addr()
	_, _ = fmt.Fprintf(p.out, `fenced %s listens on %s
%s
try it:
  curl -s %s/v1/holds%s -H 'Content-Type: application/json' -d '{"lock":"orders/42","owner":"me","ttl":"30s"}'
`, version, url, p.config.where(), url, key)
}
