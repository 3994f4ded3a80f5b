package rewards_test

import (
	"fmt"
	"testing"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

func TestNewWorker_refuses(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	locks, err := clientsdk.New(clientsdk.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	for name, cfg := range map[string]rewards.WorkerConfig{
		"no pool":              {Locks: locks},
		"no lock service":      {Pool: pool},
		"negative TTL":         {Pool: pool, Locks: locks, TTL: -1},
		"negative poll":        {Pool: pool, Locks: locks, Poll: -1},
		"negative concurrency": {Pool: pool, Locks: locks, Concurrency: -1},
	} {
		if _, err := rewards.NewWorker(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := rewards.NewWorker(rewards.WorkerConfig{Pool: pool, Locks: locks}); err != nil {
		t.Errorf("defaults: %v", err)
	}
}

func ExampleEvent_ID() {
	id, err := rewards.Event{Season: "2026", Content: "week-34", Player: "42", Kind: "rank", Item: "3"}.ID()
	fmt.Println(id, err)

	_, err = rewards.Event{Season: "2026", Content: "week-34", Player: "42", Kind: "rank", Item: "1788000000123"}.ID()
	fmt.Println(err != nil)
	// Output:
	// season-2026-week-34:player-42:rank-3 <nil>
	// true
}
