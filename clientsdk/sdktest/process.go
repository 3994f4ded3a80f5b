package sdktest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fenced/fenced/clientsdk"
)

const (
	serverPackage = "github.com/fenced/fenced/cmd/fenced"
	startTimeout  = 60 * time.Second
)

// Process is a real server in a process of its own. Make it with [Start]. Its
// methods end the test on failure.
type Process struct {
	tb     testing.TB
	binary string
	dir    string
	addr   string
	args   []string
	cmd    *exec.Cmd
	exited chan struct{}
	output *tail
}

// ProcessOptions says how to start a server. nil means the defaults.
type ProcessOptions struct {
	// Binary is the path of the program. Defaults to that in the environment variable
	// FENCED_BINARY, or else to one that is built from the module of this package.
	Binary string
	// Args are further arguments of "fenced serve".
	Args []string
	_    struct{}
}

// Start runs "fenced serve" on a free port of 127.0.0.1 with an empty data directory
// and returns when it is ready. The end of the test stops it.
func Start(tb testing.TB, opts *ProcessOptions) *Process {
	tb.Helper()
	p := &Process{tb: tb, dir: filepath.Join(tb.TempDir(), "data"), addr: "127.0.0.1:0"}
	if opts != nil {
		p.binary, p.args = opts.Binary, opts.Args
	}
	if p.binary == "" {
		p.binary = os.Getenv("FENCED_BINARY")
	}
	if p.binary == "" {
		p.binary = Build(tb, serverPackage)
	}
	tb.Cleanup(func() {
		if p.cmd != nil {
			p.Kill()
		}
	})
	p.Restart()
	return p
}

// built has the binaries of this process by their packages: asking go build whether one
// is up to date takes longer than starting it.
var (
	building sync.Mutex
	built    = map[string]string{}
)

// Build compiles a main package, once in each process, and returns the path of the
// binary. It is kept in the user's cache, where the next test run finds it up to date.
func Build(tb testing.TB, pkg string) string {
	tb.Helper()
	building.Lock()
	defer building.Unlock()
	if built[pkg] == "" {
		built[pkg] = compile(tb, pkg)
	}
	return built[pkg]
}

func compile(tb testing.TB, pkg string) string {
	tb.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	binary := filepath.Join(cache, "fenced-sdktest", filepath.Base(pkg))
	if out, err := exec.Command("go", "build", "-o", binary, pkg).CombinedOutput(); err != nil {
		tb.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return binary
}

// URL returns the base URL of the server; it stays the same over restarts.
func (p *Process) URL() string { return "http://" + p.addr }

// Config returns what [clientsdk.New] needs to talk to the server.
func (p *Process) Config() clientsdk.Config {
	return clientsdk.Config{Endpoints: []string{p.URL()}}
}

// Stop asks the server to end and waits until it has. On Windows, where a process
// cannot be asked, it is [Process.Kill].
func (p *Process) Stop() {
	if runtime.GOOS == "windows" {
		p.Kill()
		return
	}
	p.end(syscall.SIGTERM)
}

// Kill ends the server without warning, as a crash does.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

func (p *Process) end(sig syscall.Signal) {
	p.tb.Helper()
	p.signal(sig)
	select {
	case <-p.exited:
	case <-time.After(startTimeout):
		p.cmd.Process.Kill()
		<-p.exited
		p.tb.Errorf("server did not end within %s of %s", startTimeout, sig)
	}
	p.cmd = nil
}

func (p *Process) signal(sig syscall.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.tb.Fatalf("signal %s: %v", sig, err)
	}
}

// Restart starts the server after Stop or Kill, with the data and the port it had.
func (p *Process) Restart() {
	p.tb.Helper()
	args := append([]string{"serve", "--data-dir", p.dir, "--listen", p.addr}, p.args...)
	cmd := exec.Command(p.binary, args...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		p.tb.Fatal(err)
	}
	p.output = new(tail)
	cmd.Stderr = p.output
	if err := cmd.Start(); err != nil {
		p.tb.Fatalf("start server: %v", err)
	}
	p.cmd, p.exited = cmd, make(chan struct{})
	listens := make(chan string, 1)
	go func(exited chan struct{}) {
		defer close(exited)
		p.read(stdout, listens)
		cmd.Wait()
	}(p.exited)
	p.awaitReady(listens)
}

var listenLine = regexp.MustCompile(`listens on http://(\S+)`)

// read follows the server's output and sends the address that it names.
func (p *Process) read(stdout io.Reader, listens chan<- string) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		fmt.Fprintln(p.output, lines.Text())
		if m := listenLine.FindStringSubmatch(lines.Text()); m != nil {
			select {
			case listens <- m[1]:
			default:
			}
		}
	}
}

func (p *Process) awaitReady(listens <-chan string) {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	select {
	case p.addr = <-listens:
	case <-p.exited:
		p.tb.Fatalf("server ended at start:\n%s", p.output)
	case <-ctx.Done():
		p.tb.Fatalf("server did not listen within %s:\n%s", startTimeout, p.output)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !p.ready(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			p.tb.Fatalf("server was not ready within %s:\n%s", startTimeout, p.output)
		}
	}
}

func (p *Process) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL()+"/readyz", nil)
	if err != nil {
		return false
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Output returns the end of what the server has printed.
func (p *Process) Output() string { return p.output.String() }

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text strings.Builder
}

const maxTail = 64 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text.Len() > maxTail {
		last := t.text.String()[t.text.Len()-maxTail/2:]
		t.text.Reset()
		t.text.WriteString(last)
	}
	return t.text.Write(b)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
