package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/apikey"
	"github.com/fenced/fenced/internal/wire"
)

// shell runs a script in which fencectl is this program.
func (b *bundle) shell(script string) string {
	b.Helper()
	cmd := exec.Command("sh", "-eu", "-c", `fencectl() { `+asProgram+`=1 "$FENCECTL" "$@"; }
`+script)
	cmd.Dir = b.TempDir()
	cmd.Env = b.environ("FENCECTL=" + os.Args[0])
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("script: %v\n%s", err, out)
	}
	if left, err := os.ReadDir(cmd.Dir); err != nil || len(left) > 0 {
		b.Errorf("the script has made %v, %v", left, err)
	}
	return string(out)
}

// What acquire prints is for eval, whatever the lock is called: nothing of a name is
// ever run.
func TestScripts_Eval(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, lock := range []string{"it's", "a $(touch owned) `touch owned`; touch owned \"; touch owned; ' touch owned"} {
		b.env["LOCK"] = lock
		out := b.shell(`eval "$(fencectl acquire --ttl 1m -o env -- "$LOCK")"
printf '%s\n' "$FENCED_LOCK" "$FENCED_TOKEN"
fencectl check "$FENCED_LOCK" "$FENCED_TOKEN" >&2
fencectl renew >/dev/null
fencectl release`)
		if got, _, _ := strings.Cut(out, "\n"); got != lock {
			t.Errorf("%q came out as %q", lock, got)
		}
		contains(t, out, "valid")
		if n := b.srv.Live(lock); n != 0 {
			t.Errorf("%d holds of %q are left", n, lock)
		}
	}
}

// Nested runs do not hide each other's tokens, and each command runs in a process group
// of its own.
func TestRun_Nested(t *testing.T) {
	t.Parallel()
	b := setup(t)
	out := b.shell(`fencectl run outer -- env ` + asProgram + `=1 "$FENCECTL" run inner -- sh -c '
		echo "$FENCED_LOCK $FENCED_TOKEN"; echo "$FENCED_TOKENS"; cut -d" " -f1,5 /proc/$$/stat'`)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 {
		t.Fatalf("output %q", out)
	}
	var lock, token string
	fmt.Sscan(lines[0], &lock, &token)
	var tokens map[string]json.Number
	if err := json.Unmarshal([]byte(lines[1]), &tokens); err != nil || len(tokens) != 2 {
		t.Fatalf("tokens %q, %v", lines[1], err)
	}
	if lock != "inner" || tokens["inner"].String() != token || tokens["outer"].String() == token {
		t.Errorf("lock %q with token %s of %v", lock, token, tokens)
	}
	if pid, group, _ := strings.Cut(lines[2], " "); pid != group {
		t.Errorf("process %s is of group %s, not of its own", pid, group)
	}
	if n := b.srv.Live("outer") + b.srv.Live("inner"); n != 0 {
		t.Errorf("%d holds are left", n)
	}
}

// When the lock of an outer run is lost, the command of the inner one ends with the
// outer's, whatever its own lock and grace would leave it.
func TestRun_NestedEndsWithTheOuter(t *testing.T) {
	t.Parallel()
	b, dir := setup(t), t.TempDir()
	if err := syscall.Mkfifo(dir+"/alive", 0o600); err != nil {
		t.Fatal(err)
	}
	p := b.program(append([]string{"run", "outer", "--ttl", testTTL.String(), "--grace", testGrace.String(), "--",
		"env", asProgram + "=1", os.Args[0], "run", "inner", "--ttl", "1h", "--grace", "20m", "--"}, command(dir, true)...)...)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill() })
	command := follow(t, dir)
	b.srv.Break("outer", "stuck")
	p.Wait()
	ended := time.Now()
	command.await(t)
	if late := time.Since(ended); late > time.Second {
		t.Errorf("the inner command was alive %s after the outer", late)
	}
}

// get shows who waits, in order, and how the last grants ended; and nothing that goes to
// a pipe has colours.
func TestGet_QueueAndHistory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.hold("l")
	b.srv.Break("l", "stuck for an hour")
	second := b.hold("l")
	b.waitFor("l")
	b.waitFor("l")
	out := b.ok("get", "l")
	contains(t, out, "held", "PLACE", first.Token().String(), "broken", "stuck for an hour", "lease left", second.Token().String())
	var info wire.Lock
	if err := json.Unmarshal([]byte(b.ok("get", "l", "-o", "json")), &info); err != nil || len(info.Queue) != 2 {
		t.Fatalf("%+v, %v", info, err)
	}
	for i, w := range info.Queue {
		if w.Position != i+1 {
			t.Errorf("place %d is %+v", i+1, w)
		}
		contains(t, out, strconv.Itoa(w.Position)+"  ", w.Ref)
	}
	if info.Holder.ExpiresInMS == nil || *info.Holder.ExpiresInMS <= 0 {
		t.Errorf("holder %+v, want how long it lasts at least", info.Holder)
	}
	for _, args := range [][]string{{"ls"}, {"get", "l"}, {"history", "l"}, {"sessions"}, {"status"}, {"check", "l", "1"}, {"doctor"}} {
		if r := b.run(args...); strings.ContainsRune(r.out+r.err, '\x1b') {
			t.Errorf("%v: colours in a pipe: %q", args, r.out)
		}
	}
}

// What is printed of watch in a pipe is one line or one object an event.
func TestWatch_InAPipe(t *testing.T) {
	t.Parallel()
	b := setup(t)
	out := filepath.Join(t.TempDir(), "events")
	file, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	p := b.program("watch", "orders/", "-o", "json")
	p.Stdout = file
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	text := func() string {
		got, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return string(got)
	}
	wait(t, "an event", func() bool {
		b.hold("orders/1").Release(t.Context())
		return strings.Contains(text(), "released")
	})
	p.Process.Signal(os.Interrupt)
	p.Wait()
	if code := p.ProcessState.ExitCode(); code != 0 {
		t.Errorf("code %d: %s", code, p.err.String())
	}
	for line := range strings.Lines(text()) {
		var ev struct{ ID, Kind, Lock string }
		if err := json.Unmarshal([]byte(line), &ev); err != nil || ev.ID == "" || ev.Lock != "orders/1" {
			t.Errorf("line %q: %v", line, err)
		}
	}
}

// A reader that has left is as a full disk: what was not told is taken back.
func TestAcquire_IntoAClosedPipe(t *testing.T) {
	t.Parallel()
	b := setup(t)
	file := filepath.Join(t.TempDir(), "keys.json")
	for _, args := range [][]string{{"acquire", "l"}, {"key", "new", "n", "--file", file, "--prefix", ""}} {
		p := b.program(args...)
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		reader.Close()
		p.Stdout = writer
		if code := p.code(); code != exitInternal {
			t.Errorf("%q: code %d, want %d", args, code, exitInternal)
		}
		writer.Close()
		contains(t, p.err.String(), "could not be printed")
	}
	if n := b.srv.Live("l"); n != 0 {
		t.Errorf("%d holds are left", n)
	}
	if left, err := apikey.List(file); err != nil || len(left) != 0 {
		t.Errorf("keys left: %v, %v", left, err)
	}
}
