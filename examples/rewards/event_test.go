package rewards_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fenced/fenced/examples/rewards"
)

func TestEvent_ID(t *testing.T) {
	t.Parallel()
	rank := rewards.Event{Season: "2026", Content: "week-34", Player: "42", Kind: "rank", Item: "3"}
	for name, tc := range map[string]struct {
		change func(*rewards.Event)
		want   string // "" for a refusal
		says   string // part of the refusal
	}{
		"the example":                      {func(*rewards.Event) {}, "season-2026-week-34:player-42:rank-3", ""},
		"version 1 is not spelt out":       {func(e *rewards.Event) { e.Version = 1 }, "season-2026-week-34:player-42:rank-3", ""},
		"a correction":                     {func(e *rewards.Event) { e.Version = 2 }, "season-2026-week-34:player-42:rank-3:v2", ""},
		"a player's UUID is old and fine":  {func(e *rewards.Event) { e.Player = "0b5f3f0a-9c3e-4f2a-8d38-0d7f3c9a1b22" }, "season-2026-week-34:player-0b5f3f0a-9c3e-4f2a-8d38-0d7f3c9a1b22:rank-3", ""},
		"a fresh UUID":                     {func(e *rewards.Event) { e.Item = "0b5f3f0a-9c3e-4f2a-8d38-0d7f3c9a1b22" }, "", "looks like a UUID"},
		"a ULID":                           {func(e *rewards.Event) { e.Item = "01arz3ndektsv4rrffq69g5fav" }, "", "looks like a ULID"},
		"random digits":                    {func(e *rewards.Event) { e.Content = "run-9f86d081884c7d65" }, "", "random hexadecimal"},
		"a UUID without hyphens":           {func(e *rewards.Event) { e.Item = "0b5f3f0a9c3e4f2a8d380d7f3c9a1b22" }, "", "random hexadecimal"},
		"seconds since 1970":               {func(e *rewards.Event) { e.Item = "1788000000" }, "", "clock"},
		"milliseconds since 1970":          {func(e *rewards.Event) { e.Item = "grant-1788000000123" }, "", "clock"},
		"nanoseconds since 1970":           {func(e *rewards.Event) { e.Content = "1788000000123456789" }, "", "clock"},
		"date and time of day":             {func(e *rewards.Event) { e.Content = "20261129-203603" }, "", "clock"},
		"a date alone is a fact":           {func(e *rewards.Event) { e.Content = "day-20261129" }, "season-2026-day-20261129:player-42:rank-3", ""},
		"a long word is not hexadecimal":   {func(e *rewards.Event) { e.Item = "decadefacadebeef" }, "season-2026-week-34:player-42:rank-decadefacadebeef", ""},
		"no season":                        {func(e *rewards.Event) { e.Season = "" }, "", "season"},
		"a hyphen would move into content": {func(e *rewards.Event) { e.Season = "2026-week" }, "", "season"},
		"a colon would move into kind":     {func(e *rewards.Event) { e.Player = "42:rank-1" }, "", "player"},
		"upper case":                       {func(e *rewards.Event) { e.Kind = "Rank" }, "", "kind"},
		"a line break at the end":          {func(e *rewards.Event) { e.Item = "3\n" }, "", "item"},
		"too long":                         {func(e *rewards.Event) { e.Item = strings.Repeat("z", 65) }, "", "item"},
		"a negative version":               {func(e *rewards.Event) { e.Version = -1 }, "", "version"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := rank
			tc.change(&e)
			got, err := e.ID()
			if got != tc.want {
				t.Errorf("ID() = %q, want %q (error %v)", got, tc.want, err)
			}
			if refused := tc.want == ""; refused && (!errors.Is(err, rewards.ErrEventID) || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("ID() error = %v, want ErrEventID that says %q", err, tc.says)
			}
		})
	}
}

func TestParseEvent_accepts_one_spelling(t *testing.T) {
	t.Parallel()
	for _, id := range []string{
		"", "season-2026-week-34", "season-2026-week-34:player-42:rank-3 ", "Season-2026-week-34:player-42:rank-3",
		"season-2026-week-34:player-42:rank-3:v1", "season-2026-week-34:player-42:rank-3:v02",
		"season-2026-week-34:player-42:rank-3:v99999999999999999999", "season-2026--34:player-42:rank-3",
		"0b5f3f0a-9c3e-4f2a-8d38-0d7f3c9a1b22",
	} {
		if e, err := rewards.ParseEvent(id); !errors.Is(err, rewards.ErrEventID) {
			t.Errorf("ParseEvent(%q) = %+v, %v, want ErrEventID", id, e, err)
		}
	}
}

// events draws parts that are near each other, so that ids that run together
// would be found.
func events() *rapid.Generator[rewards.Event] {
	slug := rapid.StringMatching(`[a1]{1,2}(-[a1]{1,2}){0,2}`)
	return rapid.Custom(func(t *rapid.T) rewards.Event {
		return rewards.Event{
			Season:  rapid.StringMatching(`[a1]{1,3}`).Draw(t, "season"),
			Content: slug.Draw(t, "content"),
			Player:  rapid.StringMatching(`[a1.-]{1,4}`).Draw(t, "player"),
			Kind:    rapid.StringMatching(`[a]{1,2}`).Draw(t, "kind"),
			Item:    slug.Draw(t, "item"),
			Version: rapid.IntRange(1, 12).Draw(t, "version"),
		}
	})
}

func TestEvent_different_events_have_different_ids(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e, other := events().Draw(t, "event"), events().Draw(t, "other")
		id, err := e.ID()
		if err != nil {
			t.Fatal(err)
		}
		otherID, err := other.ID()
		if err != nil {
			t.Fatal(err)
		}
		if (id == otherID) != (e == other) {
			t.Fatalf("%+v and %+v have ids %q and %q", e, other, id, otherID)
		}
		if back, err := rewards.ParseEvent(id); err != nil || back != e {
			t.Fatalf("ParseEvent(%q) = %+v, %v, want %+v", id, back, err, e)
		}
	})
}

func FuzzParseEvent(f *testing.F) {
	f.Add("season-2026-week-34:player-42:rank-3")
	f.Add("season-2026-week-34:player-42:quest-boss-1:v2")
	f.Add("season--:player-:-")
	f.Fuzz(func(t *testing.T, id string) {
		e, err := rewards.ParseEvent(id)
		if err != nil {
			return
		}
		if back, err := e.ID(); err != nil || back != id {
			t.Errorf("ParseEvent(%q) = %+v, whose ID is %q, %v", id, e, back, err)
		}
	})
}
