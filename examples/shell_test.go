//go:build linux

package examples_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// newShell makes the place of the shell example, or skips.
func newShell(t *testing.T) *place {
	t.Helper()
	for _, program := range []string{"curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s cannot be had here", program)
		}
	}
	return newPlace(t, "shell")
}

func TestShell_WithLock(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	p.prints([]string{"paid orders/42 with token "}, "./with-lock.sh", "orders/42", "./pay.sh")
	if token := p.holder("orders/42"); token != 0 {
		t.Errorf("token %d still holds the lock", token)
	}
	p.fails(p.start("FENCED_LOCK=orders/42", "FENCED_TOKEN=1", "./pay.sh"), "exit status 78", "refused: token 1 is stale, the current one is ")
	p.fails(p.start("STORE_ADDR=http://127.0.0.1:1", "./with-lock.sh", "orders/42", "./pay.sh"), "exit status 69", "the store answers HTTP 000")
	p.fails(p.start("FENCED_ADDR=http://127.0.0.1:1", "./with-lock.sh", "orders/42", "./pay.sh"), "exit status 69", "acquire orders/42: HTTP 000")
}

// A lock that is held by another is left alone, and one that is broken while the
// command runs ends the command.
func TestShell_WithLock_lost(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	holder := p.start("./with-lock.sh", "orders/42", "sh", "-c", `echo "token $FENCED_TOKEN"; exec sleep 60`)
	token := strings.TrimPrefix(p.line(holder, "token "), "token ")
	p.fails(p.start("WAIT=0s", "./with-lock.sh", "orders/42", "true"), "exit status 75", "The lock is held by another: ", "token "+token)
	p.fencectl("break", "orders/42", "--token", token, "--reason", "test", "--yes")
	p.fails(holder, "exit status 76", "the lock orders/42 may be lost")
}

// A command has the standard input of the script.
func TestShell_WithLock_stdin(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	p.prints([]string{"to be read"}, "sh", "-c", `echo "to be read" | ./with-lock.sh orders/42 cat`)
}

// Everybody on the machine can see the arguments of programs: they have no secret. And
// curl does not give up in the moment in which the longest wait, of 30 s, is answered.
func TestShell_WithLock_arguments(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	dir := t.TempDir()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Fatal(err)
	}
	seen := filepath.Join(dir, "seen")
	script := fmt.Sprintf("#!/bin/sh\necho \"$*\" >>%s\nexec %s \"$@\"\n", seen, curl)
	if err := os.WriteFile(filepath.Join(dir, "curl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	key := "fk_" + strings.Repeat("a", 60) // a server without keys does not look
	p.prints(nil, "PATH="+dir+":"+os.Getenv("PATH"), "FENCED_API_KEY="+key, "./with-lock.sh", "orders/42", "true")
	args, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(args), " -X "); n != 3 || secret.Match(args) || !patient.Match(args) {
		t.Errorf("%d calls, with the secrets %q:\n%s", n, secret.FindAll(args, -1), args)
	}
}

// secret finds the id of a hold, an Idempotency-Key and an API key.
var secret = regexp.MustCompile(`\b[a-z2-7]{26}\b|[0-9a-f]{8}-[0-9a-f]{4}-|fk_`)

// patient finds a first call that lasts for longer than 30 s.
var patient = regexp.MustCompile(`^-K .* --max-time (3[5-9]|[4-9][0-9]) `)

// Whatever becomes of the renewals, at once refused or without an answer, a command that
// does not listen is dead before the lease of the last good one can end.
func TestShell_WithLock_deadline(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	var renewals atomic.Int32
	var renewed atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/holds":
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"hold":"id","token":7}`)
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		case renewals.Add(1) == 1:
			renewed.Store(time.Now().UnixNano())
		case renewals.Load() == 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	p.fails(p.start("FENCED_ADDR="+server.URL, "./with-lock.sh", "orders/42", "sh", "-c", `trap "" TERM; while :; do sleep 0.1; done`),
		"exit status 76", "the lock orders/42 may be lost")
	const ttl = 15 * time.Second
	if lived := time.Since(time.Unix(0, renewed.Load())); lived > ttl {
		t.Errorf("the command lived for %s after the last renewal", lived)
	}
}

// What the store answers is told apart: a job that is started again for 69 and 75 must
// not be for what stays as it is.
func TestShell_Pay_refused(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	p.fails(p.start("FENCED_LOCK=orders/42", "FENCED_TOKEN=x", "./pay.sh"), "exit status 64", "the store answers HTTP 400: The request cannot be read")
	p.fails(p.start("FENCED_LOCK=nothing", "FENCED_TOKEN=1", "./pay.sh"), "exit status 64", "the store answers HTTP 404")
	for status, code := range map[int]int{200: 0, 401: 77, 403: 77, 409: 78, 422: 64, 429: 75, 500: 70, 502: 69, 503: 69, 504: 69} {
		store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, `{"title":"No"}`)
		}))
		process := p.start("STORE_ADDR="+store.URL, "FENCED_LOCK=orders/42", "FENCED_TOKEN=1", "./pay.sh")
		if code == 0 {
			if err := p.wait(process); err != nil {
				t.Error(err)
			}
		} else {
			p.fails(process, fmt.Sprint("exit status ", code), fmt.Sprintf("the store answers HTTP %d: No", status))
		}
		store.Close()
	}
}

// What no repeat can help has exit codes of its own and says why.
func TestShell_WithLock_refused(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	p.fails(p.start("./with-lock.sh"), "exit status 64", "usage: with-lock.sh LOCK COMMAND...")
	p.fails(p.start("./with-lock.sh", "orders/42"), "exit status 64", "usage: with-lock.sh LOCK COMMAND...")
	if token := p.holder("orders/42"); token != 0 {
		t.Errorf("token %d holds the lock that nothing can run under", token)
	}
	p.fails(p.start("WAIT=1h", "./with-lock.sh", "orders/42", "true"), "exit status 64", "acquire orders/42: HTTP 422: A value is out of bounds: ")

	keys := filepath.Join(t.TempDir(), "keys.json")
	reader := "FENCED_API_KEY=" + p.key(keys, "--prefix", "", "--role", "read")
	owner := "FENCED_API_KEY=" + p.key(keys, "--prefix", "orders/")
	p.env = append(p.env, "FENCED_ADDR="+p.listens("fenced with keys", programs.Fenced,
		"serve", "--listen", "127.0.0.1:0", "--data-dir", filepath.Join(t.TempDir(), "data"), "--keys", keys))
	p.prints(nil, owner, "./with-lock.sh", "orders/42", "true")
	p.fails(p.start("./with-lock.sh", "orders/42", "true"), "exit status 77", "acquire orders/42: HTTP 401: No valid API key was given: ")
	p.fails(p.start(reader, "./with-lock.sh", "orders/42", "true"), "exit status 77", "acquire orders/42: HTTP 403: The caller may not do this: ")
	p.fails(p.start(owner, "./with-lock.sh", "jobs/1", "true"), "exit status 77", "acquire jobs/1: HTTP 403: The caller may not do this: ")
}

// key makes an API key in a key file.
func (p *place) key(file string, args ...string) string {
	p.t.Helper()
	var made struct{ Key string }
	out := p.fencectl(append([]string{"key", "new", "test", "--file", file, "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		p.t.Fatalf("%v\n%s", err, out)
	}
	return made.Key
}

// Whoever stops the script stops the command, and the lock is free at once.
func TestShell_WithLock_stopped(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	holder := p.start("./with-lock.sh", "orders/42", "sh", "-c", `echo "token $FENCED_TOKEN"; exec sleep 60`)
	p.line(holder, "token ")
	if err := holder.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.fails(holder, "exit status 143")
	if token := p.holder("orders/42"); token != 0 {
		t.Errorf("token %d still holds the lock", token)
	}
}

// One that is stopped while it waits gives back what it got by then.
func TestShell_WithLock_stoppedInLine(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	holder := p.start("./with-lock.sh", "orders/42", "sh", "-c", `echo "token $FENCED_TOKEN"; exec sleep 60`)
	p.line(holder, "token ")
	waiter := p.start("./with-lock.sh", "orders/42", "echo", "must not run")
	for p.get("orders/42").Waiters == 0 {
		time.Sleep(20 * time.Millisecond)
	}
	if err := errors.Join(waiter.Signal(syscall.SIGTERM), holder.Signal(syscall.SIGTERM)); err != nil {
		t.Fatal(err)
	}
	p.fails(holder, "exit status 143")
	p.fails(waiter, "exit status 143")
	if token := p.holder("orders/42"); token != 0 {
		t.Errorf("token %d still holds the lock", token)
	}
}

// TestShell_Cron runs the lines of the crontab as cron does, with sh and the
// variables above them, and once more while another has the lock.
func TestShell_Cron(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	commands := crontab(t)
	shell, err := filepath.Abs("shell")
	if err != nil {
		t.Fatal(err)
	}
	p.env = append(p.env, "PATH="+strings.Join([]string{bin, shell, os.Getenv("PATH")}, ":"))
	for _, command := range commands {
		p.prints([]string{"paid orders/"}, "sh", "-c", command)
	}
	p.fencectl("acquire", "orders/42", "--ttl", "1m")
	p.prints(nil, "sh", "-c", commands[0])
}

// crontab returns the commands of the example's lines: what follows the five fields
// of the time. PATH and FENCED_ADDR are the test's own.
func crontab(t *testing.T) (commands []string) {
	t.Helper()
	text, err := os.ReadFile("shell/crontab")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 5 && !strings.HasPrefix(line, "#") {
			commands = append(commands, strings.Join(fields[5:], " "))
		}
	}
	if len(commands) != 2 {
		t.Fatalf("the crontab has %d lines, want 2", len(commands))
	}
	return commands
}
