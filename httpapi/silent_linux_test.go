package httpapi_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver"
)

// farNet is a network namespace on a cable of its own, whose far end can fall silent.
type farNet struct {
	t         *testing.T
	name      string
	near, far string // addresses of the two ends
}

func newFarNet(t *testing.T) *farNet {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a network that falls silent needs root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("a network that falls silent needs ip: apt-get install iproute2")
	}
	id := os.Getpid() % (1 << 14) // 198.18.0.0/15 is for tests of networks
	at := func(host int) string { return fmt.Sprintf("198.%d.%d.%d", 18+id>>13, id>>5&255, id&31<<3+host) }
	n := &farNet{t: t, name: fmt.Sprintf("fenced%d", id), near: at(1), far: at(2)}
	if out, err := exec.Command("ip", "netns", "add", n.name).CombinedOutput(); err != nil {
		t.Skipf("there can be no network namespace here: %s", out)
	}
	t.Cleanup(func() { n.ip("netns", "del", n.name) }) // and with it the cable
	n.ip("link", "add", n.name, "type", "veth", "peer", "name", "far", "netns", n.name)
	n.ip("addr", "add", n.near+"/29", "dev", n.name)
	n.ip("link", "set", n.name, "up")
	n.ip("-n", n.name, "addr", "add", n.far+"/29", "dev", "far")
	n.ip("-n", n.name, "link", "set", "far", "up")
	return n
}

func (n *farNet) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// dial connects from the far end.
func (n *farNet) dial(address string) net.Conn {
	n.t.Helper()
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		far, err := os.Open("/run/netns/" + n.name)
		if err == nil {
			err = errors.Join(unix.Setns(int(far.Fd()), unix.CLONE_NEWNET), far.Close())
		}
		var conn net.Conn
		if err == nil {
			conn, err = net.DialTimeout("tcp", address, 5*time.Second)
		}
		done <- result{conn, err}
	}()
	r := <-done
	if r.err != nil {
		n.t.Fatal(r.err)
	}
	n.t.Cleanup(func() { _ = r.conn.Close() })
	return r.conn
}

// silence makes the far end swallow whatever it would say.
func (n *farNet) silence() { n.ip("-n", n.name, "route", "add", "blackhole", n.near+"/32") }

// A waiter behind a network that says nothing any more, not even that it is gone, is
// noticed within 12 s, and from then on never granted.
func TestWaiter_behind_a_silent_network_is_noticed(t *testing.T) {
	t.Parallel()
	far := newFarNet(t)
	listener, err := httpapi.Listen(t.Context(), far.near+":0")
	if err != nil {
		t.Fatal(err)
	}
	engine := etcdtest.Server(t)
	srv := &httptest.Server{Listener: listener, Config: httpapi.NewServer(newHandler(t, engine))}
	srv.Start()
	c := &client{srv, srv.Client()}
	t.Cleanup(func() { c.http.CloseIdleConnections(); srv.Close() })
	holder := c.acquire(t, "lock", `,"ttl":"1m"`)
	conn := far.dial(listener.Addr().String())
	request := strings.Replace(rawPost("/v1/holds", acquireBody("lock", `,"wait":"30s","ttl":"1h"`)), "Host: 127.0.0.1", "Host: "+far.near, 1)
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	c.awaitWaiters(t, "lock", 1)
	events, err := engine.Subscribe(t.Context(), "lock", nil)
	if err != nil {
		t.Fatal(err)
	}
	far.silence()
	start := time.Now()
	seen, err := events.Next(t.Context())
	if err != nil || seen[0].Kind != lockserver.EventCancelled {
		t.Fatalf("got %+v, %v, want that the waiter has left", seen, err)
	}
	took := time.Since(start)
	if t.Logf("noticed after %s", took); took > 13*time.Second {
		t.Errorf("noticed after %s, want 12 s at most", took)
	}
	c.release(t, holder)
	next := c.acquire(t, "lock", "")
	if next.Previous == nil || next.Previous.Ref != holder.Ref {
		t.Errorf("granted after %+v, want the holder", next.Previous)
	}
}
