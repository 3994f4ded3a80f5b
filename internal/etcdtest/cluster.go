package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/faultproxy"
	"github.com/fenced/fenced/internal/freeport"
	"github.com/fenced/fenced/lockserver/embedded"
)

// Cluster is a cluster of real members in one process. All traffic between them
// goes through proxies, so that members can be cut off.
type Cluster struct {
	t       testing.TB
	members []*member
	initial string

	mu  sync.Mutex
	cut map[string]bool // by member id and by index: who is cut off
}

type member struct {
	name, dir, listen string
	proxy             *faultproxy.Proxy
	node              *embedded.Node // nil while it is stopped
}

// electionTimeout bounds how long a test waits for a leader; it takes some two
// seconds.
const electionTimeout = 30 * time.Second

// NewCluster starts n members, waits until all serve, and stops them after the
// test.
func NewCluster(t testing.TB, n int) *Cluster {
	t.Helper()
	c := &Cluster{t: t, cut: make(map[string]bool)}
	var list []string
	for i := range n {
		m := &member{name: fmt.Sprintf("n%d", i), dir: filepath.Join(t.TempDir(), "data"), listen: freeURL(t)}
		proxy, err := faultproxy.New(m.listen)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = proxy.Close() })
		proxy.Decide(func(r *http.Request) faultproxy.Fault {
			return faultproxy.Fault{DropRequest: c.isCut(m.name) || c.isCut(r.Header.Get("X-Server-From"))}
		})
		m.proxy = proxy
		c.members = append(c.members, m)
		list = append(list, m.name+"="+proxy.URL())
	}
	c.initial = strings.Join(list, ",")
	t.Cleanup(c.stopAll)
	for i := range n {
		c.Start(i)
	}
	for i := range n {
		c.WaitReady(i)
	}
	return c
}

// freeURL returns a peer URL on a port that nobody else has.
func freeURL(t testing.TB) string {
	t.Helper()
	addr, err := freeport.Addr()
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + addr
}

func (c *Cluster) stopAll() {
	var all sync.WaitGroup
	for i := range c.members {
		all.Go(func() { c.Stop(i) })
	}
	all.Wait()
}

// Start starts a member that is stopped. It does not wait for a quorum.
func (c *Cluster) Start(i int) {
	c.t.Helper()
	node, err := embedded.Start(context.Background(), c.Config(i))
	if err != nil {
		c.t.Fatalf("start member %d: %v", i, err)
	}
	c.members[i].node = node
}

// Config is what a member is started with.
func (c *Cluster) Config(i int) embedded.Config {
	m := c.members[i]
	return embedded.Config{
		Dir: m.dir, NoSync: true,
		Cluster: &embedded.Cluster{Name: m.name, Initial: c.initial, Listen: m.listen},
	}
}

// WaitReady waits until a member serves.
func (c *Cluster) WaitReady(i int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), startTimeout)
	defer cancel()
	if err := c.members[i].node.WaitReady(ctx); err != nil {
		c.t.Fatalf("member %d: %v", i, err)
	}
}

// Stop stops a member in order; it hands a leadership over first. Servers on it
// must be stopped before.
func (c *Cluster) Stop(i int) {
	m := c.members[i]
	if m.node == nil {
		return
	}
	if err := m.node.Close(); err != nil && !errors.Is(err, embedded.ErrClosed) {
		c.t.Errorf("stop member %d: %v", i, err)
	}
	m.node = nil
}

// Node returns a running member.
func (c *Cluster) Node(i int) *embedded.Node { return c.members[i].node }

// Isolate cuts a member off from all others, both ways, without a reset of what is
// under way in it. [Cluster.Heal] ends it.
func (c *Cluster) Isolate(i int) {
	c.mu.Lock()
	c.cut[c.members[i].name] = true
	c.cut[c.members[i].node.MemberID()] = true
	c.mu.Unlock()
	for _, m := range c.members {
		m.proxy.CutAll()
	}
}

// Heal connects everybody again.
func (c *Cluster) Heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.cut)
}

func (c *Cluster) isCut(who string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut[who]
}

// Leader waits until one of the running members leads and returns it.
func (c *Cluster) Leader() int {
	c.t.Helper()
	leader := -1
	c.until("a leader", func() bool {
		for i, m := range c.members {
			if m.node != nil && !c.isCut(m.name) {
				if _, self := m.node.Leader(); self {
					leader = i
				}
			}
		}
		return leader >= 0
	})
	return leader
}

// WaitNoLeader waits until a member knows that it has lost the others.
func (c *Cluster) WaitNoLeader(i int) {
	c.t.Helper()
	c.until("the member to see no leader", func() bool {
		known, _ := c.members[i].node.Leader()
		return !known
	})
}

// until polls: etcd tells nobody of the leader as a member sees it.
func (c *Cluster) until(what string, done func() bool) {
	c.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(electionTimeout)
	for !done() {
		select {
		case <-tick.C:
		case <-late:
			c.t.Fatalf("waited in vain for %s", what)
		}
	}
}
