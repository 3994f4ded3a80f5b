package httpapi_test

import (
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver"
)

// storeHolds writes n holds as a server before this one would have left them.
func storeHolds(t *testing.T, store *clientv3.Client, n int) {
	t.Helper()
	lease, err := store.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	const batch = 100
	text := base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
	var writers sync.WaitGroup
	room := make(chan struct{}, 4)
	for first := 0; first < n; first += batch {
		var puts []clientv3.Op
		for i := first; i < min(first+batch, n); i++ {
			var ref [16]byte
			binary.BigEndian.PutUint64(ref[:], uint64(i+1)) // none is all zeros
			key := lockserver.DefaultPrefix + "h/" + text.EncodeToString(ref[:])
			value := fmt.Sprintf(`{"v":1,"l":%q,"o":"w","t":3600000,"n":"x","c":1}`, manyName(i))
			puts = append(puts, clientv3.OpPut(key, value, clientv3.WithLease(lease.ID)))
		}
		room <- struct{}{}
		writers.Go(func() {
			if _, err := store.Txn(t.Context()).Then(puts...).Commit(); err != nil {
				t.Error(err)
			}
			<-room
		})
	}
	writers.Wait()
}

func manyName(i int) string { return fmt.Sprintf("many/%06d", i) }

// 100,000 locks are listed page by page, each once, while others come and go among
// them; and who acquires meanwhile does not wait for the list.
func TestLocks_of_100000_are_listed_without_a_stall(t *testing.T) {
	t.Parallel()
	const many = 100_000
	node := etcdtest.Node(t)
	storeHolds(t, node.Client(), many)
	engine, _ := etcdtest.Run(t, lockserver.Config{Client: node.Client(), Alone: true})
	srv := serve(t, engine)
	c := &client{srv, srv.Client()}
	t.Cleanup(c.http.CloseIdleConnections)

	done := make(chan struct{})
	var slowest time.Duration
	var cycles int
	var others sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			start := time.Now()
			lock := manyName(cycles*7919%many) + "/in between"
			hold, err := engine.Acquire(t.Context(), lockserver.AcquireRequest{Lock: lock, Owner: "w"})
			if err != nil {
				t.Error(err)
				return
			}
			if err := engine.Release(t.Context(), hold.ID); err != nil {
				t.Error(err)
				return
			}
			slowest, cycles = max(slowest, time.Since(start)), cycles+1
		}
	})
	seen, last, cursor := 0, "", ""
	begin := time.Now()
	for {
		page := decode[wire.LockList](t, c.send(t, "GET", "/v1/locks?limit=1000&prefix=many/&cursor="+url.QueryEscape(cursor), ""), http.StatusOK)
		for _, l := range page.Locks {
			if l.Lock <= last {
				t.Fatalf("%q comes after %q", l.Lock, last)
			}
			if last = l.Lock; strings.Count(l.Lock, "/") > 1 {
				continue // in between
			}
			if l.Lock != manyName(seen) {
				t.Fatalf("%q is listed where %q should be", l.Lock, manyName(seen))
			}
			seen++
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	close(done)
	others.Wait()
	if seen != many {
		t.Errorf("%d locks were listed, want %d", seen, many)
	}
	t.Logf("%d cycles meanwhile, the slowest took %s", cycles, slowest)
	// A list that held the grants up would hold them for all of its time; a busy
	// machine holds both up.
	if cycles == 0 || slowest > max(time.Second, time.Since(begin)/10) {
		t.Errorf("%d cycles meanwhile, the slowest took %s: the list stalls the grants", cycles, slowest)
	}
}
