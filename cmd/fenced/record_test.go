package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenced/fenced/internal/certtest"
)

// full is a device that takes no byte.
const full = "/dev/full"

// TestProgram_SaysThatTheAuditLogFails wants locks to go on, and a log and a metric that
// say what was not recorded.
func TestProgram_SaysThatTheAuditLogFails(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(full); errors.Is(err, fs.ErrNotExist) {
		t.Skip(full + " is not there")
	}
	config := defaultConfig()
	config.DataDir, config.AuditLog = filepath.Join(t.TempDir(), "data"), full
	program := launch(t, config)
	for !strings.Contains(program.logs.String(), "cannot be written") {
		resp, err := http.Post(program.url+"/v1/holds", "application/json", strings.NewReader(`{"lock":"a","owner":"me","wait":"5s","ttl":"1s"}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusCreated && !strings.Contains(program.logs.String(), "cannot be written") {
			t.Fatal("a grant was not recorded, and the log does not say so")
		}
	}
	resp, err := http.Get(program.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	metrics, err := io.ReadAll(resp.Body)
	if err != nil || strings.Contains(string(metrics), "fenced_audit_failures_total 0\n") || !strings.Contains(string(metrics), "fenced_audit_failures_total ") {
		t.Errorf("the metric does not count (%v)", err)
	}
	if n := strings.Count(program.logs.String(), "cannot be written"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
}

// TestAuditLog_GoesOnOnALineOfItsOwn wants what follows a line that was cut off to be
// readable.
func TestAuditLog_GoesOnOnALineOfItsOwn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	failed := prometheus.NewCounter(prometheus.CounterOpts{Name: "failed"})
	audit, err := openAudit(path, slog.New(slog.DiscardHandler), failed)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = audit.file.Close() }()
	if _, err := audit.file.WriteString(`{"half`); err != nil {
		t.Fatal(err)
	}
	audit.torn, audit.broken = true, true // as after a write that was cut short
	for _, line := range []string{"{}\n", "{}\n"} {
		if _, err := audit.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "{\"half\n{}\n{}\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestProgram_ReadsAccessFilesBeforeTheStoreStarts wants a wrong file reported by a
// program that has touched nothing.
func TestProgram_ReadsAccessFilesBeforeTheStoreStarts(t *testing.T) {
	t.Parallel()
	for setting, edit := range map[string]func(c *Config, missing string){
		"--keys":      func(c *Config, missing string) { c.Keys = missing },
		"--tls-cert":  func(c *Config, missing string) { c.TLSCert, c.TLSKey = missing, missing },
		"--audit-log": func(c *Config, missing string) { c.AuditLog = filepath.Join(missing, "log") },
	} {
		config := defaultConfig()
		dir := t.TempDir()
		config.Listen, config.DataDir = "127.0.0.1:0", filepath.Join(dir, "data")
		edit(config, filepath.Join(dir, "none"))
		program, err := New(config, io.Discard, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if err := program.Run(t.Context()); err == nil || !strings.Contains(err.Error(), setting) {
			t.Errorf("got %v, want an error that names %s", err, setting)
		}
		if _, err := os.Stat(config.DataDir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the store was started before (%v)", setting, err)
		}
	}
}

// TestProgram_LogsHandshakesInItsFormat makes a handshake fail: the line about it must
// be one of the log's, which others parse.
func TestProgram_LogsHandshakesInItsFormat(t *testing.T) {
	t.Parallel()
	config := defaultConfig()
	config.DataDir, config.LogFormat = filepath.Join(t.TempDir(), "data"), "json"
	config.TLSCert, config.TLSKey = certtest.New(t).Issue(certtest.Names{Common: "server"})
	program := launch(t, config)
	dial, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{ServerName: "127.0.0.1"}} // which does not know the authority
	if _, err := dialer.DialContext(dial, "tcp", strings.TrimPrefix(program.url, "http://")); err == nil {
		t.Fatal("a certificate of an unknown authority was taken")
	}
	for !strings.Contains(program.logs.String(), "TLS handshake error") {
		select {
		case <-dial.Done():
			t.Fatalf("nothing in the log:\n%s", program.logs.String())
		case <-time.After(10 * time.Millisecond): // a log does not call when it has grown
		}
	}
	for line := range strings.Lines(program.logs.String()) {
		if !strings.HasPrefix(line, "{") {
			t.Errorf("a line is no JSON: %s", line)
		}
	}
}
