package lockserver_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/lockserver"
	"github.com/fenced/fenced/lockserver/embedded"
	"github.com/fenced/fenced/tokens"
)

// floorFor bounds the search; more of it needs -rapid.checks=100000, too.
var floorFor = flag.Duration("floor.for", 8*time.Second, "how long TestFloor_TokensRiseInEveryDisaster draws new histories")

// TestFloor_TokensRiseInEveryDisaster draws histories of servers that come, go and lose
// their issued-token files, while their store is put back to a copy of its past, wiped or
// restored, and the floor is raised. The token of each grant is above all those of its
// lock before, but where docs/failure-model.md says that nobody can know; a server closes
// granting where it must and nowhere else; and one raise opens all.
func TestFloor_TokensRiseInEveryDisaster(t *testing.T) {
	t.Parallel()
	for i := range 2 { // most of the time is waiting
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			drawDisasters(t, time.Now().Add(*floorFor))
		})
	}
}

func drawDisasters(t *testing.T, end time.Time) {
	failed, n := false, 0
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		if time.Now().After(end) && !failed { // a history that failed is made smaller in its own time
			return
		}
		n++
		w := &world{t: t, dir: filepath.Join(dir, strconv.Itoa(n)), last: map[string]*lockserver.Hold{}}
		defer w.end()
		was := failed
		failed = true // a fault leaves by panic
		w.open(w.name("data"), past{})
		w.startSome()
		for range pick(t, "steps", 5, 10, 20, 40) {
			w.step()
		}
		w.finish()
		failed = was
	})
	t.Logf("%d histories", n)
}

// past is what a store carries of its history, and so does each copy of it.
type past struct {
	// knows is a token that the store, or a server that has met it, knows to be issued.
	knows int64
	// doubt is set where tokens were issued that the store lacks, and nobody who has met
	// it since knew of them. Then tokens may come again: in docs/failure-model.md see
	// "Notice of every rollback" and "fenced restore needs no raise, but".
	doubt    bool
	raises   int    // of its raises those that went above the line of restores
	restored string // the id of the restore that it comes from
}

// copied is a copy of a store: its directory, or a snapshot.
type copied struct {
	path string
	past past
}

// world is a deployment, and what its history must have left in each part of it.
type world struct {
	t          *rapid.T
	dir, data  string // data is the present store's
	names      int
	node       *embedded.Node
	up         [3]*upServer
	raw, saved []copied // of directories and snapshots

	past
	fresh bool                        // the store was restored and nobody has acted on it
	files [3]int64                    // what each issued-token file must know, 0 for none
	last  map[string]*lockserver.Hold // the highest grant of each lock
	told  []*lockserver.Hold
	top   int64 // the highest token of all
	above int   // all raises that went above the line of restores
}

// pick draws evenly; rapid's other generators prefer what is small.
func pick[E any](t *rapid.T, what string, of ...E) E {
	return rapid.Permutation(of).Draw(t, what)[0]
}

func (w *world) step() {
	up, down := []int{}, []int{}
	for i, s := range w.up {
		if s != nil {
			up = append(up, i)
		} else {
			down = append(down, i)
		}
	}
	what := pick(w.t, "step", "grant", "grant", "grant", "grant", "old", "old", "start", "start", "moment", "stop", "stop",
		"lose", "raise", "raise", "save", "save", "swap", "swap", "swap")
	switch {
	case what == "swap":
		w.swap()
	case what == "start" && len(down) > 0:
		w.start(pick(w.t, "server", down...))
	case what == "lose" && len(down) > 0:
		w.lose(pick(w.t, "server", down...))
	case what == "moment" && len(down) > 0:
		w.moment(pick(w.t, "server", down...))
	case what == "start" || what == "lose" || what == "moment" || len(up) == 0:
	default:
		w.use(what, pick(w.t, "server", up...))
	}
}

// use does a step with a server that is up.
func (w *world) use(what string, i int) {
	ctx, s := context.Background(), w.up[i]
	switch {
	case what == "stop":
		w.stop(i)
	case what == "raise":
		w.raise(i, pick(w.t, "above", 0, 0, 1, w.top+1000, 15e12, 1e15))
	case what == "save":
		c := copied{w.name("snapshot"), w.past}
		var b bytes.Buffer
		w.need(s.Snapshot(ctx, &b))
		w.need(os.WriteFile(c.path, b.Bytes(), 0o600))
		w.saved = append(w.saved, c)
	case what == "grant":
		req := try(pick(w.t, "lock", "a", "b"))
		if key := pick(w.t, "key", 0, 1, 2, 3); key > 0 {
			req.KeepPlace, req.IdempotencyKey = true, fmt.Sprintf("%032x", key)
		}
		h, err := s.Acquire(ctx, req)
		w.judge(h, err)
	case len(w.told) > 0:
		id := pick(w.t, "hold", w.told...).ID
		if pick(w.t, "release", true, true, false) {
			w.judge(nil, s.Release(ctx, id))
			return
		}
		h, err := s.Renew(ctx, id)
		w.judge(h, err)
	}
}

// judge holds an answer against the promise.
func (w *world) judge(h *lockserver.Hold, err error) {
	v := w.settle()
	var held *lockserver.HeldError
	var gone *lockserver.GoneError
	code := apierr.CodeOf(err)
	switch {
	case errors.As(err, &held), errors.As(err, &gone), code == apierr.NotHeld:
	case err != nil && (!v.closed || code != apierr.TokenFloor):
		w.t.Fatalf("closed: %t, answer: %v", v.closed, err)
	case err == nil && h != nil && h.State == lockserver.Held:
		w.issue(h)
	}
}

func (w *world) issue(h *lockserver.Hold) {
	w.t.Logf("%s has token %d", h.Lock, h.Token)
	last := w.last[h.Lock]
	if last == nil || h.Token > last.Token {
		w.last[h.Lock] = h
	} else if !w.doubt && (h.Token < last.Token || h.ID != last.ID) {
		w.t.Fatalf("%q: token %d after %d", h.Lock, h.Token, last.Token)
	}
	w.top = max(w.top, int64(h.Token))
	w.told = append(w.told, h)
}

// settle waits until all servers agree with the store, and notes what they know then.
func (w *world) settle() view {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(10 * time.Second)
	for {
		v := w.look()
		if w.agreed(v) {
			w.learn(v)
			return v
		}
		select {
		case <-tick.C:
		case <-late:
			w.t.Fatalf("the servers do not agree with the store, which says %+v", v)
		}
	}
}

func (w *world) agreed(v view) bool {
	for i, s := range w.up {
		if s == nil {
			continue
		}
		st, _ := s.Status(context.Background())
		if st.Revision != v.rev || (st.Floor == lockserver.Closed) != v.closed || v.closed && max(v.highest, v.at) < w.files[i] {
			return false
		}
	}
	return true
}

// learn notes that each server has seen the store, and that of a closed one each has told
// the others, through the store, what it knows.
func (w *world) learn(v view) {
	w.knows = max(w.knows, v.at)
	for i, s := range w.up {
		if s != nil && v.closed {
			w.knows = max(w.knows, w.files[i])
		}
	}
	for i, s := range w.up {
		if s != nil {
			w.files[i] = w.knows
		}
	}
	w.doubt = w.doubt && (!v.closed || w.knows < w.top) // only a raise to above it opens a closed one
}

func (w *world) startSome() {
	order := rapid.Permutation([]int{0, 1, 2}).Draw(w.t, "order")
	for _, i := range order[:pick(w.t, "servers", 1, 2, 3)] {
		w.start(i)
	}
}

// start runs a server, and checks that it closes granting where its file is above the
// store, and only where it may.
func (w *world) start(i int) {
	before, must := w.look(), w.files[i]
	line, err := os.ReadFile(w.file(i))
	if !errors.Is(err, fs.ErrNotExist) {
		w.need(err)
	}
	w.run(i)
	after := w.settle()
	w.t.Logf("server %d with %q: %+v, then %+v", i, bytes.TrimSpace(line), before, after)
	if w.fresh {
		w.fresh, before.at, before.holds = false, after.at, 0
		w.acted(before, after)
	}
	var highest int64
	var state string
	_, _ = fmt.Sscanf(string(line), "fenced issued 1 %d %s", &highest, &state)
	may := before.closed || highest > before.at || state == "closed" && before.holds > 0
	const others = 20 // more than servers write by themselves while one starts
	if must > before.at+others && !after.closed || after.closed && !may {
		w.t.Fatalf("server %d, which knows of %d: closed is %t", i, must, after.closed)
	}
}

// moment runs a server that is killed at once: it may have told the others what it knows,
// or not.
func (w *world) moment(i int) {
	w.run(i)
	if s := w.up[i]; pick(w.t, "ready", true, false) {
		_ = s.WaitReady(context.Background())
	}
	w.halt(i)
}

// acted notes where tokens go on after a restore: above all, but those of a raise by hand
// that the snapshot does not have.
func (w *world) acted(before, after view) {
	w.doubt = after.at <= w.top && !(after.closed && w.knows >= w.top)
	lacks := w.raises < w.above
	if after.holds > 0 || !lacks && (after.at <= w.top || after.closed && !before.closed) {
		w.t.Fatalf("a restore after token %d: %+v", w.top, after)
	}
}

// stop ends a server, or kills it: then its file stays as it was.
func (w *world) stop(i int) {
	line, err := os.ReadFile(w.file(i))
	w.need(err)
	w.halt(i)
	if pick(w.t, "killed", true, false) {
		w.need(os.WriteFile(w.file(i), line, 0o600))
	}
}

// lose removes the file of a server that is down.
func (w *world) lose(i int) {
	w.files[i] = 0
	if err := os.Remove(w.file(i)); !errors.Is(err, fs.ErrNotExist) {
		w.need(err)
	}
}

// raise raises the floor through a server: it opens all that are up.
func (w *world) raise(i int, above int64) {
	known := max(w.knows, above)
	_, err := w.up[i].RaiseFloor(context.Background(), tokens.Token(above))
	w.need(err)
	v := w.settle()
	w.t.Logf("server %d raised the floor above %d: %+v", i, above, v)
	if v.closed || v.at <= known || v.holds > 0 {
		w.t.Fatalf("after a raise above %d: %+v", known, v)
	}
	w.doubt = w.doubt && known < w.top
	if line := 1e12 + 1e5*time.Since(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)).Seconds(); float64(v.at) > line {
		w.above++
		w.raises++
	}
}

// swap stops all and starts some on another store: a copy that is put back behind
// everybody's back, an empty one, a snapshot that is restored, or the same.
func (w *world) swap() {
	for i, s := range w.up {
		if s != nil {
			w.stop(i)
		}
		if pick(w.t, "loses its file", true, false, false, false) {
			w.lose(i)
		}
	}
	w.need(w.node.Close())
	w.node = nil
	same := copied{w.data, w.past}
	w.raw = append(w.raw, same)
	dir, c := w.name("data"), same
	what := pick(w.t, "store", "back", "back", "back", "empty", "restored", "restored", "same")
	switch {
	case what == "back":
		c = pick(w.t, "copy", w.raw...)
	case what == "empty":
		c = copied{}
	case what == "restored" && len(w.saved) > 0:
		c = pick(w.t, "snapshot", w.saved...)
		id, err := embedded.Restore(c.path, embedded.Config{Dir: dir, NoSync: true})
		w.need(err)
		c.past.restored, c.path, w.fresh = id, "", true
	}
	if c.path != "" {
		w.need(copyDir(c.path, dir))
	}
	w.open(dir, c.past)
	w.startSome()
}

// open runs a store.
func (w *world) open(dir string, p past) {
	w.t.Logf("the store is %s: %+v, highest %d", filepath.Base(dir), p, w.top)
	w.data, w.past = dir, p
	w.doubt = w.doubt || w.knows < w.top
	node, err := embedded.Start(context.Background(), embedded.Config{Dir: dir, NoSync: true})
	w.need(err)
	w.node = node
}

// finish starts all servers and raises the floor: all grant, and above all.
func (w *world) finish() {
	for i, s := range w.up {
		if s == nil {
			w.start(i)
		}
	}
	w.raise(pick(w.t, "server", 0, 1, 2), 0)
	for i, s := range w.up {
		h, err := s.Acquire(context.Background(), try(fmt.Sprint("of ", i)))
		w.need(err)
		w.issue(h)
	}
}
