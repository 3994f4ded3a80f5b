package lab

import (
	"context"

	"github.com/fenced/fenced/examples/racelab/internal/ledger"
)

// A Story is one reward of the run, as it went with the lock alone and as it went
// with the guard: the same step stalled.
type Story struct {
	Reward int `json:"reward"`
	// Step is the one that stalled.
	Step int `json:"step"`
	// Alone is what the log says of the reward where nothing guarded it.
	Alone []ledger.Event `json:"-"`
	// Guarded is what it says where the guard did.
	Guarded []ledger.Event `json:"-"`
}

// story finds a reward that was paid twice under fenced's lock alone, because a
// worker stalled, and for which the same worker's step was refused with the guard.
// nil where the run has none.
func (r *run) story(ctx context.Context) (*Story, error) {
	alone, guarded := r.ledger(FencedUnguarded), r.ledger(FencedGuard)
	cases, err := alone.Doubles(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range cases {
		events, err := guarded.Story(ctx, c.Reward)
		if err != nil {
			return nil, err
		}
		if !refusedStep(events, c.Step) {
			continue
		}
		s := &Story{Reward: c.Reward, Step: c.Step, Guarded: events}
		s.Alone, err = alone.Story(ctx, c.Reward)
		return s, err
	}
	return nil, nil
}

func refusedStep(events []ledger.Event, step int) bool {
	for _, e := range events {
		if e.What == "refused" && e.Step == step {
			return true
		}
	}
	return false
}
