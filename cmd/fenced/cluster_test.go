package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver/embedded"
)

// clusterConfigs returns the configs of three members.
func clusterConfigs(t *testing.T) []*Config {
	t.Helper()
	var list []string
	for i := range 3 {
		list = append(list, fmt.Sprintf("n%d=%s", i, freeURL(t)))
	}
	configs := make([]*Config, 3)
	for i := range configs {
		c := defaultConfig()
		c.Name, c.DataDir = fmt.Sprintf("n%d", i), filepath.Join(t.TempDir(), "data")
		c.InitialCluster = strings.Join(list, ",")
		configs[i] = c
	}
	return configs
}

// launchAll starts all members at once and waits until each can grant.
func launchAll(t *testing.T, configs []*Config) []*launched {
	t.Helper()
	programs := make([]*launched, len(configs))
	for i, c := range configs {
		programs[i] = launch(t, c)
	}
	for _, p := range programs {
		p.awaitReady(t)
	}
	return programs
}

// awaitReady blocks until the server has greeted, which it does when it can grant.
func (p *launched) awaitReady(t *testing.T) {
	t.Helper()
	if _, err := p.out.Read(make([]byte, 4096)); err != nil {
		t.Fatalf("the member did not start: %v\n%s", err, p.logs.String())
	}
}

// TestCluster_AnyServerServesAndAHoldOutlivesItsServer runs three programs as one
// deployment, and stops the one that granted.
func TestCluster_AnyServerServesAndAHoldOutlivesItsServer(t *testing.T) {
	t.Parallel()
	configs := clusterConfigs(t)
	alone := launch(t, configs[0])
	if status := readyz(t, alone.url); status != http.StatusServiceUnavailable {
		t.Fatalf("a member without quorum says it is ready: %d", status)
	}
	second, third := launch(t, configs[1]), launch(t, configs[2])
	for _, p := range []*launched{alone, second, third} {
		p.awaitReady(t)
	}

	hold := acquire(t, alone.url, `{"lock":"a","owner":"me","ttl":"1m"}`)
	if err := alone.stop(); err != nil {
		t.Fatal(err)
	}
	status, renewed, problem := call(t, http.MethodPost, second.url+"/v1/holds/"+hold.Hold+"/renew", `{}`)
	for problem.Code == "no_quorum" || problem.Code == "behind" { // a new leader is elected
		status, renewed, problem = call(t, http.MethodPost, second.url+"/v1/holds/"+hold.Hold+"/renew", `{}`)
	}
	if status != http.StatusOK || renewed.Token != hold.Token {
		t.Fatalf("renew on another server: %d %+v", status, problem)
	}
	release(t, third.url, hold)
	if next := acquire(t, second.url, `{"lock":"a","owner":"next"}`); next.Token <= hold.Token {
		t.Fatalf("token %d after %d", next.Token, hold.Token)
	}
	if mode := statusOf(t, second.url).Mode; mode != modeCluster {
		t.Errorf("the mode is %q", mode)
	}
}

func readyz(t *testing.T, url string) int {
	t.Helper()
	resp, err := http.Get(url + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func statusOf(t *testing.T, url string) (st wire.Status) {
	t.Helper()
	resp, err := http.Get(url + "/v1/status")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(&st); err != nil {
		t.Fatal(err)
	}
	return st
}

// TestRestoreCommand_ClusterFromASnapshotOfOneNode restores three members from one
// file with the command, and starts them.
func TestRestoreCommand_ClusterFromASnapshotOfOneNode(t *testing.T) {
	t.Parallel()
	single := filepath.Join(t.TempDir(), "data")
	url, _, stop := startProgram(t, single)
	old := acquire(t, url, `{"lock":"a","owner":"me","ttl":"1h"}`)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	file := snapshotOf(t, single)

	configs := clusterConfigs(t)
	for _, c := range configs {
		out, err := runCommand(t, "restore", file, "--data-dir", c.DataDir, "--name", c.Name, "--initial-cluster", c.InitialCluster)
		if err != nil || !strings.Contains(out, "restored "+file) {
			t.Fatalf("restore: %v\n%s", err, out)
		}
		// Without issued-token files the clock is what counts, and here it is.
		if today := time.Now().UTC().Format(time.DateOnly); !strings.Contains(out, "the clock") || !strings.Contains(out, today) {
			t.Errorf("the output does not show the clock: %s", out)
		}
	}
	programs := launchAll(t, configs)
	status, _, problem := call(t, http.MethodPost, programs[1].url+"/v1/holds/"+old.Hold+"/renew", `{}`)
	if problem.Code != "hold_gone" {
		t.Fatalf("the snapshot's hold answers %d %+v", status, problem)
	}
	// All three know the restore id; only the first to come ended the holds.
	hold := acquire(t, programs[2].url, `{"lock":"a","owner":"me","ttl":"1h"}`)
	if hold.Token <= embedded.RevisionBump {
		t.Fatalf("token %d after a bump of %d", hold.Token, int64(embedded.RevisionBump))
	}
	release(t, programs[0].url, hold)
}

// snapshotOf copies the store of a directory that no server uses.
func snapshotOf(t *testing.T, dir string) string {
	t.Helper()
	node, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := node.Client().Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "snapshot")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRestoreCommand_Refusals(t *testing.T) {
	t.Parallel()
	used := filepath.Join(t.TempDir(), "data")
	_, _, stop := startProgram(t, used)
	file := snapshotOf(t, filepath.Join(t.TempDir(), "other"))
	if _, err := runCommand(t, "restore", file, "--data-dir", used); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("into the directory of a running server: %v", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := runCommand(t, "restore", file, "--data-dir", used); err == nil || !strings.Contains(err.Error(), "must be empty") {
		t.Errorf("into a directory with data: %v", err)
	}
	fresh := filepath.Join(t.TempDir(), "data")
	bad := filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(bad, []byte("no snapshot"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := runCommand(t, "restore", bad, "--data-dir", fresh); !errors.Is(err, embedded.ErrBadSnapshot) {
		t.Errorf("a file that is no snapshot: %v", err)
	}
	if _, err := runCommand(t, "restore", filepath.Join(t.TempDir(), "none"), "--data-dir", fresh); err == nil {
		t.Error("a missing file was restored")
	}
	if _, err := runCommand(t, "restore", file, "--etcd-endpoints", "http://127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "fencectl floor raise") {
		t.Errorf("of an external etcd: %v", err)
	}
}
