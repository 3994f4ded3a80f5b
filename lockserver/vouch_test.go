package lockserver_test

import (
	"context"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver"
)

// vouching is a store with servers that come and go, each with its issued-token file.
type vouching struct {
	t     *testing.T
	store *clientv3.Client
	dir   string
}

func newVouching(t *testing.T) *vouching {
	t.Helper()
	return &vouching{t: t, store: etcdtest.Node(t).Client(), dir: t.TempDir()}
}

func (v *vouching) run(name string) (*lockserver.Server, func()) {
	v.t.Helper()
	return etcdtest.Run(v.t, lockserver.Config{
		Client: v.store, Managed: true, Name: name, IssuedFile: filepath.Join(v.dir, name),
	})
}

// until waits for a state.
func (v *vouching) until(what string, done func() bool) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), 10*time.Second)
	defer cancel()
	for !done() {
		if ctx.Err() != nil {
			v.t.Fatalf("%s does not come", what)
		}
		runtime.Gosched()
	}
}

func floorOf(t *testing.T, s *lockserver.Server) lockserver.FloorState {
	t.Helper()
	st, err := s.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st.Floor
}

// TestVouch_MembersThatComeLaterAreProtectedAtOnce: they found a store with tokens in it
// and no file, and said unprotected until they were restarted.
func TestVouch_MembersThatComeLaterAreProtectedAtOnce(t *testing.T) {
	t.Parallel()
	v := newVouching(t)
	first, _ := v.run("first")
	mustRelease(t, first, mustAcquire(t, first, try("a")))
	second, _ := v.run("second")
	third, _ := v.run("third")
	for _, s := range []*lockserver.Server{second, third} {
		v.until("protection", func() bool { return floorOf(t, s) == lockserver.Protected })
	}
}

// TestVouch_TheFirstServerKnowsThatItWas loses the answer to the claim of a new store, as
// the first members of a cluster may that elect each other meanwhile: all would find a
// store that is there already, and nobody could vouch for it.
func TestVouch_TheFirstServerKnowsThatItWas(t *testing.T) {
	t.Parallel()
	v := newVouching(t)
	var lost atomic.Bool
	spoil(v.store).onWrite(func(resp *clientv3.TxnResponse, err error) (*clientv3.TxnResponse, error) {
		if lost.Swap(true) {
			return resp, err
		}
		return nil, context.DeadlineExceeded
	})
	first, _ := v.run("first")
	if got := floorOf(t, first); got != lockserver.Protected {
		t.Fatalf("the floor is %v", got)
	}
}

// TestVouch_NobodyVouchesForWhatNobodyKnows runs servers that have all lost their files:
// they must not believe each other. One that has its own answers, also where it comes
// last; so does a raise of the floor.
func TestVouch_NobodyVouchesForWhatNobodyKnows(t *testing.T) {
	t.Parallel()
	for name, mend := range map[string]func(v *vouching, one *lockserver.Server){
		"a server with its file comes": func(v *vouching, _ *lockserver.Server) { v.run("kept") },
		"the floor is raised": func(v *vouching, one *lockserver.Server) {
			if _, err := one.RaiseFloor(v.t.Context(), 0); err != nil {
				v.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVouching(t)
			_, stop := v.run("kept")
			stop()
			one, _ := v.run("one")
			two, _ := v.run("two")
			v.until("the question of both", func() bool {
				resp, err := v.store.Get(t.Context(), lockserver.DefaultPrefix+"vouch/", clientv3.WithPrefix(), clientv3.WithCountOnly())
				return err == nil && resp.Count == 2
			})
			for _, s := range []*lockserver.Server{one, two} { // both have seen both
				mustRelease(t, s, mustAcquire(t, s, try("a")))
				if got := floorOf(t, s); got != lockserver.Unprotected {
					t.Fatalf("without a server that knows: %v", got)
				}
			}
			mend(v, one)
			for _, s := range []*lockserver.Server{one, two} {
				v.until("protection", func() bool { return floorOf(t, s) == lockserver.Protected })
			}
		})
	}
}
