package clock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenced/fenced/clientsdk/internal/clock"
)

func TestSystem_Advances(t *testing.T) {
	t.Parallel()
	for name, now := range map[string]clock.Func{"system": clock.System, "go": clock.Go} {
		first := now()
		<-time.After(20 * time.Millisecond)
		if d := now().Sub(first); d < 20*time.Millisecond || d > time.Minute {
			t.Errorf("%s: %s passed in 20ms", name, d)
		}
	}
}

func TestInstant_Arithmetic(t *testing.T) {
	t.Parallel()
	i := clock.System()
	if d := i.Add(time.Second).Sub(i); d != time.Second {
		t.Errorf("Sub = %s, want 1s", d)
	}
	if d := i.Until(i.Add(time.Second)); d != time.Second {
		t.Errorf("Until = %s, want 1s", d)
	}
	if d := i.Add(time.Second).Until(i); d != -time.Second {
		t.Errorf("Until = %s, want -1s", d)
	}
}

func TestGo_IsVirtualInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := clock.Go()
		time.Sleep(time.Hour) // virtual
		if d := clock.Go().Sub(first); d != time.Hour {
			t.Errorf("%s passed, want 1h", d)
		}
	})
}
