package test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/outbox"
	"github.com/pawlq/pawl/pawltype"
)

// The application of TestOutboxThroughKills, a separate process: it commits orders with their tasks, rolls others back,
// and handles the tasks. Each order has a task that is only counted, in the order of its key, and one that books it: an
// effect in the database, with a receipt as the next task. Whatever fails is retried.
const (
	shopDialectEnv = "PAWL_TEST_DIALECT"
	shopDriverEnv  = "PAWL_TEST_DRIVER"
	shopDSNEnv     = "PAWL_TEST_DSN"
	shopFirstEnv   = "PAWL_TEST_FIRST_KEY"

	shopKeys  = 8 // per application
	shopPause = 20 * time.Millisecond
)

type order struct {
	ID  string `json:"id"`
	Key int    `json:"key"`
	Seq int    `json:"seq"` // within its key
}

func (order) TaskType() string { return "order" }

type booking struct {
	Order string `json:"order"`
}

func (booking) TaskType() string { return "book" }

type receiptOf struct {
	Order string `json:"order"`
}

func (receiptOf) TaskType() string { return "receipt" }

func init() { plays["shop"] = playShop }

func playShop() error {
	db, err := sql.Open(os.Getenv(shopDriverEnv), os.Getenv(shopDSNEnv))
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(shopKeys + 6)
	db.SetMaxIdleConns(shopKeys + 6) // a new connection is a new process of the database
	client, err := pawl.Dial(os.Getenv(serverEnv), pawl.DialOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	ctx := context.Background()
	app := &shopApp{db: db}
	for app.box == nil { // the database may be down
		if app.box, err = outbox.Open(ctx, db, outbox.Dialect(os.Getenv(shopDialectEnv))); err != nil {
			app.box = nil
			time.Sleep(shopPause)
		}
	}
	first, err := strconv.Atoi(os.Getenv(shopFirstEnv))
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "SELECT 1 FROM closed"); err != nil { // the table doesn't exist as long as the shop is open
		for key := first; key < first+shopKeys; key++ {
			go app.write(ctx, key)
		}
	}
	mux := pawl.NewMux()
	pawl.Handle(mux, app.book)
	return pawl.NewWorker(client, mux, pawl.WorkerConfig{Queues: pawl.Strict{"book"}, Concurrency: 4, Lease: payLease}).Run(ctx)
}

type shopApp struct {
	db  *sql.DB
	box *outbox.Outbox
}

// write creates orders of a key one after the other, and rolls back every third.
func (a *shopApp) write(ctx context.Context, key int) {
	seq := 0
	for a.db.QueryRowContext(ctx, fmt.Sprintf("SELECT coalesce(max(seq), 0) FROM orders WHERE k = %d", key)).Scan(&seq) != nil {
		time.Sleep(shopPause)
	}
	for seq++; ; seq++ { // one whose commit failed may exist after all: its number is not used again
		if err := a.writeOne(ctx, order{fmt.Sprintf("%d-%d", key, seq), key, seq}, seq%3 != 2); err != nil {
			time.Sleep(shopPause)
		}
		time.Sleep(rand.N(3 * shopPause)) // some order of the 16 keys is always being written
	}
}

func (a *shopApp) writeOne(ctx context.Context, o order, commit bool) error {
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO orders VALUES ('%s', %d, %d)", o.ID, o.Key, o.Seq)); err != nil {
		return err
	}
	if _, err := a.box.Enqueue(ctx, tx, o, pawl.Queue("orders"), pawl.Key(fmt.Sprint(o.Key))); err != nil {
		return err
	}
	again := pawl.Retry(pawltype.RetryPolicy{Initial: 50 * time.Millisecond, Factor: 1, Max: 50 * time.Millisecond})
	if _, err := a.box.Enqueue(ctx, tx, booking{o.ID}, pawl.Queue("book"), pawl.MaxAttempts(1000), again); err != nil {
		return err
	}
	if !commit {
		return tx.Rollback()
	}
	return tx.Commit()
}

// book books an order, once, and enqueues its receipt.
func (a *shopApp) book(ctx context.Context, t *pawl.Task[booking]) error {
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	err = a.box.Effect(ctx, tx, t.Claim, "book", func(ctx context.Context) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO booked VALUES ('"+t.Args.Order+"')"); err != nil {
			return err
		}
		_, err := a.box.Enqueue(ctx, tx, receiptOf(t.Args), pawl.Queue("receipts"))
		return err
	})
	if err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	time.Sleep(rand.N(5 * time.Millisecond)) // time to die before the ack
	if rand.IntN(20) == 0 {
		return errors.New("the printer is jammed")
	}
	return nil
}
