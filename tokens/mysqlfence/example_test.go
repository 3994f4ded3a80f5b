package mysqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/mysqlfence"
)

// A fenced write: the token comes from the lock, the lease's end too.
func ExampleWithFence() {
	ctx := context.Background()
	db, err := sql.Open("mysql", "app:secret@tcp(127.0.0.1:3306)/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()

	claim := tokens.Claim{Resource: "account/42", Token: 33, Mode: tokens.Renewable, Deadline: time.Now().Add(10 * time.Second)}
	err = mysqlfence.WithFence(ctx, db, claim, func(ctx context.Context, tx *mysqlfence.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + 10 WHERE id = 42")
		return err
	})
	var stale *tokens.StaleError
	if errors.As(err, &stale) {
		fmt.Println("a newer holder has written:", stale)
	}
}
