package outbox_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/outbox"
	"github.com/pawlq/pawl/pawltest"
)

// BenchmarkRelay drains rows that were there, with a broker in memory.
func BenchmarkRelay(b *testing.B) {
	for _, d := range []outbox.Dialect{outbox.SQLite, outbox.Postgres, outbox.MySQL} {
		b.Run(string(d), func(b *testing.B) {
			db := openDB(b, d)
			box := newBox(b, d, db)
			client := pawltest.New(b).Client(b)
			fill(b, box, db, b.N)
			b.ResetTimer()
			began := time.Now()
			r, stop := startRelay(b, box, client, outbox.RelayConfig{})
			for r.Stats().Enqueued < int64(b.N) {
				time.Sleep(time.Millisecond)
			}
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "rows/s")
			stop()
		})
	}
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

// BenchmarkEnqueue is one task in a transaction of its own.
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
