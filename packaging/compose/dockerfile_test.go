//go:build linux

package compose_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var compile = regexp.MustCompile(`RUN (CGO_ENABLED=0 go build [^&]*)&&`)

// TestDockerfile_BuildsFromItsContext runs the compiler as the stage "build" does, on
// no more than what .dockerignore lets through. It needs no engine.
func TestDockerfile_BuildsFromItsContext(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCED_DOCKERFILE") == "" {
		t.Skip("compiles all packages as for a release: make test-compose sets FENCED_DOCKERFILE")
	}
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	m := compile.FindSubmatch(text)
	if m == nil {
		t.Fatal("the Dockerfile has no line that compiles")
	}
	ignore, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	context, out := t.TempDir(), t.TempDir()
	for line := range strings.Lines(string(ignore)) {
		if name, kept := strings.CutPrefix(strings.TrimSpace(line), "!"); kept {
			keep(t, name, context)
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", strings.ReplaceAll(string(m[1]), "/out", out))
	cmd.Dir, cmd.Env = context, append(os.Environ(), "VERSION=v1.2.3")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	version, err := exec.CommandContext(t.Context(), filepath.Join(out, "bin/fenced"), "version").Output()
	if err != nil || !strings.HasPrefix(string(version), "fenced v1.2.3 ") {
		t.Errorf("fenced version: %q, %v", version, err)
	}
}

// keep copies a file or directory of the repository to the same place below dir.
func keep(t *testing.T, name, dir string) {
	t.Helper()
	to := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cp", "-r", filepath.Join(root, name), to).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
