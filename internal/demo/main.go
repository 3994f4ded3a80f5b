//go:build linux

// Command demo shows the main job on real input: two worker processes pay the
// rewards of a season's week; one is stopped for longer than its lease between
// its last look at the hold and the write, while the other pays the same reward.
// When it goes on, the database refuses its write.
//
// It starts everything it needs, a lock service, a throwaway PostgreSQL and the
// workers, leaves nothing behind, and exits with 1 if anything is not as it says.
// It runs on Linux.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/internal/demo/stage"
)

// patience bounds the whole: a demonstration that hangs has failed.
const patience = 2 * time.Minute

func main() {
	file := flag.String("file", "examples/rewards/testdata/season-week-34.ndjson", "rewards to pay, NDJSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := run(ctx, os.Stdout, *file); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run builds the programs and plays both acts, each on a stage of its own.
func run(ctx context.Context, w io.Writer, file string) error {
	dir, err := os.MkdirTemp("", "fenced-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Fprintln(w, "building fenced and rewardctl ...")
	programs, err := stage.Build(ctx, dir)
	if err != nil {
		return err
	}
	return errors.Join(
		play(ctx, w, programs, file, forgetful),
		play(ctx, w, programs, file, careful))
}

// An act is one run over the whole file with one worker stopped once.
type act struct {
	title string
	// flags of the worker that is stopped, and where it is.
	flags []string
	where string
	// outcome is what it must report when it goes on.
	outcome string
}

var forgetful = act{
	title: "Run 1: the stopped worker writes with a context that outlives its hold. Only the store can refuse.",
	flags: []string{"--fault-at", string(rewards.Looked), "--forget-hold"},
	where: "between its last look at the hold and the write", outcome: "stale",
}

var careful = act{
	title: "Run 2: the stopped worker looks at its hold before it writes. The SDK stops it first.",
	flags: []string{"--fault-at", string(rewards.Held)},
	where: "before its last look at the hold", outcome: "lost",
}

// ttl of the leases: short, so that one can be seen to end.
const ttl = 2 * time.Second

// play runs one act and checks it.
func play(ctx context.Context, w io.Writer, programs stage.Programs, file string, a act) error {
	fmt.Fprintf(w, "\n%s\n\n", a.title)
	s, err := stage.Open(ctx, programs)
	if err != nil {
		return err
	}
	defer s.Close()
	l, err := s.NewLedger(ctx)
	if err != nil {
		return err
	}
	defer l.Pool.Close()
	fmt.Fprintf(w, "  fenced listens on %s, a throwaway PostgreSQL on %s\n", s.Server, s.Postgres.Addr())
	owed, repeats, err := load(ctx, l, file)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "  %d messages are in the inbox: %d rewards, %d of them delivered twice\n", len(owed)+repeats, len(owed), repeats)
	late, err := stopOne(ctx, w, l, a)
	if err != nil {
		return err
	}
	v, err := rewards.Verify(ctx, l.Pool, owed)
	if err != nil {
		return err
	}
	printTable(w, v, late)
	return judge(v, repeats, late, a)
}

// load delivers the file to the inbox and returns what is owed.
func load(ctx context.Context, l *stage.Ledger, file string) (owed []rewards.Reward, repeats int, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	deliveries, err := rewards.Read(f)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", file, err)
	}
	p, err := l.Rewardctl("load", "load", file)
	if err != nil {
		return nil, 0, err
	}
	if err := p.Wait(ctx); err != nil {
		return nil, 0, err
	}
	return rewards.Distinct(deliveries)
}

// stopOne lets two workers settle the inbox. worker-a stops itself with SIGSTOP at
// a reward whose second delivery is left for worker-b, and is continued once
// worker-b has paid it. It returns what worker-a then reported about that reward.
func stopOne(ctx context.Context, w io.Writer, l *stage.Ledger, a act) (late rewards.Record, err error) {
	common := []string{"--ttl", ttl.String(), "--drain"}
	workerA, err := l.Worker("worker-a", append(append(common, a.flags...),
		"--concurrency", "1", "--fault", "stop", "--fault-on", "redelivered", "--fault-after", "40")...)
	if err != nil {
		return late, err
	}
	workerB, err := l.Worker("worker-b", append(common, "--concurrency", "2")...)
	if err != nil {
		return late, err
	}
	fmt.Fprintf(w, "  worker-a (pid %d) and worker-b (pid %d) pay them, under leases of %v\n\n", workerA.Pid, workerB.Pid, ttl)

	stopped, err := workerA.WaitRecord(ctx, func(r rewards.Record) bool { return r.Kind == "fault" })
	if err != nil {
		return late, err
	}
	if err := workerA.WaitStopped(ctx); err != nil {
		return late, err
	}
	since := time.Now()
	fmt.Fprintf(w, "  worker-a holds %s\n  with token %d, and is stopped (SIGSTOP) %s\n", stopped.Key, stopped.Token, a.where)

	paid, err := workerB.WaitRecord(ctx, func(r rewards.Record) bool {
		return r.Kind == "attempt" && r.Key == stopped.Key && r.Outcome == string(rewards.Applied)
	})
	if err != nil {
		return late, err
	}
	fmt.Fprintf(w, "  %.1f s later the lease is over; worker-b has the second delivery and has paid it with token %d\n",
		time.Since(since).Seconds(), paid.Token)

	if err := workerA.Signal(syscall.SIGCONT); err != nil {
		return late, err
	}
	late, err = workerA.WaitRecord(ctx, func(r rewards.Record) bool {
		return r.Kind == "attempt" && r.Key == stopped.Key && r.Token == stopped.Token
	})
	if err != nil {
		return late, err
	}
	switch late.Outcome {
	case "stale":
		fmt.Fprintf(w, "  worker-a is continued (SIGCONT) and writes with token %d: PostgreSQL refuses, the current one is %d\n", late.Token, late.Current)
	default:
		fmt.Fprintf(w, "  worker-a is continued (SIGCONT) and does not write: %s\n", late.Error)
	}
	return late, errors.Join(workerA.Wait(ctx), workerB.Wait(ctx))
}

func printTable(w io.Writer, v rewards.Verdict, late rewards.Record) {
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	row := func(what string, how any) { fmt.Fprintf(table, "  %s\t%v\n", what, how) }
	row("messages", v.Messages)
	row("rewards paid", v.Paid)
	row("duplicates dropped", v.Dropped)
	if late.Outcome == "stale" {
		row("stale write refused", fmt.Sprintf("token %d, current %d", late.Token, late.Current))
	} else {
		row("stopped by the SDK before the write", fmt.Sprintf("token %d", late.Token))
	}
	for _, l := range v.Lines()[2:] {
		row(l.What, l.How)
	}
	_ = table.Flush() // a closed stdout is not the demonstration's failure
}

// judge says what was not as it should be.
func judge(v rewards.Verdict, repeats int, late rewards.Record, a act) error {
	switch {
	case !v.OK():
		return errors.New("the ledger is not what is owed")
	case v.Dropped != repeats:
		return fmt.Errorf("%d duplicates dropped, %d were delivered", v.Dropped, repeats)
	case late.Outcome != a.outcome:
		return fmt.Errorf("the stopped worker reports %q, want %q", late.Outcome, a.outcome)
	case a.outcome == "stale" && late.Current <= late.Token:
		return fmt.Errorf("token %d was refused at %d", late.Token, late.Current)
	}
	return nil
}
