package itemserver_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/fenced/fenced/examples/rewards/itemserver"
	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/pgfence"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

type bundle struct {
	pool  *pgxpool.Pool
	url   string
	guard *pgfence.Guard
}

// setup starts an item server; fenced says whether it understands tokens.
func setup(t *testing.T, fenced bool) bundle {
	t.Helper()
	pool := pgtest.New(t)
	if err := itemserver.Install(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	b := bundle{pool: pool, guard: pgfence.New(pool)}
	cfg := itemserver.Config{Pool: pool}
	if fenced {
		if err := pgfence.Install(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		cfg.Guard = b.guard
	}
	s, err := itemserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	b.url = srv.URL
	return b
}

const (
	reward = `{"player":"42","event":"season-2026-week-34:player-42:rank-3","amount":500}`
	key    = "reward:42:season-2026-week-34:player-42:rank-3"
	lock   = "reward/42/season-2026-week-34:player-42:rank-3"
)

// ask posts body with these headers, "Name: value" each, and returns the status,
// the code of a refusal and the answer's headers.
func (b bundle) ask(t *testing.T, body string, headers ...string) (status int, code string, h http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/v1/grants", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if value == "" {
			req.Header.Del(name)
		} else {
			req.Header.Add(name, value)
		}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var p struct{ Code string }
	raw, err := io.ReadAll(res.Body)
	if err == nil {
		err = json.Unmarshal(raw, &p)
	}
	if err != nil {
		t.Errorf("answer %q: %v", raw, err)
	}
	return res.StatusCode, p.Code, res.Header
}

func (b bundle) count(t *testing.T) (n int) {
	t.Helper()
	if err := b.pool.QueryRow(t.Context(), `SELECT count(*) FROM item_grant`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestServer_refuses_before_it_asks_the_database(t *testing.T) {
	t.Parallel()
	b := setup(t, true)
	const withKey, withToken = "Idempotency-Key: " + key, "Fencing-Token: 7"
	for name, tc := range map[string]struct {
		body    string
		headers []string
		status  int
		code    string
	}{
		"no key":            {reward, []string{withToken}, 400, "idempotency_key_missing"},
		"two keys":          {reward, []string{withToken, withKey, withKey}, 400, "idempotency_key_missing"},
		"a key half quoted": {reward, []string{withToken, `Idempotency-Key: "x`}, 400, "malformed"},
		"a key too long":    {reward, []string{withToken, "Idempotency-Key: " + strings.Repeat("k", 401)}, 400, "malformed"},
		"no token":          {reward, []string{withKey}, 428, "token_missing"},
		"token 0":           {reward, []string{withKey, "Fencing-Token: 0"}, 400, "malformed"},
		"token -1":          {reward, []string{withKey, "Fencing-Token: -1"}, 400, "malformed"},
		"token 1.5":         {reward, []string{withKey, "Fencing-Token: 1.5"}, 400, "malformed"},
		"token 2^53":        {reward, []string{withKey, "Fencing-Token: 9007199254740992"}, 400, "malformed"},
		"token abc":         {reward, []string{withKey, "Fencing-Token: abc"}, 400, "malformed"},
		"no media type":     {reward, []string{withKey, withToken, "Content-Type: "}, 415, "malformed"},
		"a form":            {reward, []string{withKey, withToken, "Content-Type: ", "Content-Type: text/plain"}, 415, "malformed"},
		"broken off":        {reward[:20], []string{withKey, withToken}, 400, "malformed"},
		"two values":        {reward + reward, []string{withKey, withToken}, 400, "malformed"},
		"garbage behind":    {reward + "}", []string{withKey, withToken}, 400, "malformed"},
		"a field twice":     {`{"amount":5,` + reward[1:], []string{withKey, withToken}, 400, "malformed"},
		"unknown field":     {`{"x":1}`, []string{withKey, withToken}, 400, "malformed"},
		"huge":              {`{"player":"` + strings.Repeat("4", 9000) + `"}`, []string{withKey, withToken}, 400, "malformed"},
		"no amount":         {`{"player":"42","event":"season-2026-week-34:player-42:rank-3"}`, []string{withKey, withToken}, 422, "out_of_bounds"},
		"a random event":    {`{"player":"42","event":"9b2f1c3e-7b1c-4b57-8f3a-0d2f1c9a1b22","amount":5}`, []string{withKey, withToken}, 422, "out_of_bounds"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if status, code, _ := b.ask(t, tc.body, tc.headers...); status != tc.status || code != tc.code {
				t.Errorf("answer %d %s, want %d %s", status, code, tc.status, tc.code)
			}
		})
	}
	t.Cleanup(func() {
		var n int
		if err := b.pool.QueryRow(t.Context(), `SELECT count(*) FROM item_key`).Scan(&n); err == nil && n != 0 {
			t.Errorf("%d keys were stored", n)
		}
	})
}

// The order is key, fence, effect: an honest repeat is answered though a newer
// token has been here, and a new key with an old token is not.
func TestServer_looks_the_key_up_before_it_asks_the_fence(t *testing.T) {
	t.Parallel()
	b := setup(t, true)
	if status, code, _ := b.ask(t, reward, `Idempotency-Key: "`+key+`"`, "Fencing-Token: 7"); status != 201 {
		t.Fatalf("first request: %d %s", status, code)
	}
	b.advance(t, 9)
	for _, token := range []string{"7", "9", "3"} {
		status, code, h := b.ask(t, reward, "Idempotency-Key: "+key, "Fencing-Token: "+token)
		if status != 201 || h.Get("Idempotent-Replay") != "true" {
			t.Errorf("repeat under %s: %d %s, replay %q, want 201 true", token, status, code, h.Get("Idempotent-Replay"))
		}
	}
	if status, code, _ := b.ask(t, reward, "Idempotency-Key: another", "Fencing-Token: 8"); status != 412 || code != "stale_token" {
		t.Errorf("another key under an old token: %d %s, want 412 stale_token", status, code)
	}
	if status, code, _ := b.ask(t, reward, "Idempotency-Key: another", "Fencing-Token: 9"); status != 422 || code != "granted_under_another_key" {
		t.Errorf("another key for the same reward: %d %s, want 422 granted_under_another_key", status, code)
	}
	other := strings.Replace(reward, "500", "501", 1)
	if status, code, _ := b.ask(t, other, "Idempotency-Key: "+key, "Fencing-Token: 9"); status != 422 || code != "idempotency_key_reused" {
		t.Errorf("another payload: %d %s, want 422 idempotency_key_reused", status, code)
	}
	if n := b.count(t); n != 1 {
		t.Errorf("%d grants, want 1", n)
	}
}

// A refusal stores nothing under its key: a newer token may use it.
func TestServer_stale_token_leaves_the_key_free(t *testing.T) {
	t.Parallel()
	b := setup(t, true)
	b.advance(t, 9)
	if status, code, _ := b.ask(t, reward, "Idempotency-Key: "+key, "Fencing-Token: 8"); status != 412 || code != "stale_token" {
		t.Errorf("old token: %d %s, want 412 stale_token", status, code)
	}
	if status, code, h := b.ask(t, reward, "Idempotency-Key: "+key, "Fencing-Token: 9"); status != 201 || h.Get("Idempotent-Replay") != "" {
		t.Errorf("newer token: %d %s, want a first 201", status, code)
	}
}

// advance raises the fence of the reward.
func (b bundle) advance(t *testing.T, token tokens.Token) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		_, err := b.guard.Advance(t.Context(), tx, tokens.Claim{Resource: lock, Token: token, Mode: tokens.Renewable})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestServer_that_ignores_tokens_still_grants_once(t *testing.T) {
	t.Parallel()
	b := setup(t, false)
	for i, headers := range [][]string{
		{"Idempotency-Key: " + key}, {"Idempotency-Key: " + key, "Fencing-Token: 3"}, {"Idempotency-Key: " + key, "Fencing-Token: abc"},
	} {
		if status, code, _ := b.ask(t, reward, headers...); status != 201 {
			t.Errorf("request %d: %d %s, want 201", i, status, code)
		}
	}
	if status, code, _ := b.ask(t, reward, "Idempotency-Key: made-anew"); status != 422 {
		t.Errorf("a key made anew: %d %s, want 422", status, code)
	}
	if n := b.count(t); n != 1 {
		t.Errorf("%d grants, want 1", n)
	}
}

// Many at once with one key: one effect, and everybody hears of it or is asked to
// come again.
func TestServer_hammer(t *testing.T) {
	t.Parallel()
	b := setup(t, true)
	var first, replays, busy atomic.Int64
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			status, code, h := b.ask(t, reward, "Idempotency-Key: "+key, "Fencing-Token: 7")
			switch {
			case status == 201 && h.Get("Idempotent-Replay") == "true":
				replays.Add(1)
			case status == 201:
				first.Add(1)
			case status == 409 && code == "in_progress" && h.Get("Retry-After") != "":
				busy.Add(1)
			default:
				t.Errorf("answer %d %s", status, code)
			}
		})
	}
	all.Wait()
	if first.Load() != 1 || b.count(t) != 1 {
		t.Errorf("%d first answers (%d replays, %d in progress) and %d grants, want one each", first.Load(), replays.Load(), busy.Load(), b.count(t))
	}
}

// A key under way is told so at once instead of waiting.
func TestServer_in_progress(t *testing.T) {
	t.Parallel()
	b := setup(t, true)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, key); err != nil {
		t.Fatal(err)
	}
	if status, code, h := b.ask(t, reward, "Idempotency-Key: "+key, "Fencing-Token: 7"); status != 409 || code != "in_progress" || h.Get("Retry-After") != "1" {
		t.Errorf("answer %d %s, want 409 in_progress", status, code)
	}
}

func TestServer_status(t *testing.T) {
	t.Parallel()
	b := setup(t, true)
	get := func() int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/v1/grants?key="+url.QueryEscape(key), nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	if got := get(); got != 404 {
		t.Errorf("before: %d, want 404", got)
	}
	b.ask(t, reward, "Idempotency-Key: "+key, "Fencing-Token: 7")
	if got := get(); got != 200 {
		t.Errorf("after: %d, want 200", got)
	}
}

func TestServer_list_refuses_a_bad_position(t *testing.T) {
	t.Parallel()
	b := setup(t, false)
	for _, after := range []string{"", "abc", "-1", "1.5", "9223372036854775808"} {
		res, err := http.Get(b.url + "/v1/grants?after=" + after)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("after %q: %d, want 400", after, res.StatusCode)
		}
	}
}

func TestServer_database_down_is_503(t *testing.T) {
	t.Parallel()
	b := setup(t, true)
	b.pool.Close()
	if status, code, h := b.ask(t, reward, "Idempotency-Key: "+key, "Fencing-Token: 7"); status != 503 || code != "unavailable" || h.Get("Retry-After") == "" {
		t.Errorf("answer %d %s, want 503 unavailable", status, code)
	}
}

func TestNew_needs_a_pool(t *testing.T) {
	t.Parallel()
	if _, err := itemserver.New(itemserver.Config{}); err == nil {
		t.Error("a server without a database was made")
	}
}
