package httpapi_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver"
)

// dial opens a bare connection to the service.
func (c *client) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", c.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

// rawPost is a request as it stands on the wire.
func rawPost(target, body string, headers ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s",
		target, len(body), strings.Join(append(headers, ""), "\r\n"), body)
}

// rounds is how often each way of leaving is tried; FENCED_WAITER_ROUNDS sets more.
func rounds() int {
	if n, err := strconv.Atoi(os.Getenv("FENCED_WAITER_ROUNDS")); err == nil {
		return n
	}
	return 25
}

// A waiter that left before the grant must not be granted: the lock is free for
// the next try at once, and not only when a TTL of nobody's is over.
func TestWaiter_that_left_is_never_granted(t *testing.T) {
	t.Parallel()
	reset := func(conn net.Conn) error {
		if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
			return err
		}
		return conn.Close()
	}
	for name, tt := range map[string]struct {
		dial    func(*testing.T) (*client, func() net.Conn)
		leave   func(net.Conn) error
		headers []string
	}{
		"closed":      {dial: plain, leave: net.Conn.Close},
		"half-closed": {dial: plain, leave: func(conn net.Conn) error { return conn.(*net.TCPConn).CloseWrite() }},
		"reset":       {dial: plain, leave: reset},
		// The server says 100 Continue before it reads the body. A close with that unread
		// is a reset.
		"closed, with bytes unread":      {plain, net.Conn.Close, []string{"Expect: 100-continue"}},
		"half-closed, with bytes unread": {plain, func(conn net.Conn) error { return conn.(*net.TCPConn).CloseWrite() }, []string{"Expect: 100-continue"}},
		// A TLS half-close is a record like any other until net/http has read it: it is
		// seen soon, and no promise is made.
		"TLS, closed": {dial: overTLS, leave: net.Conn.Close},
		"TLS, reset":  {dial: overTLS, leave: func(conn net.Conn) error { return reset(conn.(*tls.Conn).NetConn()) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, dial := tt.dial(t)
			for range rounds() {
				leaveBeforeGrant(t, c, dial(), tt.leave, tt.headers...)
			}
		})
	}
}

func plain(t *testing.T) (*client, func() net.Conn) {
	c := newClient(t)
	return c, func() net.Conn { return c.dial(t) }
}

func overTLS(t *testing.T) (*client, func() net.Conn) {
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = httpapi.NewServer(newHandler(t, etcdtest.Server(t)))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	c := &client{srv, srv.Client()}
	t.Cleanup(func() { c.http.CloseIdleConnections(); srv.Close() })
	trust := c.http.Transport.(*http.Transport).TLSClientConfig.RootCAs
	return c, func() net.Conn {
		conn := tls.Client(c.dial(t), &tls.Config{RootCAs: trust, ServerName: "example.com"})
		if err := conn.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return conn
	}
}

// leaveBeforeGrant lets a waiter leave while the holder releases.
func leaveBeforeGrant(t *testing.T, c *client, conn net.Conn, leave func(net.Conn) error, headers ...string) {
	t.Helper()
	defer conn.Close()
	holder := c.acquire(t, "lock", "")
	if _, err := io.WriteString(conn, rawPost("/v1/holds", acquireBody("lock", `,"wait":"30s","ttl":"1h"`), headers...)); err != nil {
		t.Fatal(err)
	}
	c.awaitWaiters(t, "lock", 1)
	if err := leave(conn); err != nil {
		t.Fatal(err)
	}
	// No pause: the release races with the news that the waiter left.
	c.release(t, holder)
	next := decode[wire.Hold](t, c.send(t, "POST", "/v1/holds", acquireBody("lock", `,"wait":"5s"`)), http.StatusCreated)
	c.release(t, next)
}

// Bytes behind a waiting request hide the end of the stream until the wait is
// over. The package documents it; this test is here so that it stays true.
func TestWaiter_that_pipelined_is_seen_to_leave_at_the_end_of_its_wait(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.acquire(t, "lock", "")
	conn := c.dial(t)
	request := rawPost("/v1/holds", acquireBody("lock", `,"wait":"1s"`))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	c.awaitWaiters(t, "lock", 1)
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("no answer to the first request: %v", err)
	}
	checkProblem(t, resp, apierr.LockHeld)
	c.awaitWaiters(t, "lock", 0)
}

// A body that breaks off is the client's fault, and nothing is stored.
func TestBody_that_breaks_off_is_malformed(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	whole := rawPost("/v1/holds", acquireBody("lock", ""))
	conn := c.dial(t)
	if _, err := io.WriteString(conn, whole[:len(whole)-3]); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	checkProblem(t, resp, apierr.Malformed)
	c.acquire(t, "lock", "")
}

func TestHeaders_repeated_on_the_wire(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	conn := c.dial(t)
	key := "Idempotency-Key: " + keyA
	if _, err := io.WriteString(conn, rawPost("/v1/holds", acquireBody("lock", ""), key, key)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	checkProblem(t, resp, apierr.BadIdempotencyKey)
}

// The deadlines that cut a slow client must not cut a waiting one.
func TestServer_deadlines(t *testing.T) {
	t.Parallel()
	engine := etcdtest.Server(t)
	srv := httpapi.NewServer(newHandler(t, engine))
	const short = 200 * time.Millisecond
	srv.ReadHeaderTimeout, srv.ReadTimeout, srv.WriteTimeout = short, short, 3*short
	listener, err := httpapi.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go srv.Serve(listener)
	t.Cleanup(func() { srv.Close() })
	dial := func(t *testing.T) net.Conn {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}

	t.Run("a client that never ends its header is cut", func(t *testing.T) {
		t.Parallel()
		conn := dial(t)
		fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: local")
		if rest, err := io.ReadAll(conn); err != nil || strings.Contains(string(rest), " 200 ") {
			t.Errorf("got %q, error %v", rest, err)
		}
	})
	t.Run("a client that sends a byte at a time is cut", func(t *testing.T) {
		t.Parallel()
		conn := dial(t)
		answered := make(chan string, 1)
		go func() {
			text, _ := io.ReadAll(conn) // a reset is as good as an end
			answered <- string(text)
		}()
		for _, b := range []byte(rawPost("/v1/holds", acquireBody("bytewise", ""))) {
			select {
			case text := <-answered:
				if strings.Contains(text, " 201 ") {
					t.Errorf("got %q", text)
				}
				return
			case <-time.After(short / 10):
			}
			if _, err := conn.Write([]byte{b}); err != nil {
				return // cut
			}
		}
		t.Error("the request was taken whole")
	})
	t.Run("a client that never ends its body is cut", func(t *testing.T) {
		t.Parallel()
		conn := dial(t)
		whole := rawPost("/v1/holds", acquireBody("slow", ""))
		fmt.Fprint(conn, whole[:len(whole)-3])
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		checkProblem(t, resp, apierr.Malformed)
	})
	t.Run("a waiter outlasts both deadlines", func(t *testing.T) {
		t.Parallel()
		for _, wait := range []string{"0s", "1s"} {
			conn := dial(t)
			fmt.Fprint(conn, rawPost("/v1/holds", acquireBody("waits", `,"wait":"`+wait+`"`)))
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("wait %s: %v", wait, err)
			}
			if wait == "0s" {
				decode[wire.Hold](t, resp, http.StatusCreated)
				continue
			}
			if p := checkProblem(t, resp, apierr.LockHeld); *p.WaitedMS < 1000 {
				t.Errorf("waited %d ms", *p.WaitedMS)
			}
		}
	})
	t.Run("an event stream outlasts both deadlines", func(t *testing.T) {
		t.Parallel()
		conn := dial(t)
		fmt.Fprint(conn, "GET /v1/events?prefix=streams HTTP/1.1\r\nHost: localhost\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * srv.WriteTimeout) // the deadlines have passed
		if _, err := engine.Acquire(t.Context(), lockserver.AcquireRequest{Lock: "streams", Owner: "w"}); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if strings.Contains(lines.Text(), `event: granted`) {
				return
			}
		}
		t.Errorf("the stream ended: %v", lines.Err())
	})
	t.Run("large headers are refused", func(t *testing.T) {
		t.Parallel()
		conn := dial(t)
		fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n", strings.Repeat("x", 64<<10))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Skipf("the server closed before the header was through: %v", err)
		}
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("status %d", resp.StatusCode)
		}
	})
}
