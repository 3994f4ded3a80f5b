//go:build linux

package stage_test

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/internal/demo/stage"
)

// The item server's database is restored from a backup and the floor of its fences is
// raised, as docs/operations.md says. What it has granted since the backup is DONE in
// the outbox, and what it has not been told yet carries tokens that it now refuses.
// Sent again under new tokens, each reward is one item.
func TestItemServer_database_restored(t *testing.T) {
	t.Parallel()
	p := newPlay(t, theStage)
	dsn, err := theStage.NewDatabase(p.ctx)
	if err != nil {
		t.Fatal(err)
	}
	old, items := p.itemServer(t, dsn)
	p.payAndPublish(t, items, 3)
	backup := p.dump(t, dsn)
	p.payAndPublish(t, items, 3) // granted, and lost with the database
	p.pay(t, 3)                  // in the outbox, not yet told
	old.Kill()

	restored := p.restore(t, backup)
	_, items = p.itemServer(t, restored)
	raiseFloor(t, p, restored)
	faults.add("database of the item server restored")
	for range 2 { // a replay alone cannot help
		p.finish(t, p.publisher(t, "publisher", items))
		p.rewardctl(t, "replay")
	}
	if v, err := rewards.VerifyItems(p.ctx, http.DefaultClient, items, p.owed); err != nil || len(v.Forgotten) == 0 {
		t.Fatalf("verdict %+v, %v: the restored database was to have forgotten rewards", v, err)
	}

	p.rewardctl(t, "replay", "--server", p.Server, "--items", items)
	p.finish(t, p.publisher(t, "publisher", items))
	p.told(t, items)
	p.rewardctl(t, "replay", "--server", p.Server, "--items", items) // finds nothing to do
	p.told(t, items)
}

// pay delivers and pays the rewards of so many players.
func (p *play) pay(t *testing.T, players int) {
	t.Helper()
	p.deliver(t, rewards.Season(nextWeek(), players)...)
	p.finish(t, p.worker(t, "worker"))
}

func (p *play) payAndPublish(t *testing.T, items string, players int) {
	t.Helper()
	p.pay(t, players)
	p.finish(t, p.publisher(t, "publisher", items))
	p.told(t, items)
}

func (p *play) itemServer(t *testing.T, dsn string) (*stage.Process, string) {
	t.Helper()
	server, items, err := theStage.OpenItemServer(p.ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	return server, items
}

// rewardctl runs a command that must succeed.
func (p *play) rewardctl(t *testing.T, args ...string) {
	t.Helper()
	c, err := p.Rewardctl(args[0], args...)
	if err == nil {
		err = c.Wait(p.ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// dump backs up the database at dsn and returns the file.
func (p *play) dump(t *testing.T, dsn string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "backup")
	p.tool(t, dsn, "pg_dump", "--format=custom", "--file="+file, dsn)
	return file
}

// restore returns a new database with what the backup holds.
func (p *play) restore(t *testing.T, backup string) string {
	t.Helper()
	dsn, err := theStage.NewDatabase(p.ctx)
	if err != nil {
		t.Fatal(err)
	}
	p.tool(t, dsn, "pg_restore", "--exit-on-error", "--dbname="+dsn, backup)
	return dsn
}

// tool runs a program of the PostgreSQL that serves dsn.
func (p *play) tool(t *testing.T, dsn, name string, args ...string) {
	t.Helper()
	var bin string
	query(t, p.ctx, dsn, `SELECT setting FROM pg_config WHERE name = 'BINDIR'`, &bin)
	if out, err := exec.CommandContext(p.ctx, filepath.Join(bin, name), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// raiseFloor raises the floor of the fences at dsn above every token of the ledger.
func raiseFloor(t *testing.T, p *play, dsn string) {
	t.Helper()
	var highest int64
	if err := p.Pool.QueryRow(p.ctx, `SELECT max(fence_token) FROM reward_ledger`).Scan(&highest); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(p.ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(p.ctx)
	if _, err := conn.Exec(p.ctx, `SELECT fence.raise_floor($1)`, highest+1); err != nil {
		t.Fatal(err)
	}
}
