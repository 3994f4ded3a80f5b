package rewards_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fenced/fenced/examples/rewards"
)

// accepted reports whether item may be part of an event id.
func accepted(t *testing.T, item string) bool {
	t.Helper()
	_, err := rewards.Event{Season: "2026", Content: item, Player: "42", Kind: "rank", Item: item}.ID()
	if err != nil && !errors.Is(err, rewards.ErrEventID) {
		t.Errorf("%q: %v, want ErrEventID", item, err)
	}
	return err == nil
}

func TestEvent_refuses_what_was_made_anew(t *testing.T) {
	t.Parallel()
	for _, item := range []string{
		"76vlzarhe4kzztxc4fs2ptyxpq",           // 16 bytes in base32, as crypto/rand.Text makes them
		"run-76vlzarhe4kzztxc4fs2ptyxpq",       // behind a word
		"cjld2cjxh0000qzrmn831i7rn",            // a cuid
		"tz4a98xxat96iws9zmbrgj3a",             // a cuid2
		"v1stgxr8-z5jdhi6b-myt",                // a nanoid
		"9m4e2mr0ui3e8a215n4g",                 // an xid
		"0ujsswthigimqknkdp3v7a2msrm",          // a ksuid
		"507f1f77bcf86cd799439011",             // an object id
		"175928847299117063",                   // a snowflake of 18 digits
		"grant-1541815603606036480",            // and of 19
		"20261129t210003z",                     // clocks
		"2026-11-29t21-00-03",                  //
		"2026-11-29t21-00-03z",                 //
		"2026-11-29t21-00-03-123",              //
		"2026-11-29-21-00-03",                  //
		"2026-11-29-21-00",                     //
		"20261129210003",                       //
		"202611292100",                         //
		"20261129210003123",                    //
		"claimed-20261129-2100",                //
		"xkqzjvwbptfghmcd",                     // letters alone
		"0b5f3f0a-9c3e-4f2a-8d38-0d7f3c9a1b22", // a UUID
		"01arz3ndektsv4rrffq69g5fav",           // a ULID
		"1788000000123",                        // milliseconds
		"week-34-1788000000",                   // seconds, behind a fact
	} {
		if accepted(t, item) {
			t.Errorf("%q was accepted", item)
		}
	}
}

func TestEvent_accepts_facts(t *testing.T) {
	t.Parallel()
	for _, item := range []string{
		"week-34", "gold-league-season-12", "2026-11-29", "day-2026-11-29", "20261129", "2026-11-29t21", "2026-11-29-21",
		"2026-w48", "2026-11-29-slot-3", "season2026week34rank3", "s2026w34d5r3", "2v2v2", "4x4x4", "lvl10boss3", "x2", "e4-e5",
		"21-00-03", "world-7-3-12-4-19", "10000000", "123456789012", "quest-0000000042", "stage-1-2-3-4-5-6-7-8-9-10",
		"the-quick-brown-fox-jumps-over-the-lazy-dog", "psychedelic-rhythm-of-the-sphinx", "antidisestablishmentarianism",
		"halloween-pumpkin-hunt-hard-mode", "black-friday-cyber-monday-bundle", "knightsbridge-strength-trial",
		"seollal-yutnori", "gyeongbokgung-night-market", "chuseok-songpyeon-event", "hwarang-training-grounds", "dokkaebi-raid",
		"tanabata-star-festival", "shogatsu-first-shrine-visit", "weihnachtsmarkt-abenteuer", "oktoberfest-schuetzenkoenig",
		"fete-nationale-quatorze-juillet", "dia-de-los-muertos-ofrenda", "zwischenzeit-qualifikation",
		"player-of-the-match-quarterfinal-2", "hyperborean-catacombs-floor-99-boss-3", "decadefacadebeef",
	} {
		if !accepted(t, item) {
			t.Errorf("%q was refused", item)
		}
	}
}

// How much of what generators make is seen. It is a net with holes; these bounds say
// how large they may be.
func TestEvent_sees_most_of_what_generators_make(t *testing.T) {
	t.Parallel()
	const small, digits = "abcdefghijklmnopqrstuvwxyz", "0123456789"
	dice := rand.New(rand.NewPCG(1, 2))
	for name, g := range map[string]struct {
		alphabet string
		length   int
		percent  int
	}{
		"crypto/rand.Text":           {small + "234567", 26, 98},
		"cuid2":                      {small + digits, 24, 98},
		"nanoid":                     {small + small + digits, 21, 95},
		"xid":                        {digits + "abcdefghijklmnopqrstuv", 20, 95},
		"ksuid":                      {small + small + digits, 27, 98},
		"10 bytes in base32":         {small + "234567", 16, 92},
		"18 digits":                  {digits, 18, 100},
		"16 digits of a hexadecimal": {digits + "abcdef", 16, 95},
	} {
		seen := 0
		const n = 2000
		for range n {
			var s strings.Builder
			for range g.length {
				s.WriteByte(g.alphabet[dice.IntN(len(g.alphabet))])
			}
			if !accepted(t, s.String()) {
				seen++
			}
		}
		if seen*100 < g.percent*n {
			t.Errorf("%s: %d of %d were seen, want %d %%", name, seen, n, g.percent)
		}
	}
}
