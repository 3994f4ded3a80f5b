package tokens_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/memfence"
)

// A holder that was paused writes after its successor, and is refused.
func ExampleGuard() {
	ctx := context.Background()
	store := memfence.New()
	write := func(token tokens.Token, value string) error {
		tx := store.Begin()
		defer tx.Rollback()
		claim := tokens.Claim{Resource: "account/42", Token: token, Mode: tokens.Renewable}
		if _, err := store.Advance(ctx, tx, claim); err != nil {
			return err
		}
		if err := tx.Write("account/42", value); err != nil {
			return err
		}
		return tx.Commit()
	}

	fmt.Println(write(34, "by the successor"))
	err := write(33, "by the holder that was paused")
	var stale *tokens.StaleError
	if errors.As(err, &stale) {
		fmt.Printf("refused: %d is older than %d\n", stale.Presented, stale.Current)
	}
	value, _ := store.Read("account/42")
	fmt.Println(value)
	// Output:
	// <nil>
	// refused: 33 is older than 34
	// by the successor
}

// One claim for each grant: a repeat is told apart from a stale one.
func ExampleGuard_oneShot() {
	ctx := context.Background()
	store := memfence.New()
	pay := func(token tokens.Token) error {
		tx := store.Begin()
		defer tx.Rollback()
		if _, err := store.Advance(ctx, tx, tokens.Claim{Resource: "reward/7", Token: token}); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(pay(5))
	fmt.Println(errors.Is(pay(5), tokens.ErrDuplicate))
	fmt.Println(errors.Is(pay(4), tokens.ErrStale))
	// Output:
	// <nil>
	// true
	// true
}

func ExampleParse() {
	for _, s := range []string{"34", "034", "1e3", "9007199254740992"} {
		t, err := tokens.Parse(s)
		fmt.Println(t, errors.Is(err, tokens.ErrInvalid))
	}
	// Output:
	// 34 false
	// 0 true
	// 0 true
	// 0 true
}

// In JSON a token is a number that every language reads exactly.
func ExampleToken_MarshalJSON() {
	b, err := json.Marshal(map[string]tokens.Token{"token": tokens.Max})
	fmt.Println(string(b), err)
	// Output: {"token":9007199254740991} <nil>
}

func ExampleFromHeader() {
	h := make(http.Header)
	_, err := tokens.FromHeader(h)
	fmt.Println(errors.Is(err, tokens.ErrMissing))
	tokens.SetHeader(h, 34)
	t, err := tokens.FromHeader(h)
	fmt.Println(t, err)
	// Output:
	// true
	// 34 <nil>
}

// Tokens of nested locks stand side by side, and none answers for another.
func ExampleFromContext() {
	ctx := tokens.NewContext(context.Background(), "account/42", 34)
	ctx = tokens.NewContext(ctx, "ledger", 7)
	fmt.Println(tokens.FromContext(ctx, "account/42"))
	fmt.Println(tokens.FromContext(ctx, "ledger"))
	fmt.Println(tokens.FromContext(ctx, "account/43"))
	// Output:
	// 34 true
	// 7 true
	// 0 false
}
