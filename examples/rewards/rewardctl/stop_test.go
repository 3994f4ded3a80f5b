package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// asMain makes a child of the test binary the command itself.
const asMain = "REWARDCTL_TEST_MAIN"

func runMainIfAsked() {
	if os.Getenv(asMain) != "" {
		main()
		os.Exit(0)
	}
}

// A signal is the normal end of what has no other. It is none of what was to be done
// and was not: a verify that saw nothing must not pass.
func TestMain_Stopped(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "owed.ndjson")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		code int
	}{
		{[]string{"verify", file}, 1},
		{[]string{"load", file}, 1},
		{[]string{"replay"}, 1},
		{[]string{"work"}, 0},
		{[]string{"work", "--drain"}, 1},
		{[]string{"publish"}, 0},
		{[]string{"publish", "--drain"}, 1},
	} {
		if code := interrupted(t, tt.args...); code != tt.code {
			t.Errorf("%q ended by a signal: exit code %d, want %d", tt.args, code, tt.code)
		}
	}
}

// interrupted starts the command on a database that never answers, interrupts it when
// it has connected, and returns its exit code.
func interrupted(t *testing.T, args ...string) int {
	t.Helper()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append(args, "--dsn", "postgres://"+mute.Addr().String()+"/x?sslmode=disable")...)
	cmd.Env = append(os.Environ(), asMain+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := mute.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok || exit.ExitCode() < 0 {
			t.Fatal(err)
		}
		return exit.ExitCode()
	}
	return 0
}
