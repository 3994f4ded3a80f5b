//go:build linux

package stage_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/internal/demo/stage"
	"github.com/fenced/fenced/internal/faultproxy"
)

var (
	chaosFor  = flag.Duration("chaos", defaultChaos(), "how long to inject faults at random")
	chaosSeed = flag.Uint64("chaos-seed", 0, "seed of the faults' order (default: the clock)")
)

// defaultChaos is a minute where CI is set, and short on a developer's machine.
func defaultChaos() time.Duration {
	if os.Getenv("CI") != "" {
		return time.Minute
	}
	return 10 * time.Second
}

// chaos is all the faults at random, over a whole season's week.
type chaos struct {
	*play
	items string
	locks *faultproxy.Proxy
	db    *deaf // before the processes
	own   *deaf // before the test's own pool
	dice  *rand.Rand
	// cast are the processes at work; each end is followed by a new one.
	cast map[string]*stage.Process

	// The ledger's PostgreSQL with its standby, and that of the item server.
	primary  primary
	standby  *standby
	external primary

	open sync.WaitGroup // transactions that are held open
}

// promotions is how often a standby is promoted: copying the next one takes a while.
const promotions = 12 * time.Second

func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("takes its time")
	}
	seed := *chaosSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-chaos-seed=%d", seed)
	c := newChaos(t, seed)
	server := c.Server
	c.Server = c.locks.URL()
	end, promote := time.Now().Add(*chaosFor), time.Now().Add(promotions/3)
	for round := 0; time.Now().Before(end); round++ {
		if round%20 == 0 { // the inbox never runs dry: there is always somebody to forget
			c.deliver(t, rewards.Season(nextWeek(), 70)...)
		}
		if time.Now().After(promote) {
			c.failOver(t)
			promote = time.Now().Add(promotions)
		}
		c.strike(t)
		time.Sleep(time.Duration(c.dice.IntN(300)) * time.Millisecond) // the rhythm is part of the faults
	}
	for n := len(c.owed); n < 2_000; n = len(c.owed) {
		c.deliver(t, rewards.Season(nextWeek(), 700)...)
	}
	c.open.Wait()
	c.locks.Partition(false)
	c.Server = server
	for name, p := range c.cast {
		p.Kill()
		delete(c.cast, name)
	}
	c.finish(t, c.worker(t, "last-1"), c.worker(t, "last-2"))
	if _, err := rewards.Replay(c.ctx, c.Pool); err != nil {
		t.Fatal(err)
	}
	c.finish(t, c.publisher(t, "last publisher", c.items))
	c.told(t, c.items)
	t.Logf("%d rewards were paid once each", len(c.owed))
}

func newChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	s, others := openStage(t), openStage(t)
	c := &chaos{
		play: newPlay(t, s), dice: rand.New(rand.NewPCG(seed, seed)), cast: make(map[string]*stage.Process),
		primary: s.Postgres, external: others.Postgres,
	}
	ctx, cancel := context.WithTimeout(t.Context(), *chaosFor+3*patience)
	t.Cleanup(cancel)
	c.ctx = ctx
	items, err := others.ItemServer(c.ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.items = forgetful(t, items)
	c.standby = newStandby(t, c.ctx, c.primary.TCPURL("postgres"))
	own, dsn := newDeaf(t, c.DSN)
	c.db, c.DSN = newDeaf(t, c.DSN)
	c.own = own
	if c.Pool, err = pgxpool.New(c.ctx, dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Pool.Close)
	c.locks = proxyTo(t, c.Server)
	return c
}

func openStage(t *testing.T) *stage.Stage {
	t.Helper()
	s, err := stage.Open(t.Context(), programs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// failOver promotes the standby after it has heard nothing for a while. What is
// forgotten then is delivered again: nobody has told the broker that it was done.
func (c *chaos) failOver(t *testing.T) {
	t.Helper()
	c.open.Wait()
	c.standby.stop()
	c.deliver(t, rewards.Season(nextWeek(), 20)...)
	for range 5 {
		c.strike(t)
		time.Sleep(time.Duration(c.dice.IntN(300)) * time.Millisecond)
	}
	c.open.Wait()
	c.primary.Kill()
	c.standby.promote(t, c.ctx)
	c.primary = c.standby
	to := c.primary.TCPURL(database(t, c.DSN))
	c.own.lead(t, to)
	c.db.lead(t, to)
	c.Pool.Reset()
	v, err := rewards.Verify(c.ctx, c.Pool, c.owed)
	if err != nil {
		t.Fatal(err)
	}
	c.deliver(t, v.Forgotten...)
	c.standby = newStandby(t, c.ctx, c.primary.TCPURL("postgres"))
}

// crowd gives one reward to fifty consumers in five processes at once.
func (c *chaos) crowd(t *testing.T) {
	t.Helper()
	r := one(t, 1)
	for range 50 {
		c.deliver(t, r)
	}
	for i := range 5 {
		name := fmt.Sprint("crowd-", i)
		if p := c.cast[name]; p != nil {
			p.Kill()
		}
		c.cast[name] = c.worker(t, name, "--drain=false", "--visibility", "3s", "--concurrency", "10")
	}
}

// overtaken pays a reward in a transaction that stays open while later ones commit.
// Its message is there too, so that it is owed whatever becomes of the transaction.
func (c *chaos) overtaken(t *testing.T) {
	t.Helper()
	r := one(t, 1)
	tx, err := c.Pool.Begin(c.ctx)
	if err == nil {
		err = insertPaid(c.play, tx, r)
	}
	c.deliver(t, r)
	if err != nil {
		return // PostgreSQL is just coming back
	}
	wait := time.Duration(c.dice.IntN(1000)) * time.Millisecond
	c.open.Go(func() {
		time.Sleep(wait)
		_ = tx.Commit(c.ctx)
	})
}

// forgetful returns the address of a proxy to the item server at url that loses
// one answer in twenty, after the effect.
func forgetful(t *testing.T, url string) string {
	t.Helper()
	proxy := proxyTo(t, url)
	proxy.Decide(func(r *http.Request) faultproxy.Fault {
		lose := r.Method == http.MethodPost && rand.IntN(20) == 0
		if lose {
			faults.add("chaos: item server's answer lost")
		}
		return faultproxy.Fault{DropAnswer: lose}
	})
	return proxy.URL()
}

// actor returns the process of that name, starting a new one where it has ended.
func (c *chaos) actor(t *testing.T, name string, publisher bool) *stage.Process {
	t.Helper()
	if p := c.cast[name]; p != nil && !p.Ended() {
		return p
	}
	if publisher {
		c.cast[name] = c.publisher(t, name, c.items, "--drain=false", "--lease", "2s")
	} else {
		c.cast[name] = c.worker(t, name, "--drain=false", "--visibility", "3s", "--forget-hold")
	}
	return c.cast[name]
}

// strike does one thing at random to somebody.
func (c *chaos) strike(t *testing.T) {
	t.Helper()
	var all []*stage.Process
	for i := range 3 {
		all = append(all, c.actor(t, fmt.Sprint("worker-", i), false))
	}
	for i := range 2 {
		all = append(all, c.actor(t, fmt.Sprint("publisher-", i), true))
	}
	victim := all[c.dice.IntN(len(all))]
	switch what := c.dice.IntN(25); {
	case what < 9: // paused: up to two and a half leases
		faults.add("chaos: pause")
		_ = victim.Signal(syscall.SIGSTOP)
		pause := time.Duration(c.dice.IntN(2500)) * time.Millisecond
		time.AfterFunc(pause, func() { _ = victim.Signal(syscall.SIGCONT) })
	case what < 15:
		faults.add("chaos: kill")
		victim.Kill()
	case what < 17:
		faults.add("chaos: connections to the lock service cut")
		c.locks.CutAll()
	case what < 19:
		faults.add("chaos: lock service out of reach")
		c.locks.Partition(true)
		time.AfterFunc(time.Duration(c.dice.IntN(2000))*time.Millisecond, func() { c.locks.Partition(false) })
	case what < 21:
		faults.add("chaos: PostgreSQL's answers lost")
		c.db.keepAnswers(true)
		time.AfterFunc(time.Duration(c.dice.IntN(500))*time.Millisecond, func() {
			// Who has lost an answer must not hear the next, and who connected in
			// between has lost one, too.
			c.db.cut()
			c.db.keepAnswers(false)
			c.db.cut()
		})
	case what < 22:
		faults.add("chaos: fifty consumers of one message")
		c.crowd(t)
	case what < 23:
		faults.add("chaos: outbox rows committed out of order")
		c.overtaken(t)
	default:
		faults.add("chaos: PostgreSQL crashed and restarted")
		hit := []primary{c.primary, c.external}[c.dice.IntN(2)]
		if err := hit.Restart(c.ctx); err != nil {
			t.Fatal(err)
		}
		c.Pool.Reset() // its connections are gone, which it would find out one by one
	}
}
