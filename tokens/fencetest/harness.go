package fencetest

import (
	"context"

	"github.com/fenced/fenced/tokens"
)

// Harness is a guard with its store, as the suite uses them. Each resource has
// one value in the store, which stands for the data that its fence guards. A
// fresh Harness has no fences and no values.
type Harness[U any] interface {
	// Guard returns the guard under test.
	Guard() tokens.Guard[U]
	// Begin starts a unit of work.
	Begin(ctx context.Context) (U, error)
	// Commit ends u with effect. On a unit in which something failed it must fail.
	Commit(ctx context.Context, u U) error
	// Rollback ends u without effect.
	Rollback(ctx context.Context, u U) error
	// Write sets the value of resource within u.
	Write(ctx context.Context, u U, resource, value string) error
	// Read returns the value of resource as u sees it, "" where it has none.
	Read(ctx context.Context, u U, resource string) (string, error)
}

// The interfaces below are for what not every store can do. A Harness that has
// the methods gets the cases.
type (
	// Waiter says how many claims wait now for another unit's end. Without it the
	// suite does not know that a claim has come as far as waiting, and leaves the
	// order of rivals to chance.
	Waiter interface {
		Waiting(ctx context.Context) (int, error)
	}

	// Deleter deletes the value of resource within u (case 26).
	Deleter[U any] interface {
		Delete(ctx context.Context, u U, resource string) error
	}

	// Savepointer nests a unit of work in u; rolling it back undoes what was done
	// in it alone (case 24).
	Savepointer[U any] interface {
		Savepoint(ctx context.Context, u U) (U, error)
	}

	// Enforcer is a store that itself refuses writes whose unit has not advanced
	// the fence (cases 24 and 27).
	Enforcer interface {
		// Enforces says whether it does.
		Enforces() bool
	}

	// Breaker loses answers (cases 18 and 19).
	Breaker[U any] interface {
		// CommitUnanswered commits u and loses the answer: it returns what the
		// adapter makes of that, which must match tokens.ErrUnknownOutcome.
		CommitUnanswered(ctx context.Context, u U) error
		// Break loses the connection of u before it commits, and returns when the
		// store has noticed.
		Break(ctx context.Context, u U) error
	}
)

// Case is one promise of a guard, and how to try it.
type Case[U any] struct {
	// Name starts with the case's number.
	Name string
	// Check returns an error that says what was wanted and what came instead. It
	// gets a fresh Harness, and ends with ctx.
	Check func(ctx context.Context, h Harness[U]) error
	// Needs says whether the case applies; nil means always.
	Needs func(h Harness[U]) bool
}

// Cases returns the whole suite.
func Cases[U any]() []Case[U] {
	var all []Case[U]
	for _, area := range [][]Case[U]{orderCases[U](), valueCases[U](), raceCases[U](), rollbackCases[U](), batchCases[U](), answerCases[U]()} {
		all = append(all, area...)
	}
	return all
}

func needsMulti[U any](h Harness[U]) bool { return h.Guard().Capabilities().Multi }

func needsHold[U any](h Harness[U]) bool { return h.Guard().Capabilities().HoldsUntilEnd }

func needsRollback[U any](h Harness[U]) bool { return h.Guard().Capabilities().Rollback }

func enforces[U any](h Harness[U]) bool {
	e, ok := h.(Enforcer)
	return ok && e.Enforces()
}
