//go:build unix

package stage

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// roleEnv tells a copy of the program what to be instead of the lab.
const roleEnv = "RACELAB_ROLE"

const etcdRole = "etcd"

// ChildMain runs and never returns where this process is meant to be a child: an
// etcd, or one of roles, by its name. It must come first in main.
func ChildMain(roles map[string]func() error) {
	role := os.Getenv(roleEnv)
	if role == "" {
		return
	}
	run := roles[role]
	if role == etcdRole {
		run = func() error { return serveEtcd(os.Args[1]) }
	}
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Child returns the command for a copy of this program in a role.
func Child(role string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	return cmd, nil
}

// Timers in milliseconds. etcd makes no lease shorter than one and a half elections,
// rounded up to a second, and the quick run has a TTL of one second.
const etcdTick, etcdElection = 50, 500

// serveEtcd runs a single etcd on a free port until it is killed.
func serveEtcd(dir string) error {
	c := embed.NewConfig()
	c.Dir, c.LogLevel = dir, "error"
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	c.TickMs, c.ElectionMs = etcdTick, etcdElection
	c.ListenClientUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	// There are no peers; the address is one that is never dialled.
	c.ListenPeerUrls = nil
	c.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}
	c.Name, c.InitialCluster = "racelab", "racelab=http://127.0.0.1:1"
	etcd, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		return err
	}
	fmt.Println("etcd listens on", etcd.Clients[0].Addr())
	return <-etcd.Err()
}
