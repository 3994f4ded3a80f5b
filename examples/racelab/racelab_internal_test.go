//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenced/fenced/examples/racelab/internal/lab"
)

// result is what a run might find: every way, one of them skipped.
func result() *lab.Result {
	res := &lab.Result{Seed: 1, Workers: 64, TTLMS: 1000, Planned: 800, P99Ratio: 1.2, Problems: []string{}}
	for _, w := range lab.Ways() {
		res.Ways = append(res.Ways, &lab.Row{Way: w, Transactions: 800, Stalls: 40, P50MS: 2, P99MS: 9, Samples: 256, PerSecond: 100})
	}
	res.Row(lab.Redis).LostUpdates, res.Row(lab.Redis).CorruptionRate = 70, 0.0875
	res.Row(lab.FencedGuard).Refused = 17
	*res.Row(lab.Redlock) = lab.Row{Way: lab.Redlock, Skipped: "redis-server is not installed"}
	res.RedlockRestart = &lab.Row{Way: lab.RedlockRestart, Skipped: "redis-server is not installed"}
	return res
}

func TestPublish_JSONHasWhatScriptsRead(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := options{asJSON: true, report: filepath.Join(t.TempDir(), "r.html")}
	if err := publish(result(), o, &out); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Ways []map[string]any `json:"ways"`
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	names := []string{"none", "redis", "redlock", "etcd_mutex", "fenced_unguarded", "fenced_guard", "fenced_column"}
	if len(got.Ways) != len(names) {
		t.Fatalf("%d ways, want %d", len(got.Ways), len(names))
	}
	for i, row := range got.Ways {
		if row["way"] != names[i] {
			t.Errorf("way %d is %v, want %s", i, row["way"], names[i])
		}
		for _, key := range []string{"transactions", "stalls", "writes_after_lease", "lost_updates", "double_payments", "refused", "corruption_rate", "per_second", "p50_ms", "p99_ms"} {
			if _, ok := row[key].(float64); !ok {
				t.Errorf("%s: %s is %v, want a number", names[i], key, row[key])
			}
		}
	}
	if _, err := os.Stat(o.report); err != nil {
		t.Error(err)
	}
}

func TestPublish_TableHasARowForEachWay(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := publish(result(), options{report: filepath.Join(t.TempDir(), "r.html")}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Redis SET NX PX", "CORRUPTED", "fenced + guard table", "safe", "8.75%",
		"not run: redis-server is not installed", "1.20 times", "report: file://"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}

func TestRun_BadUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-fast"}, {"now"}, {"-seed", "-1"}} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, &out, &errs); code != exitUsage || errs.Len() == 0 {
			t.Errorf("run %q = %d with %q, want %d and a reason", args, code, errs.String(), exitUsage)
		}
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"-help"}, &out, &errs); code != exitOK || !strings.Contains(errs.String(), "-quick") {
		t.Errorf("help: %d, %q", code, errs.String())
	}
}

func TestParse_BothKindsOfDashes(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-quick", "--real", "-seed", "9"}, &bytes.Buffer{})
	if err != nil || !o.quick || !o.real || o.seed != 9 {
		t.Fatalf("%+v, %v", o, err)
	}
	if c := o.config(); !c.Real || c.Seed != 9 || c.Size.Updates != 400 {
		t.Errorf("%+v", c)
	}
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	res := result()
	if got := exitCode(res); got != exitOK {
		t.Errorf("a clean run exits with %d", got)
	}
	res.Problems = append(res.Problems, "an update was lost behind a guard")
	if got := exitCode(res); got != exitCorrupted {
		t.Errorf("a corrupted run exits with %d", got)
	}
}

// A file, as a pipe, is no terminal: nothing is drawn.
func TestProgress_OnlyOnATerminal(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := newProgress(f)
	p.show("redis", 1, 2)
	p.clear()
	if info, err := f.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("%d bytes were drawn, %v", info.Size(), err)
	}
}
