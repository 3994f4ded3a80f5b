//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fenced/fenced/internal/wire"
)

// smallDisk mounts a file system that has room for a log and little more.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=100m"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes what room is left and returns the file that has it.
func fill(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for part := make([]byte, 1<<16); err == nil; {
		_, err = f.Write(part)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return f.Name()
}

// TestFullDisk fills the disk under a server: it ends and says why, starts again only
// when there is room, and has every hold that it had answered.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t)
	url := freeURL(t)
	var logs bytes.Buffer
	run := func() (wait func() error) {
		logs.Reset()
		cmd := process(t, "server", nil)
		cmd.Args = append(cmd.Args, "serve", "--data-dir", filepath.Join(disk, "data"), "--listen", strings.TrimPrefix(url, "http://"))
		cmd.Stderr = &logs
		start(t, cmd)
		return cmd.Wait
	}
	wait := run()
	(&upgraded{t: t, ctx: t.Context(), url: url}).ready()
	taken := fill(t, disk)
	var held []wire.Hold
	for {
		body := fmt.Sprintf(`{"lock":"a/%d","owner":"me","ttl":"1h"}`, len(held))
		resp, err := http.Post(url+"/v1/holds", "application/json", strings.NewReader(body))
		if err != nil {
			break
		}
		var h wire.Hold
		err = json.NewDecoder(resp.Body).Decode(&h)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusCreated {
			break
		}
		held = append(held, h)
	}
	for again := range 2 {
		if err := wait(); err == nil || !strings.Contains(logs.String(), unix.ENOSPC.Error()) {
			t.Fatalf("on a full disk: %v\n%s", err, logs.String())
		}
		if again == 0 {
			wait = run() // as a supervisor does
		}
	}
	if err := os.Remove(taken); err != nil {
		t.Fatal(err)
	}
	run()
	(&upgraded{t: t, ctx: t.Context(), url: url}).ready()
	if len(held) == 0 {
		t.Fatal("nothing was held")
	}
	for _, h := range held {
		if status, got, problem := call(t, http.MethodPost, url+"/v1/holds/"+h.Hold+"/renew", `{}`); status != http.StatusOK || got.Token != h.Token {
			t.Fatalf("%s, which was told held with token %d, is %d %+v", h.Lock, h.Token, status, problem)
		}
	}
	if next := acquire(t, url, `{"lock":"b","owner":"me"}`); next.Token <= held[len(held)-1].Token {
		t.Fatalf("token %d after %d", next.Token, held[len(held)-1].Token)
	}
}
