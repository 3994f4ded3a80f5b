//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sys/unix"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/httpfence"
	"github.com/fenced/fenced/tokens/pgfence"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

const (
	stallLock = "account/42"
	stallTTL  = time.Second
)

// workerReport is what a worker process prints: the token it held, and what the
// store said to its two writes.
type workerReport struct {
	Token   tokens.Token
	Lost    bool // the hold's context had ended before the writes
	SQL     string
	Stale   *tokens.StaleError
	Status  int
	Problem wire.Problem
}

// workerMain acquires the lock, stops itself where it is told to, and then writes
// as code that forgot the hold's context: once by SQL, once over HTTP.
func workerMain() int {
	report, err := work(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		return 1
	}
	return 0
}

func work(ctx context.Context) (*workerReport, error) {
	client, err := clientsdk.New(clientsdk.Config{Endpoints: []string{os.Getenv("FENCED_ADDR")}, TTL: stallTTL})
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	pool, err := pgxpool.New(ctx, os.Getenv("PG_URL"))
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	hold, err := client.Acquire(ctx, stallLock, nil)
	if err != nil {
		return nil, err
	}
	if os.Getenv("STALL") != "" {
		fmt.Println("stopping")
		if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
			return nil, err
		}
	}
	report := &workerReport{Token: hold.Token(), Lost: told(hold)}
	claim := tokens.Claim{Resource: stallLock, Token: hold.Token(), Mode: tokens.Renewable}
	err = pgfence.WithFence(ctx, pool, claim, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE account SET balance = balance + 10, writer = $1 WHERE id = 42", int64(hold.Token()))
		return err
	})
	report.SQL = fmt.Sprint(err)
	_ = errors.As(err, &report.Stale)
	if err := report.post(ctx); err != nil {
		return nil, err
	}
	_ = hold.Release(ctx)
	return report, nil
}

// told reports whether the SDK says within a second that the hold is lost. kill may
// return before the process is stopped, so a first second may pass in the stop.
func told(hold *clientsdk.Hold) bool {
	if os.Getenv("STALL") == "" {
		return hold.Err() != nil
	}
	for range 2 {
		select {
		case <-hold.Context().Done():
			return true
		case <-time.After(time.Second):
		}
	}
	return false
}

func (r *workerReport) post(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("SHOP_URL"), strings.NewReader("{}"))
	if err != nil {
		return err
	}
	tokens.SetHeader(req.Header, r.Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	r.Status = resp.StatusCode
	return json.NewDecoder(resp.Body).Decode(&r.Problem)
}

// TestStalledHolderIsRefused is the reason for this product, with real processes:
// a holder is stopped past its lease, its successor writes, the holder wakes up
// and writes too, with the context of code that forgot. The lock cannot stop it.
// The database does, and so does a service in front of it, with 412.
func TestStalledHolderIsRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	if err := pgfence.Install(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL, writer bigint);
		INSERT INTO account VALUES (42, 0, NULL)`); err != nil {
		t.Fatal(err)
	}
	env := []string{
		"FENCED_ADDR=" + serverProcess(t), "PG_URL=" + pool.Config().ConnString(), "SHOP_URL=" + shop(t, pool),
	}

	first, output := worker(t, append(env, "STALL=1"))
	if line, err := output.ReadString('\n'); err != nil || line != "stopping\n" {
		t.Fatalf("the first worker said %q, %v", line, err)
	}
	awaitStopped(t, first.Process.Pid)
	second := report(t, runWorker(t, env))
	if second.SQL != "<nil>" || second.Status != http.StatusOK {
		t.Fatalf("the successor could not write: %+v", second)
	}

	if err := first.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	late := report(t, output)
	if err := first.Wait(); err != nil {
		t.Fatal(err)
	}
	if !late.Lost {
		t.Error("the SDK did not tell the worker that its lock was lost")
	}
	if late.Stale == nil || late.Stale.Presented != late.Token || late.Stale.Current != second.Token || late.Token >= second.Token {
		t.Errorf("the database did not refuse: %+v", late)
	}
	if late.Status != http.StatusPreconditionFailed || late.Problem.Code != "stale_token" || late.Problem.Current != second.Token {
		t.Errorf("the service answered %d %+v", late.Status, late.Problem)
	}
	wantBalance(t, pool, 20, second.Token) // the successor's two writes and no other
}

func wantBalance(t *testing.T, pool *pgxpool.Pool, balance int64, writer tokens.Token) {
	t.Helper()
	var gotBalance, gotWriter int64
	if err := pool.QueryRow(t.Context(), "SELECT balance, writer FROM account").Scan(&gotBalance, &gotWriter); err != nil {
		t.Fatal(err)
	}
	if gotBalance != balance || gotWriter != int64(writer) {
		t.Errorf("balance %d by %d, want %d by %d", gotBalance, gotWriter, balance, writer)
	}
}

// shop is a service that guards its writes with httpfence.
func shop(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	fence, err := httpfence.New(httpfence.Config{
		Lock: func(*http.Request) (string, error) { return stallLock, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(fence.Handle(func(w http.ResponseWriter, r *http.Request) error {
		token, _ := tokens.FromContext(r.Context(), stallLock)
		claim := tokens.Claim{Resource: stallLock, Token: token, Mode: tokens.Renewable}
		err := pgfence.WithFence(r.Context(), pool, claim, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE account SET balance = balance + 10, writer = $1 WHERE id = 42", int64(token))
			return err
		})
		if err == nil {
			_, err = io.WriteString(w, "{}")
		}
		return err
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// serverProcess starts a real fenced and returns its URL.
func serverProcess(t *testing.T) string {
	t.Helper()
	cmd := process(t, "server", nil)
	cmd.Args = append(cmd.Args, "serve", "--listen", "127.0.0.1:0", "--data-dir", filepath.Join(t.TempDir(), "data"))
	output := start(t, cmd)
	line, err := output.ReadString('\n')
	_, url, ok := strings.Cut(strings.TrimSpace(line), "listens on ")
	if err != nil || !ok {
		t.Fatalf("the server said %q, %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, output) }()
	return url
}

func worker(t *testing.T, env []string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := process(t, "worker", env)
	return cmd, start(t, cmd)
}

func runWorker(t *testing.T, env []string) *bufio.Reader {
	t.Helper()
	cmd, output := worker(t, env)
	all, err := io.ReadAll(output)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(strings.NewReader(string(all)))
}

func process(t *testing.T, role string, env []string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), roleEnv+"="+role), env...)
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func start(t *testing.T, cmd *exec.Cmd) *bufio.Reader {
	t.Helper()
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return bufio.NewReader(output)
}

func report(t *testing.T, output *bufio.Reader) workerReport {
	t.Helper()
	var r workerReport
	if err := json.NewDecoder(output).Decode(&r); err != nil {
		t.Fatalf("worker report: %v", err)
	}
	return r
}

// awaitStopped waits until the kernel says that the process is stopped. waitid
// with WNOWAIT leaves its end to be waited for later.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EINTR) {
			t.Fatalf("wait for %d to stop: %v", pid, err)
		}
	}
}
