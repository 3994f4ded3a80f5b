package freeport_test

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fenced/fenced/internal/freeport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const asChild = "FREEPORT_TEST_CHILD"

// A port is nobody else's, in this process or another, and can be listened on.
func TestAddr(t *testing.T) {
	t.Parallel()
	if addr := os.Getenv(asChild); addr != "" {
		if token, err := net.ListenPacket("udp", addr); err == nil {
			token.Close()
			t.Fatalf("%s is not reserved", addr)
		}
		return
	}
	seen := make(map[string]bool)
	var last string
	for range 500 {
		addr, err := freeport.Addr()
		if err != nil || seen[addr] {
			t.Fatalf("%q, %v; given before: %v", addr, err, seen[addr])
		}
		seen[addr], last = true, addr
	}
	listener, err := net.Listen("tcp", last)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAddr$")
	child.Env = append(os.Environ(), asChild+"="+last)
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("in another process: %v\n%s", err, strings.TrimSpace(string(out)))
	}
}
