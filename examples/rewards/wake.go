package rewards

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// wakeChannel is the NOTIFY channel of the outbox. A notification carries nothing
// and proves nothing: it makes a publisher look now instead of at its next poll. A
// lost one costs that wait and no more.
const wakeChannel = "reward_outbox"

// announce says that the outbox has something new. It is a statement of its own,
// after the payment: to commit a NOTIFY takes a lock on the whole cluster, which a
// payment should not wait for.
func announce(ctx context.Context, pool *pgxpool.Pool) {
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	_, _ = pool.Exec(ctx, "NOTIFY "+wakeChannel)
}

// announcer sends at most one notification at a time. What is paid while one is
// under way is announced together, by the next.
type announcer struct {
	pending chan struct{} // of capacity 1
}

func newAnnouncer() announcer { return announcer{make(chan struct{}, 1)} }

// paid asks for a notification, and never waits.
func (a announcer) paid() {
	select {
	case a.pending <- struct{}{}:
	default: // one that has not been sent yet says it all
	}
}

// run sends what is asked for until done is closed, and then once more if need be.
func (a announcer) run(ctx context.Context, pool *pgxpool.Pool, done <-chan struct{}) {
	for {
		select {
		case <-a.pending:
			announce(ctx, pool)
		case <-done:
			select {
			case <-a.pending:
				announce(ctx, pool)
			default:
			}
			return
		}
	}
}

// listen returns a channel that holds one value after any number of
// notifications, and a function that ends the listening and returns when it has
// ended. It uses one connection beside the pool's, and has a new one made when
// that is lost; until then the poll is all there is.
func listen(ctx context.Context, pool *pgxpool.Pool) (<-chan struct{}, func()) {
	ctx, cancel := context.WithCancel(ctx)
	woken := make(chan struct{}, 1)
	var listener sync.WaitGroup
	listener.Go(func() {
		for ctx.Err() == nil {
			forward(ctx, pool, woken)
			_ = pause(ctx, backoff(1, longPause, longPause))
		}
	})
	return woken, func() {
		cancel()
		listener.Wait()
	}
}

// forward listens on one connection for as long as it lasts.
func forward(ctx context.Context, pool *pgxpool.Pool, woken chan<- struct{}) {
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	if err != nil {
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "LISTEN "+wakeChannel); err != nil {
		return
	}
	for {
		// The first value stands for what was written before the LISTEN.
		select {
		case woken <- struct{}{}:
		default:
		}
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return
		}
	}
}
