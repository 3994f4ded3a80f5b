//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// The supervisor is this program run again between fencectl and the command. It knows
// neither lock nor network: it holds a deadline and kills the command's whole group at
// it. So the command dies in time when fencectl is stopped, killed or cut off. It has a
// process group of its own, because Ctrl-Z and shells stop and kill whole groups.
//
// It reads messages on descriptor 3, one a line:
//
//	until NANOSECONDS   the hold lasts until then, by the boot clock
//	signal N            pass this signal on to the group
//	stop                the hold is gone: stop the command now
//	(end of file)       fencectl is dead: stop the command now
//
// and writes on descriptor 4:
//
//	group PGID          the command has started
//	lost                the command is being stopped because of the lock
const (
	superviseName = "supervise-command"

	msgUntil  = "until"
	msgSignal = "signal"
	msgStop   = "stop"

	stateGroup = "group"
	stateLost  = "lost"
)

// checkEvery bounds how late the supervisor sees that the machine has slept: Go's
// timers stand still meanwhile.
const checkEvery = 100 * time.Millisecond

// An instant is a reading of the clock that supervisor and fencectl share, in
// nanoseconds. Unlike a time.Time it means the same in both processes.
type instant int64

func (i instant) add(d time.Duration) instant { return i + instant(d) }
func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }

func isSupervisor(args []string) bool { return len(args) > 3 && args[1] == superviseName }

// superviseMain is the whole life of a supervisor; args are the grace and the command.
func superviseMain(args []string) int {
	// The command is to die with the thread that starts it: this one, to the end.
	runtime.LockOSThread()
	grace, err := time.ParseDuration(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, "fencectl:", err)
		return exitInternal
	}
	control, status := os.NewFile(3, "control"), os.NewFile(4, "status")
	if control == nil || status == nil {
		fmt.Fprintln(os.Stderr, "fencectl: "+superviseName+" is for the use of \"fencectl run\" only")
		return exitInternal
	}
	// The command must not inherit them: the end of file is how each side learns that
	// the other is dead.
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	s := &supervisor{grace: grace, status: status, messages: make(chan string)}
	go readLines(control, s.messages)
	return s.run(args[1:])
}

// readLines sends the lines of r and closes the channel at the end.
func readLines(r io.Reader, lines chan<- string) {
	defer close(lines)
	in := bufio.NewScanner(r)
	for in.Scan() {
		lines <- in.Text()
	}
}

type supervisor struct {
	grace    time.Duration
	status   io.Writer
	messages chan string

	group  int
	until  instant // the group must be dead by then
	told   bool    // a SIGTERM was passed on
	killAt instant // 0 until the command is being stopped
}

func (s *supervisor) run(argv []string) int {
	// Signals come through fencectl. Caught, not ignored: the command would inherit that.
	signal.Notify(make(chan os.Signal, 1), forwarded()...)
	for s.until == 0 {
		line, ok := <-s.messages
		if !ok {
			return exitInternal
		}
		if line == msgStop {
			break // lost before there was a deadline to send
		}
		s.message(line)
	}
	if bootTime() >= s.until {
		fmt.Fprintln(s.status, stateLost)
		return exitInternal
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	caller, _ := syscall.Getpgid(os.Getppid())
	foreground := ownsTerminal(0, caller)
	cmd.SysProcAttr = groupAttr(foreground)
	if foreground {
		// The command inherits that. Its shell waits for fencectl and could not bring a
		// stopped one back, while the lock is renewed.
		signal.Ignore(syscall.SIGTSTP)
		defer giveTerminal(0, caller) // what follows us in a script can read
	}
	if err := cmd.Start(); err != nil {
		return startFailure(err)
	}
	s.group = cmd.Process.Pid
	fmt.Fprintln(s.status, stateGroup, s.group)
	return s.watch(cmd)
}

// watch holds the deadline until the command has ended.
func (s *supervisor) watch(cmd *exec.Cmd) int {
	exited := make(chan struct{})
	go func() {
		awaitExit(cmd)
		close(exited)
	}()
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	messages := s.messages
	for {
		select {
		case <-exited:
			// Before the command is reaped, its number still names its group and
			// nobody else's.
			s.kill(syscall.SIGKILL)
			cmd.Wait() // no error where it was reaped already; the state tells
			return codeOf(cmd.ProcessState)
		case line, ok := <-messages:
			if !ok {
				messages = nil
				s.orphaned(bootTime())
			}
			s.message(line)
		case <-s.next(tick):
		}
		s.enforce(bootTime())
	}
}

// next is the tick, or an earlier timer when something is due before it.
func (s *supervisor) next(tick *time.Ticker) <-chan time.Time {
	due := s.until.add(-s.grace)
	if s.killAt != 0 {
		due = s.killAt
	}
	if left := due.sub(bootTime()); left < checkEvery {
		return time.After(max(left, time.Millisecond))
	}
	return tick.C
}

func (s *supervisor) message(line string) {
	word, arg, _ := strings.Cut(line, " ")
	switch word {
	case msgUntil:
		var until instant
		if _, err := fmt.Sscan(arg, &until); err == nil {
			s.until = max(s.until, until)
		}
	case msgSignal:
		var n int
		if _, err := fmt.Sscan(arg, &n); err == nil && s.group > 0 {
			s.told = s.told || syscall.Signal(n) == syscall.SIGTERM
			s.kill(syscall.Signal(n))
		}
	case msgStop:
		s.stop(bootTime())
	}
}

// enforce stops the command a grace before the deadline, and kills it when its time
// is up. A renewal that comes after the SIGTERM does not take it back.
func (s *supervisor) enforce(now instant) {
	if s.killAt == 0 && now >= s.until.add(-s.grace) {
		s.stop(now)
	}
	if s.killAt != 0 && now >= s.killAt {
		s.kill(syscall.SIGKILL)
	}
}

// orphaned stops the command of a fencectl that is dead. Where both were told to end
// before, as by an outer run whose lock is lost, the time for that is over.
func (s *supervisor) orphaned(now instant) {
	s.stop(now)
	if s.told {
		s.killAt = now
	}
}

// stop tells the command to end, and sets when it is killed.
func (s *supervisor) stop(now instant) {
	if s.killAt != 0 || s.group == 0 {
		return
	}
	s.killAt = min(now.add(s.grace), s.until)
	fmt.Fprintln(s.status, stateLost)
	s.kill(syscall.SIGTERM)
	s.kill(syscall.SIGCONT) // a stopped process takes no SIGTERM
}

func (s *supervisor) kill(sig syscall.Signal) { syscall.Kill(-s.group, sig) }

// codeOf is the exit code of a shell for st.
func codeOf(st *os.ProcessState) int {
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return st.ExitCode()
}

func startFailure(err error) int {
	signal.Ignore(syscall.SIGTTOU) // we are in the background of the terminal, and may still tell
	fmt.Fprintln(os.Stderr, "fencectl: run:", err)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exitNotFound
	}
	return exitNotExecutable
}
