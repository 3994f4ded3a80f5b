// Command openapi takes a lock with a client that oapi-codegen has made from the
// OpenAPI document. Make the client first:
//
//	go tool oapi-codegen -config client.yaml ../../docs/openapi.yaml
//	go run .
//
// A generated client knows the calls and nothing of time: it renews nothing. In Go use
// package clientsdk. This is what a generator gives in a language that has no SDK.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/fenced/fenced/examples/openapi/client"
)

func main() {
	ctx := context.Background()
	server, err := client.NewClientWithResponses(cmp.Or(os.Getenv("FENCED_ADDR"), "http://127.0.0.1:7420"))
	check(err)
	want := client.AcquireRequest{Lock: "orders/42", Owner: "openapi"}

	got, err := server.AcquireHoldWithResponse(ctx, nil, want)
	check(err)
	if got.JSON201 == nil {
		log.Fatalf("acquire: %s", got.Status())
	}
	hold := got.JSON201
	fmt.Printf("I hold %s with token %d\n", hold.Lock, *hold.Token) // send it with every write

	again, err := server.AcquireHoldWithResponse(ctx, nil, want)
	check(err)
	if no := again.ApplicationproblemJSON409; no != nil {
		fmt.Printf("%s: %s, token %d\n", no.Code, no.Holder.Owner, no.Holder.Token)
	}

	gone, err := server.ReleaseHoldWithResponse(ctx, *hold.Hold)
	check(err)
	fmt.Println("released:", gone.StatusCode())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
