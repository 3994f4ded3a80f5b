//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/fenced/fenced/examples/racelab/internal/lab"
	"github.com/fenced/fenced/examples/racelab/internal/report"
	"github.com/fenced/fenced/examples/racelab/internal/stage"
)

// The exit codes.
const (
	exitOK = iota
	exitCorrupted
	exitUsage
	exitBroken
)

// options are the command line.
type options struct {
	quick, asJSON, real bool
	seed                uint64
	report              string
}

func parse(args []string, errs io.Writer) (o options, err error) {
	f := flag.NewFlagSet("racelab", flag.ContinueOnError)
	f.SetOutput(errs)
	f.BoolVar(&o.quick, "quick", false, "a run of less than 50 seconds: TTL 1s, fewer transactions")
	f.BoolVar(&o.asJSON, "json", false, "print the numbers as JSON instead of the table")
	f.BoolVar(&o.real, "real", false, "workers are processes and stall by SIGSTOP, instead of goroutines that sleep")
	f.Uint64Var(&o.seed, "seed", 1, "one seed stalls the same steps for the same time")
	f.StringVar(&o.report, "report", "racelab-report.html", "file of the report")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
		fmt.Fprintln(errs, "racelab:", err)
	}
	return o, err
}

func (o options) config() lab.Config {
	c := lab.Default(o.seed)
	if o.quick {
		c = lab.Quick(o.seed)
	}
	c.Real = o.real
	return c
}

// run is the program; it returns the exit code.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	o, err := parse(args, errs)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	}
	res, err := experiment(ctx, o, errs)
	if err == nil {
		err = publish(res, o, out)
	}
	if err != nil {
		fmt.Fprintln(errs, "racelab:", err)
		return exitBroken
	}
	return exitCode(res)
}

func exitCode(res *lab.Result) int {
	if len(res.Problems) > 0 {
		return exitCorrupted
	}
	return exitOK
}

func experiment(ctx context.Context, o options, errs io.Writer) (res *lab.Result, err error) {
	bar := newProgress(errs)
	defer bar.clear()
	bar.show("starting servers", 0, 1)
	s, err := stage.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	config := o.config()
	config.Progress = bar.show
	return lab.Run(ctx, s, config)
}

// publish writes the report and prints the table or the JSON.
func publish(res *lab.Result, o options, out io.Writer) error {
	page, err := report.Render(res)
	if err != nil {
		return err
	}
	if err := os.WriteFile(o.report, page, 0o644); err != nil {
		return err
	}
	if o.asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(res)
	}
	path, err := filepath.Abs(o.report)
	if err != nil {
		return err
	}
	writeTable(out, res)
	_, err = fmt.Fprintf(out, "\nreport: file://%s\n", path)
	return err
}
