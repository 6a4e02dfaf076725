package pawl_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/pawlq/pawl"
)

// Order is the payload of tasks of type order.
type Order struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

func (Order) TaskType() string { return "order" }

// A handler with two effects resumes after the first when the second has failed.
func ExampleStep() {
	charges, attempt := 0, 0
	handler := func(ctx context.Context, t *pawl.Task[Order]) error {
		charge, err := pawl.Step(ctx, t, "charge", func(ctx context.Context) (string, error) {
			charges++
			return "ch_1", nil
		})
		if err != nil {
			return err
		}
		_, err = pawl.Step(ctx, t, "receipt", func(ctx context.Context) (bool, error) {
			if attempt++; attempt == 1 {
				return false, errors.New("no mail server")
			}
			fmt.Println("receipt for", charge)
			return true, nil
		})
		return err
	}
	task := &pawl.Task[Order]{Claim: &pawl.Claim{ID: "t1"}, Args: Order{ID: "7"}} // as in tests. Workers create it
	fmt.Println(handler(context.Background(), task))
	fmt.Println(handler(context.Background(), task))
	fmt.Println("charges:", charges)
	// Output:
	// step "receipt" of task "t1": no mail server
	// receipt for ch_1
	// <nil>
	// charges: 1
}

// Two tasks for the same invoice print it once.
func ExampleOnce_ttl() {
	handler := func(ctx context.Context, t *pawl.Task[Order]) error {
		_, err := pawl.Once(ctx, t, "print/"+t.Args.ID, func(ctx context.Context) (any, error) {
			fmt.Println("prints invoice", t.Args.ID)
			return nil, nil // without a result
		}, pawl.TTL(30*24*time.Hour))
		return err
	}
	task := &pawl.Task[Order]{Claim: &pawl.Claim{ID: "t1"}, Args: Order{ID: "7"}}
	fmt.Println(handler(context.Background(), task))
	fmt.Println(handler(context.Background(), task))
	// Output:
	// prints invoice 7
	// <nil>
	// <nil>
}

// The provider gets an idempotency key for the payment, the same from any task and attempt: that is what makes it exactly one.
// Once spares it the repeats, and returns the receipt to all tasks.
func ExampleOnce() {
	paid := map[string]bool{}
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if key := r.Header.Get("Idempotency-Key"); !paid[key] {
			paid[key] = true
			fmt.Println("charged by", key)
		}
		fmt.Fprint(w, "receipt 1")
	}))
	defer provider.Close()

	handler := func(ctx context.Context, t *pawl.Task[Order]) error {
		key := "payment/" + t.Args.ID
		receipt, err := pawl.Once(ctx, t, key, func(ctx context.Context) (string, error) {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, provider.URL, nil)
			if err != nil {
				return "", err
			}
			r.Header.Set("Idempotency-Key", key)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			receipt, err := io.ReadAll(resp.Body)
			return string(receipt), err
		})
		fmt.Println(receipt)
		return err
	}
	for _, id := range []string{"t1", "t2"} { // made by hand, each claim knows only its own keys, as if the first had crashed
		if err := handler(context.Background(), &pawl.Task[Order]{Claim: &pawl.Claim{ID: id}, Args: Order{ID: "7"}}); err != nil {
			panic(err)
		}
	}
	// Output:
	// charged by payment/7
	// receipt 1
	// receipt 1
}

// An effect in your own database happens exactly once if a unique row is inserted in its transaction.
func ExampleHandle_uniqueRow() {
	var db *sql.DB // CREATE TABLE effects (key text PRIMARY KEY)
	mux := pawl.NewMux()
	pawl.Handle(mux, func(ctx context.Context, t *pawl.Task[Order]) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // after Commit it does nothing
		r, err := tx.ExecContext(ctx, `INSERT INTO effects (key) VALUES ($1) ON CONFLICT DO NOTHING`, "credit/"+t.Args.ID)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return err // nil: the row existed, and so did the credit
		}
		if _, err := tx.ExecContext(ctx, `UPDATE accounts SET cents = cents + $1 WHERE id = $2`, t.Args.Cents, t.Args.ID); err != nil {
			return err
		}
		return tx.Commit()
	})
}

// A worker that was presumed dead must not overwrite the result of a later one: its fence is lower.
func ExampleHandle_fenceColumn() {
	var db *sql.DB
	mux := pawl.NewMux()
	pawl.Handle(mux, func(ctx context.Context, t *pawl.Task[Order]) error {
		r, err := db.ExecContext(ctx, `UPDATE reports SET body = $1, fence = $2 WHERE id = $3 AND fence <= $2`, "…", t.Fence, t.Args.ID)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err == nil && n == 0 {
			return pawl.Discard(errors.New("a later attempt has written the report")) // the broker refuses this ending, too
		}
		return nil
	})
}
