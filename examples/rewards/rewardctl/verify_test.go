package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/examples/rewards/itemserver"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

func TestMain(m *testing.M) {
	runMainIfAsked()
	goleak.VerifyTestMain(pgtest.Main(m))
}

// desk is a ledger, a file of what is owed there, and an item server.
type desk struct {
	dsn, file, items string
	pool             *pgxpool.Pool
	owed             []rewards.Reward
}

// newDesk pays one week of two players.
func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{dsn: pgtest.Shared(t).URL(pgtest.NewDatabase(t)), file: filepath.Join(t.TempDir(), "owed.ndjson")}
	d.pool = pgtest.NewPool(t, d.dsn)
	if err := rewards.Install(t.Context(), d.pool); err != nil {
		t.Fatal(err)
	}
	var err error
	if d.owed, _, err = rewards.Distinct(rewards.Season(1, 2)); err != nil {
		t.Fatal(err)
	}
	for _, r := range d.owed {
		if _, err := rewards.Apply(t.Context(), d.pool, r, 7); err != nil {
			t.Fatal(err)
		}
	}
	var text strings.Builder
	if err := rewards.Write(&text, d.owed); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

// serveItems starts an item server that does not ask for tokens.
func (d *desk) serveItems(t *testing.T) {
	t.Helper()
	pool := pgtest.New(t)
	if err := itemserver.Install(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	s, err := itemserver.New(itemserver.Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	d.items = srv.URL
}

// run runs a command and returns what it prints, and its last line on stderr.
func (d *desk) run(t *testing.T, args ...string) (out, last string) {
	t.Helper()
	var b strings.Builder
	cmd := root()
	cmd.SetOut(&b)
	cmd.SetArgs(append(args, "--dsn", d.dsn))
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		last = err.Error()
	}
	return b.String(), last
}

// has demands each line, its columns set apart by single spaces.
func has(t *testing.T, out string, lines ...string) {
	t.Helper()
	out = strings.Join(strings.Fields(out), " ")
	for _, l := range lines {
		if !strings.Contains(out, l) {
			t.Errorf("the output lacks %q:\n%s", l, out)
		}
	}
}

// What is in the outbox is not with the player yet: verify fails until it is.
func TestVerify_demands_a_drained_outbox(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	out, last := d.run(t, "verify", d.file)
	has(t, out, "outbox drained NO: 6 unpublished, 0 dead", "forgotten 0")
	if !strings.Contains(last, "6 outbox rows not published") {
		t.Errorf("verify of an outbox that is not drained says %q", last)
	}
	if _, err := d.pool.Exec(t.Context(), `UPDATE reward_outbox SET status = 'DEAD' WHERE id = 1`); err != nil {
		t.Fatal(err)
	}
	out, last = d.run(t, "verify", d.file)
	has(t, out, "outbox drained NO: 5 unpublished, 1 dead")
	if !strings.Contains(last, "1 dead outbox rows") {
		t.Errorf("verify with a dead row says %q", last)
	}
	d.run(t, "replay")
	d.serveItems(t)
	if out, last := d.run(t, "publish", "--drain", "--items", d.items); last != "" {
		t.Fatalf("publish: %s\n%s", last, out)
	}
	out, last = d.run(t, "verify", d.file, "--items", d.items)
	has(t, out, "outbox drained yes", "item server: count(player,event) <= 1 yes", "item server: forgotten 0")
	if last != "" {
		t.Errorf("verify of what is paid and told says %q", last)
	}
}

// One message contradicts what was paid. verify says so, replay --list shows it, and
// a person who has looked can settle it.
func TestVerify_says_which_messages_are_dead(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if _, err := d.pool.Exec(t.Context(), `UPDATE reward_outbox SET status = 'DONE'`); err != nil {
		t.Fatal(err)
	}
	other := d.owed[0]
	other.Amount++
	if err := rewards.Deliver(t.Context(), d.pool, []rewards.Reward{other}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.pool.Exec(t.Context(), `UPDATE reward_message SET status = 'DEAD', last_error = 'paid with another amount'`); err != nil {
		t.Fatal(err)
	}
	_, last := d.run(t, "verify", d.file)
	if want := "not as it is owed: 1 dead messages (rewardctl replay --list), such as: paid with another amount"; last != want {
		t.Errorf("verify says %q, want %q", last, want)
	}
	out, _ := d.run(t, "replay", "--list")
	has(t, out, `{"kind":"dead_message","id":1,"amount":`, other.Key(), `"error":"paid with another amount"}`)

	if out, last := d.run(t, "replay", "--dismiss", "1,2"); last != "" || out != "1 dead messages are dismissed\n" {
		t.Errorf("dismiss: %q %q", out, last)
	}
	if out, last := d.run(t, "verify", d.file); last != "" {
		t.Errorf("verify after the dismissal says %q\n%s", last, out)
	}
	if out, _ := d.run(t, "replay", "--list"); out != "" {
		t.Errorf("replay --list still shows %s", out)
	}
}

// A variable that is not set makes a flag empty. The comparison, or the question, that
// the flag asks for must not be left out without a word.
func TestItems_given_and_empty(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if _, err := d.pool.Exec(t.Context(), `UPDATE reward_outbox SET status = 'DONE'`); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"verify", d.file, "--items", ""}, {"replay", "--items", ""}} {
		if out, last := d.run(t, args...); !strings.Contains(last, "--items") {
			t.Errorf("%s with an empty --items says %q\n%s", args[0], last, out)
		}
	}
}

func TestReplay_list_takes_no_keys(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, args := range [][]string{{"--list", "key"}, {"--dismiss", "1", "key"}, {"--list", "--dismiss", "1"}, {"--list", "--items", "http://x"}} {
		if _, last := d.run(t, append([]string{"replay"}, args...)...); last == "" {
			t.Errorf("replay %q was accepted", args)
		}
	}
}
