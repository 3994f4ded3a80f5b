package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/internal/buildinfo"
	"github.com/fenced/fenced/lockserver"
)

// service is the HTTP side of a program.
type service struct {
	server *http.Server
}

func (c *Config) scheme() string {
	if c.TLSCert != "" {
		return "https"
	}
	return "http"
}

// newService wires the HTTP service as the config tells.
func (p *Program) newService(engine *lockserver.Server, store *store, access *access, metrics *prometheus.Registry) (*service, error) {
	saved := backups{p.config.beside(".backup"), p.log}
	config := httpapi.Config{
		Engine: engine, Version: version, Build: buildinfo.Build(), Mode: p.config.mode(), PublicHosts: p.config.PublicHosts, Logger: p.log,
		Registry: metrics, Tracer: p.traces.tracer(), Keys: access.keys,
		BackedUp: saved.done,
		Store: func(ctx context.Context) httpapi.StoreState {
			st := store.state(ctx)
			st.LastBackup = saved.last()
			return st
		},
	}
	if p.config.AccessLog {
		config.AccessLog = p.log
	}
	if err := metrics.Register(access.unrecorded); err != nil {
		return nil, err
	}
	if access.audit != nil {
		config.Audit = slog.New(slog.NewJSONHandler(access.audit, nil))
	}
	handler, err := httpapi.New(config)
	if err != nil {
		return nil, err
	}
	server := httpapi.NewServer(handler)
	server.TLSConfig = access.tls
	// What a connection without a request went wrong with, such as a TLS handshake.
	server.ErrorLog = slog.NewLogLogger(p.log.Handler(), slog.LevelWarn)
	return &service{server}, nil
}

func (s *service) serve(listener net.Listener) error {
	if s.server.TLSConfig != nil {
		return s.server.ServeTLS(listener, "", "")
	}
	return s.server.Serve(listener)
}

// stop waits for open requests until ctx ends, then cuts what is left: a connection
// on which a client has not sent anything yet counts as open for 5 s.
func (s *service) stop(ctx context.Context) error {
	err := s.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return s.server.Close()
	}
	return err
}
