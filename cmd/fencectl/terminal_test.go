package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/internal/apierr"
)

// terminal is fencectl as a process on a terminal of its own, and what it has shown.
type terminal struct {
	*testing.T
	cmd         *exec.Cmd
	master, tty *os.File
	before      unix.Termios
	gone        chan struct{} // closed when the program has let go of the terminal

	mu    sync.Mutex
	more  chan struct{} // closed when more is shown, and made anew
	shown strings.Builder
}

func (b *bundle) terminal(columns, rows uint16, args ...string) *terminal {
	b.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		b.Fatal(err)
	}
	x := &terminal{T: b.T, cmd: b.program(args...).Cmd, master: master, tty: tty, gone: make(chan struct{}), more: make(chan struct{})}
	x.resize(columns, rows)
	x.before = x.modes()
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = tty, tty, tty
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := x.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	go x.read()
	b.Cleanup(func() {
		x.cmd.Process.Kill()
		x.cmd.Wait()
		tty.Close()
		<-x.gone // what reads from the other end ends with it
		master.Close()
	})
	return x
}

func (x *terminal) read() {
	defer close(x.gone)
	buf := make([]byte, 4096)
	for {
		n, err := x.master.Read(buf)
		x.mu.Lock()
		x.shown.Write(buf[:n])
		close(x.more)
		x.more = make(chan struct{})
		x.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (x *terminal) modes() unix.Termios {
	x.Helper()
	m, err := unix.IoctlGetTermios(int(x.tty.Fd()), ioctlReadTermios)
	if err != nil {
		x.Fatal(err)
	}
	return *m
}

func (x *terminal) resize(columns, rows uint16) {
	x.Helper()
	if err := pty.Setsize(x.master, &pty.Winsize{Cols: columns, Rows: rows}); err != nil {
		x.Fatal(err)
	}
}

func (x *terminal) typeIn(keys string) {
	x.Helper()
	if _, err := x.master.WriteString(keys); err != nil {
		x.Fatal(err)
	}
}

// all is everything that was written to the terminal.
func (x *terminal) all() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.shown.String()
}

var attributes = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// page is the newest whole page of top.
func (x *terminal) page() []string {
	pages := strings.Split(x.all(), topLeft)
	if len(pages) < 3 {
		return nil
	}
	page := strings.ReplaceAll(attributes.ReplaceAllString(pages[len(pages)-2], ""), "\r", "") // the terminal adds one
	return strings.Split(page, "\n")
}

// next returns a channel that is closed when more is shown than now.
func (x *terminal) next() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.more
}

// awaits waits until what is shown is as wanted.
func (x *terminal) awaits(what string, wanted func() bool) {
	x.Helper()
	late := time.After(30 * time.Second)
	for {
		next := x.next()
		if wanted() {
			return
		}
		select {
		case <-next:
		case <-late:
			x.Fatalf("waited 30 s for %s; shown %q", what, x.all())
		}
	}
}

// await waits until the program has written text.
func (x *terminal) await(text string) {
	x.Helper()
	x.awaits(fmt.Sprintf("%q on the terminal", text), func() bool { return strings.Contains(x.all(), text) })
}

// awaitPage waits until the newest page of top is as wanted.
func (x *terminal) awaitPage(what string, wanted func(page string) bool) {
	x.Helper()
	x.awaits(what, func() bool { return wanted(strings.Join(x.page(), "\n")) })
}

// ended waits for the program and demands a terminal as it was before.
func (x *terminal) ended(code int) {
	x.Helper()
	stuck := time.AfterFunc(30*time.Second, func() { x.cmd.Process.Kill() })
	defer stuck.Stop()
	x.cmd.Wait()
	if got := x.cmd.ProcessState.ExitCode(); got != code {
		x.Errorf("code %d, want %d; shown %q", got, code, x.all())
	}
	if diff := cmp.Diff(x.before, x.modes()); diff != "" {
		x.Errorf("the terminal's modes changed (-before +after)\n%s", diff)
	}
}

func (b *bundle) waitFor(lock string) {
	b.Helper()
	client, err := clientsdk.New(b.cfg)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	waiters := func() int {
		info, err := client.Lock(ctx, lock)
		if err != nil {
			b.Fatal(err)
		}
		return info.Waiters
	}
	before := waiters()
	go func() {
		defer close(done)
		client.Acquire(ctx, lock, nil)
	}()
	b.Cleanup(func() {
		cancel()
		<-done
		client.Close()
	})
	wait(b.T, "a place in the queue", func() bool { return waiters() == before+1 })
}

func TestTop_OnATerminal(t *testing.T) {
	t.Parallel()
	b := setupReal(t)
	b.hold("calm")
	b.hold("busy")
	b.hold("worst")
	for _, lock := range []string{"worst", "busy", "worst"} {
		b.waitFor(lock)
	}
	x := b.terminal(100, 12, "top")
	x.awaitPage("three locks in order of their waiters", func(page string) bool {
		w, u, c := strings.Index(page, "worst"), strings.Index(page, "busy"), strings.Index(page, "calm")
		return 0 < w && w < u && u < c
	})
	contains(t, strings.Join(x.page(), "\n"), "3 locks", "3 waiters", "somebody else")
	b.hold("newcomer")
	x.awaitPage("a lock taken meanwhile", func(page string) bool { return strings.Contains(page, "newcomer") })

	x.typeIn("/bus\r")
	x.awaitPage("the filter", func(page string) bool {
		return strings.Contains(page, "filter: bus (1)") && strings.Contains(page, "busy") && !strings.Contains(page, "worst ")
	})
	x.typeIn("\x1b")
	x.awaitPage("no filter", func(page string) bool { return strings.Contains(page, "worst ") })
	x.resize(60, 6)
	x.awaitPage("a smaller page", func(page string) bool {
		lines := strings.Split(page, "\n")
		return len(lines) == 6 && len(lines[0]) == 60
	})
	x.typeIn("q")
	x.ended(0)
	x.await(leaveScreen)
}

// However top ends, the terminal is as before.
func TestTop_RestoresTheTerminal(t *testing.T) {
	t.Parallel()
	together(t, map[string]func(x *terminal){
		"^C":                 func(x *terminal) { x.typeIn("\x03") },
		"^C in a filter":     func(x *terminal) { x.typeIn("/a\x03") },
		"SIGTERM":            func(x *terminal) { x.cmd.Process.Signal(syscall.SIGTERM) },
		"an arrow, and quit": func(x *terminal) { x.typeIn("\x1b[A\x1bOBQ") },
	}, func(t *testing.T, end func(x *terminal)) {
		x := setupReal(t).terminal(80, 24, "top")
		x.await("0 locks")
		end(x)
		x.ended(0)
		x.await(leaveScreen)
	})
}

func TestTop_ServerAway(t *testing.T) {
	t.Parallel()
	b := &bundle{T: t, env: map[string]string{"FENCED_ADDR": "127.0.0.1:1"}}
	x := b.terminal(80, 24, "top")
	x.ended(apierr.ExitUnreachable)
	if strings.Contains(x.all(), enterScreen) {
		t.Error("the error is on a screen that is gone")
	}
}

func TestTop_NeedsATerminal(t *testing.T) {
	t.Parallel()
	if r := setup(t).run("top"); r.code != apierr.ExitUsage || !strings.Contains(r.err, "fencectl ls") {
		t.Errorf("%+v", r)
	}
}

func TestWatch_OnATerminal(t *testing.T) {
	t.Parallel()
	b := setupReal(t)
	x := b.terminal(100, 24, "watch", "orders/")
	// The stream begins when the server says so; what came before is not shown.
	wait(t, "an event", func() bool {
		h := b.hold("orders/42")
		h.Release(context.Background())
		return strings.Contains(x.all(), "granted")
	})
	x.await("released")
	b.hold("other")
	b.hold("orders/last")
	x.await("orders/last")
	if strings.Contains(x.all(), "other") {
		t.Error("a lock without the prefix is shown")
	}
	x.typeIn("\x03")
	x.ended(0)
}

func TestBreak_AsksOnATerminal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := b.hold("l")
	args := []string{"break", "l", "--token", h.Token().String(), "--reason", "stuck"}
	for _, answer := range []string{"n\n", "\n", "yes please\n", "\x04"} {
		x := b.terminal(200, 24, args...)
		x.await("[y/N]")
		contains(t, x.all(), "does not fence", "fencectl pg advance", h.Token().String())
		x.typeIn(answer)
		x.ended(apierr.ExitUsage)
	}
	if b.srv.Live("l") != 1 {
		t.Fatal("broken without a yes")
	}
	x := b.terminal(200, 24, args...)
	x.await("[y/N]")
	x.typeIn("y\n")
	x.ended(0)
	x.await("pg advance RESOURCE --token")
	if b.srv.Live("l") != 0 {
		t.Error("not broken after a yes")
	}
	b.hold("m")
	x = b.terminal(200, 24, "break", "--owner", "somebody else", "--reason", "stuck")
	x.await("break these 1 holds?")
	contains(t, x.all(), "m  token")
	x.typeIn("y\n")
	x.ended(0)
	if b.srv.Live("m") != 0 {
		t.Error("not broken after a yes")
	}
}

func lockOf(name, owner string, waiters int, held, left time.Duration, now time.Time) clientsdk.LockSummary {
	l := clientsdk.LockSummary{Lock: name, State: "held", Waiters: waiters}
	if owner != "" {
		ms := left.Milliseconds()
		l.Holder = &clientsdk.Holder{Owner: owner, Token: 7341, Since: now.Add(-held), ExpiresInMS: &ms}
	}
	return l
}

func TestTopView(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	v := &topView{at: now.Add(-2 * time.Second), event: "granted a w", locks: []clientsdk.LockSummary{
		lockOf("b", "w", 0, time.Minute, 9*time.Second, now),
		lockOf("a", "", 0, 0, 0, now),
		lockOf("c", "漢字 worker", 0, 2*time.Minute, time.Second, now),
		lockOf("d", "evil\x1b[2J", 3, time.Second, 9*time.Second, now),
	}}
	got := v.render(now, 64, 7)
	want := []string{
		"fenced  4 locks  3 waiters",
		"LOCK          OWNER       TOKEN      HELD     LEFT     WAITERS",
		`d             "evil\x1b[2 7341       1s       7s       3`,
		"c             漢字 worker 7341       2m0s     0s       0",
		"b             w           7341       1m0s     7s       0",
		"a             -           -          -        -        0",
		"q quit  / filter  granted a w",
	}
	for i := range got {
		got[i] = strings.TrimRight(attributes.ReplaceAllString(got[i], ""), " ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for columns := range 80 {
		for rows := range 8 {
			if n := len(v.render(now, columns, rows)); n > max(rows, 1) {
				t.Errorf("%d lines on %d rows", n, rows)
			}
		}
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in      string
		columns int
		want    string
	}{
		{"ab", 4, "ab  "}, {"abc", 2, "ab"}, {"漢字", 3, "漢 "}, {"e\u0301a", 1, "e\u0301"}, {"", 2, "  "}, {"a", 0, ""},
	} {
		if got := fit(tc.in, tc.columns); got != tc.want {
			t.Errorf("fit(%q, %d) = %q, want %q", tc.in, tc.columns, got, tc.want)
		}
	}
}

func TestTopView_FilterKeys(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]topView{
		"/ab\r":        {filter: "ab"},
		"/ab":          {filter: "ab", typing: true},
		"/ab\x7f\x7f":  {typing: true},
		"/\x7fq":       {filter: "q", typing: true},
		"/ab\rq":       {filter: "ab", quit: true},
		"/ab\r/c\r":    {filter: "c"},
		"/h\u00f6he\r": {filter: "h\u00f6he"},
		"/a\x1b":       {},
		"/ab\r\x1b":    {},
		"x\x00\r":      {},
		"/a\x07b\x03":  {filter: "ab", typing: true, quit: true},
	} {
		var got topView
		for _, r := range typed { // as a person types: key by key
			got.key([]byte(string(r)))
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(topView{})); diff != "" {
			t.Errorf("%q (-want +got)\n%s", typed, diff)
		}
	}
}

// Ctrl-Z would stop a command that has the terminal, and nobody could bring it back: its
// shell waits for fencectl, which renews the lock.
func TestRun_OnATerminal(t *testing.T) {
	t.Parallel()
	x := setup(t).terminal(80, 24, "run", "l", "--", "sh", "-c", `echo ready; read -r line; echo "heard $line"`)
	x.await("ready")
	x.typeIn("\x1a")
	x.typeIn("it\n")
	x.await("heard it")
	x.ended(0)
}

// What cannot be started is told also to a terminal that only the foreground may write to.
func TestRun_NotStartedOnATerminal(t *testing.T) {
	t.Parallel()
	inner := "env " + asProgram + "=1 " + os.Args[0] + " run inner -- no-such-command"
	x := setup(t).terminal(80, 24, "run", "l", "--", "sh", "-c", "stty tostop; "+inner+"; code=$?; stty -tostop; exit $code")
	x.ended(exitNotFound)
	x.await("no-such-command")
}
