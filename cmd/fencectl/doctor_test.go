package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
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
	r := b.run("doctor")
	contains(t, r.out, "no backup is known", "fencectl snapshot save FILE")
	b.ok("doctor", "--backup-age", "0")
	b.ok("snapshot", "save", filepath.Join(t.TempDir(), "backup"))
	contains(t, b.ok("doctor"), "nothing is wrong")
	contains(t, b.ok("status"), "leader", "(this server)", "last backup", " ago", " of 8.0 GiB")
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

// healthy is the status of a server without a fault, with what edit changes.
func healthy(edit func(*clientsdk.Status)) *clientsdk.Status {
	free, backup := int64(100<<30), time.Now().Add(-time.Hour)
	st := &clientsdk.Status{Name: "n1", Version: version, Mode: "cluster", Ready: true, Cluster: "c", Leader: "n1", LagMS: 100, Floor: "protected"}
	st.Store.EtcdVersion, st.Store.Members, st.Store.Bytes, st.Store.QuotaBytes = "3.7.3", 3, 1<<20, 8<<30
	st.Store.DiskFree, st.Store.LastBackup = &free, &backup
	if edit != nil {
		edit(st)
	}
	return st
}

func TestDoctor_Server(t *testing.T) {
	t.Parallel()
	little := int64(1 << 20)
	for name, tc := range map[string]struct {
		edit       func(*clientsdk.Status)
		what, mend string
	}{
		"closed":      {func(st *clientsdk.Status) { st.Floor, st.Ready, st.NotReady = "closed", false, "token_floor" }, "granting is closed", "fencectl floor raise"},
		"no quorum":   {func(st *clientsdk.Status) { st.Ready, st.NotReady, st.Leader = false, "no_quorum", "" }, "no_quorum; its store of 3 members has no leader", "fencectl status --addr"},
		"lags":        {func(st *clientsdk.Status) { st.LagMS = 60_000 }, "1m0s", "fencectl members"},
		"old etcd":    {func(st *clientsdk.Status) { st.Store.EtcdVersion = "3.7.0" }, "etcd's version 3.7.0 has faults", "upgrade etcd"},
		"nearly full": {func(st *clientsdk.Status) { st.Store.Bytes = 7 << 30 }, "7.0 GiB of the 8.0 GiB", "fencectl compact --addr http://n1"},
		"full":        {func(st *clientsdk.Status) { st.Store.Faults = []string{"memberID:1 alarm:NOSPACE"} }, "takes no new holds", "fencectl compact --addr http://n1"},
		"corrupt":     {func(st *clientsdk.Status) { st.Store.Faults = []string{"memberID:1 alarm:CORRUPT"} }, "differs", "fencectl members remove"},
		"small disk":  {func(st *clientsdk.Status) { st.Store.DiskFree = &little }, "1.0 MiB left", "df -h"},
	} {
		found := checkServer(healthy(tc.edit), "http://n1")
		if len(found) != 1 || !strings.Contains(found[0].What, tc.what) || !strings.Contains(found[0].Mend, tc.mend) {
			t.Errorf("%s: %+v", name, found)
		}
	}
	if found := checkServer(healthy(nil), "http://n1"); len(found) != 0 {
		t.Errorf("a healthy server: %+v", found)
	}
}

// Where no server has its issued-token file the raise comes first; where one has, as
// after the data of one member alone was put back, a raise would end all holds for
// nothing.
func TestDoctor_Floor(t *testing.T) {
	t.Parallel()
	at := func(name, floor string) *patient {
		return &patient{status: healthy(func(st *clientsdk.Status) { st.Name, st.Floor = name, floor })}
	}
	for name, tc := range map[string]struct {
		all        []*patient
		missing    string
		what, mend string
		not        string // in neither
	}{
		"all have lost it": {[]*patient{at("n1", "unprotected"), at("n2", "unprotected"), at("n3", "unprotected")}, "",
			"n1, n2, n3: no issued-token file", "fencectl floor raise --above N", ""},
		"one has lost it": {[]*patient{at("n1", "protected"), at("n2", "unprotected"), at("n3", "protected")}, "",
			"n2: no issued-token file", "look again in a minute", "floor raise"},
		"not all were looked at": {[]*patient{at("n1", "unprotected")}, "2 of the 3 members (n2, n3)",
			"2 of the 3 members (n2, n3)", "look at all servers together", "restart"},
		"a closed one says so by itself": {[]*patient{at("n1", "closed"), at("n2", "protected")}, "", "", "", ""},
		"none has":                       {[]*patient{at("n1", "protected"), at("n2", "protected")}, "", "", "", ""},
	} {
		found := checkFloor(tc.all, tc.missing)
		if tc.what == "" && len(found) == 0 {
			continue
		}
		if len(found) != 1 || !strings.Contains(found[0].What, tc.what) || !strings.HasPrefix(found[0].Mend, tc.mend) ||
			tc.not != "" && strings.Contains(found[0].What+found[0].Mend, tc.not) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// Only the versions of two releases say that server and fencectl do not fit.
func TestDoctor_Versions(t *testing.T) {
	t.Parallel()
	for _, fit := range [][2]string{
		{"v1.0.0", "v1.0.0"}, {"devel", "v1.0.0"}, {"v1.0.0", "devel"}, {"b49cef0", "devel"}, {"b49cef0-dirty", "1.0.0"},
		{"b49cef0", "8014ce9"}, {"v1.0.0-5-gb49cef0", "v1.0.0"}, {"v1.0.0-dirty", "v1.0.0"}, {"v1.0.0-rc.1-2-gb49cef0-dirty", "v1.1.0"},
	} {
		if found := checkVersion(fit[0], fit[1]); len(found) != 0 {
			t.Errorf("server %s, fencectl %s: %+v", fit[0], fit[1], found)
		}
	}
	for _, differ := range [][2]string{{"0.9.0", "1.0.0"}, {"v1.0.0", "v1.0.1"}, {"v1.0.0-rc.1", "v1.0.0"}} {
		found := checkVersion(differ[0], differ[1])
		if len(found) != 1 || !strings.Contains(found[0].What, differ[0]) || !strings.Contains(found[0].Mend, "fencectl version") {
			t.Errorf("server %s, fencectl %s: %+v", differ[0], differ[1], found)
		}
	}
	built := func(st *clientsdk.Status) { st.Version = "b49cef0" } // by make; this fencectl is by go test
	if found := checkServer(healthy(built), "http://n1"); len(found) != 0 {
		t.Errorf("a server that make has built: %+v", found)
	}
}

// What a server does not tell is no finding, but for a backup that nobody knows of.
func TestDoctor_BackupAge(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(age time.Duration) *patient {
		return &patient{status: healthy(func(st *clientsdk.Status) {
			made := now.Add(-age)
			st.Store.LastBackup = &made
		})}
	}
	never := &patient{status: healthy(func(st *clientsdk.Status) { st.Store.LastBackup = nil })}
	external := &patient{status: healthy(func(st *clientsdk.Status) { st.Mode, st.Store.LastBackup = "external", nil })}
	for name, tc := range map[string]struct {
		all  []*patient
		want string
	}{
		"never":              {[]*patient{never}, "no backup is known"},
		"old":                {[]*patient{at(50 * time.Hour)}, "the last backup is 2d2h old"},
		"young":              {[]*patient{at(23 * time.Hour)}, ""},
		"young on another":   {[]*patient{never, at(50 * time.Hour), at(time.Hour)}, ""},
		"somebody else's":    {[]*patient{external}, ""},
		"old on all servers": {[]*patient{at(60 * time.Hour), at(50 * time.Hour)}, "2d2h"},
	} {
		found := checkBackup(tc.all, backupAge, now)
		if (tc.want == "") != (len(found) == 0) || len(found) > 0 && (!strings.Contains(found[0].What, tc.want) || found[0].Mend != "fencectl snapshot save FILE") {
			t.Errorf("%s: %+v, want %q", name, found, tc.want)
		}
	}
}

// statusServer answers with a status, and with a cluster of two members and a third
// that never came.
func statusServer(t *testing.T, st *clientsdk.Status, skew time.Duration) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(skew).UTC().Format(http.TimeFormat))
		switch r.URL.Path {
		case "/v1/status":
			json.NewEncoder(w).Encode(st)
		case "/v1/members":
			w.Write([]byte(`{"members":[{"id":"a","voter":true},{"id":"b","voter":true},{"id":"c"}]}`))
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// A server whose clock is wrong, and whose cluster has two members and a third that
// never came.
func TestDoctor_ClockAndMembers(t *testing.T) {
	t.Parallel()
	b := &bundle{T: t, env: map[string]string{"FENCED_ADDR": statusServer(t, healthy(nil), -time.Hour)}}
	r := b.run("doctor", "-o", "json")
	var found []finding
	if err := json.Unmarshal([]byte(r.out), &found); err != nil || len(found) != 3 || r.code != apierr.ExitConflict {
		t.Errorf("%+v, %v", r, err)
	}
	contains(t, r.out, "clock is off", "timedatectl", "members remove c", "members add")
}

// Of a member whose server is not named nothing is known, and doctor says so.
func TestDoctor_MembersNotLookedAt(t *testing.T) {
	t.Parallel()
	at := func(edit func(*clientsdk.Status), names ...string) *patient {
		p := &patient{status: healthy(edit)}
		for _, n := range names {
			p.cluster = append(p.cluster, clientsdk.Member{Name: n, Voter: true})
		}
		return p
	}
	named := func(name string) func(*clientsdk.Status) {
		return func(st *clientsdk.Status) { st.Name = name }
	}
	for name, tc := range map[string]struct {
		all  []*patient
		want string
	}{
		"one of three":       {[]*patient{at(nil, "n1", "n2", "n3")}, "2 of the 3 members (n2, n3)"},
		"the same twice":     {[]*patient{at(nil), at(nil, "n1", "n2", "n3")}, "2 of the 3 members (n2, n3)"},
		"without the list":   {[]*patient{at(nil), at(named("n2"))}, "1 of the 3 members:"},
		"all":                {[]*patient{at(nil), at(named("n2")), at(named("n3"))}, ""},
		"of somebody else":   {[]*patient{at(func(st *clientsdk.Status) { st.Mode = "external" })}, ""},
		"a server by itself": {[]*patient{at(func(st *clientsdk.Status) { st.Mode, st.Store.Members = "embedded", 1 })}, ""},
	} {
		if got := notLookedAt(tc.all); (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	b := &bundle{T: t, env: map[string]string{"FENCED_ADDR": statusServer(t, healthy(nil), 0)}}
	contains(t, b.run("doctor").out, "not looked at", "2 of the 3 members")
	r := b.run("doctor", "-o", "json")
	contains(t, r.err, "not looked at: 2 of the 3 members")
}

// Each server that is named is looked at, and they are compared.
func TestDoctor_SeveralServers(t *testing.T) {
	t.Parallel()
	one := statusServer(t, healthy(nil), 0)
	full := statusServer(t, healthy(func(st *clientsdk.Status) { st.Name, st.Store.Bytes = "n2", 7<<30 }), 0)
	foreign := statusServer(t, healthy(func(st *clientsdk.Status) { st.Name, st.Cluster = "n3", "other" }), 0)
	doctor := func(t *testing.T, servers ...string) result {
		b := &bundle{T: t, env: map[string]string{"FENCED_ADDR": strings.Join(servers, ",")}}
		return b.run("doctor")
	}
	together(t, map[string]func(*testing.T){
		"one is away": func(t *testing.T) {
			r := doctor(t, one, full, "127.0.0.1:1")
			contains(t, r.out, "n2: the store's file has", "compact --addr "+full, "no server answers at http://127.0.0.1:1", "fenced serve", "tocommit ... is out of range", "fencectl members remove")
			if strings.Contains(r.out, "n1: ") || r.code != apierr.ExitConflict {
				t.Errorf("%+v", r)
			}
		},
		"two deployments": func(t *testing.T) { contains(t, doctor(t, one, foreign).out, "n3 and n1 are of two deployments") },
		"all are away": func(t *testing.T) { // and are asked at once
			begun := time.Now()
			if r := doctor(t, "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"); r.code != apierr.ExitUnreachable {
				t.Errorf("%+v", r)
			}
			if took := time.Since(begun); took > 2*patience {
				t.Errorf("took %s, want %s", took, patience)
			}
		},
	}, func(t *testing.T, test func(*testing.T)) { test(t) })
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
