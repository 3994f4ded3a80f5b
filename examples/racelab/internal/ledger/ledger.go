package ledger

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/examples/racelab/internal/plan"
	"github.com/fenced/fenced/tokens"
)

//go:embed sql/schema.sql
var schemaSQL string

// A Ledger is the accounts and rewards of one way of locking.
type Ledger struct {
	db     *pgxpool.Pool
	schema string
	guard  Guard

	read, write map[plan.Kind]string
	stall       string
	refused     string
}

// Open returns the ledger in schema, whose name must be a plain identifier. It asks
// nothing of the database.
func Open(db *pgxpool.Pool, schema string, guard Guard) *Ledger {
	l := &Ledger{db: db, schema: schema, guard: guard}
	l.read = map[plan.Kind]string{plan.Update: l.sql(readAccount), plan.Pay: l.sql(readReward)}
	l.write = map[plan.Kind]string{plan.Update: l.sql(writeAccount), plan.Pay: l.sql(writeReward)}
	l.stall, l.refused = l.sql(logStall), l.sql(logRefusal)
	return l
}

// sql puts the ledger's schema into a statement, and the log's first columns and
// their parameters, $1 to $9, into one that writes to the log.
func (l *Ledger) sql(s string) string {
	return strings.NewReplacer(
		"{s}", pgx.Identifier{l.schema}.Sanitize(),
		"{log}", "hold, step, kind, key, amount, worker, token, asked_at, granted_at",
		"{args}", "$1::text, $2::integer, $3::text, $4::integer, $5::bigint, $6::text, $7::bigint, $8::timestamptz, $9::timestamptz",
	).Replace(s)
}

// Create makes the tables anew, empty, for a workload of that size.
func (l *Ledger) Create(ctx context.Context, size plan.Size) error {
	script := strings.NewReplacer("$accounts", strconv.Itoa(size.Accounts), "$rewards", strconv.Itoa(size.Rewards())).Replace(l.sql(schemaSQL))
	if _, err := l.db.Exec(ctx, script, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("create schema %s: %w", l.schema, err)
	}
	return nil
}

// An Access is one grant of one lock to one worker for one step.
type Access struct {
	Step plan.Step
	// Hold names the grant: no two have one name.
	Hold   string
	Worker string
	// Token is the fencing token; 0 where the way of locking has none.
	Token tokens.Token
	// Asked and Granted are when the lock was asked for and got.
	Asked, Granted time.Time
}

func (a Access) args(more ...any) []any {
	var token *int64
	if a.Token != 0 {
		t := int64(a.Token)
		token = &t
	}
	return append([]any{a.Hold, a.Step.N, string(a.Step.Kind), a.Step.Key, a.Step.Amount, a.Worker, token, a.Asked, a.Granted}, more...)
}

const (
	readAccount = `INSERT INTO {s}.event (what, {log}, value, version)
		SELECT 'read', {args}, balance, version FROM {s}.account WHERE id = $4::integer RETURNING value`
	readReward = `INSERT INTO {s}.event (what, {log}, value)
		SELECT 'read', {args}, count(*) FROM {s}.payment WHERE reward = $4::integer RETURNING value`
	// The log gets the version from the row that was written, so that it tells the
	// order of the writes whatever the clocks say.
	writeAccount = `WITH written AS (UPDATE {s}.account SET balance = $11::bigint, version = version + 1
			WHERE id = $4::integer RETURNING balance, version)
		INSERT INTO {s}.event (what, {log}, lease_end, value, version)
		SELECT 'write', {args}, $10::timestamptz, balance, version FROM written RETURNING value`
	writeReward = `WITH written AS (INSERT INTO {s}.payment (reward, amount) VALUES ($4::integer, $5::bigint) RETURNING id)
		INSERT INTO {s}.event (what, {log}, lease_end, value, version)
		SELECT 'write', {args}, $10::timestamptz, $11::bigint, id FROM written RETURNING value`
	logStall = `INSERT INTO {s}.event (what, {log}, frozen_at, lease_end)
		VALUES ('stall', {args}, $10::timestamptz, $11::timestamptz)`
	logRefusal = `INSERT INTO {s}.event (what, {log}, fence) VALUES ('refused', {args}, $10::bigint)`
)

// Read returns the balance of the step's account, or how often its reward has been
// paid. It is one unit of work.
func (l *Ledger) Read(ctx context.Context, a Access) (value int64, err error) {
	err = l.run(ctx, a, l.read[a.Step.Kind], &value, a.args()...)
	return value, err
}

// Write sets the account's balance to value, or pays the reward for the value'th
// time. leaseEnd is when the lease of the worker was over; zero where there is none.
// It is one unit of work.
func (l *Ledger) Write(ctx context.Context, a Access, value int64, leaseEnd time.Time) error {
	return l.run(ctx, a, l.write[a.Step.Kind], &value, a.args(orNull(leaseEnd), value)...)
}

func (l *Ledger) run(ctx context.Context, a Access, sql string, value *int64, args ...any) error {
	claim := tokens.Claim{Resource: l.schema + "/" + a.Step.Lock(), Token: a.Token, Mode: tokens.Renewable}
	return l.guard.Run(ctx, l.db, Unit{Schema: l.schema, Step: a.Step, Claim: claim, SQL: sql, Args: args, Value: value})
}

// Stalled logs that the worker stood still from frozen until now.
func (l *Ledger) Stalled(ctx context.Context, a Access, frozen, leaseEnd time.Time) error {
	_, err := l.db.Exec(ctx, l.stall, a.args(frozen, orNull(leaseEnd))...)
	return err
}

// Refused logs a refusal.
func (l *Ledger) Refused(ctx context.Context, a Access, stale *tokens.StaleError) error {
	_, err := l.db.Exec(ctx, l.refused, a.args(int64(stale.Current))...)
	return err
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
