package rewards_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
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

// A delivery that is no reward has perhaps no lock either: it is dead at once, and the
// drain ends.
func TestWorker_buries_what_is_no_reward(t *testing.T) {
	t.Parallel()
	pool := ledger(t)
	locks := fakeLocks(t)
	bad := []string{"a\tb", "e\u0301", "a\u200db", "..", strings.Repeat("p", 64)}
	for _, p := range bad { // past Deliver, as another producer would
		if _, err := pool.Exec(t.Context(), `INSERT INTO reward_message (player_id, reward_event_id, amount) VALUES ($1, $2, 5)`,
			p, "season-2026-week-34:player-"+p+":rank-1-"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var tries atomic.Int64
	w, err := rewards.NewWorker(rewards.WorkerConfig{Pool: pool, Locks: locks, Drain: true,
		Report: func(a rewards.Attempt) {
			if tries.Add(1) > int64(len(bad)) {
				t.Errorf("%q was tried again: %v", a.Reward.Player, a.Err)
				stop()
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		t.Errorf("the drain ended with %v", err)
	}
	if dead, err := rewards.DeadMessages(t.Context(), pool); err != nil || len(dead) != len(bad) {
		t.Errorf("dead: %+v, %v, want all %d", dead, err, len(bad))
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
