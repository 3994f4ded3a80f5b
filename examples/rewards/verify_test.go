package rewards_test

import (
	"slices"
	"testing"

	"github.com/fenced/fenced/examples/rewards"
)

// grant writes to the item server's tables past the item server.
func (s *stage) grant(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := s.store.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// The item server is compared as a whole: also what nobody is owed, and what stands
// twice, is seen, though each status call alone says what it should.
func TestVerifyItems_sees_every_grant(t *testing.T) {
	t.Parallel()
	stranger := rewards.Reward{Player: "999", Event: "season-2026-week-34:player-999:rank-1", Amount: 5}
	for name, tc := range map[string]struct {
		do    func(*stage)
		wrong func(rewards.Verdict, *stage) bool
	}{
		"granted twice": {
			func(s *stage) {
				s.grant(t, `ALTER TABLE item_grant DROP CONSTRAINT item_grant_once CASCADE`)
				s.grant(t, `INSERT INTO item_grant (player_id, reward_event_id, amount) SELECT player_id, reward_event_id, amount FROM item_grant LIMIT 1`)
			},
			func(v rewards.Verdict, s *stage) bool { return slices.Equal(v.Twice, s.owed[:1]) && v.Paid == v.Owed+1 },
		},
		"granted to a stranger": {
			func(s *stage) {
				s.grant(t, `INSERT INTO item_grant (player_id, reward_event_id, amount) VALUES ($1, $2, $3)`, stranger.Player, stranger.Event, stranger.Amount)
			},
			func(v rewards.Verdict, _ *stage) bool { return slices.Equal(v.Unexpected, []rewards.Reward{stranger}) },
		},
		"another amount": {
			func(s *stage) { s.grant(t, `UPDATE item_grant SET amount = 77 WHERE player_id = '0'`) },
			func(v rewards.Verdict, _ *stage) bool { return len(v.Wrong) == 1 && len(v.BadSums) == 1 },
		},
		"lost": {
			func(s *stage) { s.grant(t, `TRUNCATE item_grant, item_key`) },
			func(v rewards.Verdict, s *stage) bool { return len(v.Forgotten) == len(s.owed) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 1, 1)
			publish(t, s.config(t))
			s.check(t)
			tc.do(s)
			v, err := rewards.VerifyItems(t.Context(), s.items.Client(), s.items.URL, s.owed)
			if err != nil || v.OK() || !tc.wrong(v, s) {
				t.Errorf("verdict %+v, %v", v, err)
			}
		})
	}
}

// The list of grants comes in pages; none is lost between them.
func TestVerifyItems_reads_all_pages(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0, 1)
	s.grant(t, `INSERT INTO item_grant (player_id, reward_event_id, amount)
		SELECT '1', 'season-2026-week-34:player-1:rank-' || n, n FROM generate_series(1, 1201) n`)
	s.grant(t, `DELETE FROM item_grant WHERE amount % 7 = 0`) // ids have gaps
	v, err := rewards.VerifyItems(t.Context(), s.items.Client(), s.items.URL, nil)
	if want := 1201 - 1201/7; err != nil || v.Paid != want || len(v.Unexpected) != want {
		t.Errorf("%d grants were seen, %v, want %d", v.Paid, err, want)
	}
}

// A restart of the item server's database ended its connections, which it meets only
// when it uses them: what it cannot say now is asked for again.
func TestVerifyItems_asks_again_after_a_restart_of_the_database(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3, 1)
	s.grant(t, `INSERT INTO item_grant (player_id, reward_event_id, amount) VALUES ('1', 'season-2026-week-34:player-1:rank-1', 5)`)
	if _, err := s.pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1`,
		s.store.Config().ConnConfig.Database); err != nil {
		t.Fatal(err)
	}
	if v, err := rewards.VerifyItems(t.Context(), s.items.Client(), s.items.URL, nil); err != nil || v.Paid != 1 {
		t.Errorf("%d grants were seen, %v, want 1", v.Paid, err)
	}
}

// A row's player and event are compared each by itself: together they would pass for the
// reward of another player.
func TestCompare_keeps_player_and_event_apart(t *testing.T) {
	t.Parallel()
	owed := rewards.Reward{Player: "1", Event: "season-2026-week-34:player-1:rank-3", Amount: 5}
	paid := rewards.Reward{Player: "1:season-2026-week-34", Event: "player-1:rank-3", Amount: 5}
	v := rewards.Compare([]rewards.Reward{owed}, []rewards.Reward{paid})
	if len(v.Forgotten) != 1 || len(v.Unexpected) != 1 || v.OK() {
		t.Errorf("verdict %+v, want one forgotten and one not owed", v)
	}
}
