package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver/embedded"
)

// startProgram runs a server on a free port and returns its URL once it has
// greeted. stop ends it and returns what Run returned.
func startProgram(t *testing.T, dir string) (url, greeting string, stop func() error) {
	t.Helper()
	config := defaultConfig()
	config.DataDir = dir
	return startConfig(t, config)
}

func startConfig(t *testing.T, config *Config) (url, greeting string, stop func() error) {
	t.Helper()
	program := launch(t, config)
	lines := bufio.NewScanner(program.out)
	for range 4 {
		if !lines.Scan() {
			t.Fatalf("the server did not start: %v\n%s", program.stop(), program.logs.String())
		}
		greeting += lines.Text() + "\n"
	}
	return program.url, greeting, program.stop
}

// launched is a program that runs; it may not have greeted yet.
type launched struct {
	url  string
	out  io.Reader
	logs *logBuffer
	stop func() error
}

// logBuffer may be read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// launch runs a server on a free port without waiting for its greeting.
func launch(t *testing.T, config *Config) *launched {
	t.Helper()
	config.Listen = "127.0.0.1:0"
	out, in := io.Pipe()
	logs := new(logBuffer)
	program, err := New(config, in, logs)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- program.Run(ctx); _ = in.Close() }()
	stop := sync.OnceValue(func() error {
		cancel()
		_ = out.Close() // a greeting that nobody reads must not hold the program
		return <-done
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("run: %v\n%s", err, logs.String())
		}
	})
	return &launched{url: "http://" + program.Addr(), out: out, logs: logs, stop: stop}
}

func post(t *testing.T, url, body string) (*http.Response, wire.Hold) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var hold wire.Hold
	if err := json.NewDecoder(resp.Body).Decode(&hold); err != nil {
		t.Fatal(err)
	}
	return resp, hold
}

func TestProgram_GreetsGrantsAndRestarts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	start := time.Now()
	url, greeting, stop := startProgram(t, dir)
	for _, want := range []string{url, dir, "curl -s " + url + "/v1/holds"} {
		if !strings.Contains(greeting, want) {
			t.Errorf("the greeting lacks %q:\n%s", want, greeting)
		}
	}
	const body = `{"lock":"orders/42","owner":"me","ttl":"30s"}`
	resp, first := post(t, url+"/v1/holds", body)
	if resp.StatusCode != http.StatusCreated || !first.Token.Valid() {
		t.Fatalf("grant: %s %+v", resp.Status, first)
	}
	// The promise is 1.5 s to the first grant; the race detector gets its slack.
	if took := time.Since(start); took > 1500*time.Millisecond+3*time.Second {
		t.Errorf("first grant after %v", took)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	url, _, _ = startProgram(t, dir)
	resp, _ = post(t, url+"/v1/holds", body)
	if resp.StatusCode != http.StatusConflict {
		t.Fatalf("the hold did not survive the restart: %s", resp.Status)
	}
	resp, again := post(t, url+"/v1/holds/"+first.Hold+"/renew", `{}`)
	if resp.StatusCode != http.StatusOK || again.Token != first.Token {
		t.Fatalf("renew after restart: %s %+v", resp.Status, again)
	}
}

func TestProgram_SecondStartFailsAtOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	startProgram(t, dir)
	config := defaultConfig()
	config.Listen, config.DataDir = "127.0.0.1:0", dir
	second, err := New(config, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); !errors.Is(err, embedded.ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("got %v, want that %s is in use", err, dir)
	}
}

// TestProgram_StopAnswersWaiters pins that a stop is bounded, and that a waiter
// gets an answer that tells it to come again.
func TestProgram_StopAnswersWaiters(t *testing.T) {
	t.Parallel()
	url, _, stop := startProgram(t, filepath.Join(t.TempDir(), "data"))
	post(t, url+"/v1/holds", `{"lock":"a","owner":"holder"}`)
	waited := make(chan *http.Response, 1)
	go func() {
		resp, err := http.Post(url+"/v1/holds", "application/json", strings.NewReader(`{"lock":"a","owner":"waiter","wait":"30s"}`))
		if err != nil {
			t.Error(err)
			waited <- nil
			return
		}
		_ = resp.Body.Close()
		waited <- resp
	}()
	awaitWaiter(t, url)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if resp := <-waited; resp == nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Fatalf("the waiter got %+v", resp)
	}
}

// awaitWaiter reads the event stream until a hold is queued.
func awaitWaiter(t *testing.T, url string) {
	t.Helper()
	awaitWaiterOf(t, url, "a")
}

func awaitWaiterOf(t *testing.T, url, lock string) {
	t.Helper()
	resp, err := http.Get(url + "/v1/events?prefix=" + lock)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	now, err := http.Get(url + "/v1/lock?name=" + lock)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = now.Body.Close() }()
	var state wire.Lock
	if err := json.NewDecoder(now.Body).Decode(&state); err != nil {
		t.Fatal(err)
	}
	if state.Waiters > 0 {
		return
	}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), "queued") {
			return
		}
	}
	t.Fatal("the event stream ended")
}

func TestConfig_BadValuesNameTheFlag(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*Config){
		"--data-dir":   func(c *Config) { c.DataDir = "" },
		"--log-level":  func(c *Config) { c.LogLevel = "loud" },
		"--log-format": func(c *Config) { c.LogFormat = "xml" },
		"listen":       func(c *Config) { c.Listen = "127.0.0.1:99999" },
	}
	for want, edit := range tests {
		config := defaultConfig()
		config.Listen = "127.0.0.1:0"
		edit(config)
		if _, err := New(config, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error that names %s", err, want)
		}
	}
}
