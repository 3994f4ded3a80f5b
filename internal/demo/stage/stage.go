//go:build linux

package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

// Programs are the built binaries.
type Programs struct{ Fenced, Rewardctl string }

// Build builds the programs of the module that the working directory is in, into
// dir. It blocks until the compiler is done.
func Build(ctx context.Context, dir string) (Programs, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return Programs{}, fmt.Errorf("find the module: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir, "./cmd/fenced", "./examples/rewards/rewardctl")
	cmd.Dir = strings.TrimSpace(string(root))
	if out, err := cmd.CombinedOutput(); err != nil {
		return Programs{}, fmt.Errorf("build: %w\n%s", err, out)
	}
	return Programs{Fenced: filepath.Join(dir, "fenced"), Rewardctl: filepath.Join(dir, "rewardctl")}, nil
}

// A Stage is a lock service and a PostgreSQL, with the processes that play on them.
type Stage struct {
	// Server is the base URL of fenced.
	Server string
	// Postgres is where ledgers are made.
	Postgres *pgtest.Server

	programs Programs
	dir      string
	ledgers  atomic.Int64
	mu       sync.Mutex
	started  []*Process
}

// Open starts fenced and a PostgreSQL. It blocks until both answer. The caller must
// call [Stage.Close].
func Open(ctx context.Context, programs Programs) (s *Stage, err error) {
	s = &Stage{programs: programs}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "fenced-stage-"); err != nil {
		return s, err
	}
	if err = s.startFenced(ctx); err != nil {
		return s, err
	}
	s.Postgres, err = pgtest.Start(ctx, nil)
	return s, err
}

// startFenced starts the lock service and waits until it listens.
func (s *Stage) startFenced(ctx context.Context) error {
	p, err := s.Start("fenced", s.programs.Fenced, "serve",
		"--data-dir", filepath.Join(s.dir, "data"), "--listen", "127.0.0.1:0")
	if err != nil {
		return err
	}
	const says = "listens on "
	line, err := p.WaitLine(ctx, func(line string) bool { return strings.Contains(line, says) })
	if err != nil {
		return err
	}
	_, s.Server, _ = strings.Cut(line, says)
	return nil
}

// Start starts a program that ends with the stage at the latest.
func (s *Stage) Start(name, bin string, args ...string) (*Process, error) {
	p, err := start(name, bin, args...)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = append(s.started, p)
	return p, nil
}

// Rewardctl starts any of its commands.
func (s *Stage) Rewardctl(name string, args ...string) (*Process, error) {
	return s.Start(name, s.programs.Rewardctl, args...)
}

// Close ends all processes and removes what they left. Pools of ledgers must be
// closed before.
func (s *Stage) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.started {
		p.Kill()
	}
	var err error
	if s.Postgres != nil {
		err = s.Postgres.Stop()
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}
