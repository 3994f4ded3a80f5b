//go:build linux

package compose_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fenced/fenced/clientsdk"
)

var nodes = []string{"n1", "n2", "n3"}

// TestStack starts the deployment and takes it through what happens to one: the leader
// killed, a node cut off, all nodes replaced one after the other. Rewards are paid all
// the while, each exactly once, and tokens only rise.
func TestStack(t *testing.T) {
	s := newStack(t)
	buildPostgres(t, s)
	buildImages(t, s)
	s.up()
	s.saysItIsWell()
	s.isClosed()
	if buildPrometheus(t, s) {
		s.isObserved()
	}

	everywhere := s.client(nodes...)
	p, stop := probe(s.ctx, everywhere)
	p.more(s, 10)
	owed := s.loaded() + s.deliver(101)
	s.killLeader(p)
	owed += s.deliver(102)
	s.cutOff(p)
	owed += s.deliver(103)
	s.roll(p)
	if err := stop(); err != nil {
		t.Error(err)
	}
	s.paidOnce(owed)
	if out := s.fencectl("status"); !strings.Contains(out, "protected") || strings.Contains(out, "unprotected") {
		t.Errorf("after all nodes were replaced, the status is\n%s", out)
	}
}

// saysItIsWell: what a person sees first.
func (s *stack) saysItIsWell() {
	s.t.Helper()
	out := s.fencectl("status")
	for _, want := range []string{"ready          yes", "members        3", "cluster"} {
		if !strings.Contains(out, want) {
			s.t.Errorf("fencectl status lacks %q:\n%s", want, out)
		}
	}
	s.compose("up", "--detach", "--no-build", "--wait") // a second time: the key is still good
	if all := printedKey.FindAllString(s.compose("logs", "--no-log-prefix", "init"), -1); len(all) != 1 {
		s.t.Errorf("a second start has made another key: %d", len(all))
	}
	if st, err := s.client("n2").Status(s.ctx); err != nil || !st.Ready {
		s.t.Errorf("by the published port of n2: %+v, %v", st, err)
	}
}

// isClosed: who may not come in does not, and a node has no more rights than it needs.
func (s *stack) isClosed() {
	s.t.Helper()
	if resp, err := http.Get(s.url("n1") + "/v1/locks"); err != nil || resp.StatusCode != http.StatusUnauthorized {
		s.t.Errorf("without a key: %v, %v", resp, err)
	} else {
		_ = resp.Body.Close()
	}
	for _, node := range nodes {
		got := strings.TrimSpace(s.docker("inspect", "--format",
			"{{.Config.User}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}} {{.HostConfig.Privileged}}", container(node)))
		if got != "65532:65532 true [ALL] false" {
			s.t.Errorf("%s runs as %s", node, got)
		}
	}
	for id := range strings.FieldsSeq(s.compose("ps", "--all", "--quiet")) {
		for ip := range strings.FieldsSeq(s.docker("inspect", "--format",
			"{{range .NetworkSettings.Ports}}{{range .}}{{.HostIp}} {{end}}{{end}}", id)) {
			if ip != "127.0.0.1" {
				s.t.Errorf("container %s has a port on %s", id, ip)
			}
		}
	}
}

// isObserved: Prometheus gets in by its key and has the rules.
func (s *stack) isObserved() {
	s.t.Helper()
	s.compose("--profile", "observability", "up", "--detach", "--no-build", "--no-deps", "prometheus")
	base := "http://127.0.0.1:" + s.ports["PROMETHEUS_PORT"]
	s.until("Prometheus has scraped three nodes", func() bool {
		return strings.Count(get(base+"/api/v1/targets"), `"health":"up"`) == 3
	})
	s.until("Prometheus has read a node's readiness", func() bool {
		return strings.Contains(get(base+"/api/v1/query?query=sum(fenced_ready)"), `"3"]`)
	})
	if got := get(base + "/api/v1/rules"); !strings.Contains(got, "FencedNoneReady") {
		s.t.Errorf("the rules are %s", got)
	}
}

// get returns the body of an answer, "" where there is none yet.
func get(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}

func (s *stack) killLeader(p *prober) {
	s.t.Helper()
	old := s.leader()
	s.docker("kill", container(old))
	p.more(s, 20)
	if next := s.leader(); next == old {
		s.t.Errorf("%s leads after its death", old)
	}
	s.docker("start", container(old))
	s.healthy(old)
	p.more(s, 20)
}

// cutOff takes the leader's peers away from it. It is still reached by clients, and
// must not serve them.
func (s *stack) cutOff(p *prober) {
	s.t.Helper()
	lost := s.leader()
	minority := s.client(lost)
	hold, err := minority.Acquire(s.ctx, "held on the minority side", &clientsdk.AcquireOptions{TTL: 10 * time.Second})
	if err != nil {
		s.t.Fatal(err)
	}
	s.docker("network", "disconnect", project+"_peers", container(lost))
	select {
	case <-hold.Context().Done():
		if err := context.Cause(hold.Context()); !errors.Is(err, clientsdk.ErrLost) {
			s.t.Errorf("the holder was told %v", err)
		}
	case <-s.ctx.Done():
		s.t.Error("the holder on the minority side was never told")
	}
	p.more(s, 20) // the majority goes on
	if st, err := minority.Status(s.ctx); err != nil || st.Ready {
		s.t.Errorf("the node that is cut off says that it is ready: %+v, %v", st, err)
	}
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	if got, err := minority.TryAcquire(ctx, "nobody has this", nil); err == nil {
		s.t.Errorf("the node that is cut off grants, with token %d", got.Token())
	}
	s.docker("network", "connect", "--alias", lost+"-peer", project+"_peers", container(lost))
	s.healthy(lost)
	again, err := minority.Acquire(s.ctx, "held on the minority side", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if again.Token() <= hold.Token() {
		s.t.Errorf("token %d was granted after %d", again.Token(), hold.Token())
	}
	_ = again.Release(s.ctx)
}

// roll replaces each container by a new one, as an upgrade does.
func (s *stack) roll(p *prober) {
	s.t.Helper()
	hold, err := s.client(nodes...).Acquire(s.ctx, "held through the roll", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, node := range nodes {
		s.compose("up", "--detach", "--no-build", "--no-deps", "--force-recreate", "--wait", node)
		p.more(s, 10)
	}
	if err := context.Cause(hold.Context()); err != nil {
		s.t.Errorf("a hold was lost while the nodes were replaced: %v", err)
	}
	if err := hold.Release(s.ctx); err != nil {
		s.t.Errorf("release: %v", err)
	}
}

// loaded returns what the service load delivers at each start.
func (s *stack) loaded() string {
	s.t.Helper()
	text, err := os.ReadFile(root + "/examples/rewards/testdata/season-week-34.ndjson")
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// paidOnce compares what is owed with the ledger and the item server.
func (s *stack) paidOnce(owed string) {
	s.t.Helper()
	var out []byte
	defer func() { s.t.Logf("%s", out) }()
	s.until("the pipeline has settled all rewards", func() bool {
		cmd := s.command(s.ctx, owed, s.tool, "run", "--rm", "-T", "--no-deps", "verify", "verify", "-", "--items", "http://items:7430")
		var err error
		out, err = cmd.CombinedOutput()
		return err == nil
	})
	if !strings.Contains(string(out), "count(player,event) <= 1") {
		s.t.Errorf("verify says\n%s", out)
	}
}
