package lockserver_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver"
)

// TestFloor_AClosureIsNotToldForEver closes two servers on a store that is above all that
// they know of. What each writes of it raises the revision, and so the highest token that
// the other knows of: neither may tell that again.
func TestFloor_AClosureIsNotToldForEver(t *testing.T) {
	t.Parallel()
	store := etcdtest.Node(t).Client()
	var servers []*lockserver.Server
	for i := range 2 {
		s, _ := etcdtest.Run(t, lockserver.Config{
			Client: store, Managed: true, Name: fmt.Sprint("n", i), IssuedFile: filepath.Join(t.TempDir(), "issued"),
		})
		servers = append(servers, s)
	}
	const key, closures = lockserver.DefaultPrefix + "closed", 30
	for range closures {
		resp, err := store.Put(t.Context(), key, `{"v":1,"h":1,"w":"a hold is back"}`)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range servers {
			for st, _ := s.Status(t.Context()); st.Revision < resp.Header.Revision; st, _ = s.Status(t.Context()) {
				runtime.Gosched()
			}
		}
	}
	if _, err := servers[0].RaiseFloor(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	puts := 0
	for resp := range store.Watch(t.Context(), key, clientv3.WithRev(1)) {
		for _, e := range resp.Events {
			if e.Type == clientv3.EventTypeDelete {
				if puts != closures {
					t.Errorf("the closure was written %d times, not %d", puts, closures)
				}
				return
			}
			puts++
		}
	}
}
