package rewards_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

// lines is a log, a line at a time.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

func (l lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// next returns when the next line holds text.
func (l lines) next(t *testing.T, text string) {
	t.Helper()
	select {
	case line := <-l:
		if !strings.Contains(line, text) {
			t.Errorf("the log says %q, want %q", line, text)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("nothing in the log, want %q", text)
	}
}

// Who works on through an outage says so, once, and once that it is over: a database
// of another name would otherwise look like one where nothing is due.
func TestRun_tellsOfAnOutage(t *testing.T) {
	t.Parallel()
	locks := fakeLocks(t)
	for name, runOf := range map[string]func(t *testing.T, s *stage, log *slog.Logger) func(context.Context) error{
		"worker": func(t *testing.T, s *stage, log *slog.Logger) func(context.Context) error {
			w, err := rewards.NewWorker(rewards.WorkerConfig{Pool: s.pool, Locks: locks, Poll: 10 * time.Millisecond, Log: log})
			if err != nil {
				t.Fatal(err)
			}
			return w.Run
		},
		"publisher": func(t *testing.T, s *stage, log *slog.Logger) func(context.Context) error {
			cfg := s.config(t)
			cfg.Drain, cfg.Log = false, log
			p, err := rewards.NewPublisher(cfg)
			if err != nil {
				t.Fatal(err)
			}
			return p.Run
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &stage{pool: pgtest.New(t), items: httptest.NewServer(nil)}
			t.Cleanup(s.items.Close)
			log := make(lines, 100)
			stop := start(t, runOf(t, s, log.logger()))
			log.next(t, "the database cannot be used")
			if err := rewards.Install(t.Context(), s.pool); err != nil {
				t.Fatal(err)
			}
			log.next(t, "the database can be used again")
			stop()
			if len(log) > 0 {
				t.Errorf("the log says more: %q", <-log)
			}
		})
	}
}

func TestPublisher_tellsOfAnItemServerThatIsAway(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 1)
	log := make(lines, 100)
	cfg := s.config(t)
	cfg.Log = log.logger()
	s.items.Close()
	p, err := rewards.NewPublisher(cfg)
	if err != nil {
		t.Fatal(err)
	}
	stop := start(t, p.Run)
	log.next(t, "the item server cannot be used")
	stop()
}
