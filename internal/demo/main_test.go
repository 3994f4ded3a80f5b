//go:build linux

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fenced/fenced/examples/rewards"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const seasonFile = "../../examples/rewards/testdata/season-week-34.ndjson"

func TestRun(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	var out bytes.Buffer
	if err := run(t.Context(), &out, seasonFile); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{"PostgreSQL refuses", "does not write: ", "stale write refused ", "sum = expected (each event) "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, &out)
		}
	}
}

// A demonstration that cannot fail shows nothing.
func TestJudge_finds_what_is_off(t *testing.T) {
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
	refused := rewards.Record{Outcome: "stale", Token: 7, Current: 9}
	good := rewards.Compare(owed, owed)
	good.Dropped = repeats
	if err := judge(good, repeats, refused, forgetful); err != nil {
		t.Errorf("a good run: %v", err)
	}
	more := rewards.Compare(owed, append(owed[:1:1], owed...))
	more.Dropped = repeats
	less := rewards.Compare(owed, owed[1:])
	less.Dropped = repeats
	for name, err := range map[string]error{
		"paid twice":       judge(more, repeats, refused, forgetful),
		"forgotten":        judge(less, repeats, refused, forgetful),
		"repeat not seen":  judge(good, repeats+1, refused, forgetful),
		"late write paid":  judge(good, repeats, rewards.Record{Outcome: "applied", Token: 7}, forgetful),
		"refused by what?": judge(good, repeats, rewards.Record{Outcome: "stale", Token: 7, Current: 7}, forgetful),
		"SDK too late":     judge(good, repeats, refused, careful),
	} {
		if err == nil {
			t.Errorf("%s: not found", name)
		}
	}
}
