package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/httpapi/keys"
)

// access is what the settings say about who may call, and where that is recorded.
type access struct {
	keys  *keys.Store // nil without --keys
	tls   *tls.Config // nil without --tls-cert
	audit *auditLog   // nil without --audit-log
	// unrecorded counts what audit could not write.
	unrecorded prometheus.Counter
}

// openAccess reads and opens the files, so that a wrong one is reported before the
// store is started. close must follow.
func openAccess(config *Config, log *slog.Logger) (*access, error) {
	a := &access{unrecorded: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fenced_audit_failures_total",
		Help: "Lines that could not be written to the audit log: calls that nobody has a record of.",
	})}
	var err error
	if config.Keys != "" {
		if a.keys, err = keys.Open(config.Keys, log); err != nil {
			return nil, fmt.Errorf("--keys: %w", err)
		}
	}
	if config.TLSCert != "" {
		files := httpapi.TLSFiles{Cert: config.TLSCert, Key: config.TLSKey, ClientCA: config.TLSClientCA}
		if a.tls, err = files.Config(log); err != nil {
			return nil, fmt.Errorf("--tls-cert: %w", err)
		}
	}
	if config.AuditLog != "" {
		if a.audit, err = openAudit(config.AuditLog, log, a.unrecorded); err != nil {
			return nil, fmt.Errorf("--audit-log: %w", err)
		}
	}
	return a, nil
}

func (a *access) close() {
	if a.audit != nil {
		_ = a.audit.file.Close()
	}
}

// auditLog is the file of --audit-log. Calls go on where it cannot be written: locks
// must not stop for a full disk. But nobody is to believe that they were recorded.
type auditLog struct {
	file   *os.File
	log    *slog.Logger
	failed prometheus.Counter

	mu     sync.Mutex
	broken bool // the last write failed
	torn   bool // the file ends within a line
}

func openAudit(path string, log *slog.Logger, failed prometheus.Counter) (*auditLog, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &auditLog{file: file, log: log, failed: failed}, nil
}

// Write implements io.Writer for the lines.
func (a *auditLog) Write(line []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.torn { // what comes now is a line of its own
		if _, err := a.file.Write([]byte{'\n'}); err == nil {
			a.torn = false
		}
	}
	n, err := a.file.Write(line)
	if err != nil {
		a.torn = a.torn || n > 0
		a.failed.Inc()
	}
	was := a.broken
	a.broken = err != nil
	switch {
	case err != nil && !was:
		a.log.Error("the audit log cannot be written: calls go on without a record", "file", a.file.Name(), "error", err)
	case err == nil && was:
		a.log.Warn("the audit log is written again; lines are missing", "file", a.file.Name())
	}
	return n, err
}
