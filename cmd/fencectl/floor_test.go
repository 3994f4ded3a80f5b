package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fenced/fenced/clientsdk/sdktest"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/freeport"
)

// served runs "fenced serve" on dir until stop: a server that grants nothing is never
// ready, so sdktest.Start is not for it.
func served(t *testing.T, dir string) (addr string, stop func()) {
	t.Helper()
	addr, err := freeport.Addr()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(sdktest.Build(t, "github.com/fenced/fenced/cmd/fenced"), "serve", "--data-dir", dir, "--listen", addr)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	}
	t.Cleanup(stop)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answers := func(path string) int {
		resp, err := client.Get("http://" + addr + path)
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	// A server that has not read its store says so with another code than a closed one.
	wait(t, "the server", func() bool { return answers("/v1/locks") != 0 && answers("/v1/locks") != http.StatusServiceUnavailable })
	return addr, stop
}

// The store is put back behind what was issued: every command that needs a grant says
// what is wrong and what mends it, once, and that mends it.
func TestClosedFloor(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	b := &bundle{T: t, env: map[string]string{}}
	addr, stop := served(t, dir)
	b.env["FENCED_ADDR"] = addr
	b.ok("acquire", "a")
	stop()
	old := dir + ".old"
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	b.env["FENCED_ADDR"], stop = served(t, dir)
	b.ok("acquire", "b")
	b.ok("acquire", "c")
	stop()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(old, dir); err != nil {
		t.Fatal(err)
	}
	b.env["FENCED_ADDR"], _ = served(t, dir)
	together(t, map[string][]string{"run": {"run", "d", "--try", "--", "true"}, "acquire": {"acquire", "d", "--try"}}, func(t *testing.T, args []string) {
		r := b.run(args...)
		if r.code != apierr.ExitUnreachable || strings.Count(r.err, "run: fencectl floor raise") != 1 || strings.Count(r.err, "granting is closed") != 1 {
			t.Errorf("%v: %+v", args, r)
		}
		if strings.Contains(r.err, "no server is available") || strings.Contains(r.err, "fenced serve") {
			t.Errorf("%v misleads: %s", args, r.err)
		}
	})
	contains(t, b.run("doctor").out, "granting is closed", "fencectl floor raise")
	contains(t, b.run("status").out, "no: token_floor", "closed")
	b.ok("floor", "raise")
	if code := b.program("run", "d", "--try", "--", "true").code(); code != 0 {
		t.Errorf("after the raise: code %d", code)
	}
}
