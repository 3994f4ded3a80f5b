package plan

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A Kind is what a step does.
type Kind string

const (
	// Update reads a balance, adds to it and writes the sum: the read, modify, write
	// that a lock is there to protect.
	Update Kind = "update"
	// Pay looks whether a reward is paid and pays it if it is not. Every reward is
	// delivered twice, as queues do.
	Pay Kind = "pay"
)

// A Step is one transaction of the workload.
type Step struct {
	// N is the step's place in the plan, from 0.
	N    int
	Kind Kind
	// Key is the account, from 0 to Size.Accounts-1, or the reward.
	Key int
	// Amount is added to the account or paid for the reward.
	Amount int64
	// Stall is how long the worker stands still between reading and writing; 0 for
	// most steps.
	Stall time.Duration
}

// Lock is the name of the lock that the step is done under.
func (s Step) Lock() string {
	if s.Kind == Update {
		return fmt.Sprintf("account/%d", s.Key)
	}
	return fmt.Sprintf("reward/%d", s.Key)
}

// A Size says how large a workload is.
type Size struct {
	// Updates and Payments are the steps of each kind; Payments must be even.
	Updates, Payments int
	// Accounts share the updates.
	Accounts int
	// Stalls is the number of steps that stall, half of each kind; even.
	Stalls int
	// StallMin and StallMax bound the stalls.
	StallMin, StallMax time.Duration
}

// Rewards is the number of rewards: each is delivered twice.
func (s Size) Rewards() int { return s.Payments / 2 }

// Validate names the first number that makes no plan.
func (s Size) Validate() error {
	switch {
	case s.Accounts < 1:
		return fmt.Errorf("plan: Accounts must be at least 1, not %d", s.Accounts)
	case s.Updates < 1, s.Payments < 2, s.Payments%2 != 0:
		return fmt.Errorf("plan: Updates must be at least 1 and Payments even and at least 2, not %d and %d", s.Updates, s.Payments)
	case s.Stalls < 0, s.Stalls%2 != 0, s.Stalls/2 > s.early(s.Updates), s.Stalls/2 > s.early(s.Rewards()):
		return fmt.Errorf("plan: Stalls must be even and fit into %d updates and %d rewards, not %d", s.Updates, s.Rewards(), s.Stalls)
	case s.StallMin < 0, s.StallMax < s.StallMin:
		return fmt.Errorf("plan: stalls from %s to %s are no range", s.StallMin, s.StallMax)
	}
	return nil
}

// early is how many of n steps may stall: a stall at the end harms nobody, because
// nobody comes after it, and makes all wait for it.
func (s Size) early(n int) int { return n * 3 / 5 }

// New returns the plan of a seed. It panics where size is not valid.
func New(seed uint64, size Size) []Step {
	if err := size.Validate(); err != nil {
		panic(err)
	}
	rng := rand.New(rand.NewPCG(seed, 0x7ace1ab))
	stalls := durations(rng, size)
	steps := spread(rng,
		updates(rng, size, stalls[:size.Stalls/2]),
		payments(rng, size, stalls[size.Stalls/2:]))
	for n := range steps {
		steps[n].N = n
	}
	return steps
}

// durations draws one stall from each of Stalls equal parts of the range, so that
// how many outlast the TTL is not left to luck, and shuffles them.
func durations(rng *rand.Rand, size Size) []time.Duration {
	all := make([]time.Duration, size.Stalls)
	span := float64(size.StallMax - size.StallMin)
	for i := range all {
		at := (float64(i) + rng.Float64()) / float64(size.Stalls)
		all[i] = (size.StallMin + time.Duration(at*span)).Round(time.Millisecond)
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// updates visits the accounts in turn, and so do those that stall, because two stalls
// on one account wait for each other.
func updates(rng *rand.Rand, size Size, stalls []time.Duration) [][]Step {
	turn := rng.Perm(size.Accounts)
	units := make([][]Step, size.Updates)
	for i := range units {
		units[i] = []Step{{Kind: Update, Key: turn[i%size.Accounts], Amount: 1 + rng.Int64N(100)}}
	}
	place(size.early(size.Updates), stalls, func(k, i int, stall time.Duration) {
		units[i][0].Stall, units[i][0].Key = stall, turn[k%size.Accounts]
	})
	return units
}

// payments delivers each reward twice in a row. The first delivery may stall.
func payments(rng *rand.Rand, size Size, stalls []time.Duration) [][]Step {
	units := make([][]Step, size.Rewards())
	for i := range units {
		delivery := Step{Kind: Pay, Key: i, Amount: 100 * (1 + rng.Int64N(50))}
		units[i] = []Step{delivery, delivery}
	}
	place(size.early(size.Rewards()), stalls, func(_, i int, stall time.Duration) { units[i][0].Stall = stall })
	return units
}

// place spreads the stalls evenly over the first n units: the k-th to unit i.
func place(n int, stalls []time.Duration, set func(k, i int, stall time.Duration)) {
	for k, stall := range stalls {
		set(k, k*n/len(stalls), stall)
	}
}

// spread merges two lists at random and keeps the order within each.
func spread(rng *rand.Rand, a, b [][]Step) []Step {
	var all []Step
	for len(a)+len(b) > 0 {
		from := &a
		if rng.IntN(len(a)+len(b)) >= len(a) {
			from = &b
		}
		all = append(all, (*from)[0]...)
		*from = (*from)[1:]
	}
	return all
}
