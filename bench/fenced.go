package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/fenced/fenced/clientsdk"
)

// httpConn is an HTTP/1.1 client on one keep-alive connection, with as little
// around it as can be: the load is not to be what is measured.
type httpConn struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	body []byte
	host string
}

func dialHTTP(addr string) (*httpConn, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &httpConn{conn: conn, in: bufio.NewReaderSize(conn, 2<<10), host: addr}, nil
}

// dialServed is dialHTTP for a client that will not send for a while: a server
// closes a connection on which it never got a request sooner than an idle one.
func dialServed(addr string) (*httpConn, error) {
	c, err := dialHTTP(addr)
	if err != nil {
		return nil, err
	}
	if _, err := readStatus(c); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *httpConn) close() { _ = c.conn.Close() }

// do sends one request and returns the status and the body of the answer, which
// is valid until the next call.
func (c *httpConn) do(method, path, body string) (int, []byte, error) {
	c.out = append(c.out[:0], method...)
	c.out = append(c.out, ' ')
	c.out = append(c.out, path...)
	c.out = append(c.out, " HTTP/1.1\r\nHost: "...)
	c.out = append(c.out, c.host...)
	if body != "" {
		c.out = append(c.out, "\r\nContent-Type: application/json\r\nContent-Length: "...)
		c.out = strconv.AppendInt(c.out, int64(len(body)), 10)
	}
	c.out = append(c.out, "\r\n\r\n"...)
	c.out = append(c.out, body...)
	if _, err := c.conn.Write(c.out); err != nil {
		return 0, nil, err
	}
	status, length, err := c.header()
	if err != nil {
		return 0, nil, err
	}
	if cap(c.body) < length {
		c.body = make([]byte, length)
	}
	c.body = c.body[:length]
	_, err = io.ReadFull(c.in, c.body)
	return status, c.body, err
}

var contentLength = []byte("Content-Length: ")

// header reads the head of an answer as this server writes it.
func (c *httpConn) header() (status, length int, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	if len(line) < len("HTTP/1.1 200") {
		return 0, 0, fmt.Errorf("status line %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, 0, fmt.Errorf("status line: %w", err)
	}
	length = -1
	for {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return 0, 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, contentLength); ok {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, 0, fmt.Errorf("length: %w", err)
			}
		}
	}
	if length < 0 && status != http.StatusNoContent {
		return 0, 0, fmt.Errorf("status %d without a length", status)
	}
	return status, max(length, 0), nil
}

// statusError is an answer that is not what was asked for.
type statusError struct {
	call   string
	status int
	body   string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: status %d: %s", e.call, e.status, e.body)
}

// acquire asks until it has the lock: a wait that is over is asked for again.
func (c *httpConn) acquire(lock string, ttl time.Duration) (hold string, err error) {
	body := `{"lock":"` + lock + `","owner":"bench","ttl":"` + ttl.String() + `","wait":"30s"}`
	for {
		status, answer, err := c.do("POST", "/v1/holds", body)
		if err != nil {
			return "", err
		}
		if status == http.StatusConflict {
			continue
		}
		_, rest, found := bytes.Cut(answer, []byte(`"hold":"`))
		id, _, _ := bytes.Cut(rest, []byte(`"`))
		if status != http.StatusCreated || !found {
			return "", &statusError{"acquire", status, string(answer)}
		}
		return string(id), nil
	}
}

func (c *httpConn) release(hold string) error {
	status, answer, err := c.do("DELETE", "/v1/holds/"+hold, "")
	if err == nil && status != http.StatusNoContent {
		err = &statusError{"release", status, string(answer)}
	}
	return err
}

// benchTTL is the TTL of every lease of every peer that only measures cycles.
const benchTTL = 15 * time.Second

func (c *httpConn) cycle(_ context.Context, lock string) error {
	hold, err := c.acquire(lock, benchTTL)
	if err != nil {
		return err
	}
	return c.release(hold)
}

// sdkClient is one of the goroutines that share a client of the SDK and with it a
// session; the SDK gives each call a connection of its own.
type sdkClient struct {
	client *clientsdk.Client
	owner  bool // closes the client
}

func (c sdkClient) cycle(ctx context.Context, lock string) error {
	hold, err := c.client.Acquire(ctx, lock, nil)
	if err != nil {
		return err
	}
	return hold.Release(ctx)
}

func (c sdkClient) close() {
	if c.owner {
		_ = c.client.Close() // the server is about to be killed
	}
}
