//go:build unix

package doctest_test

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenced/fenced/tokens/mysqlfence/mysqltest"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

const root = "../.."

// address is where the documents say that the server is.
const address = "127.0.0.1:7420"

func TestMain(m *testing.M) { os.Exit(mysqltest.Main(pgtest.Main(m)).Run()) }

// block is one fenced block of a document.
type block struct{ lang, text string }

func blocks(t *testing.T, path string) []block {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	var found []block
	parts := strings.Split("\n"+string(page), "\n```")
	for i := 1; i < len(parts); i += 2 {
		lang, text, _ := strings.Cut(parts[i], "\n")
		found = append(found, block{lang, text})
	}
	return found
}

// TestREADME_Shell runs the shell blocks in order, in one shell, as a newcomer
// would. What takes a terminal of its own is left to the tests that own it: make
// run to cmd/fenced, make demo to internal/demo.
func TestREADME_Shell(t *testing.T) {
	t.Parallel()
	server(t)
	var script strings.Builder
	script.WriteString("set -eu\n")
	for _, b := range blocks(t, "README.md") {
		if b.lang == "sh" && !strings.HasPrefix(b.text, "make ") {
			script.WriteString(b.text + "\necho\n")
		}
	}
	out := run(t, nil, "sh", "-c", script.String())
	for _, want := range []string{
		`"state":"held"`, `"code":"lock_held"`, `"waiters":0`, "I hold orders/42 with token", "under token ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
}

func TestREADME_MakeTargetsExist(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"README.md", "CONTRIBUTING.md"} {
		for _, b := range blocks(t, page) {
			for line := range strings.Lines(b.text) {
				if target, ok := strings.CutPrefix(line, "make "); ok {
					run(t, nil, "make", "-n", strings.Fields(target)[0])
				}
			}
		}
	}
}

// TestREADME_Go wants each Go block to stand in a program under examples.
func TestREADME_Go(t *testing.T) {
	t.Parallel()
	var programs string
	for _, path := range []string{"examples/quickstart/main.go", "examples/quickstart/fence/main.go"} {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		programs += flatten(string(text))
	}
	for _, b := range blocks(t, "README.md") {
		if b.lang == "go" && !strings.Contains(programs, flatten(b.text)) {
			t.Errorf("this block stands in no example:\n%s", b.text)
		}
	}
}

// flatten drops the indentation, which a block in a page has less of.
func flatten(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}

// TestQuickstartFence runs the fenced write: a token, and then a lower one.
func TestQuickstartFence(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "fence")
	run(t, nil, "go", "build", "-o", program, "./examples/quickstart/fence")
	env := []string{"DATABASE_URL=" + pgtest.Shared(t).URL(pgtest.NewDatabase(t))}
	if out := run(t, env, program, "7"); !strings.Contains(out, "paid with token 7") {
		t.Errorf("got %s", out)
	}
	cmd := exec.Command(program, "6")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "stale") || !strings.Contains(string(out), "7") {
		t.Errorf("a stale token: %v, %s", err, out)
	}
}

// run runs a command in the root of the repository and returns what it printed.
func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// server builds and starts a real server where the documents say that it is.
func server(t *testing.T) {
	t.Helper()
	free, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("%s is in use, and the documents' commands name it: %v", address, err)
	}
	_ = free.Close()
	program := filepath.Join(t.TempDir(), "fenced")
	run(t, nil, "go", "build", "-o", program, "./cmd/fenced")
	cmd := exec.Command(program, "serve", "--data-dir", filepath.Join(t.TempDir(), "data"))
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || !strings.Contains(line, address) {
		t.Fatalf("the server said %q, %v", line, err)
	}
}
