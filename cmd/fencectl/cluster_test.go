package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenced/fenced/clientsdk/sdktest"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/freeport"
)

// cluster is three members in processes of their own; kill ends one.
func cluster(t *testing.T) (addrs []string, kill func(i int)) {
	t.Helper()
	fenced := sdktest.Build(t, "github.com/fenced/fenced/cmd/fenced")
	free := func() string {
		addr, err := freeport.Addr()
		if err != nil {
			t.Fatal(err)
		}
		return addr
	}
	var members []string
	for i := range 3 {
		members = append(members, fmt.Sprintf("n%d=http://%s", i+1, free()))
	}
	cmds := make([]*exec.Cmd, 3)
	dir := t.TempDir()
	for i := range cmds {
		addrs = append(addrs, free())
		name := fmt.Sprintf("n%d", i+1)
		cmds[i] = exec.Command(fenced, "serve", "--name", name, "--listen", addrs[i],
			"--data-dir", filepath.Join(dir, name), "--initial-cluster", strings.Join(members, ","))
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	kill = func(i int) {
		cmds[i].Process.Kill()
		cmds[i].Wait()
	}
	t.Cleanup(func() {
		for i := range cmds {
			kill(i)
		}
	})
	return addrs, kill
}

// A real cluster: doctor looks at all three, finds nothing once there is a backup, and
// says what is wrong, and what to do, when one and then two of them are gone.
func TestDoctor_Cluster(t *testing.T) {
	t.Parallel()
	addrs, kill := cluster(t)
	b := &bundle{T: t, env: map[string]string{"FENCED_ADDR": strings.Join(addrs, ",")}}
	wait(t, "a quorum", func() bool {
		for _, addr := range addrs {
			if r := b.run("acquire", "--try", "--addr", addr, "ready/"+addr); r.code != 0 && r.code != apierr.ExitNotAcquired {
				return false
			}
		}
		return true
	})
	contains(t, b.run("doctor").out, "no backup is known", "fencectl snapshot save FILE")
	b.ok("snapshot", "save", filepath.Join(t.TempDir(), "backup"), "--addr", addrs[1])
	// The members that met a store with tokens in it are vouched for by the first.
	wait(t, "a well cluster", func() bool { return b.run("doctor").code == 0 })
	contains(t, b.ok("doctor"), "n1 ", "n2 ", "n3 ", "nothing is wrong")
	contains(t, b.ok("doctor", "--addr", addrs[0], "--backup-age", "0"), "2 of the 3 members (n2, n3)", "nothing is wrong with what was looked at")
	leader := -1
	for i, addr := range addrs {
		out := b.ok("status", "--addr", addr)
		contains(t, out, "members", "3")
		if strings.Contains(out, "(this server)") {
			leader = i
		}
	}
	if leader < 0 {
		t.Fatal("nobody says that he leads")
	}
	follower := (leader + 1) % 3
	kill(follower)
	r := b.run("doctor")
	if contains(t, r.out, "no server answers at http://"+addrs[follower], "fenced serve"); r.code != apierr.ExitConflict {
		t.Errorf("with one member gone: %+v", r)
	}
	kill(leader)
	wait(t, "the loss of the quorum", func() bool {
		out := b.run("doctor").out
		return strings.Contains(out, "the server cannot grant: no_quorum; its store of 3 members has no leader") &&
			strings.Contains(out, "more than half must run")
	})
}
