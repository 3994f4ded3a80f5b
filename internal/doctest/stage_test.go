//go:build unix

package doctest_test

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fenced/fenced/tokens/mysqlfence/mysqltest"
	"github.com/fenced/fenced/tokens/pgfence"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

const root = "../.."

// address is where the documents say that the server is.
const address = "127.0.0.1:7420"

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(mysqltest.Main(pgtest.Main(m)), goleak.Cleanup(func(code int) {
		if bin.dir != "" {
			_ = os.RemoveAll(bin.dir)
		}
		os.Exit(code)
	}))
}

// bin is the directory of the two programs, made once.
var bin struct {
	once sync.Once
	dir  string
	err  error
	log  []byte
}

// programs builds fenced and fencectl and returns their directory.
func programs(t *testing.T) string {
	t.Helper()
	bin.once.Do(func() {
		if bin.dir, bin.err = os.MkdirTemp("", "doctest"); bin.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-o", bin.dir+"/", "./cmd/...")
		cmd.Dir = root
		bin.log, bin.err = cmd.CombinedOutput()
	})
	if bin.err != nil {
		t.Fatalf("build: %v\n%s", bin.err, bin.log)
	}
	return bin.dir
}

// scriptTimeout bounds the shell of one page: it waits for servers without an end.
const scriptTimeout = 2 * time.Minute

// shell runs the blocks as one script, in dir, with the two programs in PATH. Blocks
// that are the content of a file are written where they stand in it. The script gets
// files from descriptor 3 on.
func shell(t *testing.T, dir string, env []string, script []block, files ...*os.File) string {
	t.Helper()
	text := "set -eu\n"
	for _, b := range script {
		if b.file != "" {
			text += "cat > " + b.file + " <<'END OF THE FILE'\n" + b.text + "END OF THE FILE\n"
			continue
		}
		text += b.text + "\necho\n"
	}
	ctx, cancel := context.WithTimeout(t.Context(), scriptTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", text)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+programs(t)+":"+os.Getenv("PATH"))
	cmd.Env = append(cmd.Env, env...)
	cmd.ExtraFiles = files
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// fixedPort keeps pages apart that want the server at the documents' address.
var fixedPort sync.Mutex

// newcomer has a server where the documents say that it is, and runs the script in
// the root of the repository.
func newcomer(t *testing.T, script []block) string {
	fixedPort.Lock()
	t.Cleanup(fixedPort.Unlock) // after the server, which is started later
	free, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("%s is in use, and the page's commands name it: %v", address, err)
	}
	_ = free.Close()
	serve(t)
	return shell(t, root, databaseEnv(t), script)
}

// withDatabase has a database with the schema, in DATABASE_URL.
func withDatabase(t *testing.T, script []block) string {
	return shell(t, root, databaseEnv(t), script)
}

func databaseEnv(t *testing.T) []string {
	t.Helper()
	pool := pgtest.New(t)
	if err := pgfence.Install(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	url := pool.Config().ConnString()
	return []string{"DATABASE_URL=" + url, "FENCED_DATABASE_URL=" + url}
}

// alone has nothing but the programs and an empty directory.
func alone(t *testing.T, script []block) string { return shell(t, t.TempDir(), nil, script) }

// twoClusters has two servers, the contexts source and target of fencectl. The source
// has issued tokens, the target has not.
func twoClusters(t *testing.T, script []block) string {
	dir := t.TempDir()
	source, target := serve(t, "--listen", "127.0.0.1:0"), serve(t, "--listen", "127.0.0.1:0")
	file := filepath.Join(dir, "fencectl.yml")
	write(t, file, "contexts:\n  source: {addr: "+source+"}\n  target: {addr: "+target+"}\n")
	env := []string{"FENCED_CONFIG=" + file}
	issue := block{text: "fencectl --context source run orders/42 -- true"}
	return shell(t, dir, env, append([]block{issue}, script...))
}

var listens = regexp.MustCompile(`listens on (http\S+)`)

// serve starts a server and returns its URL.
func serve(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	args = append([]string{"serve", "--data-dir", filepath.Join(dir, "data")}, args...)
	cmd := exec.Command(filepath.Join(programs(t), "fenced"), args...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	m := listens.FindStringSubmatch(line)
	if err != nil || m == nil {
		t.Fatalf("the server said %q, %v", line, err)
	}
	return m[1]
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

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestMakeTargetsExist looks at what make is asked for, also where it is not run.
func TestMakeTargetsExist(t *testing.T) {
	t.Parallel()
	for _, path := range append(allPages(t), "CONTRIBUTING.md") {
		for _, b := range blocks(t, path) {
			for line := range strings.Lines(b.text) {
				if target, ok := strings.CutPrefix(line, "make "); ok {
					run(t, nil, "make", "-n", strings.Fields(target)[0])
				}
			}
		}
	}
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
