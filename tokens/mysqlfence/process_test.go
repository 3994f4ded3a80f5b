//go:build unix

package mysqlfence_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/mysqlfence"
)

// workerEnv makes the test binary a holder in a process of its own, because only a
// process can be stopped as a real one is: without knowing. Its value is the job.
const workerEnv = "MYSQLFENCE_TEST_WORKER"

// job is what a worker is told.
type job struct {
	DSN   string
	Token tokens.Token
	Lease time.Duration // from when the worker is connected
	Work  time.Duration // how long it runs statements before it stalls
	Read  bool          // stalls with a large result half read
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
	fmt.Println(stallInside(context.Background(), j, func(end time.Time) {
		fmt.Println("ready", end.UnixMilli())
		_, _ = in.ReadString('\n')
	}))
	os.Exit(0)
}

// stallInside calls ready in the middle of its unit, with the end of its lease.
func stallInside(ctx context.Context, j job, ready func(end time.Time)) string {
	db, err := sql.Open("mysql", j.DSN)
	if err == nil {
		err = db.PingContext(ctx)
	}
	if err != nil {
		return err.Error()
	}
	c := claim("account/42", j.Token, tokens.Renewable)
	c.Deadline = time.Now().Add(j.Lease)
	working := time.Now().Add(j.Work)
	err = mysqlfence.WithFence(ctx, db, c, func(ctx context.Context, tx *mysqlfence.Tx) error {
		for time.Now().Before(working) {
			if _, err := tx.ExecContext(ctx, "SELECT SLEEP(0.1)"); err != nil {
				return err
			}
		}
		if err := add(1)(ctx, tx); err != nil {
			return err
		}
		if j.Read {
			rows, err := tx.QueryContext(ctx, "SELECT REPEAT('x', 1000000) FROM seq_1_to_200")
			if err != nil {
				return err
			}
			defer rows.Close()
			rows.Next()
		}
		ready(c.Deadline)
		return add(1)(ctx, tx)
	})
	if stale, ok := errors.AsType[*tokens.StaleError](err); ok {
		return fmt.Sprintf("stale: %s %d %d", stale.Resource, stale.Presented, stale.Current)
	}
	return strings.ReplaceAll(fmt.Sprint("ended: ", err), "\n", " ")
}

// Cases 20 to 22: a holder is stopped in the middle of its unit. The server frees
// its row when the lease is over, also when it has worked for most of the lease
// before, or has a result half read; the successor proceeds within that and a second; and nothing of what the
// first one wrote is there, then or when it goes on.
func TestWithFence_StalledHolder(t *testing.T) {
	t.Parallel()
	for name, j := range map[string]job{"at once": {}, "after work": {Work: 4500 * time.Millisecond}, "reading": {Read: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, config := installAt(t)
			j.DSN, j.Token, j.Lease = config.FormatDSN(), 33, 6*time.Second
			worker := startWorker(t, j)
			end := worker.ready(t)
			worker.signal(t, syscall.SIGSTOP)

			c := claim("account/42", 34, tokens.Renewable)
			c.Deadline = time.Now().Add(time.Minute)
			if err := mysqlfence.WithFence(t.Context(), db, c, add(10)); err != nil {
				t.Fatal(err)
			}
			// One second is promised, one is the slack of a busy machine.
			if late := time.Since(end); late > 2*time.Second {
				t.Errorf("the successor wrote %v after the end of the lease", late)
			}
			worker.signal(t, syscall.SIGCONT)
			last := worker.goOn(t)
			if strings.Contains(last, "<nil>") || balance(t, db) != 110 {
				t.Errorf("the paused holder said %q, balance %d; want a failure and 110", last, balance(t, db))
			}
		})
	}
}

type worker struct {
	cmd *exec.Cmd
	in  *bufio.Writer
	out *bufio.Scanner
}

func startWorker(t *testing.T, j job) *worker {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &worker{cmd, bufio.NewWriter(in), bufio.NewScanner(out)}
}

// ready waits until the worker stands still, and returns the end of its lease.
func (w *worker) ready(t *testing.T) time.Time {
	t.Helper()
	var ms int64
	w.out.Scan()
	if _, err := fmt.Sscanf(w.out.Text(), "ready %d", &ms); err != nil {
		t.Fatalf("the worker says %q", w.out.Text())
	}
	return time.UnixMilli(ms)
}

func (w *worker) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// goOn lets the worker finish, and returns its last line.
func (w *worker) goOn(t *testing.T) string {
	t.Helper()
	_, _ = w.in.WriteString("\n")
	if err := w.in.Flush(); err != nil {
		t.Fatal(err)
	}
	w.out.Scan()
	return w.out.Text()
}
