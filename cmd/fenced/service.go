package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/buildinfo"
	"github.com/fenced/fenced/lockserver"
)

// service is the HTTP side of a program.
type service struct {
	server *http.Server
	audit  *os.File // nil without an audit log
}

func (c *Config) scheme() string {
	if c.TLSCert != "" {
		return "https"
	}
	return "http"
}

// newService wires the HTTP service as the config tells. close must follow.
func (p *Program) newService(engine *lockserver.Server, store *store, metrics *prometheus.Registry) (*service, error) {
	saved := backups{p.config.beside(".backup"), p.log}
	config := httpapi.Config{
		Engine: engine, Version: version, Build: buildinfo.Build(), Mode: p.config.mode(), PublicHosts: p.config.PublicHosts, Logger: p.log,
		Registry: metrics, Tracer: p.traces.tracer(),
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
	if p.config.Keys != "" {
		known, err := keys.Open(p.config.Keys, p.log)
		if err != nil {
			return nil, fmt.Errorf("--keys: %w", err)
		}
		config.Keys = known
	}
	s := &service{}
	if p.config.AuditLog != "" {
		file, err := os.OpenFile(p.config.AuditLog, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fmt.Errorf("--audit-log: %w", err)
		}
		s.audit, config.Audit = file, slog.New(slog.NewJSONHandler(file, nil))
	}
	handler, err := httpapi.New(config)
	if err != nil {
		s.close()
		return nil, err
	}
	s.server = httpapi.NewServer(handler)
	if p.config.TLSCert != "" {
		files := httpapi.TLSFiles{Cert: p.config.TLSCert, Key: p.config.TLSKey, ClientCA: p.config.TLSClientCA}
		if s.server.TLSConfig, err = files.Config(p.log); err != nil {
			s.close()
			return nil, fmt.Errorf("--tls-cert: %w", err)
		}
	}
	return s, nil
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

func (s *service) close() {
	if s.audit != nil {
		_ = s.audit.Close()
	}
}
