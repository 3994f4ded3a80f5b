//go:build unix

package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

// redlockServers is how many Redlock asks for, so that two may fail.
const redlockServers = 5

// ErrNoRedis: redis-server was not found.
var ErrNoRedis = errors.New("redis-server is not installed; on Debian and Ubuntu: apt-get install redis-server")

// A Stage is everything that the lab runs against.
type Stage struct {
	// DSN is the address of the database, Pool a pool on it.
	DSN  string
	Pool *pgxpool.Pool
	// Redis stands alone; Redlock's are five. Both are empty where NoRedis is set.
	Redis   *Redis
	Redlock []*Redis
	NoRedis error
	// Etcd is the host and port of an etcd of its own, Fenced the base URL of fenced.
	Etcd, Fenced string

	dir      string
	postgres *pgtest.Server

	mu        sync.Mutex
	processes []*Process
}

// poolConns are more than are ever busy on a small machine, because no worker keeps
// one while it stalls, and few enough to be warm soon.
const poolConns = 16

// maxConns is what PostgreSQL takes: the lab's pool, or a connection or two for
// each of its worker processes.
const maxConns = "300"

// Open starts everything, at the same time, and returns when all of it answers. It
// needs the go command and the module's source to build fenced. The caller must
// call [Stage.Close].
func Open(ctx context.Context) (*Stage, error) {
	dir, err := os.MkdirTemp("", "racelab-")
	if err != nil {
		return nil, err
	}
	s := &Stage{dir: dir}
	parts := []func(context.Context) error{s.openPostgres, s.openRedis, s.openEtcd, s.openFenced}
	failed := make(chan error, len(parts))
	for _, open := range parts {
		go func() { failed <- open(ctx) }()
	}
	for range parts {
		err = errors.Join(err, <-failed)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stage) openPostgres(ctx context.Context) (err error) {
	s.postgres, err = pgtest.Start(ctx, &pgtest.Options{Settings: map[string]string{
		"fsync": "on", "full_page_writes": "on", "max_connections": maxConns,
	}})
	if err != nil {
		return err
	}
	s.DSN = s.postgres.URL("postgres")
	s.Pool, err = OpenPool(ctx, s.DSN, poolConns)
	return err
}

// OpenPool opens a pool of up to conns connections.
func OpenPool(ctx context.Context, dsn string, conns int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = conns
	return pgxpool.NewWithConfig(ctx, config)
}

func (s *Stage) openRedis(ctx context.Context) error {
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		s.NoRedis = ErrNoRedis
		return nil
	}
	for i := range 1 + redlockServers {
		r, err := startRedis(ctx, bin, filepath.Join(s.dir, fmt.Sprintf("redis-%d", i)))
		if err != nil {
			return err
		}
		if i == 0 {
			s.Redis = r
		} else {
			s.Redlock = append(s.Redlock, r)
		}
	}
	return nil
}

func (s *Stage) openEtcd(ctx context.Context) error {
	cmd, err := Child(etcdRole, filepath.Join(s.dir, "etcd"))
	if err != nil {
		return err
	}
	s.Etcd, err = s.listening(ctx, cmd)
	return err
}

func (s *Stage) openFenced(ctx context.Context) (err error) {
	bin := filepath.Join(s.dir, "fenced.bin")
	build := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/fenced/fenced/cmd/fenced")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build fenced, which works within its module: %w\n%s", err, out)
	}
	s.Fenced, err = s.listening(ctx, exec.Command(bin, "serve", "--data-dir", filepath.Join(s.dir, "fenced"), "--listen", "127.0.0.1:0"))
	return err
}

func (s *Stage) listening(ctx context.Context, cmd *exec.Cmd) (addr string, err error) {
	p, addr, err := spawnListening(ctx, cmd)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes = append(s.processes, p)
	return addr, nil
}

// Close ends everything and removes the data.
func (s *Stage) Close() error {
	var err error
	if s.Pool != nil {
		s.Pool.Close()
	}
	if s.postgres != nil {
		err = s.postgres.Stop()
	}
	for _, r := range append(s.Redlock[:len(s.Redlock):len(s.Redlock)], s.Redis) {
		if r != nil && r.process != nil {
			r.process.Kill()
		}
	}
	for _, p := range s.processes {
		p.Kill()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
