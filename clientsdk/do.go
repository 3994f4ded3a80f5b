package clientsdk

import (
	"context"
	"errors"
	"fmt"
)

// Do acquires lock, calls fn, and releases the lock again. The context that fn gets
// carries the token for [tokens.FromContext] and ends when ctx does or the hold is
// lost, whichever comes first; fn must then stop.
//
// Do returns what Acquire does where the lock was not granted, else the error of fn,
// joined with a [*LostError] where the hold was lost before fn returned. A failed
// release is logged only: the work is done, and the lease ends by itself. When fn
// panics, the lock is released and the panic goes on. A nil fn is an [*APIError] with
// code out_of_bounds.
func (c *Client) Do(ctx context.Context, lock string, fn func(ctx context.Context) error) error {
	if fn == nil {
		return bounds(fmt.Sprintf("do under %q", lock), "fn", "a function, not nil")
	}
	h, err := c.acquire(ctx, ctx, lock, nil, false)
	if err != nil {
		return err
	}
	return do(ctx, h, fn)
}

func do(ctx context.Context, h *Hold, fn func(context.Context) error) (err error) {
	returned := false
	defer func() {
		if !returned { // fn panicked or called runtime.Goexit
			h.Release(ctx)
		}
	}()
	err = fn(h.ctx)
	returned = true
	if lost := h.Release(ctx); errors.Is(lost, ErrLost) {
		return errors.Join(err, lost)
	}
	return err
}
