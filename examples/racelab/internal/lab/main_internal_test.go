//go:build unix

package lab

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fenced/fenced/examples/racelab/internal/plan"
	"github.com/fenced/fenced/examples/racelab/internal/stage"
	"github.com/fenced/fenced/tokens/pgfence"
)

// servers are shared by all tests; each way has schemas of its own, so tests that
// use one way do not run at the same time.
var servers *stage.Stage

func TestMain(m *testing.M) {
	stage.ChildMain(map[string]func() error{WorkerRole: WorkerMain})
	goleak.VerifyTestMain(staged{m})
}

type staged struct{ m *testing.M }

// Run opens the servers, runs the tests and closes them.
func (s staged) Run() int {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var err error
	if servers, err = stage.Open(ctx); err == nil {
		err = pgfence.Install(ctx, servers.Pool)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if servers.NoRedis != nil {
		fmt.Println("without the ways of Redis:", servers.NoRedis)
	}
	code := s.m.Run()
	if err := servers.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// small is a run of a few seconds a way.
func small() Config {
	c := Quick(7)
	c.Size = plan.Size{Updates: 80, Payments: 80, Accounts: 4, Stalls: 16, StallMin: 300 * time.Millisecond, StallMax: 1700 * time.Millisecond}
	c.Workers, c.MinLongStalls, c.Rounds = 24, 6, 1
	return c
}
