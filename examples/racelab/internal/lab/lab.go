package lab

import (
	"context"
	"fmt"

	"github.com/fenced/fenced/examples/racelab/internal/ledger"
	"github.com/fenced/fenced/examples/racelab/internal/stage"
	"github.com/fenced/fenced/tokens/pgfence"
)

// run is one run of the lab.
type run struct {
	config    Config
	stage     *stage.Stage
	endpoints Endpoints
	// guards replaces the guard of a way; for tests that plant a broken one.
	guards map[Way]ledger.Guard
}

func newRun(s *stage.Stage, config Config) *run {
	e := Endpoints{DSN: s.DSN, Etcd: s.Etcd, Fenced: s.Fenced}
	if s.NoRedis == nil {
		e.Redis = s.Redis.Addr
		for _, r := range s.Redlock {
			e.Redlock = append(e.Redlock, r.Addr)
		}
	}
	return &run{config: config, stage: s, endpoints: e}
}

func (r *run) guardOf(w Way) ledger.Guard {
	if g, ok := r.guards[w]; ok {
		return g
	}
	return w.guard()
}

// Run runs every way and returns what the database then says. It blocks until all
// is done or ctx ends. An error means that the lab itself could not go on.
func Run(ctx context.Context, s *stage.Stage, config Config) (*Result, error) {
	return newRun(s, config).all(ctx)
}

func (r *run) all(ctx context.Context) (*Result, error) {
	if err := r.config.Size.Validate(); err != nil {
		return nil, err
	}
	if err := pgfence.Install(ctx, r.stage.Pool); err != nil {
		return nil, err
	}
	res := newResult(r.config)
	var ran []Way
	for _, w := range append(Ways(), RedlockRestart) {
		row := &Row{Way: w}
		if w.needsRedis() && r.stage.NoRedis != nil {
			row.Skipped = r.stage.NoRedis.Error()
		} else {
			if err := r.measure(ctx, w, row); err != nil {
				return nil, fmt.Errorf("%s: %w", w.Title(), err)
			}
			ran = append(ran, w)
		}
		res.add(row)
	}
	story, err := r.story(ctx)
	if err != nil {
		return nil, err
	}
	res.Story = story
	return res, r.time(ctx, res, ran)
}

// measure runs one way and counts.
func (r *run) measure(ctx context.Context, w Way, row *Row) error {
	l, err := r.contend(ctx, w)
	if err != nil {
		return err
	}
	counts, err := l.Count(ctx, r.config.TTL, w.exclusive())
	if err != nil {
		return err
	}
	row.fill(counts, r.config)
	return nil
}

// time adds the latencies to the rows. The variant of Redlock has none of its own.
func (r *run) time(ctx context.Context, res *Result, ran []Way) error {
	var ways []Way
	for _, w := range ran {
		if w != RedlockRestart {
			ways = append(ways, w)
		}
	}
	took, err := r.latencies(ctx, ways)
	if err != nil {
		return err
	}
	for _, row := range res.Ways {
		row.Samples = len(took[row.Way])
		row.P50MS, row.P99MS = quantile(took[row.Way], 0.50), quantile(took[row.Way], 0.99)
	}
	res.compare()
	return nil
}

func (r *run) ledger(w Way) *ledger.Ledger { return ledger.Open(r.stage.Pool, string(w), r.guardOf(w)) }
