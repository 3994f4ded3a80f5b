package daemon

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"
)

// StartTimeout bounds the start of a shared server, also on a busy machine.
const StartTimeout = time.Minute

// Shared is a server that is started by the first test that asks.
type Shared[S interface{ Stop() error }] struct {
	// Start starts it.
	Start func(ctx context.Context) (S, error)

	mu      sync.Mutex
	tried   bool
	started bool
	server  S
	err     error // of the one attempt to start, told to every test
}

// Get returns the server.
func (s *Shared[S]) Get() (S, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tried {
		s.tried = true
		ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
		defer cancel()
		s.server, s.err = s.Start(ctx)
		s.started = s.err == nil
	}
	return s.server, s.err
}

// Stop stops the server if it was started.
func (s *Shared[S]) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		return nil
	}
	return s.server.Stop()
}

// Runner is the part of *testing.M that [Main] uses.
type Runner interface{ Run() int }

// Main returns a Runner that runs m and then calls stop.
func Main(m Runner, stop func() error) Runner { return mainRunner{m, stop} }

type mainRunner struct {
	m    Runner
	stop func() error
}

func (r mainRunner) Run() int {
	code := r.m.Run()
	if err := r.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the shared server:", err)
		return 1
	}
	return code
}
