package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/client/spec"
	"github.com/pawlq/pawl/outbox"
	"github.com/pawlq/pawl/pawltype"
)

// leaderless is a client of a cluster in which the shard of the queues "away…" has no leader: as pawl.Client does, it
// retries their tasks until the call's context ends, and then returns each task's own result.
type leaderless struct {
	t        *testing.T
	accepted atomic.Int64
	tries    chan struct{} // gets a value for each call whose tasks all are for such queues
	inVain   atomic.Int64  // such calls whose time was over
	goOn     chan struct{} // if it is closed, such calls return
}

func (l *leaderless) EnqueueBatch(ctx context.Context, items []pawl.Item) ([]pawl.Enqueued, error) {
	out := make([]pawl.Enqueued, len(items))
	away := 0
	for i, item := range items {
		s, err := spec.Of(item.Args, item.Options)
		must(l.t, err)
		if s.GetQueue() != "live" {
			away++
			out[i].Err = &pawltype.Error{Code: pawl.ErrUnavailable, Message: "no leader"}
			continue
		}
		out[i].Ref = &pawl.Ref{}
		l.accepted.Add(1)
	}
	switch away {
	case 0:
	case len(items):
		l.tries <- struct{}{}
		select {
		case <-l.goOn:
		case <-ctx.Done():
			l.inVain.Add(1)
		}
	default:
		<-ctx.Done()
	}
	return out, nil
}

// Queues without a leader delay the rows of no other queue, also while they are tried again.
func TestRelayTriesQueuesApart(t *testing.T) {
	db := openDB(t, outbox.SQLite)
	box := newBox(t, outbox.SQLite, db)
	const queues = 8
	to := &leaderless{t: t, tries: make(chan struct{}, 1000), goOn: make(chan struct{})}
	for n := range queues {
		enqueue(t, box, db, receipt{"1"}, pawl.Queue(fmt.Sprint("away", n)))
	}
	enqueue(t, box, db, receipt{"2"}, pawl.Queue("live"))
	_, stop := startRelay(t, box, to, outbox.RelayConfig{})
	for range queues {
		<-to.tries
	}
	for n := range int64(3) {
		enqueue(t, box, db, receipt{"3"}, pawl.Queue("live"))
		eventually(t, "the row is accepted", func() bool { return to.accepted.Load() == 2+n })
	}
	if n := to.inVain.Load(); n > 0 {
		t.Errorf("three rows waited until %d tries of queues without a leader had ended", n)
	}
	eventually(t, "only the rows of queues without a leader are left", func() bool { return rowsLeft(t, db) == queues })
	close(to.goOn)
	stop()
}

// slow is a client behind a slow connection: a call takes a while for each of its tasks, and one that is cut off enqueues none.
type slow struct {
	each            atomic.Int64 // time
	calls, accepted atomic.Int64
}

func (s *slow) EnqueueBatch(ctx context.Context, items []pawl.Item) ([]pawl.Enqueued, error) {
	s.calls.Add(1)
	out := make([]pawl.Enqueued, len(items))
	select {
	case <-time.After(time.Duration(int64(len(items)) * s.each.Load())):
		for i := range out {
			out[i].Ref = &pawl.Ref{}
		}
		s.accepted.Add(int64(len(items)))
	case <-ctx.Done():
		for i := range out {
			out[i].Err = ctx.Err()
		}
	}
	return out, nil
}

// Requests become small enough for a slow connection, and grow again on a fast one.
func TestRequestsFitTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openDB(t, outbox.SQLite)
		box := newBox(t, outbox.SQLite, db)
		const rows = 4000
		enqueueAll := func() {
			inTx(t, db, func(tx *sql.Tx) {
				for range rows {
					_, err := box.Enqueue(t.Context(), tx, receipt{"1"})
					must(t, err)
				}
			})
		}
		to := &slow{}
		each := 3 * time.Millisecond
		to.each.Store(int64(each))
		enqueueAll()
		_, stop := startRelay(t, box, to, outbox.RelayConfig{})
		time.Sleep(3 * rows * each)
		if n := to.accepted.Load(); n != rows {
			t.Errorf("%d of %d rows were accepted in three times the time that they take", n, rows)
		}
		to.each.Store(0)
		to.calls.Store(0)
		enqueueAll()
		time.Sleep(time.Minute)
		if n, calls := to.accepted.Load(), to.calls.Load(); n != 2*rows || calls > 10 {
			t.Errorf("%d of %d rows were accepted in the end, the last %d in %d calls, want at most 10", n, 2*rows, rows, calls)
		}
		stop()
	})
}

// delayed is a client whose first answer is that the queue is full, and whose others do not come.
type delayed struct{ calls atomic.Int64 }

func (d *delayed) EnqueueBatch(ctx context.Context, items []pawl.Item) ([]pawl.Enqueued, error) {
	out := make([]pawl.Enqueued, len(items))
	out[0].Err = &pawltype.Error{Code: pawl.ErrQueueFull, Message: "full"}
	if d.calls.Add(1) > 1 {
		<-ctx.Done()
		out[0].Err = ctx.Err()
	}
	return out, nil
}

// A relay that is stopped while it tries a queue reports no trouble.
func TestStopDuringATry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openDB(t, outbox.SQLite)
		box := newBox(t, outbox.SQLite, db)
		enqueue(t, box, db, receipt{"1"})
		var logs strings.Builder
		to := &delayed{}
		_, stop := startRelay(t, box, to, outbox.RelayConfig{Logger: slog.New(slog.NewTextHandler(&logs, nil))})
		time.Sleep(time.Second)
		if n := to.calls.Load(); n != 2 {
			t.Fatalf("%d calls were made, want one and a try", n)
		}
		stop()
		if text := logs.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "the rows of a queue are delayed") {
			t.Errorf("the relay logged\n%s\nand should warn only of the queue that is full", text)
		}
	})
}

// Dead rows are numbered on their own: the numbers of rows may begin again, as after TRUNCATE.
func TestRelayAndNumbersThatBeginAgain(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		box := newBox(t, d, db)
		refused := pawl.Enqueued{Err: &pawltype.Error{Code: pawl.ErrInvalidArgument, Message: "unknown option"}}
		r, _ := startRelay(t, box, &broken{before: func(items []pawl.Item) []pawl.Enqueued {
			return []pawl.Enqueued{refused, refused}[:len(items)]
		}}, outbox.RelayConfig{})
		for round := range int64(2) {
			enqueue(t, box, db, receipt{"1"})
			eventually(t, "the row is dead", func() bool { return r.Stats().Dead == round+1 })
			for _, statement := range map[outbox.Dialect][]string{outbox.SQLite: {"DELETE FROM sqlite_sequence WHERE name = 'pawl_outbox'"},
				outbox.MySQL: {"TRUNCATE pawl_outbox"}, outbox.Postgres: {"TRUNCATE pawl_outbox RESTART IDENTITY"}}[d] {
				exec(t, db, statement)
			}
		}
	})
}
