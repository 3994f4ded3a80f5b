package plan_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/examples/racelab/internal/plan"
)

func anySize() *rapid.Generator[plan.Size] {
	return rapid.Custom(func(t *rapid.T) plan.Size {
		s := plan.Size{
			Updates: rapid.IntRange(10, 200).Draw(t, "updates"), Payments: 2 * rapid.IntRange(10, 100).Draw(t, "rewards"),
			Accounts: rapid.IntRange(1, 12).Draw(t, "accounts"), StallMin: 300 * time.Millisecond, StallMax: 1700 * time.Millisecond,
		}
		s.Stalls = 2 * rapid.IntRange(0, min(s.Updates, s.Rewards())*3/5).Draw(t, "stalls")
		return s
	})
}

func TestNew_OneSeedGivesOnePlan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size, seed := anySize().Draw(t, "size"), rapid.Uint64().Draw(t, "seed")
		first := plan.New(seed, size)
		if diff := cmp.Diff(first, plan.New(seed, size)); diff != "" {
			t.Fatalf("two plans of seed %d differ (-first +second):\n%s", seed, diff)
		}
		if size.Stalls > 0 && cmp.Equal(first, plan.New(seed+1, size)) {
			t.Fatalf("seeds %d and %d give one plan", seed, seed+1)
		}
	})
}

func TestNew_HasWhatTheSizeSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := anySize().Draw(t, "size")
		var updates, stalls int
		deliveries := make(map[int]int)
		for n, s := range plan.New(rapid.Uint64().Draw(t, "seed"), size) {
			if s.N != n {
				t.Fatalf("step %d calls itself %d", n, s.N)
			}
			if s.Kind == plan.Update {
				updates++
			} else {
				deliveries[s.Key]++
			}
			if s.Stall != 0 {
				stalls++
				if s.Stall < size.StallMin || s.Stall > size.StallMax {
					t.Fatalf("step %d stalls for %s", n, s.Stall)
				}
			}
		}
		if updates != size.Updates || stalls != size.Stalls || len(deliveries) != size.Rewards() {
			t.Fatalf("got %d updates, %d stalls, %d rewards; want %+v", updates, stalls, len(deliveries), size)
		}
		for reward, n := range deliveries {
			if n != 2 {
				t.Fatalf("reward %d is delivered %d times", reward, n)
			}
		}
	})
}

// Stalls on one account wait for each other, so no account may have more than its
// share.
func TestNew_StallsAreSharedByTheAccounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := anySize().Draw(t, "size")
		stalls := make(map[int]int)
		for _, s := range plan.New(rapid.Uint64().Draw(t, "seed"), size) {
			if s.Kind == plan.Update && s.Stall > 0 {
				stalls[s.Key]++
			}
		}
		share := (size.Stalls/2 + size.Accounts - 1) / size.Accounts
		for account, n := range stalls {
			if n > share {
				t.Fatalf("account %d has %d of %d stalls, more than its share of %d", account, n, size.Stalls/2, share)
			}
		}
	})
}

// How many stalls outlast a TTL in the middle of the range must not depend on the
// seed: a run with too few of them means nothing.
func TestNew_HalfOfTheStallsAreInTheUpperHalf(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := anySize().Draw(t, "size")
		long := 0
		for _, s := range plan.New(rapid.Uint64().Draw(t, "seed"), size) {
			if s.Stall >= (size.StallMin+size.StallMax)/2 {
				long++
			}
		}
		if diff := long - size.Stalls/2; diff < -1 || diff > 1 {
			t.Fatalf("%d of %d stalls are in the upper half", long, size.Stalls)
		}
	})
}

func TestSize_Validate(t *testing.T) {
	t.Parallel()
	good := plan.Size{Updates: 10, Payments: 10, Accounts: 2, Stalls: 4, StallMin: 1, StallMax: 2}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*plan.Size){
		"no account":          func(s *plan.Size) { s.Accounts = 0 },
		"odd payments":        func(s *plan.Size) { s.Payments = 11 },
		"odd stalls":          func(s *plan.Size) { s.Stalls = 3 },
		"too many stalls":     func(s *plan.Size) { s.Stalls = 20 },
		"a range upside down": func(s *plan.Size) { s.StallMin = 3 },
	} {
		bad := good
		spoil(&bad)
		if bad.Validate() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
