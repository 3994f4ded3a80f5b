package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fenced/fenced/clientsdk/sdktest"
	"github.com/fenced/fenced/internal/apierr"
)

// program is fencectl as a process.
type program struct {
	*exec.Cmd
	out, err bytes.Buffer
}

func (b *bundle) program(args ...string) *program {
	b.Helper()
	p := &program{Cmd: exec.Command(os.Args[0], args...)}
	p.Env = b.environ(asProgram + "=1")
	p.Stdout, p.Stderr = &p.out, &p.err
	p.WaitDelay = 10 * time.Second
	return p
}

// environ is the environment of a process: this one's, more, and the bundle's.
func (b *bundle) environ(more ...string) []string {
	env := append(os.Environ(), more...)
	// The race detector holds each process for a second at its end.
	env = append(env, "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	for k, v := range b.env {
		env = append(env, k+"="+v)
	}
	return env
}

// signalGroup signals the process group of which p is the first process.
func (p *program) signalGroup(sig syscall.Signal) { syscall.Kill(-p.Process.Pid, sig) }

func (p *program) code() int {
	p.Run()
	return p.ProcessState.ExitCode()
}

func TestRun_PassesThrough(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.env["FENCED_TOKENS"] = `{"outer":7}`
	p := b.program("run", "jobs/x", "--", "sh", "-c", `cat; echo "$FENCED_LOCK $FENCED_TOKEN $FENCED_TOKENS"; echo oops >&2; exit 7`)
	p.Stdin = strings.NewReader("from stdin\n")
	if code := p.code(); code != 7 || p.err.String() != "oops\n" {
		t.Errorf("code %d, stderr %q", code, p.err.String())
	}
	var tok int
	if _, err := fmt.Sscanf(p.out.String(), "from stdin\njobs/x %d", &tok); err != nil || tok < 1 {
		t.Errorf("output %q: %v", p.out.String(), err)
	}
	contains(t, p.out.String(), fmt.Sprintf(`{"jobs/x":%d,"outer":7}`, tok))
	if n := b.srv.Live("jobs/x"); n != 0 {
		t.Errorf("%d holds are left", n)
	}
}

func TestRun_ExitCodes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hold("taken")
	plain := filepath.Join(t.TempDir(), "not-executable")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	type commandLine struct {
		args []string
		code int
	}
	together(t, map[string]commandLine{
		"short TTL":      {[]string{"run", "s", "--ttl", "3s", "--", "true"}, 0},
		"success":        {[]string{"run", "a", "--", "true"}, 0},
		"failure":        {[]string{"run", "b", "--", "false"}, 1},
		"signal":         {[]string{"run", "c", "--", "sh", "-c", "kill -9 $$"}, 128 + 9},
		"not found":      {[]string{"run", "d", "--", "no-such-command"}, exitNotFound},
		"not executable": {[]string{"run", "e", "--", plain}, exitNotExecutable},
		"held":           {[]string{"run", "taken", "--try", "--", "true"}, apierr.ExitNotAcquired},
		"held, own code": {[]string{"run", "taken", "--wait", "10ms", "--conflict-exit-code", "3", "--", "true"}, 3},
		"held, no error": {[]string{"run", "taken", "--try", "--conflict-exit-code", "0", "--", "true"}, 0},
		"unreachable":    {[]string{"run", "f", "--try", "--addr", "127.0.0.1:1", "--", "true"}, apierr.ExitUnreachable},
		"bad conflict":   {[]string{"run", "g", "--conflict-exit-code", "256", "--", "true"}, apierr.ExitUsage},
	}, func(t *testing.T, tc commandLine) {
		p := b.program(tc.args...)
		if code := p.code(); code != tc.code {
			t.Errorf("code %d, want %d; stderr %q", code, tc.code, p.err.String())
		}
	})
}

// command is a shell command line that tells its pid and its child's in the FIFO "alive",
// which both have open while they live, and ignores SIGTERM where stubborn is set.
func command(dir string, stubborn bool) []string {
	trap := "trap 'echo told > " + dir + "/told; exit 0' TERM"
	if stubborn {
		trap = "trap 'echo told > " + dir + "/told' TERM"
	}
	return []string{"sh", "-c", trap + `
		exec 9> ` + dir + `/alive
		(trap '' TERM; while :; do sleep 10; done) &
		echo $$ $! >&9
		while :; do wait; sleep 0.1; done`} // a trap ends the wait
}

// processes are a command and its child.
type processes struct {
	pids []int
	gone chan struct{} // closed when both have died
}

// follow waits until the command with the FIFO in dir has told its pids.
func follow(t *testing.T, dir string) processes {
	t.Helper()
	p := processes{pids: make([]int, 2), gone: make(chan struct{})}
	told := make(chan error, 1)
	go func() {
		defer close(p.gone)
		alive, err := os.Open(dir + "/alive") // waits for the command to open it
		if err == nil {
			defer alive.Close()
			_, err = fmt.Fscanln(alive, &p.pids[0], &p.pids[1])
		}
		told <- err
		io.Copy(io.Discard, alive) // to the end of the last that has it open
	}()
	select {
	case err := <-told:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("waited 30 s for the command to start")
	}
	return p
}

// await waits until both are dead.
func (p processes) await(t *testing.T) {
	t.Helper()
	select {
	case <-p.gone:
	case <-time.After(30 * time.Second):
		t.Fatal("waited 30 s for the command to die")
	}
}

// wait polls what another process does.
func wait(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("waited 30 s for %s", what)
		}
		time.Sleep(5 * time.Millisecond) // the event is in another process
	}
}

// dead reports whether neither runs; a zombie does not.
func (p processes) dead() bool {
	for _, pid := range p.pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if !strings.HasPrefix(rest, "Z") {
			return false
		}
	}
	return true
}

const (
	testTTL   = 3 * time.Second
	testGrace = 500 * time.Millisecond
)

func (b *bundle) startRun(lock, dir string, stubborn bool, more ...string) (*program, processes) {
	b.Helper()
	if err := syscall.Mkfifo(dir+"/alive", 0o600); err != nil {
		b.Fatal(err)
	}
	args := append([]string{"run", lock, "--ttl", testTTL.String(), "--grace", testGrace.String()}, more...)
	p := b.program(append(append(args, "--"), command(dir, stubborn)...)...)
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Process.Kill() })
	return p, follow(b.T, dir)
}

// The command must be dead before the lease can end, whatever happens to fencectl, the
// server or the network between them. The lease is the server's: the fake still shows
// the holder when the command is dead.
func TestRun_IsDeadBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	faults := map[string]func(b *bundle, p *program){
		"renewals are dropped": func(b *bundle, _ *program) {
			for range 1000 {
				b.srv.On(sdktest.Renew, sdktest.Fault{DropRequest: true})
			}
		},
		"renewals hang": func(b *bundle, _ *program) {
			for range 1000 {
				b.srv.On(sdktest.Renew, sdktest.Fault{Delay: time.Hour})
			}
		},
		"500s": func(b *bundle, _ *program) {
			for range 1000 {
				b.srv.On(sdktest.Renew, sdktest.Fault{Status: 500})
			}
		},
		"fencectl is frozen": func(_ *bundle, p *program) { p.Process.Signal(syscall.SIGSTOP) },
		killedFencectl:       func(_ *bundle, p *program) { p.Process.Kill() },
		// As Ctrl-Z does where the command has not the terminal, and a shell's "kill %1".
		"fencectl's group is frozen": func(_ *bundle, p *program) { p.signalGroup(syscall.SIGSTOP) },
		"killed fencectl's group":    func(_ *bundle, p *program) { p.signalGroup(syscall.SIGKILL) },
	}
	for _, stubborn := range []bool{false, true} {
		t.Run(fmt.Sprintf("stubborn=%t", stubborn), func(t *testing.T) {
			t.Parallel()
			together(t, faults, func(t *testing.T, fault func(*bundle, *program)) { deadInTime(t, stubborn, fault) })
		})
	}
}

func deadInTime(t *testing.T, stubborn bool, fault func(*bundle, *program)) {
	b, dir := setup(t), t.TempDir()
	p, command := b.startRun("l", dir, stubborn)
	fault(b, p)
	command.await(t)
	// Still held, or released by fencectl after the death.
	if past := b.ok("history", "l"); strings.Contains(past, "expired") {
		t.Errorf("the lease had ended before the command was dead: %s", past)
	}
	if _, err := os.Stat(dir + "/told"); err != nil {
		t.Error("the command was not told by SIGTERM")
	}
	p.signalGroup(syscall.SIGCONT)
	p.Wait()
	if !strings.Contains(t.Name(), "killed_fencectl") && p.ProcessState.ExitCode() != apierr.ExitLost {
		t.Errorf("code %d, want %d; stderr %q", p.ProcessState.ExitCode(), apierr.ExitLost, p.err.String())
	}
}

func TestRun_StopsWhenBroken(t *testing.T) {
	t.Parallel()
	b, dir := setup(t), t.TempDir()
	p, command := b.startRun("l", dir, true, "--on-lost", "echo gone > "+dir+"/on-lost")
	b.srv.Break("l", "stuck")
	p.Wait()
	if code := p.ProcessState.ExitCode(); code != apierr.ExitLost || !command.dead() {
		t.Errorf("code %d, dead %t", code, command.dead())
	}
	contains(t, p.err.String(), "broken", "the command was stopped")
	if _, err := os.Stat(dir + "/on-lost"); err != nil {
		t.Errorf("--on-lost did not run: %v", err)
	}
}

// A hold that is lost before its deadline could be sent, because fencectl stood still at
// its grant, starts nothing and keeps nobody waiting.
func TestSupervisor_StopsBeforeTheStart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.program(superviseName, "1s", "echo", "started")
	control, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	states, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.ExtraFiles = []*os.File{control, theirs}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill() })
	control.Close()
	theirs.Close()
	fmt.Fprintln(ours, msgStop)
	told := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(states)
		told <- string(text)
	}()
	select {
	case text := <-told:
		p.Wait()
		if text != stateLost+"\n" || p.out.Len() > 0 {
			t.Errorf("told %q, output %q", text, p.out.String())
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for a deadline that never comes")
	}
	ours.Close()
}

// When the supervisor is killed, the command dies with the thread that started it, and
// fencectl kills the rest of the group.
func TestRun_SupervisorKilled(t *testing.T) {
	t.Parallel()
	b, dir := setup(t), t.TempDir()
	p, command := b.startRun("l", dir, true)
	sup := parentOf(t, command.pids[0])
	if err := syscall.Kill(sup, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.Wait()
	command.await(t)
	if code := p.ProcessState.ExitCode(); code != exitInternal {
		t.Errorf("code %d, want %d; stderr %q", code, exitInternal, p.err.String())
	}
	if n := b.srv.Live("l"); n != 0 {
		t.Errorf("%d holds are left", n)
	}
}

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	ppid, err := strconv.Atoi(strings.Fields(rest)[1])
	if err != nil {
		t.Fatal(err)
	}
	return ppid
}

// Signals are the command's, and what it leaves behind in its group is killed before
// the lock is free.
func TestRun_ForwardsSignals(t *testing.T) {
	t.Parallel()
	b, dir := setup(t), t.TempDir()
	p, command := b.startRun("l", dir, false)
	p.Process.Signal(syscall.SIGTERM)
	p.Wait()
	if code := p.ProcessState.ExitCode(); code != 0 {
		t.Errorf("code %d, want that of the command's trap; stderr %q", code, p.err.String())
	}
	if _, err := os.Stat(dir + "/told"); err != nil {
		t.Error("the signal did not reach the command")
	}
	if !command.dead() {
		t.Error("a child of the command is alive")
	}
	if n := b.srv.Live("l"); n != 0 {
		t.Errorf("%d holds are left", n)
	}
}

// A signal while fencectl waits for the lock ends the wait, with the code of the signal.
func TestInterruptedWait(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"run", "l", "--", "true"}, {"acquire", "l"}} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			b := setup(t)
			b.hold("l")
			p := b.program(args...)
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			wait(t, "the place in the queue", func() bool { return b.srv.Live("l") == 2 })
			p.Process.Signal(sig)
			var exit *exec.ExitError
			if err := p.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 128+int(sig) {
				t.Errorf("%q: %v, want exit code %d", args, err, 128+int(sig))
			}
			contains(t, p.err.String(), sig.String())
			if n := b.srv.Live("l"); n != 1 {
				t.Errorf("%d holds, want the holder's", n)
			}
		}
	}
}

// Two machines, one lock: what the command writes never interleaves.
func TestRun_ExcludesAnother(t *testing.T) {
	t.Parallel()
	b, dir := setup(t), t.TempDir()
	script := `if ! mkdir ` + dir + `/busy; then exit 9; fi; sleep 0.1; rmdir ` + dir + `/busy`
	codes := make(chan int)
	for range 4 {
		go func() { codes <- b.program("run", "l", "--", "sh", "-c", script).code() }()
	}
	for range 4 {
		if code := <-codes; code != 0 {
			t.Errorf("code %d: two commands ran at once", code)
		}
	}
}

// What the caller has fencectl ignore, as nohup does with SIGHUP and a script with the
// SIGINT of what it starts in the background, is ignored for the command too.
func TestRun_IgnoresWhatItsCallerIgnores(t *testing.T) {
	t.Parallel()
	b, ready := setup(t), filepath.Join(t.TempDir(), "ready")
	p := b.program("run", "l", "--", "sh", "-c",
		`trap 'exit 7' USR1; kill -HUP $$; kill -INT $$; echo > `+ready+`; while :; do sleep 0.1; done`)
	p.Args = append([]string{"sh", "-c", `trap '' HUP INT; exec "$@"`, "sh"}, p.Args...)
	p.Path = "/bin/sh"
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill() })
	wait(t, "the command", func() bool { // or its end
		_, err := os.Stat(ready)
		return err == nil || processes{pids: []int{p.Process.Pid}}.dead()
	})
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGUSR1} {
		p.Process.Signal(sig)
	}
	p.Wait()
	if code := p.ProcessState.ExitCode(); code != 7 {
		t.Errorf("code %d, want 7: of the trap for SIGUSR1; stderr %q", code, p.err.String())
	}
}
