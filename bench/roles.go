package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/fenced/fenced/lockserver/embedded"
)

// This binary is also the servers that no package manager has: roleEnv names the
// role and dirEnv the directory of its data. A role answers once when it is ready,
// then each line of its standard input, and ends with the input.
const (
	roleEnv = "FENCED_BENCH_ROLE"
	dirEnv  = "FENCED_BENCH_DIR"
)

const (
	roleEtcd   = "etcd"         // etcd with gRPC, default settings
	roleRaw    = "etcd-process" // etcd without a socket, driven inside the process
	roleEngine = "engine"       // the lock engine without HTTP, driven inside the process
	roleServer = "server"       // all of fenced, with a view inside
)

// reply is one answer of a role.
type reply struct {
	Error  string          `json:"error,omitempty"`
	Answer json.RawMessage `json:"answer,omitempty"`
}

// startTimeout bounds the start of each server.
const startTimeout = 30 * time.Second

// serveRole is main of a role.
func serveRole(role, dir string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := newConsole(in, out)
	switch role {
	case roleEtcd:
		return serveEtcd(dir, c)
	case roleRaw:
		return serveRaw(ctx, dir, c)
	case roleEngine:
		return serveEngine(ctx, dir, c)
	case roleServer:
		return serveFenced(ctx, dir, c)
	}
	return fmt.Errorf("there is no role %q", role)
}

// console is a role's end of the talk with its parent.
type console struct {
	in  *bufio.Scanner
	out *json.Encoder
}

func newConsole(in io.Reader, out io.Writer) *console {
	return &console{in: bufio.NewScanner(in), out: json.NewEncoder(out)}
}

// talk sends the first answer, then answers commands until the input ends.
func (c *console) talk(ready any, handle func(verb string, args []string) (any, error)) error {
	if err := c.reply(ready, nil); err != nil {
		return err
	}
	for c.in.Scan() {
		words := strings.Fields(c.in.Text())
		if len(words) == 0 {
			continue
		}
		if err := c.reply(handle(words[0], words[1:])); err != nil {
			return err
		}
	}
	return c.in.Err()
}

func (c *console) reply(answer any, err error) error {
	if err != nil {
		return c.out.Encode(reply{Error: err.Error()})
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return c.out.Encode(reply{Answer: text})
}

// address is the first answer of a role that listens.
type address struct {
	Addr string `json:"addr"`
}

// serveEtcd runs etcd as its own command would: default settings, fsync included,
// one port for clients.
func serveEtcd(dir string, c *console) error {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.LogLevel = "error"
	free := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{free}, []url.URL{free}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{free}, []url.URL{free}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer etcd.Close()
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		return err
	case <-time.After(startTimeout):
		return fmt.Errorf("etcd is not ready after %s", startTimeout)
	}
	return c.talk(address{etcd.Clients[0].Addr().String()}, func(verb string, _ []string) (any, error) {
		return nil, unknown(verb)
	})
}

// serveRaw runs the etcd that fenced embeds and puts and deletes keys in it from
// inside the process.
func serveRaw(ctx context.Context, dir string, c *console) error {
	start, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	node, err := embedded.Start(start, embedded.Config{Dir: dir})
	if err != nil {
		return err
	}
	defer func() { _ = node.Close() }()
	return c.talk(nil, driver(ctx, func(i int) func(context.Context) error {
		key := fmt.Sprintf("bench/%d", i)
		return func(ctx context.Context) error {
			if _, err := node.Client().Put(ctx, key, "x"); err != nil {
				return err
			}
			_, err := node.Client().Delete(ctx, key)
			return err
		}
	}))
}

// driver answers "drive CLIENTS DURATION" with the rate of cycles, and the rest as
// inspect does.
func driver(ctx context.Context, client func(i int) func(context.Context) error) func(string, []string) (any, error) {
	return func(verb string, args []string) (any, error) {
		if verb != "drive" {
			return inspect(verb, args)
		}
		var clients int
		var text string
		if _, err := fmt.Sscan(strings.Join(args, " "), &clients, &text); err != nil {
			return nil, fmt.Errorf("drive: %w", err)
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("drive: %w", err)
		}
		calls := make([]func(context.Context) error, clients)
		for i := range calls {
			calls[i] = client(i)
		}
		l, err := drive(ctx, d, calls)
		return l.rate, err
	}
}

func unknown(verb string) error { return fmt.Errorf("there is no command %q", verb) }

// roleMain runs the role that the environment names, where it names one.
func roleMain() (was bool, err error) {
	role := os.Getenv(roleEnv)
	if role == "" {
		return false, nil
	}
	return true, serveRole(role, filepath.Clean(os.Getenv(dirEnv)), os.Stdin, os.Stdout)
}
