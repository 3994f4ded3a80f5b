package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
)

// TestStatus_OfASingleNode wants the store's state in the status, and that a backup is
// remembered over a restart.
func TestStatus_OfASingleNode(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	url, _, stop := startProgram(t, dir)
	st := statusOf(t, url)
	if st.Leader != "fenced" || !st.Leads || st.Store.Members != 1 || !strings.HasPrefix(st.Store.EtcdVersion, "3.") || len(st.Store.Faults) > 0 {
		t.Errorf("status %+v", st)
	}
	if s := st.Store; s.Bytes <= 0 || s.UsedBytes <= 0 || s.QuotaBytes != 8<<30 || s.DiskFree == nil || *s.DiskFree <= 0 {
		t.Errorf("sizes %+v", s)
	}
	if st.Version != version || st.Build == "" || st.Store.LastBackup != nil {
		t.Errorf("version %q, build %q, backup %v", st.Version, st.Build, st.Store.LastBackup)
	}
	before := time.Now().Add(-time.Second) // the file has whole seconds
	resp, err := http.Get(url + "/v1/snapshot")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	backup := statusOf(t, url).Store.LastBackup
	if backup == nil || backup.Before(before) || backup.After(time.Now()) {
		t.Fatalf("backup at %v, made after %s", backup, before)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	url, _, _ = startProgram(t, dir)
	if again := statusOf(t, url).Store.LastBackup; again == nil || !again.Equal(*backup) {
		t.Errorf("after a restart the last backup is at %v, not %s", again, *backup)
	}
	if err := os.WriteFile(dir+".backup", []byte("soon"), 0o600); err != nil {
		t.Fatal(err)
	}
	if at := statusOf(t, url).Store.LastBackup; at != nil {
		t.Errorf("%v was read from a file that tells nothing", at)
	}
}

// TestFloor_OfAThrowawayNode removes a node's data, as people do who try things out. The
// node says how it grants again, on the page and in the log, and that helps. A node that
// others can reach names the floor alone.
func TestFloor_OfAThrowawayNode(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "my data")
	url, _, stop := startProgram(t, dir)
	release(t, url, acquire(t, url, `{"lock":"a","owner":"me"}`))
	if err := errors.Join(stop(), os.RemoveAll(dir)); err != nil {
		t.Fatal(err)
	}
	config := defaultConfig()
	config.DataDir = dir
	closed := launch(t, config)
	want := "fencectl floor raise; where no database has fences of this node, it may be stopped instead, and started after: rm '" + dir + ".issued'"
	if detail := notReady(t, closed.url); !strings.Contains(detail, want) {
		t.Errorf("got %q, want %s", detail, want)
	}
	if err := closed.stop(); err != nil {
		t.Fatal(err)
	}
	if logs := closed.logs.String(); !strings.Contains(logs, want) {
		t.Errorf("the log lacks %s:\n%s", want, logs)
	}
	if err := os.Remove(dir + ".issued"); err != nil {
		t.Fatal(err)
	}
	url, _, _ = startProgram(t, dir)
	acquire(t, url, `{"lock":"a","owner":"me"}`)
}

// notReady waits until the server has read its store and says why it does not grant.
func notReady(t *testing.T, url string) string {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var problem wire.Problem
	for range 500 {
		resp, err := http.Get(url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		err = json.NewDecoder(resp.Body).Decode(&problem)
		_ = resp.Body.Close()
		if err == nil && problem.Code == apierr.TokenFloor {
			break
		}
		<-tick.C
	}
	return problem.Detail
}

// TestStatus_OfACluster wants every member to name the one that leads, and a member
// that has lost the others to answer all the same.
func TestStatus_OfACluster(t *testing.T) {
	t.Parallel()
	programs := launchAll(t, clusterConfigs(t))
	leaders := map[string]int{}
	var leads int
	for _, p := range programs {
		st := statusOf(t, p.url)
		leaders[st.Leader]++
		if st.Leads {
			leads++
			if st.Leader != st.Name {
				t.Errorf("%s leads, and says that %s does", st.Name, st.Leader)
			}
		}
		if st.Store.Members != 3 || st.Store.DiskFree == nil {
			t.Errorf("%s: %+v", st.Name, st.Store)
		}
	}
	if len(leaders) != 1 || leads != 1 {
		t.Errorf("leaders %v, of which %d say so of themselves", leaders, leads)
	}
	for _, p := range programs[1:] {
		if err := p.stop(); err != nil {
			t.Fatal(err)
		}
	}
	awaitNoLeader(t, programs[0].url)
}

func awaitNoLeader(t *testing.T, url string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var st wire.Status
	for range 400 {
		if st = statusOf(t, url); st.Leader == "" && !st.Leads && !st.Ready && len(st.Store.Faults) > 0 {
			return
		}
		<-tick.C
	}
	t.Errorf("alone of three: %+v", st)
}

func TestStatus_OfAnExternalStore(t *testing.T) {
	t.Parallel()
	etcd := newEtcd(t)
	etcd.start(t.TempDir())
	url, _, _ := startConfig(t, etcd.config())
	st := statusOf(t, url)
	if st.Leader == "" || st.Leads || st.Store.Members != 1 || st.Store.EtcdVersion == "" || st.Store.QuotaBytes <= 0 || st.Store.DiskFree != nil {
		t.Errorf("status %+v", st)
	}
	etcd.stop()
	asked := time.Now()
	if st = statusOf(t, url); len(st.Store.Faults) != 1 || st.Store.Bytes != 0 {
		t.Errorf("without its store: %+v", st.Store)
	}
	if took := time.Since(asked); took > stateTimeout+time.Second {
		t.Errorf("the status took %s", took)
	}
}
