package memfence

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fenced/fenced/tokens"
)

// ErrEnded: the unit of work was committed or rolled back before.
var ErrEnded = errors.New("unit of work has ended")

// Store keeps fences and values in memory. It is the guard over them.
type Store struct {
	mu      sync.Mutex
	fences  map[string]*fence
	values  map[string]string
	waiting int
}

var _ tokens.Guard[*Tx] = (*Store)(nil)

// fence is one resource's. It stays for ever: a fence that is dropped forgets.
type fence struct {
	token  tokens.Token  // the highest committed, 0 for none
	holder *Tx           // the open unit that has advanced it
	freed  chan struct{} // closed when holder ends
}

// New returns an empty store.
func New() *Store {
	return &Store{fences: make(map[string]*fence), values: make(map[string]string)}
}

// Begin starts a unit of work. Its caller must end it with [Tx.Commit] or
// [Tx.Rollback], else the fences it advances stay taken.
func (s *Store) Begin() *Tx {
	return &Tx{store: s, advanced: make(map[string]tokens.Token), writes: make(map[string]*string)}
}

// Advance does what [tokens.Guard] says. A refused or failed claim spoils tx:
// nothing but [Tx.Rollback] succeeds on it afterwards.
func (s *Store) Advance(ctx context.Context, tx *Tx, c tokens.Claim) (tokens.Decision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, err := s.advance(ctx, tx, c)
	if err != nil && tx.failed == nil {
		tx.failed = err
	}
	return d, err
}

// advance needs the lock; it lets go of it while it waits.
func (s *Store) advance(ctx context.Context, tx *Tx, c tokens.Claim) (tokens.Decision, error) {
	if err := errors.Join(tx.usable(), c.Validate()); err != nil {
		return tokens.Decision{}, err
	}
	if !c.Deadline.IsZero() {
		if time.Until(c.Deadline) <= 0 {
			return tokens.Decision{}, fmt.Errorf("resource %q: the lease is over: %w", c.Resource, context.DeadlineExceeded)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, c.Deadline, tokens.ErrBusy)
		defer cancel()
	}
	for {
		f := s.fences[c.Resource]
		if f == nil {
			f = &fence{}
			s.fences[c.Resource] = f
		}
		current := f.token
		if f.holder == tx {
			current = tx.advanced[c.Resource]
		}
		d := tokens.Decide(current, c.Token, c.Mode)
		switch {
		case f.holder == tx && c.Token == current:
			return tokens.Decision{Outcome: tokens.Accepted, Current: current}, nil
		case f.holder != nil && f.holder != tx && d.Outcome != tokens.Stale:
			// Stale is conclusive at once; the rest depends on how the holder ends.
			if err := s.wait(ctx, f.freed); err != nil {
				return tokens.Decision{}, fmt.Errorf("resource %q: %w", c.Resource, err)
			}
			continue
		case d.Outcome == tokens.Accepted:
			tx.take(f, c)
		}
		return d, d.Err(c)
	}
}

// wait lets go of the lock until freed is closed or ctx ends.
func (s *Store) wait(ctx context.Context, freed <-chan struct{}) error {
	s.waiting++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.waiting--
	}()
	select {
	case <-freed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// AdvanceAll does what [tokens.Guard] says. After a refusal the decisions of the
// claims that were not decided are zero.
func (s *Store) AdvanceAll(ctx context.Context, tx *Tx, cs []tokens.Claim) ([]tokens.Decision, error) {
	order, err := sorted(cs)
	if err != nil {
		tx.spoil(err)
		return nil, err
	}
	decisions := make([]tokens.Decision, len(cs))
	for _, i := range order {
		if decisions[i], err = s.Advance(ctx, tx, cs[i]); err != nil {
			return decisions, err
		}
	}
	return decisions, nil
}

// Peek returns the fence of resource as last committed, 0 where it has none.
func (s *Store) Peek(_ context.Context, resource string) (tokens.Token, error) {
	if err := tokens.ValidateResource(resource); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.fences[resource]; f != nil {
		return f.token, nil
	}
	return 0, nil
}

// Capabilities says that all is there but durability.
func (s *Store) Capabilities() tokens.Capabilities {
	return tokens.Capabilities{HoldsUntilEnd: true, Rollback: true, Multi: true}
}

// Waiting returns how many claims wait for another unit's end now, for tests that
// must know that a claim has come so far.
func (s *Store) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

// Read returns the value of resource as last committed, and whether it has one.
func (s *Store) Read(resource string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.values[resource]
	return v, ok
}
