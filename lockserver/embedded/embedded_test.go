package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver/embedded"
)

func TestMain(m *testing.M) {
	if os.Getenv("MEMBER_DIR") != "" {
		if err := startMember(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	etcdtest.VerifyNoLeaks(m)
}

func mustStart(t *testing.T, dir string) *embedded.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	node, err := embedded.Start(ctx, embedded.Config{Dir: dir, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

func TestStart_KeepsDataOverRestarts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	node := mustStart(t, dir)
	if _, err := node.Client().Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	if err := node.Close(); err != nil {
		t.Fatal(err)
	}
	if err := node.Close(); !errors.Is(err, embedded.ErrClosed) {
		t.Fatalf("second close: %v", err)
	}
	node = mustStart(t, dir)
	defer func() { _ = node.Close() }()
	resp, err := node.Client().Get(t.Context(), "k")
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("got %v, %v", resp, err)
	}
}

// TestStart_DirectoryInUse is the fault that etcd itself answers by waiting for
// ever.
func TestStart_DirectoryInUse(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	node := mustStart(t, dir)
	defer func() { _ = node.Close() }()
	_, err := embedded.Start(t.Context(), embedded.Config{Dir: dir})
	if !errors.Is(err, embedded.ErrInUse) {
		t.Fatalf("got %v, want ErrInUse", err)
	}
}

func TestStart_BadConfig(t *testing.T) {
	t.Parallel()
	if _, err := embedded.Start(t.Context(), embedded.Config{}); err == nil {
		t.Fatal("an empty directory was taken")
	}
}

func TestNode_Compact(t *testing.T) {
	t.Parallel()
	node := mustStart(t, filepath.Join(t.TempDir(), "data"))
	defer func() { _ = node.Close() }()
	var rev int64
	for range 10 {
		resp, err := node.Client().Put(t.Context(), "k", "v")
		if err != nil {
			t.Fatal(err)
		}
		rev = resp.Header.Revision
	}
	if err := node.Compact(t.Context(), rev-2); err != nil {
		t.Fatal(err)
	}
	if err := node.Compact(t.Context(), rev+100); err == nil {
		t.Fatal("a revision of the future was compacted")
	}
}

// TestStart_OneDirectoryByAnyName starts the same directory by other names while it is
// in use.
func TestStart_OneDirectoryByAnyName(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "data")
	node, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	link := filepath.Join(parent, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Skip("no symbolic links here")
	}
	t.Chdir(dir)
	for _, name := range []string{".", link, link + "/", "../link", "../data/../data"} {
		if got, err := embedded.Canonical(name); err != nil || got != mustReal(t, dir) {
			t.Errorf("%q is %q, %v", name, got, err)
		}
		if _, err := embedded.Start(t.Context(), embedded.Config{Dir: name, NoSync: true}); !errors.Is(err, embedded.ErrInUse) {
			t.Errorf("a second start as %q: %v", name, err)
		}
	}
}

func mustReal(t *testing.T, dir string) string {
	t.Helper()
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	return real
}
