package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// footprint is what a load could leave in a server.
type footprint struct {
	memory
	Goroutines int `json:"goroutines"`
	Leases     int `json:"leases"`
	Keys       int `json:"keys"`
	Holds      int `json:"holds"`
	Sessions   int `json:"sessions"`
}

func (e *engine) footprint(ctx context.Context) (any, error) {
	weight, err := inspect("memory", nil)
	if err != nil {
		return nil, err
	}
	leases, err := e.node.Client().Leases(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := e.node.Client().Get(ctx, "", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return nil, err
	}
	status, err := e.Status(ctx)
	return footprint{
		memory: weight.(memory), Goroutines: runtime.NumGoroutine(), Leases: len(leases.Leases), Keys: int(keys.Count),
		Holds: status.Holds, Sessions: status.Sessions,
	}, err
}

// loadPlan is one load run.
type loadPlan struct {
	rate    float64 // requests a second
	clients int
	// warm is how long the load goes on before it counts: the memory of ended holds
	// and the store's last minute are full only then. 0 says nothing of memory.
	warm, run time.Duration
	// settle bounds how long the server may take to be as before: kept places,
	// leases and sessions lapse within it.
	settle time.Duration
}

func fullLoad(run time.Duration) loadPlan {
	return loadPlan{rate: 10_000, clients: 256, warm: 180 * time.Second, run: run, settle: 90 * time.Second}
}

// maxGrowth is how much more the live heap may be after the load than before it, as
// a part and in KiB: how much of the last minute the store still has varies.
const (
	maxGrowth    = 0.2
	maxGrowthKiB = 8 << 10
)

// loadResult is what a load run saw.
type loadResult struct {
	plan                       loadPlan
	seen                       *tally
	took                       time.Duration
	idle, before, after, rests footprint
	settled                    time.Duration
}

// loadRun loads a server of its own.
func loadRun(ctx context.Context, plan loadPlan, dir string) (*loadResult, error) {
	var ready address
	p, err := spawnRole(roleServer, filepath.Join(dir, "data"), &ready)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	r := &loadResult{plan: plan}
	if err := errors.Join(p.ask(nil, "upkeep"), p.ask(&r.idle, "footprint")); err != nil {
		return nil, err
	}
	s := newStorm(ready.Addr, plan.rate, plan.clients)
	defer s.close()
	if _, err := s.blow(ctx, plan.warm); err != nil {
		return nil, err
	}
	if err := p.ask(&r.before, "footprint"); err != nil {
		return nil, err
	}
	begin := time.Now()
	if r.seen, err = s.blow(ctx, plan.run); err != nil {
		return nil, err
	}
	r.took = time.Since(begin)
	if err := p.ask(&r.after, "footprint"); err != nil {
		return nil, err
	}
	s.close()
	return r, r.settle(ctx, p)
}

// lastingKeys are those that the first hold makes and none takes away: who ended what.
const lastingKeys = 1

// settle waits until nothing is left of the load. It polls: nobody tells.
func (r *loadResult) settle(ctx context.Context, p *process) error {
	begin := time.Now()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := p.ask(&r.rests, "footprint"); err != nil {
			return err
		}
		r.settled = time.Since(begin)
		if r.leak() == nil || r.settled > r.plan.settle {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// leak names what is more than before the load.
func (r *loadResult) leak() error {
	for name, n := range map[string][2]int{
		"goroutines": {r.idle.Goroutines, r.rests.Goroutines},
		"leases":     {r.idle.Leases, r.rests.Leases},
		"keys":       {r.idle.Keys + lastingKeys, r.rests.Keys},
		"holds":      {0, r.rests.Holds},
		"sessions":   {0, r.rests.Sessions},
	} {
		if n[1] > n[0] {
			return fmt.Errorf("%d %s are left, %d at the start", n[1], name, n[0])
		}
	}
	return nil
}

// verdict returns what the load showed to be wrong.
func (r *loadResult) verdict() error {
	errs := []error{r.leak()}
	if r.seen.wrong > 0 {
		errs = append(errs, fmt.Errorf("%d answers that may not be: %q", r.seen.wrong, r.seen.faults))
	}
	allowed := r.before.HeapKiB*(1+maxGrowth) + maxGrowthKiB
	if r.plan.warm > 0 && r.after.HeapKiB > allowed {
		errs = append(errs, fmt.Errorf("the live heap grew from %.0f to %.0f KiB", r.before.HeapKiB, r.after.HeapKiB))
	}
	return errors.Join(errs...)
}

func (r *loadResult) write(out io.Writer) {
	fmt.Fprintf(out, "%d requests of %d kinds in %s, %.0f a second (asked for: %.0f), from %d clients on the same machine\n",
		r.seen.sent, len(kinds), r.took.Round(time.Millisecond), float64(r.seen.sent)/r.took.Seconds(), r.plan.rate, r.plan.clients)
	fmt.Fprintf(out, "time to the answer: p50 %.1f ms, p99 %.1f ms\n",
		micros(quantile(r.seen.times, 0.5))/1000, micros(quantile(r.seen.times, 0.99))/1000)
	for _, status := range slices.Sorted(maps.Keys(r.seen.statuses)) {
		what := fmt.Sprint(status)
		if status == 0 {
			what = "closed"
		}
		fmt.Fprintf(out, "  %-6s %8d\n", what, r.seen.statuses[status])
	}
	fmt.Fprintf(out, "answers that may not be: %d\n", r.seen.wrong)
	fmt.Fprintf(out, "%-22s %10s %8s %8s %8s %10s %10s\n", "", "goroutines", "leases", "keys", "holds", "heap MiB", "RSS MiB")
	for _, row := range []struct {
		name string
		f    footprint
	}{{"idle", r.idle}, {"warm", r.before}, {"after the load", r.after}, {fmt.Sprintf("%.0f s later", r.settled.Seconds()), r.rests}} {
		fmt.Fprintf(out, "%-22s %10d %8d %8d %8d %10.1f %10.1f\n", row.name, row.f.Goroutines, row.f.Leases, row.f.Keys, row.f.Holds,
			row.f.HeapKiB/1024, row.f.ResidentKiB/1024)
	}
}

// underLoad is a load run that is told to people.
func underLoad(ctx context.Context, plan loadPlan, dir string, out io.Writer) error {
	r, err := loadRun(ctx, plan, dir)
	if err != nil {
		return err
	}
	r.write(out)
	return r.verdict()
}
