package fencetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/fenced/fenced/tokens"
)

func raceCases[U any]() []Case[U] {
	return []Case[U]{
		{Name: "08 first-ever race: the highest token wins", Check: firstRace[U]},
		{Name: "09 older waits, newer commits: stale", Check: olderWaits[U], Needs: needsHold[U]},
		{Name: "10 older waits, newer rolls back: accepted", Check: newerRollsBack[U], Needs: needsHold[U]},
		{Name: "11 an open unit keeps its fence", Check: openUnitHolds[U], Needs: needsHold[U]},
		{Name: "23 a cancelled wait leaves nothing behind", Check: cancelledWait[U], Needs: needsHold[U]},
		{Name: "30 renewables of one holder are all accepted", Check: manyRenewables[U]},
		{Name: "32 random histories never fall", Check: randomHistory[U], Needs: needsHold[U]},
	}
}

// persist repeats a unit for as long as the guard says that it may be repeated.
func persist[U any](ctx context.Context, h Harness[U], c tokens.Claim, value string) (tokens.Decision, error) {
	for {
		d, err := do(ctx, h, c, value)
		if (errors.Is(err, tokens.ErrRetryable) || errors.Is(err, tokens.ErrBusy)) && ctx.Err() == nil {
			continue
		}
		return d, err
	}
}

// each runs f for 0 to n-1 at once and joins the errors.
func each(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// firstRace has clients meet on resources that nobody has used. Some start low,
// some high, so both orders come about.
func firstRace[U any](ctx context.Context, h Harness[U]) error {
	const clients, rounds = 8, 40
	for round := range rounds {
		resource := "race" + strconv.Itoa(round)
		err := each(clients, func(i int) error {
			t := tokens.Token(1 + (i+round)%clients)
			d, err := persist(ctx, h, claim(resource, t, tokens.OneShot), t.String())
			switch {
			case err == nil && d.Outcome == tokens.Accepted:
				return nil
			case errors.Is(err, tokens.ErrStale) && d.Outcome == tokens.Stale && d.Current > t:
				return nil
			default:
				return fmt.Errorf("token %d: got %+v, error %w; want accepted or stale", t, d, orNil(err))
			}
		})
		if err == nil {
			err = wantValue(ctx, h, resource, strconv.Itoa(clients))
		}
		if err == nil {
			err = wantFence(ctx, h, resource, clients)
		}
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

// rivals opens a unit that has advanced resource to 6, starts a rival with token
// 5, ends the first with end once the rival waits, and returns the rival's answer.
func rivals[U any](ctx context.Context, h Harness[U], resource string, end func(u U) error) (tokens.Decision, error) {
	u, err := h.Begin(ctx)
	if err != nil {
		return tokens.Decision{}, err
	}
	if _, err := h.Guard().Advance(ctx, u, claim(resource, 6, tokens.OneShot)); err != nil {
		return tokens.Decision{}, errors.Join(err, h.Rollback(ctx, u))
	}
	type answer struct {
		d   tokens.Decision
		err error
	}
	rival := make(chan answer, 1)
	waitCtx, answered := context.WithCancel(ctx)
	go func() {
		defer answered()
		d, err := persist(ctx, h, claim(resource, 5, tokens.OneShot), "5")
		rival <- answer{d, err}
	}()
	waitErr := awaitWaiting(waitCtx, h, 1)
	if errors.Is(waitErr, context.Canceled) {
		waitErr = nil // the rival did not wait, and its answer says what it did
	}
	endErr := end(u)
	a := <-rival
	return a.d, errors.Join(a.err, waitErr, endErr)
}

func olderWaits[U any](ctx context.Context, h Harness[U]) error {
	return oldAndNew(ctx, h, func(resource string) error {
		d, err := rivals(ctx, h, resource, func(u U) error {
			return errors.Join(h.Write(ctx, u, resource, "6"), h.Commit(ctx, u))
		})
		return inOrder(
			func() error { return wantRefused(claim(resource, 5, tokens.OneShot), d, err, stale(6)) },
			func() error { return wantValue(ctx, h, resource, "6") },
		)
	})
}

func newerRollsBack[U any](ctx context.Context, h Harness[U]) error {
	return oldAndNew(ctx, h, func(resource string) error {
		d, err := rivals(ctx, h, resource, func(u U) error { return h.Rollback(ctx, u) })
		return inOrder(
			func() error { return wantAccepted(claim(resource, 5, tokens.OneShot), d, err) },
			func() error { return wantFence(ctx, h, resource, 5) },
		)
	})
}

// oldAndNew runs a case on a resource that has a fence and on one that has none:
// a row that does not exist yet cannot be locked like one that does.
func oldAndNew[U any](ctx context.Context, h Harness[U], f func(resource string) error) error {
	return inOrder(
		func() error { return accept(ctx, h, claim("old", 1, tokens.OneShot)) },
		func() error { return f("old") },
		func() error { return f("new") },
	)
}

// openUnitHolds: while a unit that was accepted is open, a higher token must not
// be accepted; its wait ends with its deadline, as busy.
func openUnitHolds[U any](ctx context.Context, h Harness[U]) error {
	u, err := h.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := h.Guard().Advance(ctx, u, claim("a", 6, tokens.OneShot)); err != nil {
		return errors.Join(err, h.Rollback(ctx, u))
	}
	if err := mustBeBusy(ctx, h, claim("a", 7, tokens.OneShot)); err != nil {
		return errors.Join(err, h.Rollback(ctx, u))
	}
	return inOrder(
		func() error { return wantFence(ctx, h, "a", 0) }, // only what is committed
		func() error { return h.Write(ctx, u, "a", "6") },
		func() error { return h.Commit(ctx, u) },
		func() error { return accept(ctx, h, claim("a", 7, tokens.OneShot)) },
	)
}

// mustBeBusy makes a claim with little time behind an open unit.
func mustBeBusy[U any](ctx context.Context, h Harness[U], c tokens.Claim) error {
	u, err := h.Begin(ctx)
	if err != nil {
		return err
	}
	c.Deadline = time.Now().Add(400 * time.Millisecond)
	d, err := h.Guard().Advance(ctx, u, c)
	if !errors.Is(err, tokens.ErrBusy) || d.Outcome != 0 {
		err = fmt.Errorf("higher token beside an open unit: got %+v, error %w; want ErrBusy", d, orNil(err))
		return errors.Join(err, h.Rollback(ctx, u))
	}
	return h.Rollback(ctx, u)
}

// cancelLimit is how soon a wait must end after its context.
const cancelLimit = 5 * time.Second

func cancelledWait[U any](ctx context.Context, h Harness[U]) error {
	u, err := h.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := h.Guard().Advance(ctx, u, claim("a", 6, tokens.OneShot)); err != nil {
		return errors.Join(err, h.Rollback(ctx, u))
	}
	waitCtx, cancel := context.WithCancel(ctx)
	gone := make(chan error, 1)
	go func() {
		_, err := do(waitCtx, h, claim("a", 9, tokens.OneShot), "9")
		gone <- err
	}()
	waitErr := awaitWaiting(ctx, h, 1)
	cancel()
	var late error
	select {
	case err := <-gone:
		if !errors.Is(err, context.Canceled) {
			late = fmt.Errorf("a wait that was cancelled: error %w; want context.Canceled", orNil(err))
		}
	case <-time.After(cancelLimit):
		err := fmt.Errorf("a wait that was cancelled goes on after %v", cancelLimit)
		err = errors.Join(err, h.Rollback(ctx, u))
		<-gone // it has what it waited for
		return err
	}
	return errors.Join(waitErr, late, inOrder(
		func() error { return awaitWaiting(ctx, h, 0) },
		func() error { return h.Commit(ctx, u) },
		// Had the cancelled 9 stayed in the queue, it would be accepted now.
		func() error { return accept(ctx, h, claim("a", 7, tokens.OneShot)) },
		func() error { return wantFence(ctx, h, "a", 7) },
	))
}

func manyRenewables[U any](ctx context.Context, h Harness[U]) error {
	const units, atOnce = 100, 10
	err := each(atOnce, func(int) error {
		for range units / atOnce {
			c := claim("a", 5, tokens.Renewable)
			d, err := persist(ctx, h, c, "5")
			if err := wantAccepted(c, d, err); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, wantFence(ctx, h, "a", 5))
}

// randomHistory has clients with random tokens, modes and ends meet on few
// resources. Each accepted unit reads what the unit before it wrote and replaces
// it, so the values are the history in commit order, and must never fall.
func randomHistory[U any](ctx context.Context, h Harness[U]) error {
	const clients, steps = 8, 60
	seed := uint64(time.Now().UnixNano())
	var (
		mu      sync.Mutex
		highest = make(map[string]tokens.Token)
	)
	err := each(clients, func(i int) error {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		for step := range steps {
			c := claim("r"+strconv.Itoa(rng.IntN(3)), tokens.Token(1+step+rng.IntN(20)), tokens.Mode(rng.IntN(2)))
			committed, err := historyStep(ctx, h, c, rng.IntN(4) == 0)
			if err != nil {
				return fmt.Errorf("seed %d, client %d, step %d: %w", seed, i, step, err)
			}
			mu.Lock()
			if committed {
				highest[c.Resource] = max(highest[c.Resource], c.Token)
			}
			mu.Unlock()
		}
		return nil
	})
	for resource, t := range highest {
		err = errors.Join(err, wantFence(ctx, h, resource, t), wantValue(ctx, h, resource, t.String()))
	}
	return err
}

// historyStep is one unit of a random history. It reports whether it committed.
func historyStep[U any](ctx context.Context, h Harness[U], c tokens.Claim, undo bool) (bool, error) {
	u, err := h.Begin(ctx)
	if err != nil {
		return false, err
	}
	if _, err := h.Guard().Advance(ctx, u, c); err != nil {
		if errors.Is(err, tokens.ErrStale) || errors.Is(err, tokens.ErrDuplicate) || errors.Is(err, tokens.ErrRetryable) {
			err = nil
		}
		return false, errors.Join(err, h.Rollback(ctx, u))
	}
	before, err := h.Read(ctx, u, c.Resource)
	if err != nil {
		return false, errors.Join(err, h.Rollback(ctx, u))
	}
	if err := follows(before, c); err != nil {
		return false, errors.Join(err, h.Rollback(ctx, u))
	}
	if err := h.Write(ctx, u, c.Resource, c.Token.String()); err != nil || undo {
		return false, errors.Join(err, h.Rollback(ctx, u))
	}
	err = h.Commit(ctx, u)
	if errors.Is(err, tokens.ErrRetryable) {
		return false, nil
	}
	return err == nil, err
}

// follows reports how an accepted claim breaks the order after the value before.
func follows(before string, c tokens.Claim) error {
	if before == "" {
		return nil
	}
	last, err := tokens.Parse(before)
	if err != nil {
		return err
	}
	if c.Token < last || c.Token == last && c.Mode == tokens.OneShot {
		return fmt.Errorf("%s token %d was accepted on %q after %d", c.Mode, c.Token, c.Resource, last)
	}
	return nil
}
