//go:build unix

package pgfence_test

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
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/httpfence"
	"github.com/fenced/fenced/tokens/pgfence"
)

// These tests run holders as processes of their own, because only a process can
// be stopped as a real one is: in the middle of anything, without knowing.

// workerEnv makes the test binary a worker. Its value is the worker's job.
const workerEnv = "PGFENCE_TEST_WORKER"

// job is what a worker is told.
type job struct {
	Kind  string // a key of jobs
	URL   string // of the database or the service
	Token tokens.Token
	Lease time.Duration // of units that have one, from when the worker is connected
}

// jobs return what the worker prints last. Each calls ready when it stands
// between its last look and its write, with the end of its lease if it has one,
// and goes on when that returns.
var jobs = map[string]func(ctx context.Context, j job, ready func(end time.Time)) string{
	"write to the database": writeLate,
	"write over HTTP":       postLate,
	"stall in the unit":     stallInside,
	"work, then stall":      workThenStall,
}

func runWorkerIfAsked() {
	text, ok := os.LookupEnv(workerEnv)
	if !ok {
		return
	}
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	in := bufio.NewReader(os.Stdin)
	fmt.Println(jobs[j.Kind](context.Background(), j, func(end time.Time) {
		fmt.Println("ready", end.UnixMilli())
		_, _ = in.ReadString('\n')
	}))
	os.Exit(0)
}

// writeLate is code that forgot its hold's deadline: only the store can stop it.
func writeLate(ctx context.Context, j job, ready func(time.Time)) string {
	conn, err := pgx.Connect(ctx, j.URL)
	if err != nil {
		return err.Error()
	}
	defer conn.Close(ctx)
	fence, err := pgfence.New(conn).Peek(ctx, "account/42")
	if err != nil || fence >= j.Token {
		return fmt.Sprintf("the last look shows %d, %v", fence, err)
	}
	ready(time.Time{})
	return outcome(pgfence.WithFence(ctx, conn, claim("account/42", j.Token, tokens.Renewable), add(1)))
}

// outcome says what became of a unit, in one line.
func outcome(err error) string {
	if stale, ok := errors.AsType[*tokens.StaleError](err); ok {
		return fmt.Sprintf("stale: %s %d %d", stale.Resource, stale.Presented, stale.Current)
	}
	if err != nil {
		return "error: " + strings.ReplaceAll(err.Error(), "\n", " ")
	}
	return "written"
}

func postLate(ctx context.Context, j job, ready func(time.Time)) string {
	ctx = tokens.NewContext(ctx, "account/42", j.Token)
	client := &http.Client{Transport: &httpfence.Transport{
		Lock: func(r *http.Request) (string, error) { return strings.TrimPrefix(r.URL.Path, "/"), nil },
	}}
	r, err := http.NewRequestWithContext(ctx, "POST", j.URL+"/account/42", nil)
	if err != nil {
		return err.Error()
	}
	ready(time.Time{})
	resp, err := client.Do(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var p struct {
		Code               string
		Presented, Current int64
	}
	err = json.NewDecoder(resp.Body).Decode(&p)
	return fmt.Sprintln(resp.StatusCode, p.Code, p.Presented, p.Current, err)
}

func stallInside(ctx context.Context, j job, ready func(time.Time)) string {
	return hold(ctx, j, ready, 0)
}

// workThenStall runs statements for a good part of its lease first, so that the
// limits set at the begin of the transaction would hold its locks too long.
func workThenStall(ctx context.Context, j job, ready func(time.Time)) string {
	return hold(ctx, j, ready, 20)
}

func hold(ctx context.Context, j job, ready func(time.Time), statements int) string {
	conn, err := pgx.Connect(ctx, j.URL)
	if err != nil {
		return err.Error()
	}
	defer conn.Close(ctx)
	c := claim("account/42", j.Token, tokens.Renewable)
	c.Deadline = time.Now().Add(j.Lease)
	return outcome(pgfence.WithFence(ctx, conn, c, func(ctx context.Context, tx pgx.Tx) error {
		for range statements {
			if _, err := tx.Exec(ctx, "SELECT pg_sleep(0.1)"); err != nil {
				return err
			}
		}
		ready(c.Deadline)
		return add(1)(context.WithoutCancel(ctx), tx)
	}))
}

// worker is a running one.
type worker struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	end time.Time // of its lease
}

// startWorker starts a worker and returns when it is ready.
func startWorker(t *testing.T, j job) *worker {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{t: t, cmd: exec.Command(os.Args[0])}
	w.cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	w.cmd.Stderr = os.Stderr
	out, err := w.cmd.StdoutPipe()
	if err == nil {
		w.in, err = w.cmd.StdinPipe()
	}
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
	})
	w.out = bufio.NewReader(out)
	var ms int64
	if got := w.line(); !scan(got, "ready %d", &ms) {
		t.Fatalf("the worker is not ready: %q", got)
	}
	w.end = time.UnixMilli(ms)
	return w
}

func scan(s, format string, into ...any) bool {
	n, err := fmt.Sscanf(s, format, into...)
	return err == nil && n == len(into)
}

func (w *worker) line() string {
	w.t.Helper()
	s, err := w.out.ReadString('\n')
	if err != nil {
		w.t.Fatalf("the worker says %q and then: %v", s, err)
	}
	return strings.TrimSpace(s)
}

// stop stops the worker as the kernel or a hypervisor would, and returns when it
// stands still.
func (w *worker) stop() {
	w.t.Helper()
	w.signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(w.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		w.t.Fatalf("stop the worker: %v, status %v", err, status)
	}
}

// resume lets a stopped worker go on to its write, and returns its last line.
func (w *worker) resume() string {
	w.t.Helper()
	if _, err := io.WriteString(w.in, "\n"); err != nil {
		w.t.Fatal(err)
	}
	w.signal(syscall.SIGCONT)
	return w.line()
}

func (w *worker) signal(s syscall.Signal) {
	w.t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		w.t.Fatal(err)
	}
}

// A holder is stopped between its last look and its write, its successor writes,
// and the holder wakes: PostgreSQL refuses its write.
func TestStoppedHolder_IsRefusedByTheDatabase(t *testing.T) {
	t.Parallel()
	pool := install(t)
	w := startWorker(t, job{Kind: "write to the database", URL: pool.Config().ConnString(), Token: 33})
	w.stop()
	if err := pgfence.WithFence(t.Context(), pool, claim("account/42", 34, tokens.Renewable), add(1000)); err != nil {
		t.Fatal(err)
	}
	if got, want := w.resume(), "stale: account/42 33 34"; got != want {
		t.Errorf("the holder that woke: %q, want %q", got, want)
	}
	if got := balance(t, pool); got != 1100 {
		t.Errorf("balance %d, want 1100: the successor's write alone", got)
	}
}

// The same over HTTP: the service answers 412.
func TestStoppedHolder_IsRefusedOverHTTP(t *testing.T) {
	t.Parallel()
	pool := install(t)
	lockOf := func(r *http.Request) (string, error) { return "account/" + r.PathValue("id"), nil }
	fence, err := httpfence.New(httpfence.Config{Lock: lockOf})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /account/{id}", fence.Handle(func(w http.ResponseWriter, r *http.Request) error {
		lock, _ := lockOf(r)
		token, _ := tokens.FromContext(r.Context(), lock)
		return pgfence.WithFence(r.Context(), pool, claim(lock, token, tokens.Renewable), add(1))
	}))
	server := httptest.NewServer(mux)
	defer server.Close()

	w := startWorker(t, job{Kind: "write over HTTP", URL: server.URL, Token: 33})
	w.stop()
	if err := pgfence.WithFence(t.Context(), pool, claim("account/42", 34, tokens.Renewable), add(1000)); err != nil {
		t.Fatal(err)
	}
	if got, want := w.resume(), "412 stale_token 33 34 <nil>"; got != want {
		t.Errorf("the holder that woke: %q, want %q", got, want)
	}
	if got := balance(t, pool); got != 1100 {
		t.Errorf("balance %d, want 1100: the successor's write alone", got)
	}
}

// A holder is stopped in its transaction, with the fence's row locked. PostgreSQL
// frees the row when the lease is over, so that the successor proceeds within a
// second of it, and the holder's write fails when it wakes.
func TestStalledUnit_IsEndedByTheDatabase(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"stall in the unit", "work, then stall"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			pool := install(t)
			const lease = 4 * time.Second
			w := startWorker(t, job{Kind: kind, URL: pool.Config().ConnString(), Token: 33, Lease: lease})
			w.stop()

			c := claim("account/42", 34, tokens.Renewable)
			c.Deadline = w.end.Add(10 * time.Second)
			if err := pgfence.WithFence(t.Context(), pool, c, add(1000)); err != nil {
				t.Fatal(err)
			}
			if late := time.Since(w.end); late > time.Second || late < -time.Second {
				t.Errorf("the successor proceeded %v after the holder's lease, want within 1s of its end", late)
			}
			if got := w.resume(); !strings.HasPrefix(got, "error: ") {
				t.Errorf("the holder that woke: %q, want an error", got)
			}
			if got := balance(t, pool); got != 1100 {
				t.Errorf("balance %d, want 1100: the successor's write alone", got)
			}
		})
	}
}
