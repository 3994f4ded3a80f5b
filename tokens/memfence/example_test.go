package memfence_test

import (
	"context"
	"fmt"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/memfence"
)

// A write whose unit of work has not advanced the fence is refused, as a
// protected table in PostgreSQL refuses it.
func Example() {
	ctx := context.Background()
	store := memfence.New()

	tx := store.Begin()
	fmt.Println(tx.Write("account/42", "10"))
	tx.Rollback()

	tx = store.Begin()
	defer tx.Rollback()
	if _, err := store.Advance(ctx, tx, tokens.Claim{Resource: "account/42", Token: 7}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tx.Write("account/42", "10"), tx.Commit())
	// Output:
	// resource "account/42": write without a fence
	// <nil> <nil>
}
