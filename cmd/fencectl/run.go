//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/tokens"
)

const (
	runTTL   = 30 * time.Second
	runGrace = 5 * time.Second
)

// runFlags are the flags of run.
type runFlags struct {
	queueFlags
	grace        time.Duration
	onLost       string
	conflictExit int
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run LOCK [flags] -- COMMAND [ARG...]",
		Short: "Run a command under a lock",
		Long: `Take a lock, run a command, and release the lock when it ends.

The command inherits the environment, FENCED_API_KEY included, so that it can call
fencectl itself; run "env -u FENCED_API_KEY COMMAND" where it should not have the key. It
also finds FENCED_LOCK and FENCED_TOKEN there, and FENCED_TOKENS, a JSON object from lock to token
with those of outer runs as well. Let every write carry the token and the store compare
it: what the command has sent before it was stopped is beyond anybody's reach.

When the lock may be lost, the command gets SIGTERM, and SIGKILL after --grace at the
latest, so that it is dead before the lease can end by this machine's clock, whatever the
network does and also when fencectl itself is stopped or killed. It runs in a process group
of its own, and whatever is left of the group when it ends is killed: a child that leaves
the group with setsid is not followed. Where it has the terminal, Ctrl-Z does not stop it.

Exit codes: the command's own; 128+n when signal n ended it, or the wait for the lock; 75
when the lock is held by another (or --conflict-exit-code); 76 when the lock was lost
while the command ran; 64, 69, 70 and 77 as for all commands; 126 and 127 as in a shell.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return usage("give one lock, then -- and the command to run")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("grace") {
				f.grace = min(runGrace, f.ttl/3)
			}
			if err := f.validate(); err != nil {
				return err
			}
			code, err := a.runUnder(cmd, &f, args[0], args[1:])
			a.exit = code
			return err
		},
	}
	f.register(cmd, runTTL)
	cmd.Flags().DurationVar(&f.grace, "grace", runGrace, "time between SIGTERM and SIGKILL, at most a third of the TTL; that, where it is less than the default")
	cmd.Flags().StringVar(&f.onLost, "on-lost", "", "shell command to run when the lock is lost")
	cmd.Flags().IntVar(&f.conflictExit, "conflict-exit-code", apierr.ExitNotAcquired, "exit code when the lock is held by another, 0 to 255")
	return cmd
}

func (f *runFlags) validate() error {
	if err := f.queueFlags.validate(); err != nil {
		return err
	}
	switch {
	case f.grace < 0 || f.grace > f.ttl/3:
		return outOfBounds("--grace must be 0 to a third of the TTL of %s, not %s", f.ttl, f.grace)
	case f.conflictExit < 0 || f.conflictExit > 255:
		return outOfBounds("--conflict-exit-code must be 0 to 255, not %d", f.conflictExit)
	}
	return nil
}

// runUnder takes the lock and runs argv under it. The error is for what went wrong
// before or beside the command; its own failure is in the code only.
func (a *app) runUnder(cmd *cobra.Command, f *runFlags, lock string, argv []string) (int, error) {
	client, err := a.client(func(c *clientsdk.Config) {
		c.TTL = f.ttl
		if !f.try { // nobody is watching: the place in the queue is worth the patience
			c.RetryFor = 0
		}
	})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	// Before the grant signals end the wait, and then they are the command's. One that
	// comes between the two, too late for the wait, is kept for the command.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, heeded(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)...)
	defer signal.Stop(signals)
	hold, err := f.acquire(cmd, client, lock)
	if errors.Is(err, clientsdk.ErrHeld) && f.conflictExit != apierr.ExitNotAcquired {
		a.fail(err)
		return f.conflictExit, nil
	}
	if err != nil {
		return 0, err
	}
	signal.Notify(signals, forwarded()...)
	r := &runner{app: a, flags: f, hold: hold, signals: signals}
	code, err := r.run(argv)
	// The command is dead: the lock is free for the next one at once.
	released := hold.Release(context.WithoutCancel(cmd.Context()))
	if r.lost || errors.Is(released, clientsdk.ErrLost) {
		return 0, r.lossError(released)
	}
	return code, err
}

// lossError is the reason of the loss, the server's where it has given one.
func (r *runner) lossError(released error) error {
	var lost *clientsdk.LostError
	if errors.As(released, &lost) {
		return fmt.Errorf("%w; the command was stopped", lost)
	}
	return fmt.Errorf("%w; the command was stopped", &clientsdk.LostError{
		Lock: r.hold.Lock(), Ref: r.hold.Ref(), Token: r.hold.Token(), Reason: clientsdk.LostExpired})
}

// forwarded are the signals that reach the command through the supervisor.
func forwarded() []os.Signal {
	return heeded(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)
}

// runner feeds a supervisor with deadlines until the command has ended.
type runner struct {
	*app
	flags   *runFlags
	hold    *clientsdk.Hold
	signals <-chan os.Signal

	control *os.File // to the supervisor
	until   instant  // last deadline sent
	lost    bool
}

// run starts the supervisor and returns the command's exit code.
func (r *runner) run(argv []string) (int, error) {
	sup, status, err := r.start(argv)
	if err != nil {
		return 0, err
	}
	defer r.control.Close()
	var group int
	states := make(chan string)
	go readLines(status, states)
	onLost := make(chan struct{})
	tick := time.NewTicker(min(r.flags.ttl/20, 250*time.Millisecond))
	defer tick.Stop()
	done := r.hold.Done()
	for {
		r.sendDeadline()
		select {
		case line, ok := <-states:
			if !ok {
				return r.ended(sup, group, onLost)
			}
			if line == stateLost && !r.lost {
				r.lost = true
				go r.runOnLost(onLost)
			}
			fmt.Sscanf(line, stateGroup+" %d", &group)
		case sig := <-r.signals:
			r.send("%s %d", msgSignal, sig)
		case <-done:
			done = nil
			r.send(msgStop)
		case <-tick.C:
		}
	}
}

// start runs this program again as the supervisor of argv.
func (r *runner) start(argv []string) (*exec.Cmd, *os.File, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("run: %w", err)
	}
	controlR, controlW, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("run: %w", err)
	}
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("run: %w", err)
	}
	sup := exec.Command(self, append([]string{superviseName, r.flags.grace.String()}, argv...)...)
	sup.Stdin, sup.Stdout, sup.Stderr = r.in, r.out, r.err
	sup.Env = r.environ()
	sup.ExtraFiles = []*os.File{controlR, statusW}
	sup.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = sup.Start()
	controlR.Close()
	statusW.Close()
	if err != nil {
		return nil, nil, fmt.Errorf("run: %w", err)
	}
	r.control = controlW
	return sup, statusR, nil
}

// ended takes the exit code of a supervisor that has ended. One that was killed has
// left the group behind, but for the command itself, which dies with it.
func (r *runner) ended(sup *exec.Cmd, group int, onLost <-chan struct{}) (int, error) {
	err := sup.Wait()
	if r.lost && r.flags.onLost != "" {
		<-onLost
	}
	if sup.ProcessState.Exited() {
		return sup.ProcessState.ExitCode(), nil
	}
	if group > 0 {
		syscall.Kill(-group, syscall.SIGKILL)
	}
	return 0, fmt.Errorf("run: the supervisor of the command was killed, and the command with it: %w", err)
}

// sendDeadline tells the supervisor how long the hold lasts. The clock is read before
// the hold is asked, so that a pause between the two makes the deadline earlier.
func (r *runner) sendDeadline() {
	if r.hold.Err() != nil {
		return
	}
	now := bootTime()
	until := now.add(time.Until(r.hold.Deadline()))
	if until.sub(r.until) < time.Millisecond {
		return
	}
	r.until = until
	r.send("%s %d", msgUntil, until)
}

// send writes one message. An error means that the supervisor is gone, which its
// status pipe tells as well.
func (r *runner) send(format string, args ...any) {
	fmt.Fprintf(r.control, format+"\n", args...)
}

// environ is the command's environment: the tokens of outer runs stay visible under
// their own locks, so that an inner, fresher token never stands in for theirs.
func (r *runner) environ() []string {
	all := map[string]tokens.Token{}
	if outer := r.getenv("FENCED_TOKENS"); outer != "" {
		var m map[string]tokens.Token
		if json.Unmarshal([]byte(outer), &m) == nil {
			maps.Copy(all, m)
		}
	}
	all[r.hold.Lock()] = r.hold.Token()
	text, err := json.Marshal(all)
	if err != nil { // every token is valid: they come from decoders
		panic(err)
	}
	return append(os.Environ(),
		"FENCED_LOCK="+r.hold.Lock(), "FENCED_TOKEN="+r.hold.Token().String(), "FENCED_TOKENS="+string(text))
}

// runOnLost runs the user's command, for as long as the grace lasts at most.
func (r *runner) runOnLost(done chan<- struct{}) {
	defer close(done)
	if r.flags.onLost == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(r.flags.grace, time.Second))
	defer cancel()
	c := exec.CommandContext(ctx, "/bin/sh", "-c", r.flags.onLost)
	c.Stdout, c.Stderr, c.Env = r.err, r.err, r.environ()
	c.WaitDelay = time.Second
	if err := c.Run(); err != nil {
		fmt.Fprintf(r.err, "fencectl: --on-lost: %v\n", err)
	}
}
