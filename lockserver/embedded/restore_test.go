package embedded_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenced/fenced/lockserver/embedded"
)

// snapshot returns the bytes of a snapshot of a store that has one key.
func snapshot(t *testing.T) []byte {
	t.Helper()
	node, err := embedded.Start(t.Context(), embedded.Config{Dir: filepath.Join(t.TempDir(), "data"), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	if _, err := node.Client().Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	r, err := node.Client().Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A restore of a bad file says what is wrong with it and leaves nothing behind, so that
// one of a good file into the same directory goes through.
func TestRestore_ABadSnapshotLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	good := snapshot(t)
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	noise := bytes.Repeat([]byte("noise..."), 1024)
	hash := sha256.Sum256(noise)

	parent := t.TempDir()
	dir := filepath.Join(parent, "data")
	file := filepath.Join(t.TempDir(), "snapshot")
	for name, tc := range map[string]struct {
		body []byte
		text string
	}{
		"cut short":            {good[:len(good)/2+7], "cut short"},
		"cut at a page":        {good[:len(good)-sha256.Size-4096+sha256.Size], "does not match"},
		"one bit flipped":      {flipped, "does not match"},
		"without hash":         {good[:len(good)-sha256.Size], "fencectl snapshot save"},
		"empty":                {nil, "cut short"},
		"no store, right hash": {append(noise, hash[:]...), "cannot be read"},
	} {
		if err := os.WriteFile(file, tc.body, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := embedded.Restore(file, embedded.Config{Dir: dir})
		if !errors.Is(err, embedded.ErrBadSnapshot) || !strings.Contains(err.Error(), tc.text) || strings.Contains(err.Error(), "skip-hash") {
			t.Errorf("%s: %v", name, err)
		}
		if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
			t.Fatalf("%s: left behind: %v, %v", name, left, err)
		}
	}
	if _, err := embedded.Restore(os.DevNull, embedded.Config{Dir: dir}); !errors.Is(err, embedded.ErrBadSnapshot) {
		t.Errorf("a device: %v", err)
	}

	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Restore(file, embedded.Config{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	serves(t, dir)
}

// A restore that fails on the way leaves no data, and one that was killed does not keep
// the next from going through.
func TestRestore_FailsHalfWay(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(file, snapshot(t), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	// A directory stands where the id is to be written.
	if err := os.Mkdir(dir+".restored", 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Restore(file, embedded.Config{Dir: dir}); err == nil {
		t.Fatal("restored without an id")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the data directory was left behind: %v", err)
	}
	if err := os.Remove(dir + ".restored"); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "restoring", "member", "snap"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Restore(file, embedded.Config{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	serves(t, dir)
}

// An id beside a directory whose data was moved away says nothing of the data that
// begins there: acting on it would end the holds of a cluster that the node joins.
func TestRestore_AnIDOfDataThatIsGoneIsForgotten(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(file, snapshot(t), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	want, err := embedded.Restore(file, embedded.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	serves(t, dir)
	if id, err := embedded.RestoreID(dir); err != nil || id != want {
		t.Fatalf("id %q, %v, want %q", id, err, want)
	}
	if err := os.Rename(dir, dir+".lost"); err != nil {
		t.Fatal(err)
	}
	node, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	if id, err := embedded.RestoreID(dir); err != nil || id != "" {
		t.Errorf("id %q, %v of a new directory", id, err)
	}
}

// serves starts the store of dir and reads the key of [snapshot].
func serves(t *testing.T, dir string) {
	t.Helper()
	node, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	if got, err := node.Client().Get(t.Context(), "k"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("restored store: %v, %v", got, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the data directory holds %v, %v", left, err)
	}
}
