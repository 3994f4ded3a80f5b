package main

import (
	"context"
	"errors"
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// tinyScale shows that every measure works; its figures mean nothing.
var tinyScale = scale{
	rounds: 2, round: 20 * time.Millisecond, warm: time.Millisecond,
	clients: 3, engine: 4, waiters: 20, holds: 50, expire: 100, starts: 1,
}

func TestRun_Tiny(t *testing.T) {
	if testing.Short() {
		t.Skip("starts every peer")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("the go command builds the server and is not here")
	}
	var log strings.Builder
	rep, err := measureRun(t.Context(), tinyScale, groups, true, t.TempDir(), &log)
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	left := strings.Join(rep.Left, "\n")
	for key, v := range rep.Ratios {
		null := math.IsNaN(float64(v))
		if missing := strings.Contains(left, "zookeeper") && strings.Contains(key, "zookeeper") ||
			strings.Contains(left, "postgresql") && (strings.HasPrefix(key, "pgfence") || key == "reward_apply"); null != missing {
			t.Errorf("%s is %v; its peer is missing: %v", key, v, missing)
		}
	}
	for _, row := range figureRows {
		if math.IsNaN(float64(rep.Figures[row.key])) {
			t.Errorf("%s was not measured", row.key)
		}
	}
	t.Log(log.String()) // what was left out, and the time of each group
}

// A peer that is not installed costs one line and its own ratios, nothing else.
func TestSuite_MissingPeers(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var log strings.Builder
	s := &suite{scale: tinyScale, report: newReport(true, 1, 20), log: &log}
	for _, start := range []func(context.Context, string) (*process, string, error){startZooKeeper, startRedis} {
		_, addr, err := start(t.Context(), t.TempDir())
		if addr != "" || !s.leftOut(err) {
			t.Errorf("address %q, error %v; want none, and that the peer is left out", addr, err)
		}
	}
	want := "zookeeper is left out: java is not installed\nredis is left out: redis-server is not installed\n"
	if log.String() != want {
		t.Errorf("the log says %q, want %q", log.String(), want)
	}
	if s.leftOut(nil) || s.leftOut(errors.New("on fire")) {
		t.Error("another error, or none, counts as a peer that is left out")
	}
	got, err := s.rates(t.Context(), peers{fencedHTTP: {idler{}}}, "own_", 1, ownLocks, fencedHTTP, zooKeeper)
	if err != nil || len(got["own_"+fencedHTTP]) != tinyScale.rounds || got["own_"+zooKeeper] != nil {
		t.Errorf("%v, %v; want rounds of the peer that is there only", got, err)
	}
}
