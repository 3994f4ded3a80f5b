//go:build linux

package stage_test

import (
	"net"
	"net/url"
	"sync"
	"syscall"
	"testing"

	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/internal/demo/stage"
)

// deaf is a proxy in front of PostgreSQL that can keep the answers back while it
// lets the questions through: what a client sends takes effect, and it never hears
// of it.
type deaf struct {
	listener net.Listener
	mu       sync.Mutex
	target   string
	keep     bool
	open     []net.Conn
	copies   sync.WaitGroup
}

// newDeaf returns a proxy to the server at dsn, and the dsn that leads through it.
func newDeaf(t *testing.T, dsn string) (*deaf, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	d := &deaf{target: u.Host}
	if d.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	d.copies.Go(d.serve)
	t.Cleanup(func() {
		_ = d.listener.Close()
		d.cut()
		d.copies.Wait()
	})
	u.Host = d.listener.Addr().String()
	return d, u.String()
}

func (d *deaf) serve() {
	for {
		client, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.mu.Lock()
		target := d.target
		d.mu.Unlock()
		server, err := net.Dial("tcp", target)
		if err != nil {
			_ = client.Close()
			continue
		}
		d.mu.Lock()
		d.open = append(d.open, client, server)
		d.mu.Unlock()
		d.copies.Go(func() { d.copy(server, client, false) })
		d.copies.Go(func() { d.copy(client, server, true) })
	}
}

// copy ends with either side.
func (d *deaf) copy(to, from net.Conn, answers bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		d.mu.Lock()
		kept := answers && d.keep
		d.mu.Unlock()
		if n > 0 && !kept {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// keepAnswers starts or ends the keeping back.
func (d *deaf) keepAnswers(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keep = on
}

// lead sends all connections to the server at dsn from now on.
func (d *deaf) lead(t *testing.T, dsn string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.target = u.Host
	d.mu.Unlock()
	d.cut()
}

// cut ends all connections.
func (d *deaf) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.open {
		_ = c.Close()
	}
	d.open = nil
}

// The statement commits and its answer is lost. The worker repeats it under the
// same token and hears that it was its own.
func TestWorker_answer_of_commit_lost(t *testing.T) {
	t.Parallel()
	p := newPlay(t, theStage)
	first, r := one(t, 1), one(t, 2)
	p.deliver(t, first, r)
	proxy, dsn := newDeaf(t, p.DSN)
	// One connection, and a first reward on it: the statement that loses its answer
	// is prepared by then and goes out in one piece.
	p.DSN = dsn + "&pool_max_conns=1"
	w := p.worker(t, "worker", "--ttl", "30s", "--concurrency", "1",
		"--fault", "stop", "--fault-at", string(rewards.Looked), "--fault-after", "1")
	p.stopped(t, w)
	proxy.keepAnswers(true)
	if err := w.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.eventually(t, `SELECT count(*) = 2 FROM reward_ledger`)
	proxy.keepAnswers(false)
	proxy.cut()
	faults.add("answer of COMMIT lost")
	p.attempt(t, w, r.Key(), rewards.Replayed)
	p.finish(t, w)
}

// PostgreSQL crashes and comes back while workers and a publisher are at it.
func TestPostgres_restarted_in_the_middle(t *testing.T) {
	t.Parallel()
	s, err := stage.Open(t.Context(), programs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	p := newPlay(t, s)
	p.deliver(t, rewards.Season(nextWeek(), 100)...)
	items, err := s.ItemServer(p.ctx)
	if err != nil {
		t.Fatal(err)
	}
	a, b := p.worker(t, "a"), p.worker(t, "b")
	pub := p.publisher(t, "publisher", items, "--drain=false", "--lease", "2s")
	for crash := range 3 {
		p.eventually(t, `SELECT count(*) >= $1 FROM reward_ledger`, 40*(crash+1))
		if err := s.Postgres.Restart(p.ctx); err != nil {
			t.Fatal(err)
		}
		faults.add("PostgreSQL crashed and restarted")
	}
	p.finish(t, a, b)
	p.finish(t, p.publisher(t, "last publisher", items))
	if err := pub.Terminate(p.ctx); err != nil {
		t.Error(err)
	}
	p.told(t, items)
}
