package embedded_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/internal/freeport"
	"github.com/fenced/fenced/lockserver/embedded"
)

func TestCluster_MembersShareOneLogAndSurviveTheLeader(t *testing.T) {
	t.Parallel()
	c := etcdtest.NewCluster(t, 3)
	leader := c.Leader()
	if _, err := c.Node(leader).Client().Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	c.Stop(leader)
	next := c.Leader()
	if next == leader {
		t.Fatal("a stopped member leads")
	}
	resp, err := c.Node(next).Client().Get(t.Context(), "k")
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("got %v, %v", resp, err)
	}
	c.Start(leader)
	c.WaitReady(leader)
	resp, err = c.Node(leader).Client().Get(t.Context(), "k")
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("after the restart: %v, %v", resp, err)
	}
}

// TestCluster_ADirectoryKeepsItsName swaps directories, as a wrong --data-dir does: etcd
// would rename the member that has made it.
func TestCluster_ADirectoryKeepsItsName(t *testing.T) {
	t.Parallel()
	c := etcdtest.NewCluster(t, 3)
	c.Leader()
	c.Stop(0)
	swapped := c.Config(2)
	c.Stop(2)
	swapped.Dir = c.Config(0).Dir
	alone := embedded.Config{Dir: swapped.Dir, NoSync: true}
	for _, config := range []embedded.Config{swapped, alone} {
		name := "fenced"
		if config.Cluster != nil {
			name = config.Cluster.Name
		}
		_, err := embedded.Start(t.Context(), config)
		if err == nil || !strings.Contains(err.Error(), `"`+c.Config(0).Cluster.Name+`"`) || !strings.Contains(err.Error(), `"`+name+`"`) {
			t.Fatalf("started as %s: %v", name, err)
		}
	}
	c.Start(0)
	c.WaitReady(0)
}

// TestNode_ADirectoryKeepsItsName starts what was a single node as a member.
func TestNode_ADirectoryKeepsItsName(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	node := etcdtest.NodeAt(t, dir)
	if err := node.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Cluster: &embedded.Cluster{
		Name: "n1", Initial: "n1=http://127.0.0.1:1,n2=http://127.0.0.1:2,n3=http://127.0.0.1:3",
	}})
	if err == nil || !strings.Contains(err.Error(), `"n1"`) || !strings.Contains(err.Error(), "a node that is alone") {
		t.Fatalf("got %v", err)
	}
}

func TestCluster_AnIsolatedMemberHasNoLeaderAndComesBack(t *testing.T) {
	t.Parallel()
	c := etcdtest.NewCluster(t, 3)
	lost := c.Leader()
	c.Isolate(lost)
	c.WaitNoLeader(lost)
	next := c.Leader()
	if next == lost {
		t.Fatal("an isolated member leads")
	}
	if _, err := c.Node(next).Client().Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := c.Node(lost).Client().Get(ctx, "k"); err == nil {
		t.Fatal("an isolated member answered a linearizable read")
	}
	c.Heal()
	ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		resp, err := c.Node(lost).Client().Get(ctx, "k")
		if err == nil && len(resp.Kvs) == 1 {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the member did not come back: %v", err)
		}
	}
}

// TestCluster_ALearnerJoinsAndVotes adds a fourth member to a running cluster.
func TestCluster_ALearnerJoinsAndVotes(t *testing.T) {
	t.Parallel()
	c := etcdtest.NewCluster(t, 3)
	leader := c.Node(c.Leader())
	peer := freeAddr(t)
	// etcd takes a member only when all others have been connected for 5 s.
	for {
		_, err := leader.Client().MemberAddAsLearner(t.Context(), []string{"http://" + peer})
		if err == nil {
			break
		}
		if !errors.Is(err, rpctypes.ErrUnhealthy) {
			t.Fatal(err)
		}
	}
	// A new member asks any of the others who belongs to the cluster; a list is
	// answered when the member has caught up.
	for i := range 3 {
		if _, err := c.Node(i).Client().MemberList(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	node, err := embedded.Start(t.Context(), embedded.Config{
		Dir: filepath.Join(t.TempDir(), "data"), NoSync: true,
		Cluster: &embedded.Cluster{Name: "n4", Initial: c.Config(0).Cluster.Initial + ",n4=http://" + peer, Existing: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := node.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	for {
		if err := leader.Promote(ctx); err != nil {
			t.Fatal(err)
		}
		resp, err := leader.Client().MemberList(ctx)
		if err != nil {
			t.Fatal(err)
		}
		voters := 0
		for _, m := range resp.Members {
			if !m.IsLearner {
				voters++
			}
		}
		if voters == 4 {
			return
		}
	}
}

// TestCluster_AMemberWhoseDataDiffersDoesNotStart plants another value in the file
// of a stopped member. The member starts in a process of its own: etcd leaves
// goroutines behind when this check fails, because a program ends then.
func TestCluster_AMemberWhoseDataDiffersDoesNotStart(t *testing.T) {
	t.Parallel()
	c := etcdtest.NewCluster(t, 3)
	odd := c.Leader()
	for range 5 {
		if _, err := c.Node(odd).Client().Put(t.Context(), "k", "right"); err != nil {
			t.Fatal(err)
		}
	}
	c.Stop(odd)
	c.Leader()
	corrupt(t, filepath.Join(c.Config(odd).Dir, "member", "snap", "db"))
	config := c.Config(odd)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "MEMBER_DIR="+config.Dir, "MEMBER_NAME="+config.Cluster.Name,
		"MEMBER_INITIAL="+config.Cluster.Initial, "MEMBER_LISTEN="+config.Cluster.Listen)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "found data inconsistency with peers") {
		t.Fatalf("the odd member started: %v\n%s", err, out)
	}
}

// startMember is the process that starts the odd member.
func startMember() error {
	_, err := embedded.Start(context.Background(), embedded.Config{
		Dir: os.Getenv("MEMBER_DIR"), NoSync: true,
		Cluster: &embedded.Cluster{
			Name: os.Getenv("MEMBER_NAME"), Initial: os.Getenv("MEMBER_INITIAL"), Listen: os.Getenv("MEMBER_LISTEN"),
		},
	})
	return err
}

// corrupt changes one stored value.
func corrupt(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	err = db.Update(func(tx *bolt.Tx) error {
		bucket := tx.Bucket([]byte("key"))
		cursor := bucket.Cursor()
		for k, v := cursor.First(); k != nil; k, v = cursor.Next() {
			if at := strings.Index(string(v), "right"); at >= 0 {
				return bucket.Put(k, []byte(strings.Replace(string(v), "right", "wrong", 1)))
			}
		}
		return errors.New("the value was not found")
	})
	if err != nil {
		t.Fatal(err)
	}
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := freeport.Addr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func TestCluster_BadConfigIsRefusedByField(t *testing.T) {
	t.Parallel()
	three := "n1=http://127.0.0.1:1,n2=http://127.0.0.1:2,n3=http://127.0.0.1:3"
	open := strings.ReplaceAll(three, "127.0.0.1", "10.0.0.1")
	tests := map[string]embedded.Cluster{
		"Name":                              {Name: "n9", Initial: three},
		"2 members":                         {Name: "n1", Initial: "n1=http://127.0.0.1:1,n2=http://127.0.0.1:2"},
		"listed twice":                      {Name: "n1", Initial: three + ",n1=http://127.0.0.1:4"},
		"not name=url":                      {Name: "n1", Initial: "n1"},
		"must start with":                   {Name: "n1", Initial: "n1=localhost:1"},
		"a host and a port":                 {Name: "n1", Initial: "n1=http://127.0.0.1"},
		"after the port":                    {Name: "n1", Initial: "n1=http://127.0.0.1:1/x"},
		"Listen":                            {Name: "n1", Initial: three, Listen: "127.0.0.1:1"},
		"10.0.0.1:1 is open":                {Name: "n1", Initial: open},
		"0.0.0.0:1 is open":                 {Name: "n1", Initial: three, Listen: "http://0.0.0.0:1"},
		"given together":                    {Name: "n1", Initial: open, TLS: embedded.PeerTLS{Cert: "c"}},
		"is not https":                      {Name: "n1", Initial: open, TLS: embedded.PeerTLS{Cert: "c", Key: "k", CA: "a"}},
		"https://127.0.0.1:1 needs cert":    {Name: "n1", Initial: "n1=https://127.0.0.1:1", Existing: true},
		"a new cluster has 3 or 5":          {Name: "n1", Initial: "n1=http://127.0.0.1:1"},
		"member n2: \"http://127.0.0.1\" m": {Name: "n1", Initial: "n1=http://127.0.0.1:1,n2=http://127.0.0.1"},
	}
	for want, cluster := range tests {
		_, err := embedded.Start(t.Context(), embedded.Config{Dir: filepath.Join(t.TempDir(), "data"), Cluster: &cluster})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// TestCluster_PeersSpeakTLS starts three members with certificates, and shows that
// a client without one is turned away.
func TestCluster_PeersSpeakTLS(t *testing.T) {
	t.Parallel()
	files := certificate(t)
	var list []string
	for i := range 3 {
		list = append(list, fmt.Sprintf("n%d=https://%s", i, freeAddr(t)))
	}
	var nodes []*embedded.Node
	for i := range 3 {
		node, err := embedded.Start(t.Context(), embedded.Config{
			Dir: filepath.Join(t.TempDir(), "data"), NoSync: true,
			Cluster: &embedded.Cluster{Name: fmt.Sprintf("n%d", i), Initial: strings.Join(list, ","), TLS: files},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = node.Close() }()
		nodes = append(nodes, node)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, node := range nodes {
		if err := node.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := nodes[1].Client().Put(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	stranger := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	_, peer, _ := strings.Cut(list[0], "=")
	if resp, err := stranger.Get(peer + "/version"); err == nil {
		_ = resp.Body.Close()
		t.Fatalf("a stranger without certificate got %s", resp.Status)
	}
}

// certificate makes a certificate that is its own CA.
func certificate(t *testing.T) embedded.PeerTLS {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fenced test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := embedded.PeerTLS{
		Cert: filepath.Join(dir, "peer.crt"), Key: filepath.Join(dir, "peer.key"), CA: filepath.Join(dir, "peer.crt"),
	}
	for path, block := range map[string]*pem.Block{
		files.Cert: {Type: "CERTIFICATE", Bytes: der}, files.Key: {Type: "EC PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}
