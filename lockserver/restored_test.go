package lockserver_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/lockserver"
	"github.com/fenced/fenced/lockserver/embedded"
	"github.com/fenced/fenced/tokens"
)

// save takes a snapshot of a server's store.
func save(t *testing.T, s *lockserver.Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Snapshot(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// waiting queues a hold with an idempotency key behind the holder of its lock.
func waiting(t *testing.T, s *lockserver.Server) lockserver.AcquireRequest {
	t.Helper()
	req := try("a")
	req.Owner, req.KeepPlace, req.IdempotencyKey = "waiter", true, strings.Repeat("ab", 16)
	if h := mustAcquire(t, s, req); h.State != lockserver.Queued {
		t.Fatalf("the waiter is %v", h.State)
	}
	return req
}

// lostFuture makes a store with a holder and a waiter, snapshots it, and goes on:
// the holder releases, the waiter is served and done, and more tokens are issued.
// The snapshot knows nothing of it. It returns what the past still believes in.
func lostFuture(t *testing.T, d *deployment) (file string, holder *lockserver.Hold, waiter lockserver.AcquireRequest, highest tokens.Token) {
	t.Helper()
	holder = mustAcquire(t, d.server, try("a"))
	waiter = waiting(t, d.server)
	file = save(t, d.server)
	mustRelease(t, d.server, holder)
	waiter.Wait = lockserver.MaxWait
	mustRelease(t, d.server, mustAcquire(t, d.server, waiter))
	highest = d.churn(50)
	d.stop()
	if err := d.node.Close(); err != nil {
		t.Fatal(err)
	}
	return file, holder, waiter, highest
}

// TestR13_RestoreEndsTheHoldsOfTheSnapshot: the waiter of the snapshot would be
// granted next, with a token below those that were issued after it.
func TestR13_RestoreEndsTheHoldsOfTheSnapshot(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	file, holder, waiter, highest := lostFuture(t, d)

	dir := filepath.Join(t.TempDir(), "restored")
	id, err := embedded.Restore(file, embedded.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	d.restored = id
	d.start(dir)
	d.floor(lockserver.Protected)
	_, err = d.server.Renew(t.Context(), holder.ID)
	wantGone(t, err, lockserver.EndUnknown)
	served := mustAcquire(t, d.server, waiter)
	if served.Token <= highest {
		t.Fatalf("the waiter got token %d after %d", served.Token, highest)
	}

	// The id is acted on once: holds made since survive a restart.
	d.stop()
	if err := d.node.Close(); err != nil {
		t.Fatal(err)
	}
	d.start(dir)
	if again, err := d.server.Renew(t.Context(), served.ID); err != nil || again.Token != served.Token {
		t.Fatalf("after a restart: %+v, %v", again, err)
	}
}

// TestRestored_AfterAStartOnNothing restores a store whose server was started on an empty
// directory before, as a unit does by itself, and closed granting. A restore needs no
// raise then either, but one whose holds nobody has ended does.
func TestRestored_AfterAStartOnNothing(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]bool{"by fenced restore": true, "by another tool, bumped": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deploy(t)
			file, _, _, highest := lostFuture(t, d)
			d.start(filepath.Join(t.TempDir(), "nothing"))
			d.floor(lockserver.Closed)
			d.stop()

			dir := filepath.Join(t.TempDir(), "restored")
			id, err := embedded.Restore(file, embedded.Config{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			if !ended {
				d.start(dir)
				d.floor(lockserver.Closed)
				return
			}
			d.restored = id
			d.start(dir)
			d.floor(lockserver.Protected)
			if h := mustAcquire(t, d.server, try("a")); h.Token <= highest {
				t.Fatalf("token %d after %d", h.Token, highest)
			}
		})
	}
}

// restore puts the store back to a snapshot and forgets all that a server keeps beside
// it.
func (d *deployment) restore(file string) {
	d.t.Helper()
	d.stop()
	if err := d.node.Close(); err != nil && !errors.Is(err, embedded.ErrClosed) {
		d.t.Fatal(err)
	}
	if err := os.Remove(d.issued); err != nil {
		d.t.Fatal(err)
	}
	dir := filepath.Join(d.t.TempDir(), "restored")
	var err error
	if d.restored, err = embedded.Restore(file, embedded.Config{Dir: dir}); err != nil {
		d.t.Fatal(err)
	}
	d.start(dir)
	if err := d.server.WaitReady(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
}

// TestRestored_AnySnapshotInAnyOrder loses the store each time, with its issued-token
// file, and goes back to some snapshot, often to the same: each restore of one bumps the
// revision to the same number.
func TestRestored_AnySnapshotInAnyOrder(t *testing.T) {
	t.Parallel()
	nothing := func(*deployment) {}
	for name, tc := range map[string]struct{ first, before func(d *deployment) }{
		"of a new store":                    {nothing, nothing},
		"with plain raises between":         {nothing, func(d *deployment) { d.raise(0) }},
		"of a store whose floor was raised": {func(d *deployment) { d.raise(1e15) }, nothing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deploy(t)
			tc.first(d)
			highest := d.churn(20)
			files := []string{save(t, d.server)}
			for _, i := range []int{0, 0, 1, 1, 0, 3, 2} {
				d.restore(files[i])
				if first := d.churn(1); first <= highest {
					t.Fatalf("snapshot %d: token %d after %d", i, first, highest)
				}
				d.floor(lockserver.Unprotected)
				tc.before(d)
				highest = d.churn(20)
				files = append(files, save(t, d.server))
			}
		})
	}
}

func (d *deployment) raise(above tokens.Token) {
	d.t.Helper()
	if _, err := d.server.RaiseFloor(d.t.Context(), above); err != nil {
		d.t.Fatal(err)
	}
}

// TestRestored_ASnapshotFromBeforeARaise: a raise to a number that the clock has passed
// is no reason for the tokens of a restore to begin higher, or those of the next restore,
// of a copy that does not know of the raise, would begin lower.
func TestRestored_ASnapshotFromBeforeARaise(t *testing.T) {
	t.Parallel()
	for name, raise := range map[string]func(d *deployment){
		"to a number": func(d *deployment) { d.raise(15e12) }, // passed in 2024
		"of a wiped store that was restored before": func(d *deployment) {
			d.restore(save(d.t, d.server))
			d.churn(20)
			d.stop()
			d.restored = ""
			d.start(filepath.Join(d.t.TempDir(), "wiped"))
			d.floor(lockserver.Closed)
			d.raise(0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deploy(t)
			d.churn(20)
			before := save(t, d.server)
			raise(d)
			highest := d.churn(20)
			after := save(t, d.server)
			for i, file := range []string{after, before, after, before} {
				d.restore(file)
				if first := d.churn(1); first <= highest {
					t.Fatalf("restore %d: token %d after %d", i, first, highest)
				}
				highest = d.churn(20)
			}
		})
	}
}

// TestRestored_TheSameSnapshotTwice goes back to the same file, whose id is acted on
// again. What the issued-token file knows of is below the second restore.
func TestRestored_TheSameSnapshotTwice(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	file, _, waiter, _ := lostFuture(t, d)
	var highest tokens.Token
	for range 2 {
		dir := filepath.Join(t.TempDir(), "restored")
		id, err := embedded.Restore(file, embedded.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		d.restored = id
		d.start(dir)
		d.floor(lockserver.Protected)
		if h := mustAcquire(t, d.server, waiter); h.Token <= highest {
			t.Fatalf("token %d after %d", h.Token, highest)
		}
		highest = d.churnOn("b", 20)
		d.stop()
		if err := d.node.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFloor_RestoreByAnotherToolWithoutBump goes back in time as etcdutl does by
// itself: the issued-token file is what notices.
func TestFloor_RestoreByAnotherToolWithoutBump(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	file, holder, waiter, highest := lostFuture(t, d)
	dir := filepath.Join(t.TempDir(), "restored")
	restorePlain(t, file, dir)
	d.start(dir)
	d.floor(lockserver.Closed)
	_, err := d.server.Acquire(t.Context(), waiter)
	wantFloor(t, err)
	_, err = d.server.Renew(t.Context(), holder.ID)
	wantFloor(t, err)
	if _, err := d.server.RaiseFloor(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	_, err = d.server.Renew(t.Context(), holder.ID)
	wantGone(t, err, lockserver.EndUnknown)
	_, err = d.server.Acquire(t.Context(), waiter)
	wantGone(t, err, lockserver.EndUnknown)
	if h := mustAcquire(t, d.server, try("a")); h.Token <= highest {
		t.Fatalf("token %d after %d", h.Token, highest)
	}
}

// restorePlain restores a snapshot into a single node's directory, without a bump.
func restorePlain(t *testing.T, file, dir string) {
	t.Helper()
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: dir, Name: "fenced", PeerURLs: []string{"http://127.0.0.1:1"},
		InitialCluster: "fenced=http://127.0.0.1:1", InitialClusterToken: "etcd-cluster",
	})
	if err != nil {
		t.Fatal(err)
	}
}

// wantFloor checks that a refusal names the command that repairs it.
func wantFloor(t *testing.T, err error) {
	t.Helper()
	wantCode(t, err, apierr.TokenFloor)
	if !strings.Contains(err.Error(), "fencectl floor raise") {
		t.Errorf("the refusal does not say how to repair it: %v", err)
	}
}

func TestUpkeep_ForeignStoresAreLeftAlone(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.stop()
	server := d.external(t)
	wantCode(t, server.Snapshot(t.Context(), io.Discard), apierr.Forbidden)
	_, err := server.Members(t.Context())
	wantCode(t, err, apierr.Forbidden)
	_, err = server.Compact(t.Context())
	wantCode(t, err, apierr.Forbidden)
	_, err = server.AddMember(t.Context(), "http://127.0.0.1:1")
	wantCode(t, err, apierr.Forbidden)
	wantCode(t, server.RemoveMember(t.Context(), "0000000000000001"), apierr.Forbidden)
}

func TestUpkeep_CompactAndMembersOfASingleNode(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.churn(10)
	rev, err := d.server.Compact(t.Context())
	if err != nil || rev == 0 {
		t.Fatalf("compact: %d, %v", rev, err)
	}
	members, err := d.server.Members(t.Context())
	if err != nil || len(members) != 1 || !members[0].Leader || !members[0].Voter {
		t.Fatalf("members: %+v, %v", members, err)
	}
	_, err = d.server.AddMember(t.Context(), "here")
	wantCode(t, err, apierr.Malformed)
	wantCode(t, d.server.RemoveMember(t.Context(), "x"), apierr.OutOfBounds)
	wantCode(t, d.server.RemoveMember(t.Context(), "0123456789abcdef"), apierr.OutOfBounds)
	wantCode(t, d.server.RemoveMember(t.Context(), members[0].ID), apierr.NoQuorum)
	d.churn(1)
}

// TestClaim_ASecondDeploymentIsRefused: two deployments on one prefix would end
// each other's holds.
func TestClaim_ASecondDeploymentIsRefused(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.stop()
	second, err := lockserver.New(lockserver.Config{Client: d.node.Client(), Cluster: "another"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- second.Run(t.Context()) }()
	select {
	case err = <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("the second deployment runs")
	}
	var foreign *lockserver.ForeignError
	if !errors.As(err, &foreign) || foreign.Want != "another" || foreign.Found == "" || !strings.Contains(err.Error(), foreign.Prefix) {
		t.Fatalf("got %v", err)
	}
}
