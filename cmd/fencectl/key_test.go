package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/apikey"
)

func TestKeyNew(t *testing.T) {
	t.Parallel()
	b := &bundle{T: t}
	file := filepath.Join(t.TempDir(), "keys.json")
	r := b.run("key", "new", "workers", "--file", file, "--prefix", "orders/", "--prefix", "stock/")
	if r.code != 0 || !strings.HasSuffix(r.out, "\n") || strings.Count(r.out, "\n") != 1 {
		t.Fatalf("%+v", r)
	}
	admin := b.run("key", "new", "on call", "--file", file, "--role", "admin", "--prefix", "")
	known, err := apikey.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	k := known.Lookup(strings.TrimSpace(r.out))
	if !k.Allows(apikey.Lock, "stock/1") || k.Allows(apikey.Lock, "other") || k.Allows(apikey.Admin, "orders/1") {
		t.Errorf("the key may do something else: %+v", k)
	}
	if !known.Lookup(strings.TrimSpace(admin.out)).AllowsAll(apikey.Admin, "") {
		t.Error("the admin key may not do everything")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, secret, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(r.out), "fk_"), "_"); strings.Contains(string(text), secret) {
		t.Error("the file holds the secret")
	}
	for _, args := range [][]string{
		{"n"}, {"n", "--file", file}, {"n", "--prefix", "a"}, {"n", "--file", file, "--prefix", "a", "--role", "root"},
		{"", "--file", file, "--prefix", "a"}, {"n", "--file", "/none/keys.json", "--prefix", "a"},
		{"n", "--file", file, "--prefix", "a\xff"},
	} {
		if r := b.run(append([]string{"key", "new"}, args...)...); r.code != apierr.ExitUsage || r.out != "" {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// What is not a regular file keeps its place: a rename over it would replace a device,
// or the link to what the server reads.
func TestWritten_OnlyRegularFilesAreReplaced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, dir, os.DevNull} {
		for _, args := range [][]string{
			{"snapshot", "save", path},
			{"key", "new", "n", "--prefix", "a", "--file", path},
		} {
			r := b.run(args...)
			if r.code != apierr.ExitUsage || r.out != "" {
				t.Errorf("%q: %+v", args, r)
			}
			contains(t, r.err, path, "not a regular file")
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "kept" {
		t.Errorf("the file behind the link: %q, %v", text, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
