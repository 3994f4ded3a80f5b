//go:build linux

package compose_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/internal/freeport"
	"github.com/fenced/fenced/tokens"
)

const (
	project = "fenced-compose-test"
	// password has what means something to a URL, a shell or Compose.
	password = `p@ss:w/o?r#d %41 "$HOME" '\&`
	// patience bounds the whole; each step takes seconds.
	patience = 8 * time.Minute
)

// stack is the deployment of docker-compose.yml, under ports of its own.
type stack struct {
	t     *testing.T
	ctx   context.Context
	tool  []string
	env   []string
	ports map[string]string
	key   string
}

// newStack skips, with one line, where the test was not asked for or cannot be.
func newStack(t *testing.T) *stack {
	t.Helper()
	tool := strings.Fields(os.Getenv("FENCED_COMPOSE"))
	if len(tool) == 0 {
		t.Skip("FENCED_COMPOSE does not name Compose: make test-compose sets it where a Docker engine answers")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	s := &stack{t: t, ctx: ctx, tool: tool, env: append(os.Environ(), "POSTGRES_PASSWORD="+password), ports: map[string]string{}}
	for name, image := range images {
		s.env = append(s.env, name+"="+image)
	}
	for _, name := range []string{"N1_PORT", "N2_PORT", "N3_PORT", "ITEMS_PORT", "PROMETHEUS_PORT"} {
		s.ports[name] = freePort(t)
		s.env = append(s.env, name+"="+s.ports[name])
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections) // their goroutines are no leak
	t.Cleanup(removeImages)                            // after the containers
	t.Cleanup(s.down)
	s.down() // what a killed run has left
	return s
}

func freePort(t *testing.T) string {
	t.Helper()
	addr, err := freeport.Addr()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// down removes everything but the images. A failed test shows its logs first.
func (s *stack) down() {
	if s.t.Failed() {
		logs, _ := s.command(context.Background(), "", s.tool, "logs", "--no-color", "--tail", "20", "n1", "n2", "n3", "worker", "postgres").CombinedOutput()
		s.t.Logf("%s", logs)
	}
	if out, err := s.command(context.Background(), "", s.tool, "--profile", "*", "down", "--volumes", "--timeout", "1").CombinedOutput(); err != nil {
		s.t.Errorf("down: %v\n%s", err, out)
	}
}

func (s *stack) command(ctx context.Context, stdin string, tool []string, args ...string) *exec.Cmd {
	all := append(append([]string{}, tool[1:]...), "--project-name", project, "--file", root+"/docker-compose.yml")
	cmd := exec.CommandContext(ctx, tool[0], append(all, args...)...)
	cmd.Env, cmd.Stdin = s.env, strings.NewReader(stdin)
	return cmd
}

// compose runs Compose and returns what it printed to stdout.
func (s *stack) compose(args ...string) string { s.t.Helper(); return s.composeWith("", args...) }

func (s *stack) composeWith(stdin string, args ...string) string {
	s.t.Helper()
	return s.output(s.command(s.ctx, stdin, s.tool, args...))
}

func (s *stack) docker(args ...string) string {
	s.t.Helper()
	return s.output(exec.CommandContext(s.ctx, "docker", args...))
}

func (s *stack) output(cmd *exec.Cmd) string {
	s.t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%v: %v\n%s%s", cmd.Args, err, out, stderr.Bytes())
	}
	return string(out)
}

var printedKey = regexp.MustCompile(`export FENCED_API_KEY=(\S+)`)

// up starts everything and waits until it is healthy; the key is what init printed.
func (s *stack) up() {
	s.t.Helper()
	s.compose("up", "--detach", "--no-build", "--wait", "--quiet-pull")
	keys := printedKey.FindAllStringSubmatch(s.compose("logs", "--no-log-prefix", "init"), -1)
	if len(keys) != 1 {
		s.t.Fatalf("init has printed %d keys, want the one of the first start", len(keys))
	}
	s.key = keys[0][1]
	s.env = append(s.env, "FENCED_API_KEY="+s.key)
}

// fencectl runs it in the stack.
func (s *stack) fencectl(args ...string) string {
	s.t.Helper()
	return s.compose(append([]string{"run", "--rm", "-T", "fencectl"}, args...)...)
}

// leader returns the node that leads.
func (s *stack) leader() string {
	s.t.Helper()
	var members []struct {
		Name   string `json:"name"`
		Leader bool   `json:"leader"`
	}
	if err := json.Unmarshal([]byte(s.fencectl("members", "-o", "json")), &members); err != nil {
		s.t.Fatal(err)
	}
	for _, m := range members {
		if m.Leader {
			return m.Name
		}
	}
	s.t.Fatalf("no member leads: %+v", members)
	return ""
}

func container(node string) string { return project + "-" + node + "-1" }

func (s *stack) url(node string) string {
	return "http://127.0.0.1:" + s.ports[strings.ToUpper(node)+"_PORT"]
}

func (s *stack) client(nodes ...string) *clientsdk.Client {
	s.t.Helper()
	config := clientsdk.Config{APIKey: s.key, Owner: "compose test"}
	for _, n := range nodes {
		config.Endpoints = append(config.Endpoints, s.url(n))
	}
	c, err := clientsdk.New(config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// healthy waits until the engine says that a node is, by the health check of the
// image.
func (s *stack) healthy(node string) {
	s.t.Helper()
	s.until(node+" is healthy", func() bool {
		return strings.TrimSpace(s.docker("inspect", "--format", "{{.State.Health.Status}}", container(node))) == "healthy"
	})
}

// until asks again until the answer is yes.
func (s *stack) until(what string, ask func() bool) {
	s.t.Helper()
	tick := time.NewTicker(200 * time.Millisecond) // the engine has no call that waits for it
	defer tick.Stop()
	for !ask() {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatalf("in vain: %s", what)
		}
	}
}

// deliver puts rewards into the inbox and returns them as text.
func (s *stack) deliver(week int) string {
	s.t.Helper()
	var b bytes.Buffer
	if err := rewards.Write(&b, rewards.Season(week, 70)); err != nil {
		s.t.Fatal(err)
	}
	s.composeWith(b.String(), "run", "--rm", "-T", "--no-deps", "load", "load", "-")
	return b.String()
}

// prober takes and releases one lock all the time and wants its tokens to rise.
type prober struct {
	mu     sync.Mutex
	last   tokens.Token
	grants int
	moved  chan struct{}
	done   chan error
}

// probe starts a prober that runs until stop is called, which returns its error.
func probe(ctx context.Context, c *clientsdk.Client) (p *prober, stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	p = &prober{moved: make(chan struct{}), done: make(chan error, 1)}
	go func() { p.done <- p.run(ctx, c) }()
	return p, func() error { cancel(); return <-p.done }
}

func (p *prober) run(ctx context.Context, c *clientsdk.Client) error {
	for ctx.Err() == nil {
		hold, err := c.Acquire(ctx, "probe", nil)
		if err != nil {
			continue // a fault is under way; the SDK has repeated it for a while
		}
		if err := p.granted(hold.Token()); err != nil {
			return err
		}
		_ = hold.Release(ctx)
	}
	return nil
}

func (p *prober) granted(token tokens.Token) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if token <= p.last {
		return fmt.Errorf("token %d was granted after %d", token, p.last)
	}
	p.last = token
	p.grants++
	close(p.moved)
	p.moved = make(chan struct{})
	return nil
}

// more waits for further grants.
func (p *prober) more(s *stack, n int) {
	s.t.Helper()
	p.mu.Lock()
	want := p.grants + n
	p.mu.Unlock()
	for {
		p.mu.Lock()
		reached, moved := p.grants >= want, p.moved
		p.mu.Unlock()
		if reached {
			return
		}
		select {
		case <-moved:
		case err := <-p.done:
			p.done <- err
			s.t.Fatalf("the prober ended: %v", err)
		case <-s.ctx.Done():
			s.t.Fatalf("nothing is granted any more")
		}
	}
}
