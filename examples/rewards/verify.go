package rewards

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Verdict compares what is owed with what was paid, row by row.
type Verdict struct {
	// Owed is the number of distinct rewards.
	Owed int
	// Paid is the number of ledger rows.
	Paid int
	// Forgotten are owed and have no row.
	Forgotten []Reward
	// Twice have more than one row. The ledger's UNIQUE makes it impossible, so
	// the verifier counts and does not rely on it.
	Twice []Reward
	// Wrong have a row with another amount; each is the row as it stands.
	Wrong []Reward
	// Unexpected are rows that nobody is owed.
	Unexpected []Reward
	// Events is the number of distinct events, BadSums those whose ledger sum
	// differs from the sum owed.
	Events  int
	BadSums []string
	// Messages counts the deliveries in the inbox, Dropped those that found their
	// reward paid or that a person has dismissed, Waiting those that are not settled,
	// and Dead those that contradict what was paid, or are none. DeadReason is why,
	// for the first of them.
	Messages, Dropped, Waiting, Dead int
	DeadReason                       string
	// Unpublished counts outbox rows that the item server has not confirmed,
	// DeadLetters those that it refused.
	Unpublished, DeadLetters int
}

// OK reports whether each owed reward was paid exactly once with its amount, and
// nothing else was.
func (v Verdict) OK() bool {
	return v.Paid == v.Owed && v.Waiting == 0 && v.Dead == 0 &&
		len(v.Forgotten)+len(v.Twice)+len(v.Wrong)+len(v.Unexpected)+len(v.BadSums) == 0
}

// Drained reports whether the item server has confirmed every row of the outbox.
func (v Verdict) Drained() bool { return v.Unpublished == 0 && v.DeadLetters == 0 }

// Problems says what keeps v from being OK and Drained, and for what a person can do
// something, what that is. It is empty where there is nothing.
func (v Verdict) Problems() []string {
	var all []string
	for _, p := range []struct {
		n    int
		what string
	}{
		{len(v.Forgotten), "owed and not paid"},
		{len(v.Twice), "paid more than once"},
		{len(v.Wrong), "paid with another amount"},
		{len(v.Unexpected), "paid and not owed"},
		{v.Waiting, "messages not settled (rewardctl work)"},
		{v.Dead, "dead messages (rewardctl replay --list), such as: " + v.DeadReason},
		{v.Unpublished, "outbox rows not published (rewardctl publish)"},
		{v.DeadLetters, "dead outbox rows (rewardctl replay --list)"},
	} {
		if p.n > 0 {
			all = append(all, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return all
}

// Verify compares the distinct rewards owed with the ledger behind pool, and counts
// what the inbox and the outbox still hold. Run it when the workers are done.
func Verify(ctx context.Context, pool *pgxpool.Pool, owed []Reward) (Verdict, error) {
	paid, err := rows(ctx, pool, `SELECT player_id, reward_event_id, amount FROM reward_ledger ORDER BY id`)
	if err != nil {
		return Verdict{}, fmt.Errorf("verify ledger: %w", err)
	}
	v := Compare(owed, paid)
	err = pool.QueryRow(ctx, `
		SELECT count(*), count(*) FILTER (WHERE outcome <> 'applied'),
		       count(*) FILTER (WHERE status = 'READY'), count(*) FILTER (WHERE status = 'DEAD'),
		       coalesce((SELECT last_error FROM reward_message WHERE status = 'DEAD' ORDER BY id LIMIT 1), ''),
		       (SELECT count(*) FROM reward_outbox WHERE status = 'READY'),
		       (SELECT count(*) FROM reward_outbox WHERE status = 'DEAD')
		FROM reward_message`).
		Scan(&v.Messages, &v.Dropped, &v.Waiting, &v.Dead, &v.DeadReason, &v.Unpublished, &v.DeadLetters)
	if err != nil {
		return Verdict{}, fmt.Errorf("verify queues: %w", err)
	}
	return v, nil
}

func rows(ctx context.Context, pool *pgxpool.Pool, sql string) ([]Reward, error) {
	found, err := pool.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, func(row pgx.CollectableRow) (r Reward, err error) {
		return r, row.Scan(&r.Player, &r.Event, &r.Amount)
	})
}

// Compare compares rewards owed, each once, with rewards paid, as often as they
// were paid.
func Compare(owed, paid []Reward) Verdict {
	v := Verdict{Owed: len(owed), Paid: len(paid)}
	type identity struct{ player, event string } // of rows that others may have written, a key has two readings
	found := make(map[identity][]Reward, len(paid))
	sums := make(map[string]int64, len(owed)) // by event: owed minus paid
	for _, p := range paid {
		id := identity{p.Player, p.Event}
		found[id] = append(found[id], p)
		sums[p.Event] -= p.Amount
	}
	for _, o := range owed {
		sums[o.Event] += o.Amount
		id := identity{o.Player, o.Event}
		got := found[id]
		delete(found, id)
		switch {
		case len(got) == 0:
			v.Forgotten = append(v.Forgotten, o)
		case len(got) > 1:
			v.Twice = append(v.Twice, o)
		case got[0].Amount != o.Amount:
			v.Wrong = append(v.Wrong, got[0])
		}
	}
	for _, extra := range found {
		v.Unexpected = append(v.Unexpected, extra...)
	}
	slices.SortFunc(v.Unexpected, func(a, b Reward) int { return cmp.Compare(a.Key(), b.Key()) })
	v.Events = len(sums)
	for e, difference := range sums {
		if difference != 0 {
			v.BadSums = append(v.BadSums, e)
		}
	}
	slices.Sort(v.BadSums)
	return v
}

// A Line is one line of a report: what, and how it stands.
type Line struct{ What, How string }

// Lines are the verdict for people: the two invariants first.
func (v Verdict) Lines() []Line {
	return []Line{
		{"rewards owed", fmt.Sprint(v.Owed)},
		{"rewards paid", fmt.Sprint(v.Paid)},
		{"count(player,event) <= 1", yes(len(v.Twice) == 0, v.Twice)},
		{"sum = expected (each event)", yes(len(v.BadSums) == 0, v.BadSums)},
		{"each reward its amount", yes(len(v.Wrong)+len(v.Unexpected) == 0, append(v.Wrong, v.Unexpected...))},
		{"forgotten", few(v.Forgotten)},
	}
}

func yes[T any](ok bool, otherwise []T) string {
	if ok {
		return "yes"
	}
	return "NO: " + few(otherwise)
}

// few counts all and shows the first three.
func few[T any](all []T) string {
	if len(all) == 0 {
		return "0"
	}
	return fmt.Sprintf("%d, such as %+v", len(all), all[:min(3, len(all))])
}
