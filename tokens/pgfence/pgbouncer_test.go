//go:build unix

package pgfence_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/internal/freeport"
	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/fencetest"
	"github.com/fenced/fenced/tokens/pgfence"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

// Case 31: the whole suite behind pgbouncer in transaction mode.
func TestPgbouncer_Conformance(t *testing.T) {
	t.Parallel()
	addr := startPgbouncer(t)
	fencetest.Run(t, func(t *testing.T) fencetest.Harness[pgx.Tx] {
		pool := installData(t)
		pooled := behindPgbouncer(t, pool, addr)
		return harness{direct: pool, pool: pooled, guard: pgfence.New(pooled)}
	})
}

// No setting of a fenced transaction reaches the next client of its session, and
// a client that stalls loses its transaction as it does without a pooler.
func TestPgbouncer_WithFence(t *testing.T) {
	t.Parallel()
	addr := startPgbouncer(t)
	pool := install(t)
	pooled := behindPgbouncer(t, pool, addr)
	c := claim("account/42", 7, tokens.Renewable)
	c.Deadline = time.Now().Add(time.Minute)
	if err := pgfence.WithFence(t.Context(), pooled, c, add(5)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"} {
		var got string
		if err := pooled.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&got); err != nil || got != "0" {
			t.Errorf("%s = %q, %v after the transaction; want 0", name, got, err)
		}
	}

	end := time.Now().Add(3 * time.Second)
	c.Deadline = end
	inside, stalled := make(chan struct{}), make(chan error, 1)
	resume := make(chan struct{})
	go func() {
		stalled <- pgfence.WithFence(context.WithoutCancel(t.Context()), pooled, c, func(ctx context.Context, tx pgx.Tx) error {
			close(inside)
			<-resume
			return add(1)(context.WithoutCancel(ctx), tx)
		})
	}()
	select {
	case <-inside:
	case err := <-stalled:
		t.Fatal(err)
	}
	next := claim("account/42", 8, tokens.Renewable)
	next.Deadline = end.Add(10 * time.Second)
	if err := pgfence.WithFence(t.Context(), pooled, next, add(1000)); err != nil {
		t.Fatal(err)
	}
	if late := time.Since(end); late > time.Second {
		t.Errorf("the successor proceeded %v after the lease, want at most 1s", late)
	}
	close(resume)
	if err := <-stalled; err == nil || balance(t, pool) != 1105 {
		t.Errorf("stalled client: %v, balance %d; want an error and 1105", err, balance(t, pool))
	}
}

// startPgbouncer starts a pooler in transaction mode before the shared server, for
// all its databases, and returns its address.
func startPgbouncer(t *testing.T) string {
	t.Helper()
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		if bin, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			t.Skip("pgbouncer is not installed (Debian: apt-get install pgbouncer)")
		}
	}
	server := pgtest.Shared(t)
	_, serverPort, _ := net.SplitHostPort(server.Addr())
	addr, err := freeport.Addr()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(addr)

	settings := fmt.Sprintf("[databases]\n* = host=%s port=%s user=postgres\n"+
		"[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port=%s\nunix_socket_dir=\nauth_type=any\npool_mode=transaction\ndefault_pool_size=10\nmax_client_conn=1000\n",
		server.SocketDir(), serverPort, port)
	if os.Geteuid() == 0 {
		settings += "user=postgres\n" // pgbouncer refuses root, and enters the socket's directory as postgres
	}
	file := filepath.Join(t.TempDir(), "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, file)
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	up := make(chan bool, 1)
	go func() {
		defer close(drained)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if strings.Contains(lines.Text(), "process up") {
				up <- true
			}
		}
		close(up)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-drained
		_ = cmd.Wait()
	})
	if !<-up {
		t.Fatalf("pgbouncer ended while starting, with %s", settings)
	}
	return addr
}

// behindPgbouncer returns a pool on pool's database through the pooler at addr.
func behindPgbouncer(t *testing.T, pool *pgxpool.Pool, addr string) *pgxpool.Pool {
	t.Helper()
	u := url.URL{Scheme: "postgres", Host: addr, User: url.User("postgres"), Path: "/" + pool.Config().ConnConfig.Database,
		RawQuery: "sslmode=disable&default_query_exec_mode=exec"}
	return pgtest.NewPool(t, u.String())
}
