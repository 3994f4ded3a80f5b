package rewards

import (
	"testing"
	"time"
)

func TestLane(t *testing.T) {
	t.Parallel()
	var l lane
	const longest = time.Minute
	for n := range 40 { // far beyond the attempts of any row
		if d := l.after(false, time.Second, longest); d <= 0 || d > longest+time.Millisecond {
			t.Fatalf("failure %d: pause %v, want up to %v", n+1, d, longest)
		}
		if got := l.batch(16); got != 1 {
			t.Fatalf("failure %d: batch of %d, want one row to try with", n+1, got)
		}
	}
	if d := l.after(true, time.Second, longest); d != 0 || l.batch(16) != 16 {
		t.Errorf("after an answer: pause %v, batch %d; want none and 16", d, l.batch(16))
	}
}
