package lockserver

import (
	"testing"
	"time"

	"github.com/fenced/fenced/lockserver/embedded"
)

func TestRestored_Bump(t *testing.T) {
	t.Parallel()
	if restoreBump != embedded.RevisionBump {
		t.Fatalf("%d here, %d there", int64(restoreBump), int64(embedded.RevisionBump))
	}
}

// A clock that is right puts tokens on the line, whatever the snapshot; one that cannot
// be right changes nothing.
func TestRestored_Lifted(t *testing.T) {
	t.Parallel()
	at := func(year int) time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
	const (
		year = 365 * 24 * 3600 * 100_000
		bump = restoreBump
		line = bump + 6*year + 2*24*3600*100_000 // at the start of 2026
	)
	for name, tc := range map[string]struct {
		found restored
		now   time.Time
		first int64 // what the base and the revision come to
		ok    bool
	}{
		"a store that was never restored":      {restored{rev: bump + 7}, at(2026), line, true},
		"a moment later":                       {restored{rev: bump + 7}, at(2026).Add(time.Second), line + 100_000, true},
		"a floor that was raised":              {restored{rev: bump + 7, base: 1e15}, at(2026), 1e15 + line, true},
		"a store that was restored before":     {restored{rev: 2*bump + 9, base: line - year - bump, clock: line - year - bump}, at(2026), line, true},
		"one restored a second ago":            {restored{rev: 2*bump + 9, base: line - bump - 100_000, clock: line - bump - 100_000}, at(2026), line, true},
		"and with a floor that was raised":     {restored{rev: 2*bump + 9, base: 1e15 + line - bump - 100_000, clock: line - bump - 100_000}, at(2026), 1e15 + line, true},
		"restored without a line, 19 times":    {restored{rev: 19*bump + 9}, at(2026), line, true},
		"restored without a line, 30 times":    {restored{rev: 30*bump + 9}, at(2026), 30*bump + 9, false},
		"a clock that is behind the snapshot":  {restored{rev: 2*bump + 9, base: line, clock: line}, at(2025), line + 2*bump + 9, false},
		"a clock of 1970":                      {restored{rev: bump + 7}, time.Unix(0, 0), bump + 7, false},
		"a clock that was never set":           {restored{rev: bump + 7}, time.Time{}, bump + 7, false},
		"a clock of a far future":              {restored{rev: bump + 7}, at(2120), bump + 7, false},
		"no room below the highest base":       {restored{rev: bump + 7, base: maxBase - 1}, at(2026), maxBase - 1 + bump + 7, false},
		"a base that would fall below nothing": {restored{rev: 20*bump + 9, clock: 0}, at(2026).Add(-time.Duration(line-19*bump-10) * lineTick), 20*bump + 9, false},
	} {
		base, clock, ok := tc.found.lifted(tc.now)
		if first := base + tc.found.rev; first != tc.first || ok != tc.ok {
			t.Errorf("%s: tokens from %d on, %t, want %d, %t", name, first, ok, tc.first, tc.ok)
		}
		if was := tc.found.base - tc.found.clock; base-clock != was {
			t.Errorf("%s: without the clock the base is %d, was %d", name, base-clock, was)
		}
	}
}
