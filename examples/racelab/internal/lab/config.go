package lab

import (
	"time"

	"github.com/fenced/fenced/examples/racelab/internal/plan"
)

// A Config says what to run. [Default] and [Quick] return the two that there are;
// tests make smaller ones.
type Config struct {
	// Seed makes the plan: one seed stalls the same steps for the same time.
	Seed uint64
	Size plan.Size
	// TTL of every lock: whole seconds, because etcd's are.
	TTL time.Duration
	// Workers share the steps.
	Workers int
	// Real makes each worker a process that is stopped by SIGSTOP where it stalls,
	// instead of a goroutine that sleeps behind a closed gate.
	Real bool
	// MinLongStalls is how many stalls must outlast the TTL in every way for the
	// run to mean anything.
	MinLongStalls int
	// Pace is how often each worker begins a transaction in the latency pass, Rounds
	// how often that pass visits each way, and PerRound how many transactions each
	// worker then does.
	Pace             time.Duration
	Rounds, PerRound int
	// Progress is told how far a part of the run is. Defaults to nobody.
	Progress func(part string, done, total int)
}

// Default returns what the lab runs unless it is told otherwise.
func Default(seed uint64) Config {
	return Config{
		Seed: seed,
		Size: plan.Size{
			Updates: 1000, Payments: 1000, Accounts: 12, Stalls: 100,
			StallMin: time.Second, StallMax: 5 * time.Second,
		},
		TTL: 3 * time.Second, Workers: 64, MinLongStalls: 12,
		Pace: 400 * time.Millisecond, Rounds: 40, PerRound: 1,
	}
}

// Quick returns a run of less than 50 seconds.
func Quick(seed uint64) Config {
	c := Default(seed)
	c.Size.Updates, c.Size.Payments, c.Size.Stalls = 400, 400, 36
	c.Size.StallMin, c.Size.StallMax = 300*time.Millisecond, 1700*time.Millisecond
	c.TTL = time.Second
	c.Rounds = 4
	return c
}

func (c Config) progress(part string, done, total int) {
	if c.Progress != nil {
		c.Progress(part, done, total)
	}
}
