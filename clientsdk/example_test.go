package clientsdk_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/clientsdk/sdktest"
	"github.com/fenced/fenced/tokens"
)

// exampleClient talks to a fake server; a program gives Endpoints instead.
func exampleClient() (*clientsdk.Client, *sdktest.Server) {
	srv := sdktest.New()
	client, err := clientsdk.New(srv.Config())
	if err != nil {
		panic(err)
	}
	return client, srv
}

func Example() {
	client, srv := exampleClient()
	defer srv.Close()
	defer client.Close()

	err := client.Do(context.Background(), "orders/42", func(ctx context.Context) error {
		token, ok := tokens.FromContext(ctx, "orders/42")
		fmt.Println("working with a token to send with every write:", ok && token.Valid())
		return nil
	})
	fmt.Println(err)
	// Output:
	// working with a token to send with every write: true
	// <nil>
}

func ExampleClient_Do() {
	client, srv := exampleClient()
	defer srv.Close()
	defer client.Close()

	// The lock is released when the function returns, also by a panic.
	err := client.Do(context.Background(), "jobs/nightly", func(ctx context.Context) error {
		return errors.New("no space left")
	})
	fmt.Println(err, srv.Live("jobs/nightly"))
	// Output: no space left 0
}

func ExampleClient_Acquire() {
	client, srv := exampleClient()
	defer srv.Close()
	defer client.Close()
	ctx := context.Background()

	hold, err := client.Acquire(ctx, "jobs/nightly", &clientsdk.AcquireOptions{
		Wait:     time.Minute,
		Metadata: map[string]string{"ticket": "OPS-7"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer hold.Release(ctx)

	// Work under the hold's context: it ends when the hold is lost.
	work := hold.Context()
	fmt.Println(hold.Lock(), work.Err())
	// Output: jobs/nightly <nil>
}

func ExampleClient_TryAcquire() {
	client, srv := exampleClient()
	defer srv.Close()
	defer client.Close()
	ctx := context.Background()

	first, _ := client.Acquire(ctx, "jobs/nightly", &clientsdk.AcquireOptions{Owner: "worker 1"})
	defer first.Release(ctx)

	_, err := client.TryAcquire(ctx, "jobs/nightly", nil)
	var held *clientsdk.HeldError
	if errors.As(err, &held) {
		fmt.Println("held by", held.Holder.Owner)
	}
	// Output: held by worker 1
}

func ExampleClient_AcquireAll() {
	client, srv := exampleClient()
	defer srv.Close()
	defer client.Close()
	ctx := context.Background()

	both, err := client.AcquireAll(ctx, []string{"account/7", "account/3"}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer both.Release(ctx)
	for _, h := range both.All() {
		fmt.Println(h.Lock())
	}
	// Output:
	// account/7
	// account/3
}

func ExampleHold_Context() {
	client, srv := exampleClient()
	defer srv.Close()
	defer client.Close()
	ctx := context.Background()

	hold, _ := client.Acquire(ctx, "jobs/nightly", &clientsdk.AcquireOptions{TTL: time.Second})
	defer hold.Release(ctx)
	srv.Break("jobs/nightly", "stuck for an hour")

	<-hold.Context().Done()
	var lost *clientsdk.LostError
	fmt.Println(errors.As(context.Cause(hold.Context()), &lost), lost.Reason)
	// Output: true broken
}

func ExampleClient_Check() {
	client, srv := exampleClient()
	defer srv.Close()
	defer client.Close()
	ctx := context.Background()

	old, _ := client.Acquire(ctx, "account/3", nil)
	old.Release(ctx)
	fresh, _ := client.Acquire(ctx, "account/3", nil)
	defer fresh.Release(ctx)

	results, err := client.Check(ctx, []clientsdk.CheckItem{
		{Lock: "account/3", Token: old.Token()},
		{Lock: "account/3", Token: fresh.Token()},
	})
	fmt.Println(results[0].Result, results[1].Result, err)
	// Output: stale valid <nil>
}

func ExampleClient_Break() {
	client, srv := exampleClient()
	defer srv.Close()
	defer client.Close()
	ctx := context.Background()

	hold, _ := client.Acquire(ctx, "jobs/nightly", nil)
	fmt.Println(client.Break(ctx, "jobs/nightly", hold.Token(), "stuck for an hour"))
	fmt.Println(errors.Is(hold.Release(ctx), clientsdk.ErrLost))
	// Output:
	// <nil>
	// true
}

func ExampleHold_Release() {
	client, srv := exampleClient()
	defer srv.Close()
	defer client.Close()

	ctx, cancel := context.WithCancel(context.Background())
	hold, _ := client.Acquire(ctx, "jobs/nightly", nil)
	cancel() // a release has a time of its own: a context that is over does not keep it

	fmt.Println(hold.Release(ctx), hold.Release(ctx)) // twice is harmless
	// Output: <nil> <nil>
}

func ExampleClient_Events() {
	client, srv := exampleClient()
	defer srv.Close()
	defer client.Close()
	ctx := context.Background()

	hold, _ := client.Acquire(ctx, "orders/42", &clientsdk.AcquireOptions{Owner: "worker 1"})
	hold.Release(ctx)

	// After is the last event seen; without it the stream begins now.
	for ev, err := range client.Events(ctx, &clientsdk.EventsOptions{Prefix: "orders/", After: "1.0"}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(ev.Kind, ev.Lock, ev.Owner)
		if ev.Kind == "released" {
			break
		}
	}
	// Output:
	// granted orders/42 worker 1
	// released orders/42 worker 1
}

func ExampleClient_Lock() {
	client, srv := exampleClient()
	defer srv.Close()
	defer client.Close()
	ctx := context.Background()

	hold, _ := client.Acquire(ctx, "orders/42", &clientsdk.AcquireOptions{Owner: "worker 1"})
	defer hold.Release(ctx)

	info, err := client.Lock(ctx, "orders/42")
	fmt.Println(info.State, info.Holder.Owner, info.Holder.Token == hold.Token(), info.Waiters, err)
	// Output: held worker 1 true 0 <nil>
}
