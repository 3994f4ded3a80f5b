package sdktest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/clientsdk/sdktest"
	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/memfence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A worker under test: it must stop when its lock is lost.
func work(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func Example() {
	srv := sdktest.New()
	defer srv.Close()
	client, err := clientsdk.New(srv.Config())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	hold, err := client.Acquire(context.Background(), "jobs/nightly", &clientsdk.AcquireOptions{TTL: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	srv.Expire("jobs/nightly") // as if the process had been paused too long
	fmt.Println(errors.Is(work(hold.Context()), clientsdk.ErrLost))
	// Output: true
}

func ExampleServer_On() {
	srv := sdktest.New()
	defer srv.Close()
	client, _ := clientsdk.New(srv.Config())
	defer client.Close()

	// The grant happens, but its answer is lost: the SDK asks again and finds it.
	srv.On(sdktest.Acquire, sdktest.Fault{DropAnswer: true})
	hold, err := client.Acquire(context.Background(), "jobs/nightly", nil)
	token, held := srv.Holder("jobs/nightly")
	fmt.Println(err, held, token == hold.Token(), srv.Live("jobs/nightly"), srv.Calls(sdktest.Acquire))
	// Output: <nil> true true 1 2
}

// In a bubble an hour of renewals takes no time.
func TestServer_InABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := sdktest.New()
		defer srv.Close()
		client, err := clientsdk.New(srv.Config())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		hold, err := client.Acquire(context.Background(), "l", nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // virtual
		if hold.Err() != nil {
			t.Errorf("after an hour: %v", hold.Err())
		}
		if !srv.Break("l", "stuck") || srv.Break("l", "stuck") || srv.Expire("nobody's") {
			t.Error("Break or Expire misjudges whether there was a holder")
		}
		time.Sleep(clientsdk.DefaultTTL) // virtual
		if !errors.Is(hold.Err(), clientsdk.ErrLost) {
			t.Errorf("after the break: %v", hold.Err())
		}
	})
}

// A watcher under test must list the locks again when events were lost.
func ExampleServer_CutEvents() {
	srv := sdktest.New()
	defer srv.Close()
	client, _ := clientsdk.New(srv.Config())
	defer client.Close()
	ctx := context.Background()

	hold, _ := client.Acquire(ctx, "jobs/nightly", nil)
	for ev, err := range client.Events(ctx, &clientsdk.EventsOptions{After: "1.0"}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(ev.Kind, ev.Lock)
		if ev.Kind == "released" {
			return
		}
		srv.CutEvents() // the SDK comes back behind the event it has seen
		hold.Release(ctx)
	}
	// Output:
	// granted jobs/nightly
	// released jobs/nightly
}

func ExampleServer_AddKey() {
	srv := sdktest.New()
	defer srv.Close()
	cfg := srv.Config()
	cfg.APIKey = srv.AddKey("lock", "orders/")
	client, _ := clientsdk.New(cfg)
	defer client.Close()

	_, err := client.TryAcquire(context.Background(), "stock/7", nil)
	var refused *clientsdk.APIError
	fmt.Println(errors.As(err, &refused), refused.ErrCode)
	// Output: true forbidden
}

// What the store under test must refuse: a write with a token that was superseded.
func ExampleServer_Supersede() {
	srv := sdktest.New()
	defer srv.Close()
	client, _ := clientsdk.New(srv.Config())
	defer client.Close()
	ctx, store := context.Background(), memfence.New()
	write := func(token tokens.Token) error {
		tx := store.Begin()
		defer tx.Rollback()
		if _, err := store.Advance(ctx, tx, tokens.Claim{Resource: "account/42", Token: token}); err != nil {
			return err
		}
		return errors.Join(tx.Write("account/42", "10"), tx.Commit())
	}

	hold, _ := client.Acquire(ctx, "account/42", nil)
	newer, _ := srv.Supersede("account/42") // while this process was paused
	fmt.Println(write(newer))
	fmt.Println(errors.Is(write(hold.Token()), tokens.ErrStale))
	// Output:
	// <nil>
	// true
}
