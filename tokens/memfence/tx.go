package memfence

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fenced/fenced/tokens"
)

// Tx is a unit of work on a [Store].
type Tx struct {
	store    *Store
	advanced map[string]tokens.Token // the fences it holds, as they will be
	writes   map[string]*string      // nil deletes
	failed   error                   // the first refusal; only Rollback helps
	ended    bool
}

// Write sets the value of resource when the unit commits. It gives an error that
// wraps [tokens.ErrUnfenced], and spoils the unit, unless the unit has advanced
// the fence of that resource.
func (tx *Tx) Write(resource, value string) error { return tx.stage(resource, &value) }

// Delete removes the value of resource when the unit commits, under the same
// conditions as [Tx.Write]. The fence stays.
func (tx *Tx) Delete(resource string) error { return tx.stage(resource, nil) }

// Read returns the value of resource as this unit sees it, and whether it has
// one. Read only what the unit has advanced: anything else may change before the
// unit commits.
func (tx *Tx) Read(resource string) (string, bool) {
	if v, ok := tx.writes[resource]; ok {
		if v == nil {
			return "", false
		}
		return *v, true
	}
	return tx.store.Read(resource)
}

func (tx *Tx) stage(resource string, value *string) error {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if err := tx.usable(); err != nil {
		return err
	}
	if _, ok := tx.advanced[resource]; !ok {
		tx.failed = fmt.Errorf("resource %q: %w", resource, tokens.ErrUnfenced)
		return tx.failed
	}
	tx.writes[resource] = value
	return nil
}

// Commit makes what the unit did take effect, fences and values at once. On a
// spoiled unit it rolls back and returns the error that spoiled it; on one that
// has ended, [ErrEnded].
func (tx *Tx) Commit() error {
	s := tx.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if tx.ended {
		return ErrEnded
	}
	defer tx.end()
	if tx.failed != nil {
		return fmt.Errorf("commit: %w", tx.failed)
	}
	for resource, token := range tx.advanced {
		s.fences[resource].token = token
	}
	for resource, value := range tx.writes {
		if value == nil {
			delete(s.values, resource)
		} else {
			s.values[resource] = *value
		}
	}
	return nil
}

// Rollback ends the unit without effect. After Commit it does nothing, so that it
// can be deferred.
func (tx *Tx) Rollback() {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if !tx.ended {
		tx.end()
	}
}

// end frees the fences for those who wait. It needs the store's lock.
func (tx *Tx) end() {
	tx.ended = true
	for resource := range tx.advanced {
		f := tx.store.fences[resource]
		f.holder = nil
		close(f.freed)
	}
}

// take makes tx the holder of f. It needs the store's lock.
func (tx *Tx) take(f *fence, c tokens.Claim) {
	if f.holder == nil {
		f.holder, f.freed = tx, make(chan struct{})
	}
	tx.advanced[c.Resource] = c.Token
}

// spoil has nothing but Rollback succeed from here on.
func (tx *Tx) spoil(err error) {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if tx.failed == nil {
		tx.failed = err
	}
}

func (tx *Tx) usable() error {
	if tx.ended {
		return ErrEnded
	}
	if tx.failed != nil {
		return fmt.Errorf("unit of work has failed before: %w", tx.failed)
	}
	return nil
}

// sorted returns the indexes of cs in the order of their resources, after it has
// seen that every claim is valid and no resource is claimed twice.
func sorted(cs []tokens.Claim) ([]int, error) {
	order := make([]int, len(cs))
	for i, c := range cs {
		if err := c.Validate(); err != nil {
			return nil, err
		}
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(cs[a].Resource, cs[b].Resource) })
	for n := 1; n < len(order); n++ {
		if r := cs[order[n]].Resource; r == cs[order[n-1]].Resource {
			return nil, fmt.Errorf("resource %q: claimed twice: %w", r, tokens.ErrInvalid)
		}
	}
	return order, nil
}
