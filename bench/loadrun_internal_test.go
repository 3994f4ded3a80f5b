package main

import (
	"strings"
	"testing"
	"time"
)

// TestLoadRun is a short one of go run ./bench -load 60s, which also looks whether
// memory stays flat.
func TestLoadRun(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a load of 5 s")
	}
	r, err := loadRun(t.Context(), loadPlan{rate: 10_000, clients: 256, run: 5 * time.Second, settle: 90 * time.Second}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var told strings.Builder
	r.write(&told)
	t.Log(told.String())
	if err := r.verdict(); err != nil {
		t.Error(err)
	}
	if r.seen.statuses[201] == 0 || r.seen.statuses[422] == 0 {
		t.Errorf("the load was not mixed: %v", r.seen.statuses)
	}
}

func TestLoadResult_Verdict(t *testing.T) {
	t.Parallel()
	fine := func() *loadResult { return &loadResult{plan: loadPlan{warm: time.Second}, seen: newTally()} }
	for want, spoil := range map[string]func(*loadResult){
		"":                             func(*loadResult) {},
		"3 goroutines are left, 2 at":  func(r *loadResult) { r.idle.Goroutines, r.rests.Goroutines = 2, 3 },
		"1 leases are left":            func(r *loadResult) { r.rests.Leases = 1 },
		"2 keys are left":              func(r *loadResult) { r.rests.Keys = 2 },
		"1 holds are left":             func(r *loadResult) { r.rests.Holds = 1 },
		"1 answers that may not be":    func(r *loadResult) { r.seen.wrong = 1 },
		"the live heap grew from 0 to": func(r *loadResult) { r.after.HeapKiB = 1e5 },
	} {
		r := fine()
		spoil(r)
		err := r.verdict()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestKind_Allows(t *testing.T) {
	t.Parallel()
	good, bad := kind{want: []int{200}}, kind{cut: true}
	for _, tt := range []struct {
		k      kind
		status int
		want   bool
	}{
		{good, 200, true}, {good, 503, true}, {good, 500, false}, {good, 404, false}, {good, 0, false},
		{bad, 422, true}, {bad, 503, true}, {bad, 0, true}, {bad, 200, false}, {bad, 500, false}, {bad, 502, false},
	} {
		if got := tt.k.allows(tt.status); got != tt.want {
			t.Errorf("status %d of a kind that wants %v: %v", tt.status, tt.k.want, got)
		}
	}
}
