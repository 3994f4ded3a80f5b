package itemserver_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenced/fenced/examples/rewards/itemserver"
	"github.com/fenced/fenced/tokens"
)

// halting is a guard at which a process stands still.
type halting struct {
	tokens.Guard[pgx.Tx]
	reached, goOn chan struct{}
}

func (h halting) Advance(ctx context.Context, tx pgx.Tx, c tokens.Claim) (tokens.Decision, error) {
	close(h.reached)
	<-h.goOn
	return h.Guard.Advance(ctx, tx, c)
}

// Fault: an instance stands still in the middle of a grant, and its connection with it. The
// other instances must not say "in progress" for as long as it does.
func TestServer_that_stands_still_lets_others_grant(t *testing.T) {
	t.Parallel()
	b := setup(t, true)
	halt := halting{b.guard, make(chan struct{}), make(chan struct{})}
	still, err := itemserver.New(itemserver.Config{Pool: b.pool, Guard: halt})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(still)
	t.Cleanup(srv.Close)
	frozen := b
	frozen.url = srv.URL
	late := make(chan int)
	go func() {
		status, _, _ := frozen.ask(t, reward, "Idempotency-Key: "+key, "Fencing-Token: 7")
		late <- status
	}()
	<-halt.reached
	begun := time.Now()
	status := 0
	for status != 201 && time.Since(begun) < 6*time.Second { // the promised five, and one of slack
		var code string
		if status, code, _ = b.ask(t, reward, "Idempotency-Key: "+key, "Fencing-Token: 7"); status != 201 && status != 409 {
			t.Errorf("answer %d %s, want 409 and in the end 201", status, code)
		}
		time.Sleep(50 * time.Millisecond) // as a caller waits
	}
	if status != 201 {
		t.Errorf("still %d after %v", status, time.Since(begun))
	}
	close(halt.goOn)
	if status := <-late; status != 503 {
		t.Errorf("the one that stood still answers %d, want 503", status)
	}
	if n := b.count(t); n != 1 {
		t.Errorf("%d grants, want 1", n)
	}
}
