package fencetest_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/fencetest"
)

// mutantLimit bounds a case against a guard that waits for ever.
const mutantLimit = 3 * time.Second

// Each mutant is a guard with one planted fault, and the case that must catch it.
// Case 13 of the list.
func TestRun_CatchesMutants(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		fault string
		want  []string // numbers of cases that must fail
		open  func() fencetest.Harness[*unit]
	}{
		{"one-shot accepts an equal token", []string{"04"}, mutant(func(f *faults) { f.claim = withMode(tokens.Renewable) })},
		{"renewable refuses an equal token", []string{"04", "30"}, mutant(func(f *faults) { f.claim = withMode(tokens.OneShot) })},
		{"tokens pass through a float", []string{"07"}, mutant(func(f *faults) { f.claim = throughFloat })},
		{"tokens are compared as 32 bits", []string{"07"}, mutant(func(f *faults) { f.claim = as32Bits })},
		{"names are folded to lower case", []string{"29"}, mutant(func(f *faults) { f.claim = renamed(strings.ToLower) })},
		{"names are trimmed", []string{"29"}, mutant(func(f *faults) { f.claim = renamed(strings.TrimSpace) })},
		{"long names are cut", []string{"29"}, mutant(func(f *faults) { f.claim = renamed(cut) })},
		{"claims out of bounds are accepted", []string{"06"}, mutant(func(f *faults) { f.advance = acceptInvalid })},
		{"the deadline is ignored", []string{"11"}, mutant(func(f *faults) { f.claim = withoutDeadline })},
		{"the context is ignored", []string{"23"}, mutant(func(f *faults) { f.advance = withoutContext })},
		{"a refusal is no error", []string{"03", "15"}, mutant(func(f *faults) { f.advance = swallow })},
		{"stale comes without the current token", []string{"03"}, mutant(func(f *faults) { f.advance = withoutCurrent })},
		{"duplicate is told as stale", []string{"04"}, mutant(func(f *faults) { f.advance = duplicateAsStale })},
		{"twice in one unit is a duplicate", []string{"05"}, mutant(func(f *faults) { f.advance = onceInAUnit })},
		{"the fence rises in a unit of its own", []string{"11", "12"}, mutant(func(f *faults) { f.advance = inItsOwnUnit })},
		{"check first, advance at the commit", []string{"09", "11"}, func() fencetest.Harness[*unit] { return unlocked{newMemory()} }},
		{"several are advanced one unit each", []string{"25b"}, mutant(func(f *faults) { f.all = oneByOne })},
		{"several are locked in the order given", []string{"25d"}, mutant(func(f *faults) { f.all = inGivenOrder })},
		{"a resource claimed twice is deduplicated", []string{"25c"}, mutant(func(f *faults) { f.all = deduplicated })},
		{"a refused unit can go on", []string{"15"}, mutant(func(f *faults) { f.advance = goOn })},
		{"a unit whose claim is none can go on", []string{"15"}, mutant(func(f *faults) { f.advance = checkedOutside })},
		{"a unit whose claims are none can go on", []string{"15"}, mutant(func(f *faults) { f.all = allCheckedOutside })},
		{"deleting the data deletes the fence", []string{"26"}, func() fencetest.Harness[*unit] { return newForgetful() }},
		{"any fence allows any write", []string{"27"}, func() fencetest.Harness[*unit] { return lax{newMemory()} }},
		{"peek tells what is not committed", []string{"11", "12"}, func() fencetest.Harness[*unit] { return &dirty{memory: newMemory()} }},
	} {
		t.Run(m.fault, func(t *testing.T) {
			t.Parallel()
			for _, number := range m.want {
				ctx, cancel := context.WithTimeout(t.Context(), mutantLimit)
				defer cancel()
				if err := caseNumber(t, number).Check(ctx, m.open()); err == nil {
					t.Errorf("case %s did not catch it", number)
				} else {
					t.Logf("case %s: %v", number, err)
				}
			}
		})
	}
}

func caseNumber(t *testing.T, number string) fencetest.Case[*unit] {
	t.Helper()
	for _, c := range fencetest.Cases[*unit]() {
		if strings.HasPrefix(c.Name, number+" ") {
			return c
		}
	}
	t.Fatalf("there is no case %s", number)
	return fencetest.Case[*unit]{}
}

// faults are the planted ones; what is nil is sound.
type faults struct {
	claim   func(tokens.Claim) tokens.Claim
	advance func(ctx context.Context, m memory, u *unit, c tokens.Claim) (tokens.Decision, error)
	all     func(ctx context.Context, m memory, u *unit, cs []tokens.Claim) ([]tokens.Decision, error)
}

func mutant(plant func(*faults)) func() fencetest.Harness[*unit] {
	return func() fencetest.Harness[*unit] {
		f := faulty{memory: newMemory()}
		plant(&f.faults)
		return f
	}
}

// faulty is a memory with faults in its guard.
type faulty struct {
	memory
	faults
}

func (f faulty) Guard() tokens.Guard[*unit] { return f }

func (f faulty) Advance(ctx context.Context, u *unit, c tokens.Claim) (tokens.Decision, error) {
	if f.faults.claim != nil && c.Validate() == nil {
		asked := c
		c = f.faults.claim(c)
		d, err := f.memory.Advance(ctx, u, c)
		u.noted = append(u.noted, asked)
		return d, err
	}
	if f.faults.advance != nil {
		return f.faults.advance(ctx, f.memory, u, c)
	}
	return f.memory.Advance(ctx, u, c)
}

func (f faulty) AdvanceAll(ctx context.Context, u *unit, cs []tokens.Claim) ([]tokens.Decision, error) {
	if f.faults.all != nil {
		return f.faults.all(ctx, f.memory, u, cs)
	}
	return f.memory.AdvanceAll(ctx, u, cs)
}

// Write goes where the mutant's claim went, so that a renamed resource can be
// written to at all.
func (f faulty) Write(ctx context.Context, u *unit, resource, value string) error {
	if f.faults.claim != nil {
		resource = f.faults.claim(tokens.Claim{Resource: resource}).Resource
	}
	return f.memory.Write(ctx, u, resource, value)
}

func withMode(m tokens.Mode) func(tokens.Claim) tokens.Claim {
	return func(c tokens.Claim) tokens.Claim {
		c.Mode = m
		return c
	}
}

func throughFloat(c tokens.Claim) tokens.Claim {
	c.Token = tokens.Token(float32(c.Token))
	return c
}

func as32Bits(c tokens.Claim) tokens.Claim {
	c.Token = tokens.Token(uint32(c.Token))
	return c
}

func withoutDeadline(c tokens.Claim) tokens.Claim {
	c.Deadline = time.Time{}
	return c
}

func renamed(f func(string) string) func(tokens.Claim) tokens.Claim {
	return func(c tokens.Claim) tokens.Claim {
		c.Resource = f(c.Resource)
		return c
	}
}

func cut(name string) string { return name[:min(len(name), 255)] }

func acceptInvalid(ctx context.Context, m memory, u *unit, c tokens.Claim) (tokens.Decision, error) {
	if c.Validate() != nil {
		return tokens.Decision{Outcome: tokens.Accepted, Current: c.Token}, nil
	}
	return m.Advance(ctx, u, c)
}

func withoutContext(ctx context.Context, m memory, u *unit, c tokens.Claim) (tokens.Decision, error) {
	return m.Advance(context.WithoutCancel(ctx), u, c)
}

func swallow(ctx context.Context, m memory, u *unit, c tokens.Claim) (tokens.Decision, error) {
	d, err := m.Advance(ctx, u, c)
	if d.Outcome != 0 {
		err = nil
	}
	return d, err
}

func withoutCurrent(ctx context.Context, m memory, u *unit, c tokens.Claim) (tokens.Decision, error) {
	d, err := m.Advance(ctx, u, c)
	if d.Outcome == tokens.Stale {
		d.Current = c.Token
		err = d.Err(c)
	}
	return d, err
}

func duplicateAsStale(ctx context.Context, m memory, u *unit, c tokens.Claim) (tokens.Decision, error) {
	d, err := m.Advance(ctx, u, c)
	if d.Outcome == tokens.Duplicate {
		d.Outcome = tokens.Stale
		err = d.Err(c)
	}
	return d, err
}

func onceInAUnit(ctx context.Context, m memory, u *unit, c tokens.Claim) (tokens.Decision, error) {
	if slices.ContainsFunc(u.noted, func(n tokens.Claim) bool { return n.Resource == c.Resource && n.Token == c.Token }) {
		d := tokens.Decision{Outcome: tokens.Duplicate, Current: c.Token}
		return d, d.Err(c)
	}
	u.noted = append(u.noted, c)
	return m.Advance(ctx, u, c)
}

// inItsOwnUnit commits the fence at once; the caller's unit advances again so
// that it may write.
func inItsOwnUnit(ctx context.Context, m memory, u *unit, c tokens.Claim) (tokens.Decision, error) {
	own := m.Store.Begin()
	defer own.Rollback()
	d, err := m.Store.Advance(ctx, own, c)
	if err == nil {
		err = own.Commit()
	}
	if err != nil {
		_, _ = m.Advance(ctx, u, c) // spoils u
		return d, err
	}
	_, err = m.Advance(ctx, u, withMode(tokens.Renewable)(c))
	return d, err
}

func oneByOne(ctx context.Context, m memory, u *unit, cs []tokens.Claim) ([]tokens.Decision, error) {
	ds := make([]tokens.Decision, len(cs))
	for i, c := range cs {
		var err error
		if ds[i], err = inItsOwnUnit(ctx, m, u, c); err != nil {
			return ds, err
		}
	}
	return ds, nil
}

func inGivenOrder(ctx context.Context, m memory, u *unit, cs []tokens.Claim) ([]tokens.Decision, error) {
	ds := make([]tokens.Decision, len(cs))
	for i, c := range cs {
		var err error
		if ds[i], err = m.Advance(ctx, u, c); err != nil {
			return ds, err
		}
		runtime.Gosched() // as a store with round trips would
	}
	return ds, nil
}

func deduplicated(ctx context.Context, m memory, u *unit, cs []tokens.Claim) ([]tokens.Decision, error) {
	var distinct []tokens.Claim
	for _, c := range cs {
		if !slices.ContainsFunc(distinct, func(d tokens.Claim) bool { return d.Resource == c.Resource }) {
			distinct = append(distinct, c)
		}
	}
	return m.AdvanceAll(ctx, u, distinct)
}

// goOn gives the caller of a refused unit a fresh one that may write.
func goOn(ctx context.Context, m memory, u *unit, c tokens.Claim) (tokens.Decision, error) {
	d, err := m.Advance(ctx, u, c)
	if err != nil && d.Outcome != 0 {
		u.Rollback()
		u.Tx = m.Store.Begin()
		_, _ = m.Advance(ctx, u, tokens.Claim{Resource: c.Resource, Token: d.Current, Mode: tokens.Renewable})
	}
	return d, err
}

// checkedOutside does not tell the unit of a claim that no store need be asked about.
func checkedOutside(ctx context.Context, m memory, u *unit, c tokens.Claim) (tokens.Decision, error) {
	if err := c.Validate(); err != nil {
		return tokens.Decision{}, err
	}
	if !c.Deadline.IsZero() && time.Until(c.Deadline) <= 0 {
		return tokens.Decision{}, context.DeadlineExceeded
	}
	return m.Advance(ctx, u, c)
}

func allCheckedOutside(ctx context.Context, m memory, u *unit, cs []tokens.Claim) ([]tokens.Decision, error) {
	names := make(map[string]bool)
	for _, c := range cs {
		names[c.Resource] = true
	}
	if len(names) < len(cs) {
		return nil, tokens.ErrInvalid
	}
	return m.AdvanceAll(ctx, u, cs)
}

// unlocked decides on what is committed, and advances when the unit commits.
type unlocked struct{ memory }

func (m unlocked) Guard() tokens.Guard[*unit] { return m }

func (m unlocked) Advance(ctx context.Context, u *unit, c tokens.Claim) (tokens.Decision, error) {
	current, err := m.Peek(ctx, c.Resource)
	if err = errors.Join(err, c.Validate()); err != nil {
		return tokens.Decision{}, err
	}
	u.noted = append(u.noted, c)
	d := tokens.Decide(current, c.Token, c.Mode)
	return d, d.Err(c)
}

func (m unlocked) Write(_ context.Context, u *unit, resource, value string) error {
	for i, c := range u.noted {
		if c.Resource == resource {
			u.noted[i].Resource = resource + "=" + value
		}
	}
	return nil
}

// Commit writes what was noted, whatever the fence says by now.
func (m unlocked) Commit(ctx context.Context, u *unit) error {
	for _, c := range u.noted {
		resource, value, written := strings.Cut(c.Resource, "=")
		tx := m.Store.Begin()
		current, err := m.Peek(ctx, resource)
		if err == nil {
			_, err = m.Store.Advance(ctx, tx, tokens.Claim{Resource: resource, Token: max(c.Token, current), Mode: tokens.Renewable})
		}
		if err == nil && written {
			err = tx.Write(resource, value)
		}
		if err == nil {
			err = tx.Commit()
		}
		tx.Rollback()
		if err != nil {
			return err
		}
	}
	return nil
}

// forgetful starts a resource anew when its data was deleted.
type forgetful struct {
	memory
	deleted map[string]bool
}

func newForgetful() forgetful { return forgetful{newMemory(), make(map[string]bool)} }

func (m forgetful) Guard() tokens.Guard[*unit] { return m }

func (m forgetful) Delete(ctx context.Context, u *unit, resource string) error {
	m.deleted[resource] = true
	return m.memory.Delete(ctx, u, resource)
}

func (m forgetful) Advance(ctx context.Context, u *unit, c tokens.Claim) (tokens.Decision, error) {
	if m.deleted[c.Resource] {
		d := tokens.Decision{Outcome: tokens.Accepted, Current: c.Token}
		_, err := m.memory.Advance(ctx, u, tokens.Claim{Resource: c.Resource, Token: tokens.Max, Mode: tokens.Renewable})
		return d, err
	}
	return m.memory.Advance(ctx, u, c)
}

// lax lets a unit write what it has not advanced.
type lax struct{ memory }

func (m lax) Write(ctx context.Context, u *unit, resource, value string) error {
	current, err := m.Peek(ctx, resource)
	if err == nil {
		_, err = m.Advance(ctx, u, tokens.Claim{Resource: resource, Token: max(current, 1), Mode: tokens.Renewable})
	}
	return errors.Join(err, m.memory.Write(ctx, u, resource, value))
}

// dirty peeks at what open units have advanced.
type dirty struct {
	memory
	seen map[string]tokens.Token
}

func (m *dirty) Guard() tokens.Guard[*unit] { return m }

func (m *dirty) Advance(ctx context.Context, u *unit, c tokens.Claim) (tokens.Decision, error) {
	d, err := m.memory.Advance(ctx, u, c)
	if err == nil {
		m.seen = map[string]tokens.Token{c.Resource: c.Token}
	}
	return d, err
}

func (m *dirty) Peek(ctx context.Context, resource string) (tokens.Token, error) {
	if t, ok := m.seen[resource]; ok {
		return t, nil
	}
	return m.memory.Peek(ctx, resource)
}
