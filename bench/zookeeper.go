package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/fenced/fenced/internal/freeport"
)

// zookeeperJar is where Debian's package puts ZooKeeper; its manifest names the
// rest of the class path.
const zookeeperJar = "/usr/share/java/zookeeper.jar"

// startZooKeeper starts a server with its own configuration and ZooKeeper's own
// default of fsync before each answer. It returns errMissing where it cannot be.
func startZooKeeper(ctx context.Context, dir string) (*process, string, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, "", missing("zookeeper", "java is not installed")
	}
	if _, err := os.Stat(zookeeperJar); err != nil {
		return nil, "", missing("zookeeper", zookeeperJar+" is not there")
	}
	addr, err := freeport.Addr()
	if err != nil {
		return nil, "", err
	}
	config := filepath.Join(dir, "zoo.cfg")
	_, port, _ := net.SplitHostPort(addr)
	text := fmt.Sprintf("tickTime=2000\ndataDir=%s\nclientPortAddress=127.0.0.1\nclientPort=%s\n"+
		"maxClientCnxns=0\nadmin.enableServer=false\n", dir, port)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, "", err
	}
	p, err := spawn("zookeeper", exec.Command(java, "-cp", zookeeperJar, "-Xms256m", "-Xmx1g",
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", config))
	if err != nil {
		return nil, "", err
	}
	err = p.waitFor(ctx, 50*time.Millisecond, func() error { return pingZooKeeper(addr) })
	if err != nil {
		p.stop()
		return nil, "", err
	}
	return p, addr, nil
}

// pingZooKeeper asks with a command that every server answers: one that only
// listens is not ready yet.
func pingZooKeeper(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("srvr")); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err == nil && !bytes.Contains(answer, []byte("Mode: ")) {
		err = fmt.Errorf("it answers %q", answer)
	}
	return err
}

type zooKeeperClient struct{ conn *zk.Conn }

type quietLogger struct{}

func (quietLogger) Printf(string, ...any) {}

func newZooKeeper(addr string) (*zooKeeperClient, error) {
	conn, _, err := zk.Connect([]string{addr}, benchTTL, zk.WithLogger(quietLogger{}))
	if err != nil {
		return nil, err
	}
	return &zooKeeperClient{conn}, nil
}

// cycle is the lock recipe of ZooKeeper's documentation, as its Go client has it.
func (c *zooKeeperClient) cycle(_ context.Context, lock string) error {
	l := zk.NewLock(c.conn, "/"+lock, zk.WorldACL(zk.PermAll))
	if err := l.Lock(); err != nil {
		return err
	}
	return l.Unlock()
}

func (c *zooKeeperClient) close() { c.conn.Close() }
