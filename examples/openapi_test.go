//go:build linux

package examples_test

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestOpenAPI makes a client from the document as it is in docs, acquires a lock with
// it, and makes one from the document in OpenAPI 3.0, which must compile as well.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("openapi")); err != nil {
		t.Fatal(err)
	}
	if err := goCommand(t, dir, "mod", "download").Run(); err != nil {
		t.Skip("the modules of oapi-codegen cannot be had here")
	}
	document, err := filepath.Abs("../docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, dir)
	generate(t, dir, document)
	program := filepath.Join(t.TempDir(), "program")
	succeeds(t, goCommand(t, dir, "build", "-o", program, "."))
	p.prints([]string{"I hold orders/42 with token ", "lock_held: openapi, token ", "released: 204"}, program)

	generate(t, dir, download(t, p.server+"/openapi-3.0.json"))
	succeeds(t, goCommand(t, dir, "build", "-o", program, "."))
}

func generate(t *testing.T, dir, document string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "client"), 0o755); err != nil {
		t.Fatal(err)
	}
	succeeds(t, goCommand(t, dir, "tool", "oapi-codegen", "-config", "client.yaml", document))
}

func goCommand(t *testing.T, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	return cmd
}

func succeeds(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// download returns the name of a file with what is at url.
func download(t *testing.T, url string) string {
	t.Helper()
	defer http.DefaultClient.CloseIdleConnections()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, resp.Status, err)
	}
	file := filepath.Join(t.TempDir(), "openapi.json")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
