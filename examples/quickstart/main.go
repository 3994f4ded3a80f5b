// Command quickstart takes a lock, does its work under it, and gives it back. Start
// a server first: make run.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/tokens"
)

func main() {
	client, err := clientsdk.New(clientsdk.Config{}) // http://127.0.0.1:7420
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	err = client.Do(context.Background(), "orders/42", func(ctx context.Context) error {
		token, _ := tokens.FromContext(ctx, "orders/42") // send it with every write
		fmt.Println("I hold orders/42 with token", token)
		return nil // ctx ends before the lease can have ended
	})
	if err != nil {
		log.Fatal(err)
	}
}
