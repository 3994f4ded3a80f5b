package clock

import (
	"testing"
	"time"
)

// Where two clocks disagree, the one that says later counts: a deadline that either
// has passed is passed.
func TestInstant_TheEarlierDeadlineCounts(t *testing.T) {
	t.Parallel()
	begun := Instant{}
	deadline := begun.Add(10 * time.Second)
	for name, now := range map[string]Instant{
		"wall clock stepped ahead":           {mono: time.Second, wall: 11 * time.Second},
		"wall clock stepped back":            {mono: 11 * time.Second, wall: -time.Hour},
		"monotonic clock stood in a suspend": {mono: time.Second, wall: time.Hour},
	} {
		if now.Until(deadline) > 0 {
			t.Errorf("%s: %s left, want none", name, now.Until(deadline))
		}
	}
}
