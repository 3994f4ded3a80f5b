package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/clientsdk/sdktest"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/pgfence"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

// What a person on call does with a server's store, on a real server.
func TestUpkeep_Real(t *testing.T) {
	t.Parallel()
	srv := sdktest.Start(t, nil)
	b := &bundle{T: t, env: map[string]string{"FENCED_ADDR": srv.URL()}}
	contains(t, b.ok("members"), "ID", "leader")
	if r := b.run("members", "remove", "nonsense"); r.code != apierr.ExitUsage {
		t.Errorf("remove: %+v", r)
	}
	if r := b.run("members", "add", "nonsense"); r.code != apierr.ExitUsage {
		t.Errorf("add: %+v", r)
	}

	b.ok("acquire", "l", "--ttl", "1m")
	dir := t.TempDir()
	file := filepath.Join(dir, "backup.db")
	contains(t, b.ok("snapshot", "save", file), "saved", file)
	restores(t, file)
	if r := b.run("snapshot", "save", filepath.Join(dir, "none", "x")); r.code != apierr.ExitUsage {
		t.Errorf("no directory: %+v", r)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}

	contains(t, b.ok("floor", "raise", "--above", "5000000"), "token base")
	contains(t, b.ok("get", "l"), "free") // a raise ends all holds
	h := acquired(t, srv)
	if h.Token() <= 5_000_000 {
		t.Errorf("token %d after a raise above 5000000", h.Token())
	}
	if r := b.run("floor", "raise", "--above", "0"); r.code != apierr.ExitUsage {
		t.Errorf("above 0: %+v", r)
	}
	pool := pgtest.New(t)
	floorFromServer(t, b, pool, h.Token())
}

// restores demands that a snapshot is one that "fenced restore" takes.
func restores(t *testing.T, file string) {
	t.Helper()
	fenced := sdktest.Build(t, "github.com/fenced/fenced/cmd/fenced")
	data := filepath.Join(t.TempDir(), "data")
	if out, err := exec.Command(fenced, "restore", file, "--data-dir", data).CombinedOutput(); err != nil {
		t.Errorf("restore: %v: %s", err, out)
	}
}

func acquired(t *testing.T, srv *sdktest.Process) *clientsdk.Hold {
	t.Helper()
	client, err := clientsdk.New(srv.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	h, err := client.Acquire(t.Context(), "l", nil)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// floorFromServer: the database may have lost the write of the newest holder, so that
// holder is shut out too, and the next one is not.
func floorFromServer(t *testing.T, b *bundle, pool *pgxpool.Pool, newest tokens.Token) {
	ctx := context.Background()
	if r := b.run("pg", "floor", "--from-server"); r.code != apierr.ExitUsage {
		t.Errorf("no database: %+v", r)
	}
	b.env["FENCED_DATABASE_URL"] = pool.Config().ConnString()
	if r := b.run("pg", "floor"); r.code != apierr.ExitUsage {
		t.Errorf("no source: %+v", r)
	}
	if r := b.run("pg", "floor", "--from-server"); r.code != exitInternal {
		t.Errorf("no schema: %+v", r)
	}
	if err := pgfence.Install(ctx, pool); err != nil {
		t.Fatal(err)
	}
	contains(t, b.ok("pg", "floor", "--from-server"), "floor")
	floor, err := pgfence.New(pool).Peek(ctx, "any")
	if err != nil || floor <= newest {
		t.Errorf("floor %d, %v; want one above %d", floor, err, newest)
	}
	out := b.ok("acquire", "next")
	_, rest, _ := strings.Cut(out, "FENCED_TOKEN='")
	text, _, _ := strings.Cut(rest, "'")
	if next, err := tokens.Parse(text); err != nil || next < floor {
		t.Errorf("the next token is %s, below the floor %d: %v", text, floor, err)
	}
}
