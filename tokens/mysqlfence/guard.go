package mysqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/internal/unit"
)

// Guard is the guard over the table fence_guard. Its unit of work is a
// transaction of the caller's; most callers are better served by [WithFence].
//
// Rolling back to a savepoint from before the advance undoes the fence while the
// transaction goes on, and a statement that commits implicitly releases it. A Guard
// notices neither. In WithFence there is no such savepoint, and it notices the end.
type Guard struct{ db Querier }

var _ tokens.Guard[*sql.Tx] = (*Guard)(nil)

// New returns a guard that peeks through db and otherwise works in the
// transactions that it is given.
func New(db Querier) *Guard { return &Guard{db: db} }

// Advance does what [tokens.Guard] says, in two round trips. Every error, also a
// refusal, has ended tx without effect; a later Rollback gives sql.ErrTxDone, which
// means nothing. A deadline that has passed gives an error that wraps
// context.DeadlineExceeded, and no fence is asked.
//
// It waits in the server for a second at a time, so that a wait that the caller
// has given up is over within that second. Waiters are not served in the order in
// which they came.
func (g *Guard) Advance(ctx context.Context, tx *sql.Tx, c tokens.Claim) (tokens.Decision, error) {
	err := check(c)
	var d tokens.Decision
	if err == nil {
		d, err = advance(ctx, tx, c)
	}
	if err != nil {
		rollback(ctx, tx)
	}
	return d, err
}

// AdvanceAll does what [tokens.Guard] says, in two round trips a claim. After a
// refusal the decisions of all other claims are zero, and tx has ended as after
// Advance.
func (g *Guard) AdvanceAll(ctx context.Context, tx *sql.Tx, cs []tokens.Claim) ([]tokens.Decision, error) {
	if len(cs) == 0 {
		return nil, nil
	}
	order, err := lockOrder(cs)
	if err != nil {
		rollback(ctx, tx)
		return nil, err
	}
	decisions := make([]tokens.Decision, len(cs))
	for _, i := range order {
		d, err := advance(ctx, tx, cs[i])
		if err != nil {
			rollback(ctx, tx)
			clear(decisions)
			decisions[i] = d
			return decisions, err
		}
		decisions[i] = d
	}
	return decisions, nil
}

// lockOrder returns the indexes of cs sorted by resource: callers that lock in one
// order never wait for each other in a circle.
func lockOrder(cs []tokens.Claim) ([]int, error) {
	order := make([]int, len(cs))
	for i, c := range cs {
		if err := check(c); err != nil {
			return nil, err
		}
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(cs[a].Resource, cs[b].Resource) })
	for n := 1; n < len(order); n++ {
		if resource := cs[order[n]].Resource; resource == cs[order[n-1]].Resource {
			return nil, fmt.Errorf("resource %q: claimed twice: %w", resource, tokens.ErrInvalid)
		}
	}
	return order, nil
}

func check(c tokens.Claim) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if !c.Deadline.IsZero() && time.Until(c.Deadline) <= 0 {
		return fmt.Errorf("resource %q: the lease is over: %w", c.Resource, context.DeadlineExceeded)
	}
	return nil
}

// Peek returns the fence of resource, 0 where it has none.
func (g *Guard) Peek(ctx context.Context, resource string) (tokens.Token, error) {
	if err := tokens.ValidateResource(resource); err != nil {
		return 0, err
	}
	var t int64
	err := g.db.QueryRowContext(ctx, fmt.Sprintf("SELECT token FROM fence_guard WHERE resource = X'%x'", resource)).Scan(&t)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("peek %q: %w", resource, Classify(err))
	}
	return tokens.Token(t), nil
}

// Capabilities says that MySQL can do all of it. Fences are as durable as commits
// are.
func (g *Guard) Capabilities() tokens.Capabilities {
	return tokens.Capabilities{HoldsUntilEnd: true, Rollback: true, Multi: true, Durable: true}
}

// advance leaves it to the caller to end tx after an error.
func advance(ctx context.Context, tx *sql.Tx, c tokens.Claim) (tokens.Decision, error) {
	bounded := ctx
	if !c.Deadline.IsZero() {
		var cancel context.CancelFunc
		bounded, cancel = context.WithDeadline(ctx, c.Deadline)
		defer cancel()
	}
	id := unitOf(tx)
	err := raise(bounded, tx, c, id)
	if err == nil {
		var d tokens.Decision
		if d, err = decide(bounded, tx, c, id); err == nil {
			return d, d.Err(c)
		}
	}
	if ended := bounded.Err(); ended != nil {
		err = fmt.Errorf("%w: %w", ended, err) // what the driver says of it varies
	}
	if ctx.Err() == nil {
		err = unit.NotThrough(bounded, err)
	}
	return tokens.Decision{}, fmt.Errorf("advance %q: %w", c.Resource, Classify(err))
}

// raise writes the row, and with that locks it, whether or not the token is
// accepted.
func raise(ctx context.Context, tx *sql.Tx, c tokens.Claim, id unitID) error {
	for {
		_, err := tx.ExecContext(ctx, raiseSQL(c, id))
		if codeOf(err) != errLockWaitTimeout || ctx.Err() != nil {
			return err
		}
		// The statement is undone and may be repeated, unless the server is set to
		// undo the transaction with it: it would then run outside of one.
		var whole bool
		if tx.QueryRowContext(ctx, "SELECT @@innodb_rollback_on_timeout").Scan(&whole) != nil || whole {
			return err
		}
	}
}

// pieceSeconds is how long a claim waits in the server before it asks anew. MySQL
// does not notice that a waiting client has gone, so this is also how long a wait
// outlives the caller's interest in it.
const pieceSeconds = 1

// raiseSQL holds no text of the caller's but in hexadecimal, so it travels in one
// round trip instead of the two of a prepared statement. The assignments run from
// left to right, so unit must come before token.
//
// The two comments are one and the same bound, for MariaDB and for MySQL; each
// takes the other's for a comment.
func raiseSQL(c tokens.Claim, id unitID) string {
	return fmt.Sprintf(`/*M! SET STATEMENT innodb_lock_wait_timeout=%d%s FOR */
		INSERT /*+ SET_VAR(innodb_lock_wait_timeout=%d) */ INTO fence_guard (resource, token, unit) VALUES (X'%x', %d, X'%x')
		ON DUPLICATE KEY UPDATE unit = IF(VALUES(token) > token OR VALUES(token) = token AND %t, VALUES(unit), unit),
			token = GREATEST(token, VALUES(token))`,
		pieceSeconds, timeLimit(c.Deadline), pieceSeconds, c.Resource, int64(c.Token), id, c.Mode == tokens.Renewable)
}

// timeLimit has MariaDB, which counts in microseconds here, end the last wait a
// little before the context does, which would cost the connection.
func timeLimit(deadline time.Time) string {
	if deadline.IsZero() {
		return ""
	}
	left := min(time.Until(deadline), longest)
	left -= min(left/10, 100*time.Millisecond)
	return fmt.Sprintf(", max_statement_time=%.3f", max(left.Seconds(), 0.001))
}

// decide reads what stands in the row. It must be a locking read: the other kind
// shows what the transaction saw first.
func decide(ctx context.Context, tx *sql.Tx, c tokens.Claim, id unitID) (tokens.Decision, error) {
	fence, by, err := lockedFence(ctx, tx, c.Resource)
	if err != nil {
		return tokens.Decision{}, err
	}
	if fence == c.Token && by == id {
		return tokens.Decision{Outcome: tokens.Accepted, Current: fence}, nil
	}
	return tokens.Decide(fence, c.Token, c.Mode), nil
}

func lockedFence(ctx context.Context, tx *sql.Tx, resource string) (t tokens.Token, by unitID, err error) {
	var (
		token int64
		id    []byte
	)
	row := tx.QueryRowContext(ctx, fmt.Sprintf("SELECT token, unit FROM fence_guard WHERE resource = X'%x' FOR UPDATE", resource))
	if err := row.Scan(&token, &id); err != nil {
		return 0, by, err
	}
	copy(by[:], id)
	return tokens.Token(token), by, nil
}

// rollback ends tx on the server, for which it waits a while, and in any case for
// its owner. A rollback that gets no answer closes the connection, and the server
// rolls back by itself.
func rollback(ctx context.Context, tx *sql.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
	defer cancel()
	_, _ = tx.ExecContext(ctx, "ROLLBACK") // Rollback itself knows no limit
	_ = tx.Rollback()
}
