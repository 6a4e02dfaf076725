package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/testdb"
	"github.com/pawlq/pawl/outbox"
	"github.com/pawlq/pawl/outbox/pgxoutbox"
	"github.com/pawlq/pawl/pawltest"
)

// BenchmarkRelay delivers existing rows to a broker in memory.
func BenchmarkRelay(b *testing.B) {
	for _, d := range []outbox.Dialect{outbox.SQLite, outbox.Postgres, outbox.MySQL} {
		b.Run(string(d), func(b *testing.B) {
			db := openDB(b, d)
			box := newBox(b, d, db)
			client := pawltest.New(b).Client(b)
			fill(b, box, db, b.N)
			b.ResetTimer()
			began := time.Now()
			to := &countdown{Client: client, done: make(chan struct{})}
			to.left.Store(int64(b.N))
			_, stop := startRelay(b, box, to, outbox.RelayConfig{})
			<-to.done
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "rows/s")
			stop()
		})
	}
}

// countdown is a client that closes done when left tasks have been enqueued.
type countdown struct {
	*pawl.Client
	left atomic.Int64
	done chan struct{}
}

func (c *countdown) EnqueueBatch(ctx context.Context, items []pawl.Item) ([]pawl.Enqueued, error) {
	out, err := c.Client.EnqueueBatch(ctx, items)
	for _, o := range out {
		if o.Err == nil && c.left.Add(-1) == 0 {
			close(c.done)
		}
	}
	return out, err
}

// fill commits n rows of 100 keys.
func fill(b *testing.B, box *outbox.Outbox, db *sql.DB, n int) {
	for n > 0 {
		items := make([]pawl.Item, min(n, outbox.MaxItems))
		for i := range items {
			items[i] = pawl.Item{Args: receipt{fmt.Sprint(n - i)}, Options: []pawl.Option{pawl.Key(fmt.Sprint(i % 100))}}
		}
		inTx(b, db, func(tx *sql.Tx) {
			_, err := box.EnqueueMany(b.Context(), tx, items)
			must(b, err)
		})
		n -= len(items)
	}
}

// BenchmarkEnqueue writes one task in its own transaction.
func BenchmarkEnqueue(b *testing.B) {
	for _, d := range []outbox.Dialect{outbox.SQLite, outbox.Postgres, outbox.MySQL} {
		b.Run(string(d), func(b *testing.B) {
			db := openDB(b, d)
			box := newBox(b, d, db)
			for b.Loop() {
				enqueue(b, box, db, receipt{"7"})
			}
		})
	}
}

// BenchmarkLatency measures from the commit to the start of the handler, with PostgreSQL's notifications.
func BenchmarkLatency(b *testing.B) {
	dsn := testdb.Postgres(b)
	db, err := sql.Open("pgx", dsn)
	must(b, err)
	defer db.Close()
	box := newBox(b, outbox.Postgres, db)
	client := pawltest.New(b).Client(b)
	config, err := pgx.ParseConfig(dsn)
	must(b, err)
	listening := make(chan struct{}, 1000)
	r, _ := startRelay(b, box, client, outbox.RelayConfig{Poll: time.Hour, Listen: func(ctx context.Context, wake func()) error {
		return pgxoutbox.Listen(config)(ctx, func() {
			wake()
			select {
			case listening <- struct{}{}:
			default:
			}
		})
	}})
	<-listening
	eventually(b, "the relay is active", func() bool { return r.Stats().Active })
	started := make(chan time.Time)
	mux := pawl.NewMux()
	pawl.Handle(mux, func(context.Context, *pawl.Task[receipt]) error { started <- time.Now(); return nil })
	ctx, stop := context.WithCancel(b.Context())
	var worker sync.WaitGroup
	defer worker.Wait()
	defer stop()
	worker.Go(func() { _ = pawl.NewWorker(client, mux, pawl.WorkerConfig{Queues: pawl.Strict{"default"}}).Run(ctx) })
	var took []time.Duration
	for b.Loop() {
		enqueue(b, box, db, receipt{"7"})
		committed := time.Now()
		took = append(took, max(0, (<-started).Sub(committed)))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
