//go:build linux

package partition_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// spacePrefix begins the names of our namespaces; the pid of the test comes next.
const spacePrefix = "fenced-test-"

// network is a bridge in a namespace of its own, with a machine at each port.
type network struct {
	t        *testing.T
	ctx      context.Context
	fenced   string // the program
	machines []*machine
}

// machine is a namespace with one address on the bridge.
type machine struct {
	net   *network
	name  string // of the member
	space string
	addr  string
	port  string // of the bridge
	dir   string
}

func (m *machine) url() string { return "http://" + m.addr + ":7420" }

// newNetwork makes n machines that reach each other. It skips where that cannot be.
func newNetwork(t *testing.T, ctx context.Context, n int) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	for _, tool := range []string{"ip", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the machines need %s: %v", tool, err)
		}
	}
	removeStale()
	bridge := space("bridge")
	if out, err := exec.Command("ip", "netns", "add", bridge).CombinedOutput(); err != nil {
		t.Skipf("no network namespace can be made here: %s", strings.TrimSpace(string(out)))
	}
	w := &network{t: t, ctx: ctx}
	t.Cleanup(func() { w.remove(bridge) })
	w.ip("-n", bridge, "link", "add", "switch", "type", "bridge")
	w.ip("-n", bridge, "link", "set", "switch", "up")
	for i := range n {
		w.machines = append(w.machines, w.attach(bridge, i))
	}
	return w
}

func space(name string) string { return fmt.Sprintf("%s%d-%s", spacePrefix, os.Getpid(), name) }

// removeStale removes the namespaces of runs that were killed.
func removeStale() {
	out, _ := exec.Command("ip", "netns", "list").Output()
	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		text, ours := strings.CutPrefix(name, spacePrefix)
		text, _, _ = strings.Cut(text, "-")
		if pid, err := strconv.Atoi(text); ours && err == nil && syscall.Kill(pid, 0) != nil {
			_ = exec.Command("ip", "netns", "del", name).Run()
		}
	}
}

func (w *network) remove(bridge string) {
	for _, m := range w.machines {
		_ = exec.Command("ip", "netns", "del", m.space).Run()
	}
	_ = exec.Command("ip", "netns", "del", bridge).Run()
}

// attach makes a machine at a new port of the bridge.
func (w *network) attach(bridge string, i int) *machine {
	w.t.Helper()
	m := &machine{
		net: w, name: fmt.Sprintf("n%d", i+1), port: fmt.Sprintf("port%d", i+1),
		addr: fmt.Sprintf("10.71.0.%d", i+1), dir: w.t.TempDir(),
	}
	m.space = space(m.name)
	w.ip("netns", "add", m.space)
	w.ip("-n", bridge, "link", "add", m.port, "type", "veth", "peer", "name", "eth0", "netns", m.space)
	w.ip("-n", bridge, "link", "set", m.port, "master", "switch", "up")
	w.ip("-n", m.space, "addr", "add", m.addr+"/24", "dev", "eth0")
	w.ip("-n", m.space, "link", "set", "eth0", "up")
	w.ip("-n", m.space, "link", "set", "lo", "up")
	return m
}

// cut takes the machine's port off the bridge: its link stays up and leads nowhere.
func (m *machine) cut() { m.net.ip("-n", space("bridge"), "link", "set", m.port, "nomaster") }

func (m *machine) heal() { m.net.ip("-n", space("bridge"), "link", "set", m.port, "master", "switch") }

func (w *network) ip(args ...string) {
	w.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		w.t.Fatalf("ip %v: %v\n%s", args, err, out)
	}
}

// others returns all machines but one.
func (w *network) others(not *machine) (rest []*machine) {
	for _, m := range w.machines {
		if m != not {
			rest = append(rest, m)
		}
	}
	return rest
}

// urls are the addresses of all servers, this machine's own first.
func (m *machine) urls() string {
	all := []string{m.url()}
	for _, o := range m.net.others(m) {
		all = append(all, o.url())
	}
	return strings.Join(all, ",")
}

// cluster starts a member on each machine and waits until all can grant.
func (w *network) cluster() {
	w.t.Helper()
	w.fenced = filepath.Join(w.t.TempDir(), "fenced")
	if out, err := exec.CommandContext(w.ctx, "go", "build", "-o", w.fenced, "../../cmd/fenced").CombinedOutput(); err != nil {
		w.t.Fatalf("build: %v\n%s", err, out)
	}
	var members []string
	for _, m := range w.machines {
		members = append(members, fmt.Sprintf("%s=http://%s:7421", m.name, m.addr))
	}
	for _, m := range w.machines {
		m.start(nil, w.fenced, "serve", "--name", m.name, "--data-dir", filepath.Join(m.dir, "data"),
			"--listen", m.addr+":7420", "--insecure-no-auth",
			"--initial-cluster", strings.Join(members, ","), "--insecure-peers")
	}
	for _, m := range w.machines {
		m.ready()
	}
}

// ready waits until the machine's server can grant.
func (m *machine) ready() {
	m.net.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond) // a server does not call when it is ready
	defer tick.Stop()
	for m.command(m.net.ctx, m.net.fenced, "health", "--addr", m.url()).Run() != nil {
		select {
		case <-tick.C:
		case <-m.net.ctx.Done():
			m.net.t.Fatalf("%s has not become ready", m.name)
		}
	}
}

// command is a program on the machine; ip becomes that program.
func (m *machine) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", m.space, program}, args...)...)
}

// event is a line that an actor prints.
type event struct {
	What  string // held, lost or refused
	Lock  string
	Token int64
	Text  string
	Began time.Time // of the call
	At    time.Time
}

// process is a program on a machine, and the events that it has printed.
type process struct {
	net    *network
	mu     sync.Mutex
	events []event
	news   chan struct{}
}

// start starts a program that ends with the test.
func (m *machine) start(env []string, program string, args ...string) *process {
	m.net.t.Helper()
	cmd := m.command(m.net.ctx, program, args...)
	cmd.Env = append(os.Environ(), env...)
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		cmd.Stderr, err = os.Create(filepath.Join(m.dir, filepath.Base(program)+".log"))
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		m.net.t.Fatal(err)
	}
	p := &process{net: m.net, news: make(chan struct{})}
	var read sync.WaitGroup
	read.Go(func() { p.read(bufio.NewScanner(stdout)) })
	m.net.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		read.Wait()
		_ = cmd.Wait()
		_ = cmd.Stderr.(*os.File).Close()
	})
	return p
}

func (p *process) read(lines *bufio.Scanner) {
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // a server's greeting
		}
		p.mu.Lock()
		p.events = append(p.events, e)
		close(p.news)
		p.news = make(chan struct{})
		p.mu.Unlock()
	}
}

// wait returns the first event, from the beginning, that matches.
func (p *process) wait(what string, match func(event) bool) event {
	p.net.t.Helper()
	for seen := 0; ; {
		p.mu.Lock()
		events, news := p.events[seen:], p.news
		seen = len(p.events)
		p.mu.Unlock()
		for _, e := range events {
			if match(e) {
				return e
			}
		}
		select {
		case <-news:
		case <-p.net.ctx.Done():
			p.net.t.Fatalf("waited in vain: %s; there were %+v", what, p.all())
		}
	}
}

func (p *process) all() []event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]event{}, p.events...)
}
