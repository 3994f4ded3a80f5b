package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/pgfence"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

// One fault of each kind is planted in a real database; doctor finds them all, says
// what mends each, and finds nothing once that is done.
func TestDoctor_Real(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := setupReal(t)
	contains(t, b.ok("doctor"), "nothing is wrong")
	pool := pgtest.New(t)
	b.env["FENCED_DATABASE_URL"] = pool.Config().ConnString()
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	found := func() string {
		t.Helper()
		r := b.run("doctor", "--long", "1ms")
		if r.code != apierr.ExitConflict || r.err != "" {
			t.Fatalf("%+v", r)
		}
		return r.out
	}
	contains(t, found(), "no schema fence", "pgfence.Install")
	if err := pgfence.Install(ctx, pool); err != nil {
		t.Fatal(err)
	}
	exec("CREATE TABLE own_column (id int PRIMARY KEY, fence_token bigint NOT NULL DEFAULT 0)") // not a fault
	exec("CREATE TABLE account (id bigint PRIMARY KEY, n int)")
	if err := pgfence.Protect(ctx, pool, pgx.Identifier{"account"}, "id", "account/"); err != nil {
		t.Fatal(err)
	}
	contains(t, b.ok("doctor"), "nothing is wrong")

	exec("CREATE ROLE doctor_app LOGIN")
	t.Cleanup(func() { pool.Exec(ctx, "DROP OWNED BY doctor_app; DROP ROLE doctor_app") })
	exec("GRANT UPDATE ON account TO doctor_app")
	contains(t, found(), "role doctor_app may write the fence column of table account", "REVOKE UPDATE ON account")
	exec("REVOKE UPDATE ON account FROM doctor_app; GRANT UPDATE (n) ON account TO doctor_app")
	b.ok("doctor")

	exec("ALTER TABLE account DISABLE TRIGGER zz_fence")
	contains(t, found(), "table account was protected and has no guard trigger", "fence.protect('account'")
	exec("DROP TRIGGER zz_fence ON account")
	contains(t, found(), "table account was protected")
	if err := pgfence.Protect(ctx, pool, pgx.Identifier{"account"}, "id", "account/"); err != nil {
		t.Fatal(err)
	}
	b.ok("doctor")

	const far = 1_000_000_000
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if _, err := pgfence.New(pool).Advance(ctx, tx, tokens.Claim{Resource: "account/1", Token: far, Mode: tokens.Renewable}); err != nil {
		t.Fatal(err)
	}
	contains(t, found(), "has held a guard", "pg_terminate_backend(")
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	contains(t, found(), "highest fence is 1000000000", "fencectl floor raise --above 1000000000")
	b.ok("floor", "raise", "--above", "1000000000")
	b.ok("doctor")
}

func TestDoctor_Server(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status clientsdk.Status
		want   string
	}{
		"closed":      {clientsdk.Status{Floor: "closed", NotReady: "token_floor"}, "fencectl floor raise"},
		"no quorum":   {clientsdk.Status{Floor: "protected", NotReady: "no_quorum"}, "no_quorum"},
		"lags":        {clientsdk.Status{Floor: "protected", Ready: true, LagMS: 60_000}, "1m0s"},
		"unprotected": {clientsdk.Status{Floor: "unprotected", Ready: true}, "--issued-file"},
	} {
		found := checkServer(&tc.status)
		if len(found) != 1 || !strings.Contains(found[0].What+found[0].Mend, tc.want) {
			t.Errorf("%s: %+v", name, found)
		}
	}
	if found := checkServer(&clientsdk.Status{Floor: "protected", Ready: true, LagMS: 100}); len(found) != 0 {
		t.Errorf("a healthy server: %+v", found)
	}
}

// A server whose clock is wrong, and whose cluster has two members and a third that
// never came.
func TestDoctor_ClockAndMembers(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		switch r.URL.Path {
		case "/v1/status":
			json.NewEncoder(w).Encode(clientsdk.Status{Floor: "protected", Ready: true})
		case "/v1/members":
			w.Write([]byte(`{"members":[{"id":"a","voter":true},{"id":"b","voter":true},{"id":"c"}]}`))
		}
	}))
	defer srv.Close()
	b := &bundle{T: t, env: map[string]string{"FENCED_ADDR": srv.URL}}
	r := b.run("doctor", "-o", "json")
	var found []finding
	if err := json.Unmarshal([]byte(r.out), &found); err != nil || len(found) != 3 || r.code != apierr.ExitConflict {
		t.Errorf("%+v, %v", r, err)
	}
	contains(t, r.out, "clock is off", "timedatectl", "members remove c", "members add")
}

func TestOffset(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	for _, tc := range []struct {
		date           int64
		sent, received time.Duration
		want           time.Duration
	}{
		{1000, 0, 0, 0}, {1000, 900 * time.Millisecond, 990 * time.Millisecond, 0}, {1000, -time.Second, 0, 0},
		{1005, 0, time.Second, 4 * time.Second}, {990, 0, time.Second, -9 * time.Second},
	} {
		if got := offset(time.Unix(tc.date, 0), at.Add(tc.sent), at.Add(tc.received)); got != tc.want {
			t.Errorf("date %d between %s and %s: %s, want %s", tc.date, tc.sent, tc.received, got, tc.want)
		}
	}
}
