package main

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

func TestAdmin_has_the_profiles(t *testing.T) {
	t.Parallel()
	config := defaultConfig()
	config.DataDir, config.AdminListen = filepath.Join(t.TempDir(), "data"), strings.TrimPrefix(freeURL(t), "http://")
	url, _, stop := startConfig(t, config)
	get := func(url, host string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	admin := "http://" + config.AdminListen
	if status, text := get(admin+"/debug/pprof/goroutine?debug=1", ""); status != http.StatusOK || !strings.Contains(text, "lockserver") {
		t.Errorf("status %d: %s", status, text)
	}
	for _, host := range []string{"evil.example:7421", "evil.example"} {
		if status, _ := get(admin+"/debug/pprof/goroutine?debug=1", host); status != http.StatusMisdirectedRequest {
			t.Errorf("called as %s: status %d", host, status)
		}
	}
	if status, _ := get(admin+"/v1/status", ""); status != http.StatusNotFound {
		t.Errorf("the API is at the admin address: status %d", status)
	}
	if status, _ := get(url+"/debug/pprof/", ""); status != http.StatusNotFound {
		t.Errorf("profiles are at the service's address: status %d", status)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", config.AdminListen); err == nil {
		_ = conn.Close()
		t.Error("the admin address is still open")
	}
}

func TestConfig_refuses_what_others_could_see(t *testing.T) {
	t.Parallel()
	for want, edit := range map[string]func(*Config){
		"--admin-listen :7421 can be reached by others":                                func(c *Config) { c.AdminListen = ":7421" },
		"--admin-listen 0.0.0.0:7421 can be reached by others":                         func(c *Config) { c.AdminListen = "0.0.0.0:7421" },
		"--otlp-endpoint \"collector:4317\" must be http://host:port":                  func(c *Config) { c.OTLPEndpoint = "collector:4317" },
		"--otlp-endpoint \"ftp://collector:4317\" must be http://host:port":            func(c *Config) { c.OTLPEndpoint = "ftp://collector:4317" },
		"--otlp-endpoint \"http://collector:4317/v1/traces\" must be http://host:port": func(c *Config) { c.OTLPEndpoint = "http://collector:4317/v1/traces" },
	} {
		config := defaultConfig()
		edit(config)
		if err := config.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
