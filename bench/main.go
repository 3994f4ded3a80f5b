package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

func main() {
	was, err := roleMain()
	if !was {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
		stop()
	}
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the command's flags.
type options struct {
	quick, json bool
	only        string
	dir         string
	out         string
	profile     string
	growth      time.Duration
	load        time.Duration
}

func parse(args []string, errOut io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.BoolVar(&o.quick, "quick", false, "short rounds: all of it in under 50 s, and no file is written")
	flags.BoolVar(&o.json, "json", false, "print one JSON object instead of the tables")
	flags.StringVar(&o.only, "only", "", "run only these groups, in a list with commas: "+strings.Join(groupNames(), ", "))
	flags.StringVar(&o.dir, "dir", os.TempDir(), "directory for the servers' data; it should be on a disk")
	flags.StringVar(&o.out, "out", filepath.Join("bench", "RESULTS.md"), "file for the tables of a run of everything without -quick")
	flags.StringVar(&o.profile, "profile", "", "write profiles of the server on its hot paths into this directory, and measure nothing else")
	flags.DurationVar(&o.growth, "growth", 0, "print how the store's file grows under 10,000 cycles a second for this long, and measure nothing else")
	flags.DurationVar(&o.load, "load", 0, "send valid and invalid requests for this long, after a warm-up of 180 s, print what came back and what is left, and measure nothing else")
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("bench takes no arguments, only flags")
	}
	return o, err
}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	o, err := parse(args, log)
	if err != nil {
		return err
	}
	if inMemory(o.dir) {
		fmt.Fprintf(log, "%s is not on a disk: fsync costs nothing there, so give -dir a directory that is\n", o.dir)
	}
	dir, err := os.MkdirTemp(o.dir, "fenced-bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// The clients' own garbage is not to compete with the servers for the CPUs.
	debug.SetGCPercent(400)
	if o.profile != "" {
		return profile(ctx, o.profile, dir, out)
	}
	if o.growth > 0 {
		return growth(ctx, o.growth, filepath.Join(dir, "data"), out)
	}
	if o.load > 0 {
		return underLoad(ctx, fullLoad(o.load), dir, out)
	}
	sc := fullScale
	if o.quick {
		sc = quickScale
	}
	which, err := chosen(o.only)
	if err != nil {
		return err
	}
	rep, err := measureRun(ctx, sc, which, o.quick, dir, log)
	return errors.Join(err, write(o, rep, out))
}

// measureRun runs the groups. The report is complete, with nulls, also where it
// returns an error.
func measureRun(ctx context.Context, sc scale, which []group, quick bool, dir string, log io.Writer) (*report, error) {
	begin := time.Now()
	rep := newReport(quick, sc.rounds, sc.round.Milliseconds())
	s, err := newSuite(ctx, sc, rep, log, dir)
	defer s.close()
	if err == nil {
		err = s.runAll(ctx, which)
	}
	rep.finish(time.Since(begin).Seconds())
	return rep, err
}

func write(o options, rep *report, out io.Writer) error {
	var errs []error
	if o.json {
		errs = append(errs, rep.writeJSON(out))
	} else {
		errs = append(errs, rep.writeTable(out))
	}
	if !o.quick && o.only == "" {
		file, err := os.Create(o.out)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, rep.writeTable(file), file.Close())
	}
	return errors.Join(errs...)
}
