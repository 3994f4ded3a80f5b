package memfence_test

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/memfence"
)

// That a Store passes the conformance suite is tested with the suite, whose
// mutants are made of it.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// model is what a store is to its users: fences and values, changed by whole
// units.
type model struct {
	fences map[string]tokens.Token
	values map[string]string
}

func (m model) clone() model { return model{maps.Clone(m.fences), maps.Clone(m.values)} }

// Units that follow each other, with any claims, writes and ends, do what the
// model does.
func TestStore_Model(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		store := memfence.New()
		committed := model{make(map[string]tokens.Token), make(map[string]string)}
		resources := rapid.SampledFrom([]string{"a", "b", "c"})
		for range rapid.IntRange(1, 20).Draw(t, "units") {
			tx, want := store.Begin(), committed.clone()
			advanced, sound := make(map[string]bool), true
			for range rapid.IntRange(0, 5).Draw(t, "steps") {
				r := resources.Draw(t, "resource")
				if rapid.Bool().Draw(t, "write") {
					value := strconv.Itoa(rapid.IntRange(0, 9).Draw(t, "value"))
					err := tx.Write(r, value)
					if sound = sound && advanced[r]; sound != (err == nil) {
						t.Fatalf("Write(%q) = %v, want success: %v", r, err, sound)
					}
					want.values[r] = value
					continue
				}
				c := tokens.Claim{Resource: r, Token: tokens.Token(rapid.Int64Range(1, 9).Draw(t, "token")), Mode: tokens.Mode(rapid.IntRange(0, 1).Draw(t, "mode"))}
				_, err := store.Advance(t.Context(), tx, c)
				ok := tokens.Decide(want.fences[r], c.Token, c.Mode).Outcome == tokens.Accepted || advanced[r] && c.Token == want.fences[r]
				if sound = sound && ok; sound != (err == nil) {
					t.Fatalf("Advance(%+v) at %d = %v, want success: %v", c, want.fences[r], err, sound)
				}
				advanced[r], want.fences[r] = true, c.Token
			}
			if rapid.Bool().Draw(t, "commit") {
				if err := tx.Commit(); (err == nil) != sound {
					t.Fatalf("Commit = %v, want success: %v", err, sound)
				}
			} else {
				sound = false
			}
			tx.Rollback()
			if sound {
				committed = want
			}
			for _, r := range []string{"a", "b", "c"} {
				fence, err := store.Peek(t.Context(), r)
				value, ok := store.Read(r)
				wantValue, wantOK := committed.values[r]
				if err != nil || fence != committed.fences[r] || value != wantValue || ok != wantOK {
					t.Fatalf("%q: fence %d, value %q, %v; want %d, %q", r, fence, value, err, committed.fences[r], wantValue)
				}
			}
		}
	})
}

func TestTx_Ended(t *testing.T) {
	t.Parallel()
	store := memfence.New()
	tx := store.Begin()
	if _, err := store.Advance(t.Context(), tx, tokens.Claim{Resource: "a", Token: 1}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	tx.Rollback() // as a deferred one does
	if err := tx.Commit(); !errors.Is(err, memfence.ErrEnded) {
		t.Errorf("second Commit: %v, want ErrEnded", err)
	}
	if err := tx.Write("a", "x"); !errors.Is(err, memfence.ErrEnded) {
		t.Errorf("Write: %v, want ErrEnded", err)
	}
	if _, err := store.Advance(t.Context(), tx, tokens.Claim{Resource: "a", Token: 2}); !errors.Is(err, memfence.ErrEnded) {
		t.Errorf("Advance: %v, want ErrEnded", err)
	}
	if fence, _ := store.Peek(t.Context(), "a"); fence != 1 {
		t.Errorf("fence %d, want 1: the rollback after the commit must do nothing", fence)
	}
}

func TestTx_ReadsItsOwnWrites(t *testing.T) {
	t.Parallel()
	store := memfence.New()
	tx := store.Begin()
	defer tx.Rollback()
	if _, err := store.Advance(t.Context(), tx, tokens.Claim{Resource: "a", Token: 1}); err != nil {
		t.Fatal(err)
	}
	if _, ok := tx.Read("a"); ok {
		t.Error("a value that nobody wrote")
	}
	if err := tx.Write("a", "x"); err != nil {
		t.Fatal(err)
	}
	if v, ok := tx.Read("a"); v != "x" || !ok {
		t.Errorf("own write: %q, %v; want x", v, ok)
	}
	if _, ok := store.Read("a"); ok {
		t.Error("a write is seen before it is committed")
	}
	if err := tx.Delete("a"); err != nil {
		t.Fatal(err)
	}
	if _, ok := tx.Read("a"); ok {
		t.Error("own delete is not seen")
	}
}

func TestStore_PastDeadline(t *testing.T) {
	t.Parallel()
	store := memfence.New()
	tx := store.Begin()
	defer tx.Rollback()
	c := tokens.Claim{Resource: "a", Token: 1}
	c.Deadline = c.Deadline.Add(1)
	if _, err := store.Advance(t.Context(), tx, c); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, tokens.ErrBusy) {
		t.Errorf("Advance after the lease: %v, want DeadlineExceeded", err)
	}
}
