package rewards_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fenced/fenced/examples/rewards"
)

const seasonFile = "testdata/season-week-34.ndjson"

func TestSeason_file_is_what_the_generator_makes(t *testing.T) {
	t.Parallel()
	got, err := os.ReadFile(seasonFile)
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := rewards.Write(&want, rewards.Season(34, 180)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is not what Season(34, 180) makes: run go generate", seasonFile)
	}
}

func TestSeason_delivers_a_fifth_twice(t *testing.T) {
	t.Parallel()
	f, err := os.Open(seasonFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	deliveries, err := rewards.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	owed, repeats, err := rewards.Distinct(deliveries)
	if err != nil {
		t.Fatal(err)
	}
	if len(owed) < 500 || repeats != len(owed)/5 {
		t.Errorf("%d rewards and %d repeats, want at least 500 and a fifth", len(owed), repeats)
	}
	seen := make(map[string]int)
	for _, r := range deliveries {
		seen[r.Key()]++
		if seen[r.Key()] > 2 {
			t.Errorf("%s is delivered more than twice", r.Key())
		}
	}
}

func TestRead_refuses_bad_lines(t *testing.T) {
	t.Parallel()
	const good = `{"player":"42","event":"season-2026-week-34:player-42:rank-3","amount":5}` + "\n"
	for name, line := range map[string]string{
		"not JSON":             `{`,
		"empty line":           ``,
		"unknown field":        `{"player":"42","event":"season-2026-week-34:player-42:rank-3","amount":5,"x":1}`,
		"two values":           `{"player":"42","event":"season-2026-week-34:player-42:rank-3","amount":5} {}`,
		"a brace too many":     `{"player":"42","event":"season-2026-week-34:player-42:rank-3","amount":5}}{"player":"42","event":"season-2026-week-34:player-42:rank-4","amount":5}`,
		"garbage behind it":    `{"player":"42","event":"season-2026-week-34:player-42:rank-3","amount":5}{garbage`,
		"a bracket behind it":  `{"player":"42","event":"season-2026-week-34:player-42:rank-3","amount":5}]`,
		"a comma behind it":    `{"player":"42","event":"season-2026-week-34:player-42:rank-3","amount":5},`,
		"amount twice":         `{"player":"42","event":"season-2026-week-34:player-42:rank-3","amount":5,"amount":50}`,
		"twice and the same":   `{"player":"42","player":"42","event":"season-2026-week-34:player-42:rank-3","amount":5}`,
		"twice when unescaped": `{"player":"42","event":"season-2026-week-34:player-42:rank-3","amount":5,"\u0061mount":50}`,
		"another case":         `{"player":"42","event":"season-2026-week-34:player-42:rank-3","Amount":5}`,
		"two cases":            `{"player":"42","event":"season-2026-week-34:player-42:rank-3","amount":5,"AMOUNT":50}`,
		"an array":             `[{"player":"42","event":"season-2026-week-34:player-42:rank-3","amount":5}]`,
		"null":                 `null`,
		"amount null":          `{"player":"42","event":"season-2026-week-34:player-42:rank-3","amount":null}`,
		"no player":            `{"event":"season-2026-week-34:player-42:rank-3","amount":5}`,
		"cut off":              `{"player":"42","event":"season-2026-week-34:player-42:rank-3","amount":5`,
		"fraction":             `{"player":"42","event":"season-2026-week-34:player-42:rank-3","amount":5.5}`,
		"nothing to pay":       `{"player":"42","event":"season-2026-week-34:player-42:rank-3","amount":0}`,
		"negative":             `{"player":"42","event":"season-2026-week-34:player-42:rank-3","amount":-5}`,
		"far too much":         `{"player":"42","event":"season-2026-week-34:player-42:rank-3","amount":1000000001}`,
		"another player":       `{"player":"43","event":"season-2026-week-34:player-42:rank-3","amount":5}`,
		"a freshly made event": `{"player":"42","event":"3d0b5c1e-7b1c-4b57-8f3a-0d2f1c9a1b22","amount":5}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := rewards.Read(strings.NewReader(good + line + "\n"))
			if err == nil || !strings.HasPrefix(err.Error(), "line 2: ") {
				t.Errorf("Read = %v, %v, want an error of line 2", got, err)
			}
		})
	}
}

// Whatever is read is one reward, and says the same when it is written again.
func FuzzParseReward(f *testing.F) {
	const good = `{"player":"42","event":"season-2026-week-34:player-42:rank-3","amount":5}`
	for _, line := range []string{good, good + "}", good + good, ` {"amount":5, "event":"x", "player":""} `, `{"amount":5,"amount":6}`, `[]`, ``} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := rewards.ParseReward(line)
		if err != nil || r.Validate() != nil {
			return
		}
		var plain map[string]any
		if err := json.Unmarshal(line, &plain); err != nil || len(plain) != 3 {
			t.Errorf("%q was read as %+v, and is %v, %v", line, r, plain, err)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := rewards.ParseReward(again); err != nil || back != r {
			t.Errorf("%q was read as %+v, and %s as %+v, %v", line, r, again, back, err)
		}
	})
}

func TestDistinct_refuses_two_amounts(t *testing.T) {
	t.Parallel()
	r := aReward("1")
	other := r
	other.Amount++
	if _, _, err := rewards.Distinct([]rewards.Reward{r, r, other}); !errors.Is(err, rewards.ErrReward) {
		t.Errorf("Distinct error = %v, want ErrReward", err)
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	a, b, c := aReward("1"), aReward("2"), aReward("3")
	less := b
	less.Amount--
	for name, tc := range map[string]struct {
		owed, paid []rewards.Reward
		want       rewards.Verdict
	}{
		"all paid": {[]rewards.Reward{a, b}, []rewards.Reward{b, a}, rewards.Verdict{Owed: 2, Paid: 2, Events: 2}},
		"forgotten": {[]rewards.Reward{a, b}, []rewards.Reward{a},
			rewards.Verdict{Owed: 2, Paid: 1, Events: 2, Forgotten: []rewards.Reward{b}, BadSums: []string{b.Event}}},
		"paid twice": {[]rewards.Reward{a, b}, []rewards.Reward{a, b, b},
			rewards.Verdict{Owed: 2, Paid: 3, Events: 2, Twice: []rewards.Reward{b}, BadSums: []string{b.Event}}},
		"wrong amount": {[]rewards.Reward{a, b}, []rewards.Reward{a, less},
			rewards.Verdict{Owed: 2, Paid: 2, Events: 2, Wrong: []rewards.Reward{less}, BadSums: []string{b.Event}}},
		"one for the other": {[]rewards.Reward{a, b}, []rewards.Reward{a, c},
			rewards.Verdict{Owed: 2, Paid: 2, Events: 3, Forgotten: []rewards.Reward{b}, Unexpected: []rewards.Reward{c},
				BadSums: []string{b.Event, c.Event}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := rewards.Compare(tc.owed, tc.paid)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Compare (-want +got):\n%s", diff)
			}
			if wantOK := name == "all paid"; got.OK() != wantOK {
				t.Errorf("OK() = %t, want %t", got.OK(), wantOK)
			}
			if problems := got.Problems(); (len(problems) == 0) != got.OK() {
				t.Errorf("Problems() = %q where OK() is %t", problems, got.OK())
			}
		})
	}
}

// aReward returns a reward whose identity is made of rank.
func aReward(rank string) rewards.Reward {
	id, err := rewards.Event{Season: "2026", Content: "week-34", Player: "42", Kind: "rank", Item: rank}.ID()
	if err != nil {
		panic(err)
	}
	return rewards.Reward{Player: "42", Event: id, Amount: 500}
}
