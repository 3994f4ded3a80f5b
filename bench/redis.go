package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/freeport"
)

// startRedis starts a server that fsyncs each write before it answers. It returns
// errMissing where it is not installed.
func startRedis(ctx context.Context, dir string) (*process, string, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, "", missing("redis", "redis-server is not installed")
	}
	addr, err := freeport.Addr()
	if err != nil {
		return nil, "", err
	}
	_, port, _ := net.SplitHostPort(addr)
	p, err := spawn("redis", exec.Command(binary, "--bind", "127.0.0.1", "--port", port, "--dir", dir,
		"--appendonly", "yes", "--appendfsync", "always", "--save", ""))
	if err != nil {
		return nil, "", err
	}
	err = p.waitFor(ctx, 20*time.Millisecond, func() error {
		c, err := newRedis(addr)
		if err != nil {
			return err
		}
		defer c.close()
		return c.do("+PONG", "PING")
	})
	if err != nil {
		p.stop()
		return nil, "", err
	}
	return p, addr, nil
}

// redisClient is the plain lock of Redis's documentation: SET NX PX with a random
// value, and a script that deletes only one's own. It has no queue, no fencing
// token and no answer to a failover.
type redisClient struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
}

func newRedis(addr string) (*redisClient, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &redisClient{conn: conn, in: bufio.NewReader(conn)}, nil
}

const unlockScript = `if redis.call("get",KEYS[1])==ARGV[1] then return redis.call("del",KEYS[1]) end return 0`

var benchMillis = strconv.FormatInt(benchTTL.Milliseconds(), 10)

// errTaken says that the lock was not free.
var errTaken = errors.New("redis: the lock is taken")

func (c *redisClient) cycle(_ context.Context, lock string) error {
	value := rand.Text()
	if err := c.do("+OK", "SET", lock, value, "NX", "PX", benchMillis); err != nil {
		return err
	}
	return c.do(":1", "EVAL", unlockScript, "1", lock, value)
}

// do sends one command and compares the one line of its answer.
func (c *redisClient) do(want string, words ...string) error {
	c.out = fmt.Appendf(c.out[:0], "*%d\r\n", len(words))
	for _, w := range words {
		c.out = fmt.Appendf(c.out, "$%d\r\n%s\r\n", len(w), w)
	}
	if _, err := c.conn.Write(c.out); err != nil {
		return err
	}
	line, err := c.in.ReadString('\n')
	switch got := strings.TrimSpace(line); {
	case err != nil:
		return err
	case got == want:
		return nil
	case got == "$-1":
		return errTaken
	default:
		return fmt.Errorf("redis: %s answered %q", words[0], got)
	}
}

func (c *redisClient) close() { _ = c.conn.Close() }
