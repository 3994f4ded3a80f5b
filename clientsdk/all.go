package clientsdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/tokens"
)

// Holds are several locks held together. Its methods may be called from any number
// of goroutines.
type Holds struct {
	holds  []*Hold // in the order asked for
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// AcquireAll acquires all of locks or none. It takes them one after the other in
// the order of their names, so that callers with overlapping sets cannot block each
// other for ever. opts apply to each; opts.Wait bounds the whole. When a lock that
// was taken is lost while others are waited for, AcquireAll fails with its
// [*LostError]. A name that is given twice is an error: the second would wait
// behind the first. What was taken before an error is released, for a second of the
// call at most, and then in the background.
func (c *Client) AcquireAll(ctx context.Context, locks []string, opts *AcquireOptions) (*Holds, error) {
	sorted := slices.Sorted(slices.Values(locks))
	if len(sorted) == 0 {
		return nil, bounds("acquire all", "locks", "1 or more")
	}
	for i, name := range sorted[1:] {
		if name == sorted[i] {
			return nil, bounds("acquire all", "locks", fmt.Sprintf("different, and %q is named twice", name))
		}
	}
	taken, err := c.acquireInOrder(ctx, sorted, opts)
	if err != nil {
		c.rollBack(ctx, taken)
		return nil, err
	}
	return joinHolds(ctx, taken, locks), nil
}

// rollBack releases taken. It waits for that, so that a caller who tries again does not
// find what he had taken himself, but not for servers that are away.
func (c *Client) rollBack(ctx context.Context, taken []*Hold) {
	ctx, end, err := c.begin(context.WithoutCancel(ctx))
	if err != nil {
		return // closed, and all holds with it
	}
	released := make(chan struct{})
	go func() {
		defer end()
		defer close(released)
		releaseAll(ctx, taken)
	}()
	timer := time.NewTimer(lastAnswer)
	defer timer.Stop()
	select {
	case <-released:
	case <-timer.C:
	}
}

func (c *Client) acquireInOrder(ctx context.Context, locks []string, opts *AcquireOptions) ([]*Hold, error) {
	parent := context.WithoutCancel(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if opts != nil && opts.Wait > 0 {
		return c.acquireWithin(ctx, parent, cancel, locks, *opts)
	}
	return c.acquireEach(ctx, parent, cancel, locks, func() *AcquireOptions { return opts })
}

// acquireWithin gives each lock what its predecessors have left of the wait.
func (c *Client) acquireWithin(ctx, parent context.Context, cancel context.CancelCauseFunc, locks []string, opts AcquireOptions) ([]*Hold, error) {
	begun, total := c.t.now(), opts.Wait
	return c.acquireEach(ctx, parent, cancel, locks, func() *AcquireOptions {
		o := opts
		o.Wait = max(1, total-c.t.now().Sub(begun))
		return &o
	})
}

func (c *Client) acquireEach(ctx, parent context.Context, cancel context.CancelCauseFunc, locks []string, opts func() *AcquireOptions) ([]*Hold, error) {
	var taken []*Hold
	for _, name := range locks {
		h, err := c.acquire(ctx, parent, name, opts(), false)
		if err != nil {
			return taken, err
		}
		taken = append(taken, h)
		stop := context.AfterFunc(h.ctx, func() { cancel(h.Err()) })
		defer stop()
	}
	return taken, nil
}

// joinHolds orders taken as asked for and gives them one context.
func joinHolds(ctx context.Context, taken []*Hold, asked []string) *Holds {
	slices.SortFunc(taken, func(a, b *Hold) int {
		return cmp.Compare(slices.Index(asked, a.lock), slices.Index(asked, b.lock))
	})
	inner := context.WithoutCancel(ctx)
	for _, h := range taken {
		inner = tokens.NewContext(inner, h.lock, h.token)
	}
	inner, cancel := context.WithCancelCause(inner)
	all := &Holds{holds: taken, cancel: cancel}
	all.ctx = &holdsContext{Context: inner, all: all}
	for _, h := range taken {
		context.AfterFunc(h.ctx, func() { cancel(h.Err()) })
	}
	return all
}

// holdsContext looks at the clock like holdContext.
type holdsContext struct {
	context.Context
	all *Holds
}

func (c *holdsContext) Err() error {
	if err := c.all.Err(); err != nil {
		c.all.cancel(err)
	}
	return c.Context.Err()
}

func (c *holdsContext) Done() <-chan struct{} {
	c.Err()
	return c.Context.Done()
}

// All returns the holds in the order in which their locks were named.
func (a *Holds) All() []*Hold { return slices.Clone(a.holds) }

// Context returns a context that carries the tokens of all holds and ends with the
// first that ends, with its cause. See [Hold.Context].
func (a *Holds) Context() context.Context { return a.ctx }

// Err returns nil while all are held, else why the first that ended did.
func (a *Holds) Err() error {
	for _, h := range a.holds {
		if err := h.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Release gives up all locks; see [Hold.Release]. The errors are joined.
func (a *Holds) Release(ctx context.Context) error {
	err := releaseAll(ctx, a.holds)
	a.cancel(ErrReleased)
	return err
}

// releaseAll releases all at once, so that each has the time that a release may take.
func releaseAll(ctx context.Context, holds []*Hold) error {
	errs := make([]error, len(holds))
	var all sync.WaitGroup
	for i, h := range holds {
		all.Go(func() { errs[i] = h.Release(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}
