package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/pflag"

	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/tokens"
)

// faultFlags make a process stop or kill itself once, at a named step. From inside
// is the only place from which "between the last look at the hold and the write"
// can be hit every time, and the signals are the real ones.
type faultFlags struct {
	signal string // "", stop, kill
	step   string
	on     string
	after  int
}

func (f *faultFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.signal, "fault", "", "send yourself a signal once: stop or kill")
	flags.StringVar(&f.step, "fault-at", string(rewards.Looked), "step at which to do it")
	flags.StringVar(&f.on, "fault-on", "", "key of the reward, or 'redelivered': one with a further message in the inbox (default: any)")
	flags.IntVar(&f.after, "fault-after", 0, "let so many rewards pass the step first")
}

// trigger returns a function that is called with each step reached, and true the
// once that the fault is due; announce has then written what is about to happen.
// nil means that no fault was asked for.
func (f *faultFlags) trigger(out *printer, steps ...rewards.Step) (func(rewards.Step, rewards.Record, func() bool), error) {
	if f.signal == "" {
		return nil, nil
	}
	if _, known := signals[f.signal]; !known {
		return nil, fmt.Errorf("--fault is %q, must be stop or kill, and needs Linux", f.signal)
	}
	if !slices.Contains(steps, rewards.Step(f.step)) {
		return nil, fmt.Errorf("--fault-at is %q, must be one of %v", f.step, steps)
	}
	var mu sync.Mutex
	passed, over := 0, false
	return func(step rewards.Step, l rewards.Record, matches func() bool) {
		mu.Lock()
		defer mu.Unlock()
		if over || step != rewards.Step(f.step) {
			return
		}
		passed++
		if passed <= f.after || !matches() {
			return
		}
		over = true
		l.Kind, l.Step = "fault", step
		out.print(l)
		if err := raise(f.signal); err != nil {
			panic(err) // a test of a fault that was not injected must not pass
		}
	}, nil
}

// at is the fault in the form of a worker's hook.
func (f *faultFlags) at(ctx context.Context, pool *pgxpool.Pool, out *printer) (func(rewards.Step, rewards.Reward, tokens.Token), error) {
	hit, err := f.trigger(out, rewards.Steps...)
	if hit == nil {
		return nil, err
	}
	return func(step rewards.Step, r rewards.Reward, t tokens.Token) {
		hit(step, rewards.Record{Key: r.Key(), Token: t}, func() bool {
			if f.on == "redelivered" {
				return redelivered(ctx, pool, r)
			}
			return f.on == "" || f.on == r.Key()
		})
	}, nil
}
