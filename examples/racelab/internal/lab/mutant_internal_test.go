//go:build unix

package lab

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/examples/racelab/internal/ledger"
	"github.com/fenced/fenced/tokens"
)

// mutant is a guard with a fault: it is asked whether to accept a token where the
// highest so far is current. write tells the second unit of a step from the first.
type mutant func(current, token tokens.Token, write bool) bool

const mutantSchema = `DROP TABLE IF EXISTS mutant;
	CREATE TABLE mutant (resource text PRIMARY KEY, token bigint NOT NULL)`

// Run implements ledger.Guard.
func (accept mutant) Run(ctx context.Context, db *pgxpool.Pool, u ledger.Unit) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		// The row is made and locked, so that nothing but the comparison is wrong.
		var current int64
		err := tx.QueryRow(ctx, `INSERT INTO mutant VALUES ($1, 0)
			ON CONFLICT (resource) DO UPDATE SET token = mutant.token RETURNING token`, u.Claim.Resource).Scan(&current)
		if err != nil {
			return err
		}
		const readArgs = 9 // a write has the end of the lease and the value besides
		if !accept(tokens.Token(current), u.Claim.Token, len(u.Args) > readArgs) {
			return &tokens.StaleError{Resource: u.Claim.Resource, Presented: u.Claim.Token, Current: tokens.Token(current)}
		}
		if _, err := tx.Exec(ctx, "UPDATE mutant SET token = greatest(token, $2) WHERE resource = $1", u.Claim.Resource, int64(u.Claim.Token)); err != nil {
			return err
		}
		return tx.QueryRow(ctx, u.SQL, u.Args...).Scan(u.Value)
	})
}

// A guard with a fault must make the lab fail; a sound one, made in the same way,
// must not.
func TestPlantedCorruptionIsDetected(t *testing.T) {
	for name, test := range map[string]struct {
		guard mutant
		sound bool
	}{
		"sound": {func(current, token tokens.Token, _ bool) bool { return token >= current }, true},
		"compares the wrong way": {
			guard: func(current, token tokens.Token, _ bool) bool { return current == 0 || current >= token }},
		"accepts everything": {
			guard: func(tokens.Token, tokens.Token, bool) bool { return true }},
		"looks at reads only": {
			guard: func(current, token tokens.Token, write bool) bool { return write || token >= current }},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := servers.Pool.Exec(t.Context(), mutantSchema, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatal(err)
			}
			config := small()
			r := newRun(servers, config)
			r.guards = map[Way]ledger.Guard{FencedGuard: test.guard}
			row := &Row{Way: FencedGuard}
			if err := r.measure(t.Context(), FencedGuard, row); err != nil {
				t.Fatal(err)
			}
			res := newResult(config)
			res.add(row)
			if test.sound != (len(res.Problems) == 0) {
				t.Errorf("problems: %q; row: %+v", res.Problems, row)
			}
		})
	}
}
