package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/freeport"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/tokens"
)

// etcdServer is a real etcd with a client port, as its operator would run it. It
// can be stopped, and another one started at the same address.
type etcdServer struct {
	t         *testing.T
	client    string // URL for clients
	peer      string
	maxTxnOps uint
	tls       transport.TLSInfo // of an etcd whose URL for clients is https
	etcd      *embed.Etcd
}

func newEtcd(t *testing.T) *etcdServer {
	t.Helper()
	e := &etcdServer{t: t, client: freeURL(t), peer: freeURL(t)}
	t.Cleanup(e.stop)
	return e
}

func freeURL(t *testing.T) string {
	t.Helper()
	addr, err := freeport.Addr()
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + addr
}

func (e *etcdServer) start(dir string) {
	e.t.Helper()
	client, err := url.Parse(e.client)
	if err != nil {
		e.t.Fatal(err)
	}
	peer, err := url.Parse(e.peer)
	if err != nil {
		e.t.Fatal(err)
	}
	c := embed.NewConfig()
	c.Name, c.Dir, c.InitialCluster = "external", dir, "external="+e.peer
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	c.ClientTLSInfo = e.tls
	c.EnableGRPCGateway, c.UnsafeNoFsync = false, true
	c.BcryptCost = 4 // the least: logging in is not what is tested
	c.TickMs, c.ElectionMs = 10, 100
	if e.maxTxnOps > 0 {
		c.MaxTxnOps = e.maxTxnOps
	}
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	if e.etcd, err = embed.StartEtcd(c); err != nil {
		e.t.Fatal(err)
	}
	<-e.etcd.Server.ReadyNotify()
}

func (e *etcdServer) stop() {
	if e.etcd != nil {
		e.etcd.Close()
		e.etcd = nil
	}
}

// dial connects as the operator.
func (e *etcdServer) dial() *clientv3.Client {
	e.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{e.client}, Logger: zap.NewNop()})
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = client.Close() })
	return client
}

// config returns the config of a server on this etcd, with files of its own.
func (e *etcdServer) config() *Config {
	config := defaultConfig()
	config.EtcdEndpoints = []string{e.client}
	config.DataDir = filepath.Join(e.t.TempDir(), "fenced")
	return config
}

// call sends a request and decodes the answer into a hold or a problem.
func call(t *testing.T, method, url, body string) (status int, hold wire.Hold, problem wire.Problem) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode >= http.StatusBadRequest:
		err = json.NewDecoder(resp.Body).Decode(&problem)
	case resp.StatusCode != http.StatusNoContent:
		err = json.NewDecoder(resp.Body).Decode(&hold)
	}
	if err != nil {
		t.Fatalf("%s %s: %s: %v", method, url, resp.Status, err)
	}
	return resp.StatusCode, hold, problem
}

// acquire makes a hold or fails the test.
func acquire(t *testing.T, url, body string) wire.Hold {
	t.Helper()
	status, hold, problem := call(t, http.MethodPost, url+"/v1/holds", body)
	if status != http.StatusCreated {
		t.Fatalf("acquire: %d %+v", status, problem)
	}
	return hold
}

// cycles acquires and releases n times and returns the last token.
func cycles(t *testing.T, url string, n int) (last tokens.Token) {
	t.Helper()
	for range n {
		hold := acquire(t, url, `{"lock":"a","owner":"me"}`)
		release(t, url, hold)
		last = hold.Token
	}
	return last
}

func release(t *testing.T, url string, hold wire.Hold) {
	t.Helper()
	if status, _, problem := call(t, http.MethodDelete, url+"/v1/holds/"+hold.Hold, ""); status != http.StatusNoContent {
		t.Fatalf("release: %d %+v", status, problem)
	}
}

func TestExternal_ServersOfOneDeploymentShareAndOthersAreRefused(t *testing.T) {
	t.Parallel()
	etcd := newEtcd(t)
	etcd.start(t.TempDir())
	first := etcd.config()
	one, greeting, stop := startConfig(t, first)
	if !strings.Contains(greeting, etcd.client) {
		t.Errorf("the greeting does not say where the data is:\n%s", greeting)
	}
	id, err := os.ReadFile(first.DataDir + ".cluster")
	if err != nil {
		t.Fatal(err)
	}
	second := etcd.config()
	second.ClusterID = strings.TrimSpace(string(id))
	two, _, _ := startConfig(t, second)

	hold := acquire(t, one, `{"lock":"a","owner":"me","ttl":"30s"}`)
	status, renewed, problem := call(t, http.MethodPost, two+"/v1/holds/"+hold.Hold+"/renew", `{}`)
	if status != http.StatusOK || renewed.Token != hold.Token {
		t.Fatalf("renew on the other server: %d %+v", status, problem)
	}

	stranger, err := New(func() *Config { c := etcd.config(); c.Listen = "127.0.0.1:0"; return c }(), os.Stderr, new(logBuffer))
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--cluster-id "+second.ClusterID) {
		t.Fatalf("a second deployment ran, or was not told how to go on: %v", err)
	}

	// The first remembers its id over a restart.
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	one, _, _ = startConfig(t, first)
	release(t, one, hold)
}

// TestExternal_AStoreOfANewerMajorVersionIsRefused: people are told by which version it
// was written, and what to start.
func TestExternal_AStoreOfANewerMajorVersionIsRefused(t *testing.T) {
	t.Parallel()
	etcd := newEtcd(t)
	etcd.start(t.TempDir())
	config := etcd.config()
	config.Listen = "127.0.0.1:0"
	if _, err := etcd.dial().Put(t.Context(), config.Prefix+"format", "2"); err != nil {
		t.Fatal(err)
	}
	program, err := New(config, io.Discard, new(logBuffer))
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `is written in format "2", this build knows up to 1: start the version that wrote it`) {
		t.Fatalf("got %v", err)
	}
}

// TestExternal_TheSmallestRoleThatWorks gives the server's user readwrite on the
// prefix and nothing else.
func TestExternal_TheSmallestRoleThatWorks(t *testing.T) {
	t.Parallel()
	etcd := newEtcd(t)
	etcd.start(t.TempDir())
	admin := etcd.dial()
	const prefix = "/team/locks/"
	setUp := []func(context.Context) error{
		func(ctx context.Context) error { _, err := admin.RoleAdd(ctx, "fenced"); return err },
		func(ctx context.Context) error {
			_, err := admin.RoleGrantPermission(ctx, "fenced", prefix, clientv3.GetPrefixRangeEnd(prefix),
				clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func(ctx context.Context) error { _, err := admin.UserAdd(ctx, "root", "r"); return err },
		func(ctx context.Context) error { _, err := admin.UserGrantRole(ctx, "root", "root"); return err },
		func(ctx context.Context) error { _, err := admin.UserAdd(ctx, "locks", "s3cret"); return err },
		func(ctx context.Context) error { _, err := admin.UserGrantRole(ctx, "locks", "fenced"); return err },
		func(ctx context.Context) error { _, err := admin.AuthEnable(ctx); return err },
	}
	for _, step := range setUp {
		if err := step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	config := etcd.config()
	config.Prefix, config.EtcdUser = prefix, "locks"
	config.EtcdPasswordFile = filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(config.EtcdPasswordFile, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server, _, _ := startConfig(t, config)

	hold := acquire(t, server, `{"lock":"a","owner":"me"}`)
	waited := make(chan wire.Hold, 1)
	go func() { waited <- acquire(t, server, `{"lock":"a","owner":"next","wait":"30s"}`) }()
	awaitWaiter(t, server)
	if status, _, problem := call(t, http.MethodPost, server+"/v1/holds/"+hold.Hold+"/renew", `{}`); status != http.StatusOK {
		t.Fatalf("renew: %d %+v", status, problem)
	}
	release(t, server, hold)
	next := <-waited
	if next.Token <= hold.Token {
		t.Fatalf("token %d after %d", next.Token, hold.Token)
	}
	status, _, problem := call(t, http.MethodPost, server+"/v1/check", fmt.Sprintf(`[{"lock":"a","token":%d}]`, next.Token))
	if status != http.StatusOK {
		t.Fatalf("check: %d %+v", status, problem)
	}
}

func TestExternal_FewOperationsATransaction(t *testing.T) {
	t.Parallel()
	etcd := newEtcd(t)
	etcd.maxTxnOps = 5
	etcd.start(t.TempDir())
	server, _, _ := startConfig(t, etcd.config())
	var crowd sync.WaitGroup
	for i := range 64 {
		crowd.Go(func() {
			for range 3 {
				status, hold, problem := call(t, http.MethodPost, server+"/v1/holds", fmt.Sprintf(`{"lock":"l%d","owner":"me"}`, i))
				if status != http.StatusCreated {
					t.Errorf("acquire: %d %+v", status, problem)
					return
				}
				if status, _, problem := call(t, http.MethodDelete, server+"/v1/holds/"+hold.Hold, ""); status != http.StatusNoContent {
					t.Errorf("release: %d %+v", status, problem)
				}
			}
		})
	}
	crowd.Wait()
}

func TestExternal_UnreachableIsSaid(t *testing.T) {
	t.Parallel()
	etcd := newEtcd(t)
	config := etcd.config()
	config.Listen = "127.0.0.1:0"
	program, err := New(config, os.Stderr, new(logBuffer))
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Run(t.Context()); err == nil || !strings.Contains(err.Error(), etcd.client) {
		t.Fatalf("got %v, want an error that names %s", err, etcd.client)
	}
}

// repairFloor checks that the server grants nothing and says how to repair that,
// and then repairs it.
func repairFloor(t *testing.T, server string, highest tokens.Token) {
	t.Helper()
	status, _, problem := call(t, http.MethodPost, server+"/v1/holds", `{"lock":"a","owner":"me"}`)
	if status != http.StatusServiceUnavailable || problem.Code != "token_floor" || !strings.Contains(problem.Detail, "fencectl floor raise") {
		t.Fatalf("a server over a lost store answers %d %+v", status, problem)
	}
	if status, _, problem := call(t, http.MethodPost, server+"/v1/floor", `{}`); status != http.StatusOK {
		t.Fatalf("raise the floor: %d %+v", status, problem)
	}
	if hold := acquire(t, server, `{"lock":"a","owner":"me"}`); hold.Token <= highest {
		t.Fatalf("token %d after %d", hold.Token, highest)
	}
}

// TestExternal_SwappedStores replaces the etcd under a running server with a
// holder and a waiter: by an empty one, and by its own past. Whatever it answers
// meanwhile, no token comes twice.
func TestExternal_SwappedStores(t *testing.T) {
	t.Parallel()
	swaps := map[string]func(t *testing.T, etcd *etcdServer, file string) (dir string){
		"an empty store": func(t *testing.T, _ *etcdServer, _ string) string { return t.TempDir() },
		"its past, without bump": func(t *testing.T, etcd *etcdServer, file string) string {
			return etcd.restore(t, file, 0)
		},
		"its past, with a bump of another tool": func(t *testing.T, etcd *etcdServer, file string) string {
			return etcd.restore(t, file, 1_000_000_000)
		},
	}
	for name, swap := range swaps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			etcd := newEtcd(t)
			etcd.start(t.TempDir())
			server, _, _ := startConfig(t, etcd.config())

			// The snapshot has a holder of "a" and a waiter that both end later.
			holder := acquire(t, server, `{"lock":"a","owner":"holder"}`)
			waited := make(chan wire.Hold, 1)
			go func() { waited <- acquire(t, server, `{"lock":"a","owner":"next","wait":"30s"}`) }()
			awaitWaiter(t, server)
			file := etcd.snapshot(t)
			release(t, server, holder)
			release(t, server, <-waited)
			highest := cycles(t, server, 50)

			// These live through the swap.
			holder = acquire(t, server, `{"lock":"b","owner":"holder","ttl":"1h"}`)
			late := make(chan wire.Hold, 1)
			go func() {
				status, hold, _ := call(t, http.MethodPost, server+"/v1/holds", `{"lock":"b","owner":"late","wait":"10s"}`)
				if status != http.StatusCreated {
					hold = wire.Hold{}
				}
				late <- hold
			}()
			awaitWaiterOf(t, server, "b")
			highest = max(highest, holder.Token)
			etcd.stop()
			etcd.start(swap(t, etcd, file))

			repairWhenClosed(t, server, highest)
			if got := <-late; got.Token != 0 && got.Token <= highest {
				t.Fatalf("the waiter got token %d after %d", got.Token, highest)
			}
		})
	}
}

// noticed bounds a test that waits for a server to notice; it takes a second or two.
const noticed = 30 * time.Second

// repairWhenClosed asks for holds until the server has noticed, which must be
// before it grants any.
func repairWhenClosed(t *testing.T, server string, highest tokens.Token) {
	t.Helper()
	for start := time.Now(); ; {
		status, hold, problem := call(t, http.MethodPost, server+"/v1/holds", `{"lock":"a","owner":"me"}`)
		switch {
		case status == http.StatusCreated && hold.Token <= highest:
			t.Fatalf("token %d after %d", hold.Token, highest)
		case problem.Code == "token_floor":
			repairFloor(t, server, highest)
			return
		case time.Since(start) > noticed:
			t.Fatalf("the swap was not noticed: %d %+v", status, problem)
		}
	}
}

func (e *etcdServer) snapshot(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot")
	_, err := snapshot.NewV3(zap.NewNop()).Save(t.Context(), clientv3.Config{Endpoints: []string{e.client}, Logger: zap.NewNop()}, path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// restore makes a data directory for this etcd, as etcdutl does.
func (e *etcdServer) restore(t *testing.T, file string, bump uint64) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "restored")
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: dir, Name: "external", PeerURLs: []string{e.peer},
		InitialCluster: "external=" + e.peer, InitialClusterToken: "etcd-cluster",
		RevisionBump: bump, MarkCompacted: bump > 0,
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
