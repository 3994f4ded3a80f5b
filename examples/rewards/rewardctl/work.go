package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/examples/rewards"
)

func workCmd(open openFunc) *cobra.Command {
	var locking lockFlags
	var name string
	var fault faultFlags
	cfg := rewards.WorkerConfig{}
	cmd := &cobra.Command{
		Use:   "work",
		Short: "Pay the rewards of the inbox; prints one JSON object an attempt",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, out := cmd.Context(), &printer{w: cmd.OutOrStdout()}
			pool, err := open(ctx)
			if err != nil {
				return err
			}
			defer pool.Close()
			locks, err := locking.open(name, cfg.TTL)
			if err != nil {
				return err
			}
			defer locks.Close()
			cfg.Pool, cfg.Locks, cfg.Log = pool, locks, logger(cmd)
			cfg.Report = func(a rewards.Attempt) { out.print(a.Record()) }
			if cfg.At, err = fault.at(ctx, pool, out); err != nil {
				return err
			}
			return work(ctx, cfg, out)
		},
	}
	f := cmd.Flags()
	locking.register(f)
	f.StringVar(&name, "name", "", "who this worker is, for people (default: made by the SDK)")
	f.DurationVar(&cfg.TTL, "ttl", 15*time.Second, "TTL of a reward's lock")
	f.DurationVar(&cfg.LockWait, "lock-wait", 0, "how long to wait for a reward's lock (default 2 x ttl)")
	f.DurationVar(&cfg.Visibility, "visibility", 0, "how long a taken message is hidden (default lock-wait + 2 x ttl)")
	f.IntVar(&cfg.Concurrency, "concurrency", 4, "messages worked on at once")
	f.BoolVar(&cfg.Drain, "drain", false, "end when the inbox is settled")
	f.BoolVar(&cfg.ForgetHold, "forget-hold", false, "write with a context that outlives the hold, as code that forgot would")
	fault.register(f)
	return cmd
}

// lockFlags say where the lock service is.
type lockFlags struct {
	servers []string
	keyFile string
}

func (l *lockFlags) register(f *pflag.FlagSet) {
	f.StringSliceVar(&l.servers, "server", []string{"http://127.0.0.1:7420"}, "base URL of the lock service; several where it has several servers")
	f.StringVar(&l.keyFile, "api-key-file", "", "file with the API key for the lock service, where it asks for one")
}

func (l *lockFlags) open(owner string, ttl time.Duration) (*clientsdk.Client, error) {
	key, err := readKey(l.keyFile)
	if err != nil {
		return nil, err
	}
	return clientsdk.New(clientsdk.Config{Endpoints: l.servers, APIKey: key, Owner: owner, TTL: ttl})
}

// readKey returns the key in the file; no file is no key.
func readKey(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--api-key-file: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

func work(ctx context.Context, cfg rewards.WorkerConfig, out *printer) error {
	w, err := rewards.NewWorker(cfg)
	if err != nil {
		return err
	}
	out.print(rewards.Record{Kind: "ready"})
	return ended(cfg.Drain, w.Run(ctx))
}

// printer writes lines whole, whoever writes.
type printer struct {
	mu sync.Mutex
	w  io.Writer
}

func (p *printer) print(r rewards.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = json.NewEncoder(p.w).Encode(r) // who reads it may have gone; the work goes on
}

// redelivered reports whether the inbox holds a further message of r to settle.
func redelivered(ctx context.Context, pool *pgxpool.Pool, r rewards.Reward) bool {
	var n int
	err := pool.QueryRow(ctx, `
		SELECT count(*) FROM reward_message
		WHERE player_id = $1 AND reward_event_id = $2 AND status = 'READY'`, r.Player, r.Event).Scan(&n)
	return err == nil && n > 1
}
