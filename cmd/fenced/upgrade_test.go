//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/tokens"
)

// upgradePatience bounds a test that compiles a server and restarts three, twice.
const upgradePatience = 3 * time.Minute

// previousBuild builds the server that an upgrade comes from: the last release that
// this commit descends from; before the first one, the commit that
// testdata/previous-build names, whose store has no key format. Either may be missing
// from a shallow clone, and from a source without git.
func previousBuild(t *testing.T) string {
	t.Helper()
	const root = "../.."
	pinned, err := os.ReadFile("testdata/previous-build")
	if err != nil {
		t.Fatal(err)
	}
	commit := strings.TrimSpace(string(pinned))
	if tag, err := exec.CommandContext(t.Context(), "git", "-C", root, "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^").Output(); err == nil {
		commit = strings.TrimSpace(string(tag))
	}
	dir := t.TempDir()
	archive := filepath.Join(dir, "source.tar")
	if out, err := exec.CommandContext(t.Context(), "git", "-C", root, "archive", "--output", archive, commit).CombinedOutput(); err != nil {
		t.Skipf("the previous build %s is not in this clone: %s", commit, strings.TrimSpace(string(out)))
	}
	for _, args := range [][]string{
		{"tar", "-xf", archive}, {"go", "build", "-ldflags", "-X main.version=previous", "-o", "previous", "./cmd/fenced"},
	} {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", commit, err, out)
		}
	}
	return filepath.Join(dir, "previous")
}

// upgraded is a member whose program is changed while its data stays.
type upgraded struct {
	t    *testing.T
	ctx  context.Context
	url  string
	args []string
	cmd  *exec.Cmd
}

func newUpgraded(t *testing.T, ctx context.Context, config *Config) *upgraded {
	t.Helper()
	url := freeURL(t)
	return &upgraded{t: t, ctx: ctx, url: url, args: []string{
		"serve", "--name", config.Name, "--data-dir", config.DataDir, "--initial-cluster", config.InitialCluster,
		"--listen", strings.TrimPrefix(url, "http://"),
	}}
}

// start runs a program on the member's data; the empty name is the present build.
func (u *upgraded) start(program string) {
	u.t.Helper()
	u.cmd = exec.Command(program, u.args...)
	u.cmd.Env = os.Environ()
	if program == "" {
		u.cmd = exec.Command(os.Args[0], u.args...)
		u.cmd.Env = append(os.Environ(), roleEnv+"=server")
	}
	logs, err := os.Create(filepath.Join(u.t.TempDir(), "log"))
	if err != nil {
		u.t.Fatal(err)
	}
	u.cmd.Stdout, u.cmd.Stderr = io.Discard, logs
	if err := u.cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	cmd := u.cmd
	u.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(logs.Name()); err == nil && u.t.Failed() {
			u.t.Logf("%s %v:\n%s", program, u.args, text[max(0, len(text)-2000):])
		}
		_ = logs.Close()
	})
}

func (u *upgraded) ready() {
	u.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond) // a process does not call when it is ready
	defer tick.Stop()
	for health(u.ctx, u.url) != nil {
		select {
		case <-tick.C:
		case <-u.ctx.Done():
			u.t.Fatalf("%v has not become ready", u.args)
		}
	}
}

// change stops the program in order and starts another.
func (u *upgraded) change(program string) {
	u.t.Helper()
	if err := u.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		u.t.Fatal(err)
	}
	if err := u.cmd.Wait(); err != nil {
		u.t.Fatalf("stop: %v", err)
	}
	u.start(program)
	u.ready()
}

// TestUpgrade_RollingFromThePreviousBuild changes the members of a cluster one after
// the other, with a holder, one in line and a caller at work, and takes one back.
func TestUpgrade_RollingFromThePreviousBuild(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("compiles the previous build")
	}
	previous := previousBuild(t)
	ctx, cancel := context.WithTimeout(t.Context(), upgradePatience)
	t.Cleanup(cancel)
	var members []*upgraded
	var urls []string
	for _, config := range clusterConfigs(t) {
		u := newUpgraded(t, ctx, config)
		u.start(previous)
		members, urls = append(members, u), append(urls, u.url)
	}
	for _, u := range members {
		u.ready()
	}
	client, err := clientsdk.New(clientsdk.Config{Endpoints: urls, RetryFor: upgradePatience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	held, err := client.Acquire(ctx, "held", nil)
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan tokens.Token, 1)
	go func() {
		if hold, err := client.Acquire(ctx, "held", nil); err == nil {
			next <- hold.Token()
		}
		close(next)
	}()
	awaitWaiterOf(t, urls[0], "held")
	busy, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- rising(busy, client) }()

	for _, u := range members {
		u.change("")
		if st := statusOf(t, u.url); st.Version == "previous" || st.Holds < 2 {
			t.Errorf("after the upgrade of a member, its status is %+v", st)
		}
	}
	members[0].change(previous) // the way back
	if st := statusOf(t, urls[0]); st.Version != "previous" || st.Holds < 2 {
		t.Errorf("after the way back of a member, its status is %+v", st)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if held.Err() != nil {
		t.Fatalf("a hold was lost in the upgrade: %v", held.Err())
	}
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if token := <-next; token <= held.Token() {
		t.Errorf("the next in line has token %d after %d", token, held.Token())
	}
}

// rising acquires and releases until ctx ends and wants tokens to rise, and at least
// one.
func rising(ctx context.Context, client *clientsdk.Client) error {
	var last tokens.Token
	for ctx.Err() == nil {
		hold, err := client.Acquire(ctx, "busy", nil)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("a caller was not served in the upgrade: %w", err)
		}
		if err != nil {
			break
		}
		if hold.Token() <= last {
			return fmt.Errorf("token %d after %d", hold.Token(), last)
		}
		last = hold.Token()
		if err := hold.Release(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("release: %w", err)
		}
	}
	if last == 0 {
		return fmt.Errorf("nobody was served in the upgrade")
	}
	return nil
}
