package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/clientsdk/sdktest"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/apikey"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

// asProgram makes the test binary behave as fencectl, for tests of whole processes.
const asProgram = "FENCECTL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if isSupervisor(os.Args) || os.Getenv(asProgram) != "" {
		os.Unsetenv(asProgram)
		main()
	}
	goleak.VerifyTestMain(pgtest.Main(m))
}

// together runs tests at once that wait most of their time, so that they take no turn from
// those that compute.
func together[T any](t *testing.T, tests map[string]T, test func(*testing.T, T)) {
	t.Helper()
	var all sync.WaitGroup
	for name, tc := range tests {
		all.Go(func() { t.Run(name, func(t *testing.T) { test(t, tc) }) })
	}
	all.Wait()
}

// bundle is a fake server behind a socket, and an environment that names it.
type bundle struct {
	*testing.T
	srv *sdktest.Server
	cfg clientsdk.Config // reaches the server
	env map[string]string
}

func setup(t *testing.T) *bundle {
	t.Helper()
	srv := sdktest.New()
	h := httptest.NewServer(srv)
	t.Cleanup(func() {
		srv.Close()
		h.Close()
	})
	return &bundle{t, srv, srv.Config(), map[string]string{"FENCED_ADDR": h.URL}}
}

// setupReal is setup with a real server.
func setupReal(t *testing.T) *bundle {
	t.Helper()
	srv := sdktest.Start(t, nil)
	return &bundle{T: t, cfg: srv.Config(), env: map[string]string{"FENCED_ADDR": srv.URL()}}
}

// result is what one command line brought.
type result struct {
	code     int
	out, err string
}

func (b *bundle) run(args ...string) result {
	b.Helper()
	var out, errs bytes.Buffer
	code := run(b.Context(), args, streams{nil, &out, &errs}, func(k string) string { return b.env[k] })
	return result{code, out.String(), errs.String()}
}

// ok ends the test unless the command line succeeds, and returns its output.
func (b *bundle) ok(args ...string) string {
	b.Helper()
	r := b.run(args...)
	if r.code != 0 || r.err != "" {
		b.Fatalf("fencectl %q: code %d, stderr %q", args, r.code, r.err)
	}
	return r.out
}

// hold takes a lock for somebody else.
func (b *bundle) hold(lock string) *clientsdk.Hold {
	b.Helper()
	cfg := b.cfg
	cfg.Owner = "somebody else"
	client, err := clientsdk.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	h, err := client.Acquire(context.Background(), lock, nil)
	if err != nil {
		b.Fatal(err)
	}
	return h
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q lacks %q", text, p)
		}
	}
}

func TestShow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := b.hold("orders/42")
	tok := h.Token().String()
	contains(t, b.ok("ls"), "LOCK", "orders/42", "somebody else", tok)
	if out := b.ok("ls", "other/"); strings.Contains(out, "orders/42") {
		t.Errorf("ls other/ shows %q", out)
	}
	contains(t, b.ok("get", "orders/42"), "held", "somebody else", tok, h.Ref(), "pid=")
	contains(t, b.ok("get", "nobody/has/it"), "free")
	contains(t, b.ok("sessions"), "SESSION", "somebody else", "1")
	contains(t, b.ok("status"), "ready", "yes", "revision")

	var info clientsdk.LockInfo
	if err := json.Unmarshal([]byte(b.ok("get", "orders/42", "-o", "json")), &info); err != nil || info.Holder.Token != h.Token() {
		t.Errorf("json: %+v, %v", info, err)
	}
	if text := b.ok("get", "orders/42") + b.ok("ls"); strings.Contains(text, h.ID()) {
		t.Error("the secret id is shown")
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tok := b.hold("l").Token().String()
	contains(t, b.ok("check", "l", tok), "valid")
	if r := b.run("check", "l", "1"); r.code != apierr.ExitConflict || !strings.Contains(r.out, "stale") {
		t.Errorf("stale token: %+v", r)
	}
	if r := b.run("check", "l", "01"); r.code != apierr.ExitUsage {
		t.Errorf("malformed token: %+v", r)
	}
}

func TestBreak(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tok := b.hold("l").Token().String()
	for _, args := range [][]string{
		{"break", "l"}, {"break", "l", "--token", tok}, {"break", "l", "--token", "x", "--reason", "r"}, {"break"},
	} {
		if r := b.run(args...); r.code != apierr.ExitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
	r := b.run("break", "l", "--token", "9999", "--reason", "stuck")
	if r.code != apierr.ExitConflict || !strings.Contains(r.err, "fencectl get") {
		t.Errorf("another token: %+v", r)
	}
	r = b.run("break", "l", "--token", tok, "--reason", "stuck")
	if r.code != 0 {
		t.Errorf("break: %+v", r)
	}
	contains(t, r.err, "pg advance")
	contains(t, b.ok("history", "l"), tok, "broken", "stuck")
}

func TestScripts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	out := b.ok("acquire", "it's", "--ttl", "1m")
	contains(t, out, `export FENCED_LOCK='it'\''s'`, "export FENCED_HOLD='", "export FENCED_TOKEN='")
	_, rest, _ := strings.Cut(out, "FENCED_HOLD='")
	id, _, _ := strings.Cut(rest, "'")

	if r := b.run("acquire", "it's", "--try"); r.code != apierr.ExitNotAcquired || r.out != "" {
		t.Errorf("second acquire: %+v", r)
	}
	b.env["FENCED_HOLD"] = id
	contains(t, b.ok("renew"), "1m0s")
	b.ok("release")
	b.ok("release", id)
	if r := b.run("renew"); r.code != apierr.ExitLost {
		t.Errorf("renew after release: %+v", r)
	}
	r := b.run("release", "nobody's")
	if r.code != apierr.ExitLost || strings.Contains(r.err, "acquire the lock again") {
		t.Errorf("release of an unknown hold: %+v", r)
	}
	contains(t, r.err, "nothing is left to release")
	if r := b.run("release", ""); r.code != apierr.ExitUsage || !strings.Contains(r.err, "empty") {
		t.Errorf("release of an empty id: %+v", r)
	}
	delete(b.env, "FENCED_HOLD")
	if r := b.run("renew"); r.code != apierr.ExitUsage {
		t.Errorf("renew of nothing: %+v", r)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hold("l")
	type commandLine struct {
		args []string
		code int
		text string
	}
	together(t, map[string]commandLine{
		"unknown command": {[]string{"frobnicate"}, apierr.ExitUsage, "unknown command"},
		"unknown flag":    {[]string{"ls", "--nope"}, apierr.ExitUsage, "unknown flag"},
		"missing lock":    {[]string{"get"}, apierr.ExitUsage, "accepts 1 arg"},
		"bad output":      {[]string{"ls", "-o", "yaml"}, apierr.ExitUsage, "table,json"},
		"bad address":     {[]string{"ls", "--addr", "ftp://x"}, apierr.ExitUsage, "Endpoints"},
		"no server":       {[]string{"ls", "--addr", "127.0.0.1:1"}, apierr.ExitUnreachable, "fenced serve"},
		"held":            {[]string{"acquire", "l", "--wait", "1ms"}, apierr.ExitNotAcquired, "somebody else"},
		"bad ttl":         {[]string{"acquire", "l", "--ttl", "1ms"}, apierr.ExitUsage, "--ttl"},
		"empty lock":      {[]string{"acquire", ""}, apierr.ExitUsage, "lock"},
		"try and wait":    {[]string{"acquire", "l", "--try", "--wait", "1s"}, apierr.ExitUsage, "wait"},
		"run without --":  {[]string{"run", "l", "true"}, apierr.ExitUsage, "--"},
		"run nothing":     {[]string{"run", "l", "--"}, apierr.ExitUsage, "--"},
		"run two locks":   {[]string{"run", "l", "m", "--", "true"}, apierr.ExitUsage, "--"},
		"bad ttl of run":  {[]string{"run", "l", "--ttl", "-3s", "--", "true"}, apierr.ExitUsage, "--ttl"},
		"long grace":      {[]string{"run", "l", "--ttl", "3s", "--grace", "1001ms", "--", "true"}, apierr.ExitUsage, "--grace"},
	}, func(t *testing.T, tc commandLine) {
		r := b.run(tc.args...)
		if r.code != tc.code || r.out != "" || strings.Count(r.err, "\n") != 1 || !strings.HasPrefix(r.err, "fencectl: ") {
			t.Errorf("code %d, out %q, err %q; want code %d and one line", r.code, r.out, r.err, tc.code)
		}
		contains(t, r.err, tc.text)
	})
	r := b.run("get", "", "-o", "json")
	var body struct {
		Error struct {
			Code, Message string
			Exit          int
		}
	}
	r = b.run("acquire", "l", "--try", "-o", "json")
	if err := json.Unmarshal([]byte(r.err), &body); err != nil || body.Error.Code != "lock_held" || body.Error.Exit != r.code {
		t.Errorf("json error: %q, %v", r.err, err)
	}
}

// A script that reads a token with jq gets the same from every command: a number.
func TestAcquire_prints_the_token_as_a_number(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var got struct {
		Lock, Hold string
		Token      json.Number
	}
	out := b.ok("acquire", "l", "-o", "json")
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Lock != "l" || got.Hold == "" || strings.Contains(out, `"`+got.Token.String()+`"`) {
		t.Errorf("%s: %v", out, err)
	}
	b.ok("check", "l", got.Token.String())
}

// fullDisk is a standard output that takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// What is told once and could not be told is taken back: nobody else knows the id of the
// hold, or the key.
func TestNothingIsLeftOfWhatCouldNotBePrinted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	file := filepath.Join(t.TempDir(), "keys.json")
	for _, args := range [][]string{
		{"acquire", "l"}, {"acquire", "l", "-o", "json"},
		{"key", "new", "n", "--file", file, "--prefix", ""}, {"key", "new", "n", "--file", file, "--prefix", "", "-o", "json"},
	} {
		var errs bytes.Buffer
		code := run(t.Context(), args, streams{nil, fullDisk{}, &errs}, func(k string) string { return b.env[k] })
		if code != exitInternal {
			t.Errorf("%q: code %d, %s", args, code, &errs)
		}
		contains(t, errs.String(), "could not be printed", "no space left")
	}
	if n := b.srv.Live("l"); n != 0 {
		t.Errorf("%d holds are left", n)
	}
	if left, err := apikey.List(file); err != nil || len(left) != 0 {
		t.Errorf("keys left: %v, %v", left, err)
	}
}

// Each code of the API leads to the exit code of the one table, and that table names
// each exit code that can come out.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	named := map[int]bool{}
	for _, e := range exitCodes {
		named[e.code] = true
	}
	for _, c := range apierr.Codes() {
		if got, want := exitCode(apierr.New(c, "")), c.Info().Exit; got != want || !named[got] {
			t.Errorf("code %s: exit %d, want %d; named: %t", c, got, want, named[got])
		}
	}
}

func TestSafe(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"orders/42": "orders/42", "höhe 1": "höhe 1", "a\x1b[2Jb": `"a\x1b[2Jb"`, "a\nb": `"a\nb"`, "a\u202eb": `"a\u202eb"`,
	} {
		if got := safe(in); got != want {
			t.Errorf("safe(%q) = %s, want %s", in, got, want)
		}
	}
}

// Who reads errors as JSON gets each as JSON, also that of a command line that cannot be
// read up to the flag that asks for it.
func TestErrors_AsJSONOfABadCommandLine(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, args := range [][]string{
		{"ls", "--nope", "-o", "json"}, {"ls", "--output=json", "--nope"}, {"frobnicate", "-ojson"}, {"-o", "json", "frobnicate", "--x", "y"}, {"get", "-o", "json"},
	} {
		var body struct {
			Error struct {
				Code string
				Exit int
			}
		}
		r := b.run(args...)
		if err := json.Unmarshal([]byte(r.err), &body); err != nil || body.Error.Code != "malformed" || body.Error.Exit != apierr.ExitUsage || r.code != apierr.ExitUsage {
			t.Errorf("%q: code %d, %q, %v", args, r.code, r.err, err)
		}
	}
	if r := b.run("frobnicate", "--", "-o", "json"); strings.HasPrefix(r.err, "{") {
		t.Errorf("the command's own flag counts: %q", r.err)
	}
}

// What a server says of an error is its text, and not ours to send to a terminal as it is.
func TestErrors_MoveNoCursor(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, `{"code":"forbidden","detail":"a\u001b[2Jb\u202ec\nd"}`)
	}))
	t.Cleanup(srv.Close)
	b := setup(t)
	if r := b.run("status", "--addr", srv.URL); r.code != apierr.ExitRefused || !strings.Contains(r.err, "a\ufffd[2Jb\ufffdc d") {
		t.Errorf("code %d, %q", r.code, r.err)
	}
}

func TestShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		1234 * time.Millisecond: "1.2s", 90 * time.Second: "1m30s", 3*time.Hour + 90*time.Second: "3h2m", 50 * time.Hour: "2d2h",
	} {
		if got := short(d); got != want {
			t.Errorf("short(%s) = %s, want %s", d, got, want)
		}
	}
}
