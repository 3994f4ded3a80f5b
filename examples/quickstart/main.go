// Command quickstart takes a lock, does its work under it, and gives it back. Start
// a server first: make run. FENCED_ADDR has the URLs of others, separated by commas.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/tokens"
)

func main() {
	servers := strings.Split(cmp.Or(os.Getenv("FENCED_ADDR"), clientsdk.DefaultEndpoint), ",")
	client, err := clientsdk.New(clientsdk.Config{Endpoints: servers})
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
