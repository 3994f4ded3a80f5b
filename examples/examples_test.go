//go:build linux

package examples_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/fenced/fenced/internal/demo/stage"
	"github.com/fenced/fenced/tokens/pgfence"
)

// theStage has the PostgreSQL and the processes of all tests; each test has a lock
// server and a database of its own, because all examples take the same lock.
var theStage *stage.Stage

// programs are built once; those of the examples are in bin.
var (
	programs stage.Programs
	bin      string
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(onStage{m}) }

type onStage struct{ m *testing.M }

func (s onStage) Run() int {
	code, err := run(s.m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func run(m *testing.M) (int, error) {
	var err error
	if bin, err = os.MkdirTemp("", "fenced-examples-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(bin)
	if programs, err = stage.Build(context.Background(), bin); err != nil {
		return 0, err
	}
	build := exec.Command("go", "build", "-o", bin, "../cmd/fencectl", "./quickstart", "./quickstart/store")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, out)
	}
	if theStage, err = stage.Open(context.Background(), programs); err != nil {
		return 0, err
	}
	defer theStage.Close()
	return m.Run(), nil
}

// patience bounds what a test waits for; nothing is measured by it.
const patience = time.Minute

// A place is where one example runs: a lock server, a database with the fence schema,
// the store of quickstart on the same database, and what names them.
type place struct {
	t      *testing.T
	server string
	store  string
	env    []string
}

// newPlace makes the place of an example whose files are in dir.
func newPlace(t *testing.T, dir string) *place {
	t.Helper()
	p := &place{t: t}
	p.server = p.listens("fenced", programs.Fenced, "serve", "--listen", "127.0.0.1:0", "--data-dir", filepath.Join(t.TempDir(), "data"))
	url, err := theStage.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pgfence.Install(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	p.env = []string{"-C", dir, "FENCED_ADDR=" + p.server, "DATABASE_URL=" + url, "STORE_LISTEN=127.0.0.1:0"}
	p.store = p.listens("store", "env", append(p.env, filepath.Join(bin, "store"))...)
	p.env = append(p.env, "STORE_ADDR="+p.store)
	return p
}

// listens starts a server and returns the URL that it prints.
func (p *place) listens(name, program string, args ...string) string {
	p.t.Helper()
	process, err := theStage.Start(name, program, args...)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(process.Kill)
	const says = "listens on "
	line := p.line(process, says)
	_, url, _ := strings.Cut(line, says)
	return url
}

// start starts a program of the example.
func (p *place) start(args ...string) *stage.Process {
	p.t.Helper()
	process, err := theStage.Start(strings.Join(args, " "), "env", append(p.env[:len(p.env):len(p.env)], args...)...)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(process.Kill)
	return process
}

// line returns the first line of a process that has want in it.
func (p *place) line(process *stage.Process, want string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	line, err := process.WaitLine(ctx, func(line string) bool { return strings.Contains(line, want) })
	if err != nil {
		p.t.Fatal(err)
	}
	return line
}

// wait returns what the end of a process gives: nil, or an error with its stderr.
func (p *place) wait(process *stage.Process) error {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	err := process.Wait(ctx)
	if ctx.Err() != nil {
		p.t.Fatal(err)
	}
	return err
}

// prints runs a program to its end and wants it to succeed and print each text.
func (p *place) prints(want []string, args ...string) {
	p.t.Helper()
	process := p.start(args...)
	for _, text := range want {
		p.line(process, text)
	}
	if err := p.wait(process); err != nil {
		p.t.Error(err)
	}
}

// fails wants a process to fail and its error to have each text.
func (p *place) fails(process *stage.Process, want ...string) {
	p.t.Helper()
	err := p.wait(process)
	for _, text := range want {
		if err == nil || !strings.Contains(err.Error(), text) {
			p.t.Errorf("%s: error %v, want %q", process.Name, err, text)
		}
	}
}

// fencectl runs the command line against the server and returns what it prints.
func (p *place) fencectl(args ...string) string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), filepath.Join(bin, "fencectl"), args...)
	cmd.Env = append(os.Environ(), "FENCED_ADDR="+p.server)
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("fencectl %s: %v\n%s", args, err, out)
	}
	return string(out)
}

// interpreter returns the first of the programs that runs the arguments in dir, or
// skips and says what is needed.
func interpreter(t *testing.T, dir, need string, programs []string, args ...string) string {
	t.Helper()
	for _, program := range programs {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir = dir
		if cmd.Run() == nil {
			return program
		}
	}
	t.Skipf("%s cannot be had here", need)
	return ""
}
