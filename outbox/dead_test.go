package outbox_test

import (
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/outbox"
	"github.com/pawlq/pawl/pawltest"
)

// die creates dead rows, in queues q0, q1 and so on, and returns their sequence numbers.
func die(t *testing.T, box *outbox.Outbox, db *sql.DB, n int) (seqs []int64) {
	t.Helper()
	for i := range n {
		enqueue(t, box, db, receipt{}, pawl.Timeout(-1), pawl.Queue(fmt.Sprint("q", i)))
	}
	r, stop := startRelay(t, box, pawltest.New(t).Client(t), outbox.RelayConfig{})
	defer stop()
	eventually(t, "the rows are dead", func() bool { return r.Stats().Dead == int64(n) })
	rows, err := box.DeadRows(t.Context(), 0, 1000)
	must(t, err)
	for _, row := range rows {
		seqs = append(seqs, row.Seq)
	}
	if len(seqs) != n {
		t.Fatalf("%d rows are dead, want %d", len(seqs), n)
	}
	return seqs
}

// Dead rows that are retried keep their request ids and order, and are enqueued if the cause was fixed.
func TestRetryDead(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		box := newBox(t, d, db)
		seqs := die(t, box, db, 4)
		before, err := box.DeadRows(t.Context(), seqs[0], 2)
		must(t, err)
		if len(before) != 2 || before[0].Seq != seqs[1] || before[1].Queue != "q2" {
			t.Errorf("the dead rows after the first are %+v", before)
		}
		exec(t, db, `UPDATE pawl_outbox_dead SET task = '{"type":"receipt","payload":{}}'`)
		must(t, box.RetryDead(t.Context(), seqs[2], seqs[1], seqs[1]))
		if waiting, dead := count(t, db, "SELECT count(*) FROM pawl_outbox"),
			count(t, db, "SELECT count(*) FROM pawl_outbox_dead"); waiting != 2 || dead != 2 {
			t.Errorf("%d rows are waiting and %d are dead, want 2 and 2", waiting, dead)
		}
		for _, row := range before {
			if n := count(t, db, "SELECT count(*) FROM pawl_outbox WHERE id = '"+row.ID+"' AND queue = '"+row.Queue+"'"); n != 1 {
				t.Errorf("row %d is back %d times with its id and queue, want once", row.Seq, n)
			}
		}
		r, stop := startRelay(t, box, pawltest.New(t).Client(t), outbox.RelayConfig{})
		eventually(t, "the rows are enqueued", func() bool { return r.Stats().Enqueued == 2 })
		stop()
		if dead, err := box.DeadRows(t.Context(), 0, 1000); err != nil || len(dead) != 2 || dead[0].Queue != "q0" || dead[1].Queue != "q3" {
			t.Errorf("the rows that are still dead are %+v (%v), want those of q0 and q3", dead, err)
		}
	})
}

// A call that can't retry all rows retries none, and names the missing one.
func TestRetryDeadRefused(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		box := newBox(t, d, db)
		seqs := die(t, box, db, 2)
		if err := box.RetryDead(t.Context(), seqs[0], 4711, seqs[1]); !errors.Is(err, pawl.ErrNotFound) ||
			err.Error() != "outbox: retry: pawl: not found: there is no dead row 4711" {
			t.Errorf("retrying a row that is not dead: %v", err)
		}
		for _, many := range [][]int64{nil, make([]int64, 1001)} {
			if err := box.RetryDead(t.Context(), many...); !errors.Is(err, pawl.ErrInvalidArgument) {
				t.Errorf("retrying %d rows: %v, want ErrInvalidArgument", len(many), err)
			}
		}
		for _, limit := range []int{0, 1001} {
			if _, err := box.DeadRows(t.Context(), 0, limit); !errors.Is(err, pawl.ErrInvalidArgument) {
				t.Errorf("listing with the limit %d: %v, want ErrInvalidArgument", limit, err)
			}
		}
		if waiting, dead := count(t, db, "SELECT count(*) FROM pawl_outbox"),
			count(t, db, "SELECT count(*) FROM pawl_outbox_dead"); waiting != 0 || dead != 2 {
			t.Errorf("%d rows are waiting and %d are dead, want 0 and 2", waiting, dead)
		}
	})
}

// However many calls retry the same rows at the same time, each row is moved back once.
func TestRetryDeadTogether(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		box := newBox(t, d, db)
		seqs := die(t, box, db, 20)
		var calls sync.WaitGroup
		for range 8 {
			calls.Go(func() {
				for _, seq := range seqs {
					_ = box.RetryDead(t.Context(), seq) // it may be refused
				}
			})
		}
		calls.Wait()
		eventually(t, "all rows are back", func() bool {
			for _, seq := range seqs { // those that failed because of concurrent calls, for example in deadlocks
				_ = box.RetryDead(t.Context(), seq)
			}
			return count(t, db, "SELECT count(*) FROM pawl_outbox_dead") == 0
		})
		if rows, ids := count(t, db, "SELECT count(*) FROM pawl_outbox"),
			count(t, db, "SELECT count(DISTINCT id) FROM pawl_outbox"); rows != 20 || ids != 20 {
			t.Errorf("%d rows are waiting, with %d distinct ids, want 20", rows, ids)
		}
	})
}
