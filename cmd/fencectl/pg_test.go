package main

import (
	"context"
	"testing"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/tokens/pgfence"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

func TestPGAdvance(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	if err := pgfence.Install(context.Background(), pool); err != nil {
		t.Fatal(err)
	}
	b := &bundle{T: t, env: map[string]string{"FENCED_DATABASE_URL": pool.Config().ConnString()}}
	contains(t, b.ok("pg", "advance", "account/42", "--token", "7"), "account/42", "7")
	b.ok("pg", "advance", "account/42", "--token", "7") // again is no change
	fence, err := pgfence.New(pool).Peek(context.Background(), "account/42")
	if err != nil || fence != 7 {
		t.Errorf("fence %d, %v; want 7", fence, err)
	}
	r := b.run("pg", "advance", "account/42", "--token", "6")
	if r.code != apierr.ExitConflict {
		t.Errorf("a lower token: %+v", r)
	}
	contains(t, r.err, "past that already")
	for _, args := range [][]string{
		{"pg", "advance", "account/42"}, {"pg", "advance", "", "--token", "7"}, {"pg", "advance", "--token", "7"},
	} {
		if r := b.run(args...); r.code != apierr.ExitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
	b.env["FENCED_DATABASE_URL"] = "postgres://127.0.0.1:1/x?connect_timeout=1"
	if r := b.run("pg", "advance", "account/42", "--token", "8"); r.code != apierr.ExitUnreachable {
		t.Errorf("no database: %+v", r)
	}
}
