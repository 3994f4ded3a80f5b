package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/examples/rewards"
)

func publishCmd(open openFunc) *cobra.Command {
	var cfg rewards.PublisherConfig
	var fault faultFlags
	cmd := &cobra.Command{
		Use:   "publish",
		Short: "Tell the item server what the outbox holds; prints one JSON object a dead letter",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, out := cmd.Context(), &printer{w: cmd.OutOrStdout()}
			pool, err := open(ctx)
			if err != nil {
				return err
			}
			defer pool.Close()
			cfg.Pool = pool
			cfg.Log = logger(cmd)
			cfg.Alarm = func(key string, reason error) {
				out.print(rewards.Record{Kind: "dead", Key: key, Error: fmt.Sprint(reason)})
			}
			hit, err := fault.trigger(out, rewards.Calling, rewards.Answered)
			if err != nil {
				return err
			}
			if hit != nil {
				cfg.At = func(step rewards.Step, key string) {
					hit(step, rewards.Record{Key: key}, func() bool { return fault.on == "" || fault.on == key })
				}
			}
			p, err := rewards.NewPublisher(cfg)
			if err != nil {
				return err
			}
			out.print(rewards.Record{Kind: "ready"})
			return ended(cfg.Drain, p.Run(ctx))
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Items, "items", "http://127.0.0.1:7430", "base URL of the item server")
	f.DurationVar(&cfg.Lease, "lease", 30*time.Second, "how long a claimed row is hidden from other publishers")
	f.IntVar(&cfg.Batch, "batch", 16, "rows claimed and called at once")
	f.IntVar(&cfg.Attempts, "attempts", 20, "attempts after which a row is dead")
	f.DurationVar(&cfg.FirstRetry, "first-retry", 500*time.Millisecond, "bound of the first pause after a failure")
	f.DurationVar(&cfg.LongestRetry, "longest-retry", 5*time.Minute, "bound of the longest pause")
	f.BoolVar(&cfg.Drain, "drain", false, "end when nothing can be published any more")
	fault.register(f)
	return cmd
}
