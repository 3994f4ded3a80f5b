//go:build unix

package pgtest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

// childEnv makes the test binary act as a program that starts a server and is
// then killed.
const childEnv = "PGTEST_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		startAndWait()
	}
	goleak.VerifyTestMain(pgtest.Main(m))
}

func startAndWait() {
	s, err := pgtest.Start(context.Background(), nil)
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(s.SocketDir())
	fmt.Println(s.URL("postgres"))
	select {}
}

func TestNew_EachTestHasItsOwnDatabase(t *testing.T) {
	t.Parallel()
	a, b := pgtest.New(t), pgtest.New(t)
	if _, err := a.Exec(t.Context(), "CREATE TABLE mine (id int)"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Exec(t.Context(), "SELECT * FROM mine"); err == nil {
		t.Error("a table of one database is seen in another")
	}
}

func TestServer_SurvivesACrash(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	exec1(t, s.TCPURL("postgres"), "CREATE TABLE kept AS SELECT 7 AS n")
	s.Kill()
	if _, err := pgx.Connect(t.Context(), s.URL("postgres")); err == nil {
		t.Fatal("a killed server takes connections")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec1(t, s.URL("postgres"), "INSERT INTO kept VALUES (8)")
}

func TestStart_Settings(t *testing.T) {
	t.Parallel()
	s := start(t, &pgtest.Options{Settings: map[string]string{"max_prepared_transactions": "3"}})
	conn := connect(t, s.URL("postgres"))
	var got string
	if err := conn.QueryRow(t.Context(), "SHOW max_prepared_transactions").Scan(&got); err != nil || got != "3" {
		t.Errorf("max_prepared_transactions = %q, %v; want 3", got, err)
	}
}

func TestStart_BadSettingTellsTheLog(t *testing.T) {
	t.Parallel()
	_, err := pgtest.Start(t.Context(), &pgtest.Options{Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("Start = %v; want the server's own complaint", err)
	}
}

func TestStart_NotInstalled(t *testing.T) {
	if dirs, _ := os.ReadDir("/usr/lib/postgresql"); len(dirs) > 0 {
		t.Skip("the server binaries are in a place that this test cannot hide")
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := pgtest.Start(t.Context(), nil); !errors.Is(err, pgtest.ErrNotInstalled) {
		t.Errorf("Start = %v, want ErrNotInstalled", err)
	}
}

func TestServer_TCPAsksForThePassword(t *testing.T) {
	t.Parallel()
	s := pgtest.Shared(t)
	_, err := pgx.Connect(t.Context(), "postgres://postgres:wrong@"+s.Addr()+"/postgres?sslmode=disable")
	if err == nil {
		t.Error("a wrong password opens the loopback port")
	}
}

func TestServer_StopIsIdempotentAndRemovesTheDirectory(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	dir := s.SocketDir()
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
}

// A program that is killed leaves no server behind.
func TestServer_DiesWithItsParent(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	dir := lines.Text()
	defer os.RemoveAll(dir)
	lines.Scan()
	conn := connect(t, lines.Text())

	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	// The wait ends when the server cuts the connection.
	_, err = conn.Exec(ctx, "SELECT pg_sleep(60)")
	if err == nil || ctx.Err() != nil {
		t.Errorf("the server outlived its parent: %v", err)
	}
}

func start(t *testing.T, opts *pgtest.Options) *pgtest.Server {
	t.Helper()
	s, err := pgtest.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func exec1(t *testing.T, url, sql string) {
	t.Helper()
	if _, err := connect(t, url).Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}
