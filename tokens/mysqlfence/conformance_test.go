//go:build unix

package mysqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/fencetest"
	"github.com/fenced/fenced/tokens/mysqlfence"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(t *testing.T) fencetest.Harness[*sql.Tx] {
		direct, config := installAt(t)
		mustExec(t, direct, "CREATE TABLE data (resource VARBINARY(1024) PRIMARY KEY, value TEXT NOT NULL) ENGINE=InnoDB")
		cut := &cutter{}
		behind := cut.behind(t, config)
		return harness{direct: direct, db: behind, guard: mysqlfence.New(behind), cut: cut}
	})
}

// harness shows MariaDB to the suite: a table, and the guard.
type harness struct {
	direct *sql.DB // for what looks at the server
	db     *sql.DB
	guard  *mysqlfence.Guard
	cut    *cutter
}

func (h harness) Guard() tokens.Guard[*sql.Tx] { return h.guard }

func (h harness) Begin(ctx context.Context) (*sql.Tx, error) {
	return h.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
}

func (h harness) Commit(ctx context.Context, tx *sql.Tx) error { return mysqlfence.Commit(ctx, tx) }

// Rollback of what the guard has ended is none.
func (h harness) Rollback(_ context.Context, tx *sql.Tx) error {
	if err := tx.Rollback(); !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}

func (h harness) Write(ctx context.Context, tx *sql.Tx, resource, value string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO data (resource, value) VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)",
		[]byte(resource), value)
	return mysqlfence.Classify(err)
}

func (h harness) Read(ctx context.Context, tx *sql.Tx, resource string) (value string, err error) {
	err = tx.QueryRowContext(ctx, "SELECT value FROM data WHERE resource = ?", []byte(resource)).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return value, mysqlfence.Classify(err)
}

func (h harness) Delete(ctx context.Context, tx *sql.Tx, resource string) error {
	_, err := tx.ExecContext(ctx, "DELETE FROM data WHERE resource = ?", []byte(resource))
	return mysqlfence.Classify(err)
}

func (h harness) Waiting(ctx context.Context) (int, error) { return waiting(ctx, h.direct) }

func (h harness) CommitUnanswered(ctx context.Context, tx *sql.Tx) error {
	h.cut.lose.Store(true)
	defer h.cut.lose.Store(false)
	return mysqlfence.Commit(ctx, tx)
}

func (h harness) Break(ctx context.Context, tx *sql.Tx) error {
	id, err := connectionID(ctx, tx)
	if err != nil {
		return err
	}
	if err := kill(ctx, h.direct, id); err != nil {
		return err
	}
	_ = tx.Rollback() // fails, and gives the dead connection back
	for there := true; there; {
		err := h.direct.QueryRowContext(ctx, "SELECT COUNT(*) > 0 FROM information_schema.PROCESSLIST WHERE ID = ?", id).Scan(&there)
		if err != nil {
			return fmt.Errorf("connection %d: %w", id, err)
		}
	}
	return nil
}
