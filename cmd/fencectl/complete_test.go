package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestComplete(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, lock := range []string{"orders/1", "orders/2", "stock/1", "a b", "$(reboot)", "-rf", "höhe"} {
		b.hold(lock)
	}
	for _, args := range [][]string{
		{"get"}, {"history"}, {"watch"}, {"top"}, {"ls"}, {"acquire"}, {"check"}, {"break"}, {"run"}, {"run", "--ttl", "1m"},
	} {
		out := b.run(append(append([]string{"__complete"}, args...), "ord")...).out
		if want := "orders/1\norders/2\n:4\n"; out != want {
			t.Errorf("%v: %q, want %q", args, out, want)
		}
	}
	all := b.run("__complete", "get", "").out
	if want := "höhe\norders/1\norders/2\nstock/1\n:4\n"; all != want {
		t.Errorf("%q, want %q: names that a shell would take for something else are left out", all, want)
	}
	for _, args := range [][]string{{"get", "l", ""}, {"renew", ""}, {"break", "l", ""}} {
		if out := b.run(append([]string{"__complete"}, args...)...).out; strings.Contains(out, "orders") {
			t.Errorf("%v: %q", args, out)
		}
	}
	// Behind the lock of run, files and commands are offered.
	contains(t, b.run("__complete", "run", "orders/1", "--", "").out, ":0")
}

// A person who presses a key must not wait for a server that hangs.
func TestComplete_HangingServer(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer srv.Close()
	defer close(release)
	b := &bundle{T: t, env: map[string]string{"FENCED_ADDR": srv.URL}}
	begun := time.Now()
	out := b.run("__complete", "get", "").out
	if took := time.Since(begun); took > completionTime+time.Second || out != ":1\n" {
		t.Errorf("%q after %s", out, took)
	}
}

// The three shells get a script each.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		b := &bundle{T: t}
		contains(t, b.ok("completion", shell), "__complete", "fencectl")
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	b := &bundle{T: t}
	contains(t, b.ok("version"), "fencectl", version, "go1.")
	contains(t, b.ok("version", "-o", "json"), `"version": "`+version+`"`, `"build"`)
	contains(t, b.ok("--version"), "fencectl "+version+" go1.")
}
