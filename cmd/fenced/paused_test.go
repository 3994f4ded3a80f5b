//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/wire"
)

// TestCluster_APausedLeaderEndsNoLiveHold stops the process of the leader, which has
// granted, for longer than the TTL, while the holds are renewed through the others. As
// it wakes up its timers are due, and it does not know yet that it leads no more: what it
// remembers of the leases must not end what is alive.
func TestCluster_APausedLeaderEndsNoLiveHold(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), upgradePatience)
	defer cancel()
	var members []*upgraded
	for _, config := range clusterConfigs(t) {
		u := newUpgraded(t, ctx, config)
		u.start("")
		members = append(members, u)
	}
	for _, u := range members {
		u.ready()
	}
	leader := leading(t, members)
	var others []string
	for _, u := range members {
		if u != leader {
			others = append(others, u.url)
		}
	}
	// Longer than the TTL, and shorter than the lease behind it (TTL + 5 s): once that has
	// run out, etcd itself may end it as it wakes up, which nothing outside it prevents.
	const ttl, pause, after = 8 * time.Second, 11 * time.Second, 9 * time.Second
	var holds []wire.Hold
	for i := range 4 {
		resp, hold := post(t, leader.url+"/v1/holds", fmt.Sprintf(`{"lock":"a/%d","owner":"me","ttl":"%s"}`, i, ttl))
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("acquire: %s", resp.Status)
		}
		holds = append(holds, hold)
	}
	renewing, stop := context.WithTimeout(ctx, pause+after)
	defer stop()
	var renewals sync.WaitGroup
	for i, hold := range holds {
		renewals.Go(func() { renewUntil(renewing, t, others[i%len(others)], hold) })
	}
	if err := leader.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(pause)
	if err := leader.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	renewals.Wait()
}

// renewUntil renews a hold every second until ctx ends; it must never be gone. While the
// others elect a leader there is no quorum, and the call is repeated.
func renewUntil(ctx context.Context, t *testing.T, url string, hold wire.Hold) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	begin := time.Now()
	kept := begin // the sending of the last renewal that was answered held
	for {
		sent := time.Now()
		resp, err := http.Post(url+"/v1/holds/"+hold.Hold+"/renew", "application/json", strings.NewReader("{}"))
		if err == nil {
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			switch resp.StatusCode {
			case http.StatusOK:
				kept = sent
			case http.StatusGone:
				t.Errorf("after %v the hold of %s is gone, %v after its last renewal: %s", time.Since(begin), hold.Lock, time.Since(kept), body)
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// leading returns the member that leads the store.
func leading(t *testing.T, members []*upgraded) *upgraded {
	t.Helper()
	for _, u := range members {
		if statusOf(t, u.url).Leads {
			return u
		}
	}
	t.Fatal("nobody leads")
	return nil
}
