package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenced/fenced/internal/apikey"
	"github.com/fenced/fenced/internal/certtest"
	"github.com/fenced/fenced/internal/wire"
)

// TestConfig_ClosedByDefault wants an address that others can reach refused unless
// callers must show who they are.
func TestConfig_ClosedByDefault(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"0.0.0.0:7420", ":7420", "[::]:7420", "192.0.2.1:7420", "example.com:7420"} {
		config := defaultConfig()
		config.Listen = listen
		if err := config.validate(); err == nil || !strings.Contains(err.Error(), "--keys") {
			t.Errorf("%s: got %v, want a refusal that names --keys", listen, err)
		}
		config.InsecureNoAuth = true
		if err := config.validate(); err != nil {
			t.Errorf("%s with --insecure-no-auth: %v", listen, err)
		}
	}
	for _, listen := range []string{"127.0.0.1:7420", "[::1]:7420", "localhost:7420", "127.8.8.8:0"} {
		config := defaultConfig()
		config.Listen = listen
		if err := config.validate(); err != nil {
			t.Errorf("%s: %v", listen, err)
		}
	}
}

func TestConfig_AccessSettingsThatDoNotFit(t *testing.T) {
	t.Parallel()
	for want, edit := range map[string]func(*Config){
		"--tls-key":       func(c *Config) { c.TLSCert = "cert.pem" },
		"--tls-client-ca": func(c *Config) { c.TLSClientCA = "ca.pem" },
	} {
		config := defaultConfig()
		edit(config)
		if err := config.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error that names %s", err, want)
		}
	}
}

// TestProgram_KeysAndAudit starts a server with a key file: without a key nothing
// works but the health checks, with one it does, and the audit log says who.
func TestProgram_KeysAndAudit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text, key, err := apikey.Generate("worker", []apikey.Grant{{Role: apikey.Lock, Prefixes: []string{""}}}, apikey.Quota{})
	if err != nil {
		t.Fatal(err)
	}
	config := defaultConfig()
	config.Listen, config.DataDir = "127.0.0.1:0", filepath.Join(dir, "data")
	config.Keys, config.AuditLog = filepath.Join(dir, "keys"), filepath.Join(dir, "audit.log")
	if err := apikey.Add(config.Keys, key); err != nil {
		t.Fatal(err)
	}
	out, in := io.Pipe()
	program, err := New(config, in, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- program.Run(ctx); _ = in.Close() }()
	greeting := make([]byte, 4096)
	if _, err := out.Read(greeting); err != nil {
		t.Fatal(err)
	}
	url := "http://" + program.Addr()
	for path, want := range map[string]int{"/readyz": http.StatusOK, "/healthz": http.StatusOK, "/v1/locks": http.StatusUnauthorized, "/metrics": http.StatusUnauthorized} {
		if got := answer(t, http.MethodGet, url+path, "", ""); got != want {
			t.Errorf("GET %s without a key: %d, want %d", path, got, want)
		}
	}
	if got := answer(t, http.MethodPost, url+"/v1/holds", `{"lock":"a","owner":"me"}`, text); got != http.StatusCreated {
		t.Errorf("acquire with a key: %d", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	audit, err := os.ReadFile(config.AuditLog)
	if err != nil || !strings.Contains(string(audit), "worker") || strings.Contains(string(audit), text) {
		t.Errorf("audit log %q, %v", audit, err)
	}
}

func answer(t *testing.T, method, url, body, key string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// TestProgram_ClientCertificatesAndAudit starts a server that asks for certificates:
// without one nothing is served, and with one the audit log and the lock's history say
// whose it was.
func TestProgram_ClientCertificatesAndAudit(t *testing.T) {
	t.Parallel()
	ca, dir := certtest.New(t), t.TempDir()
	config := defaultConfig()
	config.DataDir, config.AuditLog = filepath.Join(dir, "data"), filepath.Join(dir, "audit.log")
	config.TLSCert, config.TLSKey = ca.Issue(certtest.Names{Common: "server"})
	config.TLSClientCA = ca.CA()
	program := launch(t, config)
	program.awaitReady(t)
	url := "https" + strings.TrimPrefix(program.url, "http")
	client := func(certs ...tls.Certificate) *http.Client {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), Certificates: certs}}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	if resp, err := client().Get(url + "/readyz"); err == nil {
		t.Errorf("without a certificate: %s", resp.Status)
	}
	alice := client(ca.Pair(certtest.Names{Common: "alice"}))
	send := func(path, body string) (status int, hold wire.Hold) {
		resp, err := alice.Post(url+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		_ = json.NewDecoder(resp.Body).Decode(&hold)
		return resp.StatusCode, hold
	}
	status, hold := send("/v1/holds", `{"lock":"a","owner":"me"}`)
	if status != http.StatusCreated {
		t.Fatalf("acquire: %d", status)
	}
	if status, _ := send("/v1/break", fmt.Sprintf(`{"lock":"a","token":%d,"reason":"test"}`, hold.Token)); status != http.StatusOK {
		t.Fatalf("break: %d", status)
	}
	if err := program.stop(); err != nil {
		t.Fatal(err)
	}
	audit, err := os.ReadFile(config.AuditLog)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(audit)), "\n")
	for i, what := range []string{"acquireHold", "breakHold"} {
		var line struct{ Who, Certificate, What, Result string }
		if len(lines) != 2 || json.Unmarshal([]byte(lines[i]), &line) != nil {
			t.Fatalf("audit log %q", audit)
		}
		if line.Who != "alice" || line.Certificate != "alice" || line.What != what || line.Result != "ok" {
			t.Errorf("audit line %+v", line)
		}
	}
}
