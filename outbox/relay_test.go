package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/internal/testdb"
	"github.com/pawlq/pawl/outbox"
	"github.com/pawlq/pawl/outbox/pgxoutbox"
	"github.com/pawlq/pawl/pawltest"
	"github.com/pawlq/pawl/pawltype"
)

// patience bounds how long a test waits. It is long, since everything takes longer on a busy machine.
const patience = time.Minute

// eventually polls in real time: the lease is timed by the database's clock, which a test can't fake.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %s, this was still not true: %s", patience, what)
		}
	}
}

// startRelay runs a relay until the test ends, or stop is called.
func startRelay(t testing.TB, box *outbox.Outbox, to outbox.Producer, cfg outbox.RelayConfig) (r *outbox.Relay, stop func()) {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r, err := outbox.NewRelayTo(box, to, cfg)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the relay ended with the error %v", err)
		}
	})
	t.Cleanup(stop)
	return r, stop
}

func enqueue(t testing.TB, box *outbox.Outbox, db *sql.DB, args pawl.Args, opts ...pawl.Option) {
	t.Helper()
	inTx(t, db, func(tx *sql.Tx) {
		_, err := box.Enqueue(t.Context(), tx, args, opts...)
		must(t, err)
	})
}

func rowsLeft(t testing.TB, db *sql.DB) int { return count(t, db, "SELECT count(*) FROM pawl_outbox") }

// orders claims the tasks of a queue and returns their orders as they arrive.
func orders(t testing.TB, client *pawl.Client, queue string) (out []string) {
	t.Helper()
	for {
		got, err := claims.New(client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{queue}, Max: 1000})
		must(t, err)
		if len(got) == 0 {
			return out
		}
		for _, c := range got {
			var r receipt
			must(t, json.Unmarshal(c.Payload, &r))
			out = append(out, r.Order)
		}
	}
}

// Each committed row becomes one task with its options, and rows that are rolled back don't. Rows of a key are enqueued
// in the order of their transactions, however many relays there are.
func TestRelay(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		box := newBox(t, d, db)
		client := pawltest.New(t).Client(t)
		var relays []*outbox.Relay
		for range 3 {
			r, _ := startRelay(t, box, client, outbox.RelayConfig{})
			relays = append(relays, r)
		}
		const n = 60
		var want []string
		for i := range n {
			order := fmt.Sprint(i)
			tx, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			_, err = box.Enqueue(t.Context(), tx, receipt{order}, pawl.Queue("mail"), pawl.Key("a"), pawl.Tags("t"))
			must(t, err)
			if i%3 == 0 {
				must(t, tx.Rollback())
				continue
			}
			must(t, tx.Commit())
			want = append(want, order)
		}
		eventually(t, "all rows are enqueued", func() bool { return rowsLeft(t, db) == 0 })
		if got := orders(t, client, "mail"); !slices.Equal(got, want) {
			t.Errorf("the tasks are %v, want %v", got, want)
		}
		active, enqueued := 0, int64(0)
		for _, r := range relays {
			s := r.Stats()
			enqueued += s.Enqueued
			if s.Active {
				active++
			}
		}
		if active != 1 || enqueued != int64(len(want)) {
			t.Errorf("%d relays are active and %d rows were counted, want 1 and %d", active, enqueued, len(want))
		}
	})
}

// broken is a client that handles some calls differently.
type broken struct {
	outbox.Producer
	before func(items []pawl.Item) []pawl.Enqueued // the result, unless it is nil
	after  func(items []pawl.Item)
}

func (b *broken) EnqueueBatch(ctx context.Context, items []pawl.Item) ([]pawl.Enqueued, error) {
	if b.before != nil {
		if got := b.before(items); got != nil {
			return got, got[0].Err
		}
	}
	got, err := b.Producer.EnqueueBatch(ctx, items)
	if b.after != nil {
		b.after(items)
	}
	return got, err
}

// all returns the same result for each item.
func all(items []pawl.Item, err error) []pawl.Enqueued {
	out := make([]pawl.Enqueued, len(items))
	for i := range out {
		out[i].Err = err
	}
	return out
}

// A relay that dies after the enqueue and before the deletion does not cause a second task.
func TestRelayDiesBeforeDeletion(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		box := newBox(t, d, db)
		client := pawltest.New(t).Client(t)
		for i := range 20 {
			enqueue(t, box, db, receipt{fmt.Sprint(i)}, pawl.In(time.Hour))
		}
		ctx, die := context.WithCancel(t.Context())
		dying, err := outbox.NewRelayTo(box, &broken{Producer: client, after: func([]pawl.Item) { die() }},
			outbox.RelayConfig{Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		must(t, dying.Run(ctx))
		if n := rowsLeft(t, db); n != 20 {
			t.Fatalf("%d rows are left, want all 20, or the test proves nothing", n)
		}
		next, _ := startRelay(t, box, client, outbox.RelayConfig{})
		eventually(t, "all rows are enqueued, and counted", func() bool {
			return rowsLeft(t, db) == 0 && next.Stats().Enqueued+next.Stats().Repeated == 20
		})
		if s := next.Stats(); s.Enqueued != 0 || s.Repeated != 20 {
			t.Errorf("the second relay enqueued %d new tasks and repeated %d, want 0 and 20", s.Enqueued, s.Repeated)
		}
		q, err := admin.New(client).Queues().Get(t.Context(), "default")
		must(t, err)
		if q.Depth.Scheduled != 20 {
			t.Errorf("there are %d tasks, want 20", q.Depth.Scheduled)
		}
	})
}

// A relay that has lost its lease without noticing deletes nothing: its rows now belong to another relay.
func TestStaleRelayDeletesNothing(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		box := newBox(t, d, db)
		client := pawltest.New(t).Client(t)
		enqueue(t, box, db, receipt{"1"})
		// Pawl refuses this one.
		exec(t, db, "INSERT INTO pawl_outbox (id, queue, task) VALUES ('0198c5a3-7ac1-7000-8000-000000000001', 'q', '{\"typo\":1}')")
		ctx, die := context.WithCancel(t.Context())
		calls := 0
		stale, err := outbox.NewRelayTo(box, &broken{Producer: client, after: func([]pawl.Item) {
			if calls++; calls == 1 {
				exec(t, db, "UPDATE pawl_outbox_relay SET holder = 'another'")
			} else { // the rows are still there
				die()
			}
		}}, outbox.RelayConfig{Lease: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		must(t, stale.Run(ctx))
		if n, dead := rowsLeft(t, db), count(t, db, "SELECT count(*) FROM pawl_outbox_dead"); n != 2 || dead != 0 {
			t.Errorf("%d rows are left and %d are dead, want 2 and 0", n, dead)
		}
	})
}

// A relay that stops hands over immediately, and one that dies when its lease expires. A relay that runs keeps the lease beyond its length.
func TestRelayTakesOver(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		t.Parallel()
		box := newBox(t, d, db)
		client := pawltest.New(t).Client(t)
		const gone = "UPDATE pawl_outbox_relay SET holder = 'gone', expires_at = "
		began := time.Now() // before the statement, which may take long
		switch d {          // a relay died two seconds before its lease ends
		case outbox.Postgres:
			exec(t, db, gone+"clock_timestamp() + interval '2 seconds'")
		case outbox.MySQL:
			exec(t, db, gone+"UTC_TIMESTAMP(6) + INTERVAL 2 SECOND")
		default:
			exec(t, db, gone+"strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '2 seconds')")
		}
		first, stop := startRelay(t, box, client, outbox.RelayConfig{Lease: time.Second})
		eventually(t, "the first relay is active", func() bool { return first.Stats().Active })
		if took := time.Since(began); took < 1990*time.Millisecond {
			t.Errorf("the lease was taken over after %s, want 2 s", took)
		}
		for range 3 { // and renewed
			var was, is string
			const until = "SELECT expires_at FROM pawl_outbox_relay"
			must(t, db.QueryRowContext(t.Context(), until).Scan(&was))
			eventually(t, "the lease is renewed", func() bool {
				must(t, db.QueryRowContext(t.Context(), until).Scan(&is))
				return is > was
			})
		}
		exec(t, db, "UPDATE pawl_outbox_relay SET holder = 'another', expires_at = '2999-01-01'")
		eventually(t, "a relay without its lease is not active", func() bool { return !first.Stats().Active })
		stop()
		exec(t, db, "UPDATE pawl_outbox_relay SET expires_at = '1999-01-01'")
		second, stop := startRelay(t, box, client, outbox.RelayConfig{Lease: time.Hour})
		eventually(t, "the second relay is active", func() bool { return second.Stats().Active })
		third, _ := startRelay(t, box, client, outbox.RelayConfig{Lease: time.Hour})
		stop()
		eventually(t, "the third relay is active", func() bool { return third.Stats().Active })
		enqueue(t, box, db, receipt{"1"})
		eventually(t, "the row is enqueued", func() bool { return rowsLeft(t, db) == 0 })
	})
}

// If a request is refused as a whole, because an operator allows fewer tasks in one, its rows are not refused.
func TestRelayWithASmallerLimit(t *testing.T) {
	db := openDB(t, outbox.SQLite)
	box := newBox(t, outbox.SQLite, db)
	client := pawltest.New(t).Client(t)
	var want []string
	for i := range 50 {
		if i == 30 {
			enqueue(t, box, db, receipt{"bad"}, pawl.Timeout(-1), pawl.Key("k"))
		}
		enqueue(t, box, db, receipt{fmt.Sprint(i)}, pawl.Key("k"))
		want = append(want, fmt.Sprint(i))
	}
	r, _ := startRelay(t, box, &broken{Producer: client, before: func(items []pawl.Item) []pawl.Enqueued {
		if len(items) > 7 {
			message := fmt.Sprintf("tasks: %d tasks, 1 to 7 are allowed", len(items))
			return all(items, &pawltype.Error{Code: pawl.ErrInvalidArgument, Message: message})
		}
		return nil
	}}, outbox.RelayConfig{})
	eventually(t, "all rows are settled, and one is counted as dead", func() bool { return rowsLeft(t, db) == 0 && r.Stats().Dead == 1 })
	if got := orders(t, client, "default"); !slices.Equal(got, want) {
		t.Errorf("the tasks are %v, want all but the invalid one in order", got)
	}
}

// onError calls fn for each error that is logged.
type onError struct {
	slog.Handler
	fn func()
}

func (h onError) Enabled(_ context.Context, level slog.Level) bool { return level == slog.LevelError }

func (h onError) Handle(context.Context, slog.Record) error {
	h.fn()
	return nil
}

// Rows that Pawl refuses permanently are kept with the error, and don't delay the others.
func TestRelayKeepsRefusedRows(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		box := newBox(t, d, db)
		client := pawltest.New(t).Client(t)
		const insert = "INSERT INTO pawl_outbox (id, queue, task) VALUES ('0198c5a3-7ac1-7000-8000-00000000000"
		exec(t, db, insert+"1', 'mail', '{\"type\":\"a\",\"retries\":3}')")
		exec(t, db, insert+"2', 'no/queue\x01', '{\"type\":\"a\"}')")
		exec(t, db, insert+"3', 'mail', '{\"type\":\"a\",\"timeout\":\"-1s\"}')")
		enqueue(t, box, db, receipt{strings.Repeat("x", 2<<20)}, pawl.Queue("mail"))
		enqueue(t, box, db, receipt{"ok"}, pawl.Queue("mail"))
		var logged atomic.Int64
		r, _ := startRelay(t, box, client, outbox.RelayConfig{Logger: slog.New(onError{slog.DiscardHandler, func() {
			if n := logged.Add(1); int64(count(t, db, "SELECT count(*) FROM pawl_outbox_dead")) < n {
				t.Error("a row is logged as moved before it is")
			}
		}})})
		eventually(t, "all rows are settled", func() bool { return rowsLeft(t, db) == 0 && r.Stats().Dead == 4 && logged.Load() == 4 })
		if got := orders(t, client, "mail"); !slices.Equal(got, []string{"ok"}) {
			t.Errorf("the tasks are %v, want only the valid one", got)
		}
		rows, err := db.QueryContext(t.Context(), "SELECT error FROM pawl_outbox_dead ORDER BY seq")
		must(t, err)
		defer rows.Close()
		for _, want := range []string{"retries", "queue", "timeout", "payload_too_large"} {
			var text string
			if !rows.Next() {
				t.Fatalf("no dead row is left for the error %q", want)
			}
			must(t, rows.Scan(&text))
			if !strings.Contains(text, want) {
				t.Errorf("a dead row has the error %q, want it to contain %q", text, want)
			}
		}
		if n := count(t, db, "SELECT count(*) FROM pawl_outbox_dead"); n != 4 {
			t.Errorf("%d rows are dead, want 4", n)
		}
	})
}

// A full queue delays its own rows, in their order, and no others.
func TestRelayAndAFullQueue(t *testing.T) {
	db := openDB(t, outbox.SQLite)
	box := newBox(t, outbox.SQLite, db)
	client := pawltest.New(t).Client(t)
	queues := admin.New(client).Queues()
	_, err := queues.Put(t.Context(), "narrow", admin.QueueSettings{MaxLength: 10})
	must(t, err)
	var want []string
	for i := range 25 {
		enqueue(t, box, db, receipt{fmt.Sprint(i)}, pawl.Queue("narrow"), pawl.Key("k"))
		want = append(want, fmt.Sprint(i))
	}
	enqueue(t, box, db, receipt{"free"}, pawl.Queue("wide"))
	var log lockedBuffer
	startRelay(t, box, client, outbox.RelayConfig{Batch: 5, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	eventually(t, "the row behind them is enqueued", func() bool { return rowsLeft(t, db) == 15 })
	if text := log.String(); strings.Count(text, "rows of a queue are delayed") != 1 || !strings.Contains(text, "queue=narrow") ||
		strings.Contains(text, "rows can't be enqueued") {
		t.Errorf("the log has\n%s\nwant one line about queue narrow", text)
	}
	if got := orders(t, client, "wide"); !slices.Equal(got, []string{"free"}) {
		t.Errorf("the tasks of the other queue are %v", got)
	}
	var got []string
	eventually(t, "all rows are enqueued", func() bool {
		got = append(got, orders(t, client, "narrow")...)
		return len(got) == 25
	})
	if !slices.Equal(got, want) {
		t.Errorf("the tasks are %v, want %v", got, want)
	}
}

// While Pawl is unavailable, rows wait. When it is back they are enqueued in order, including those whose responses were lost.
func TestRelayWhilePawlIsAway(t *testing.T) {
	db := openDB(t, outbox.SQLite)
	box := newBox(t, outbox.SQLite, db)
	client := pawltest.New(t).Client(t)
	var away atomic.Bool
	away.Store(true)
	var calls atomic.Int64
	var log lockedBuffer
	r, _ := startRelay(t, box, &broken{Producer: client, before: func(items []pawl.Item) []pawl.Enqueued {
		n := calls.Add(1)
		if away.Load() && n%2 == 0 {
			return all(items, &pawltype.Error{Code: pawl.ErrUnavailable})
		}
		if away.Load() {
			return all(items, context.DeadlineExceeded)
		}
		if n%3 == 0 { // the task exists, but the response was lost
			_, err := client.EnqueueBatch(t.Context(), items)
			return all(items, errors.Join(context.DeadlineExceeded, err))
		}
		return nil
	}}, outbox.RelayConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	var want []string
	for i := range 30 {
		enqueue(t, box, db, receipt{fmt.Sprint(i)}, pawl.Key("k"))
		want = append(want, fmt.Sprint(i))
	}
	eventually(t, "Pawl was asked in vain", func() bool { return calls.Load() > 1 })
	if n := rowsLeft(t, db); n != 30 || r.Stats().Dead != 0 {
		t.Errorf("%d rows are left and %d are dead, want 30 and 0", n, r.Stats().Dead)
	}
	away.Store(false)
	eventually(t, "all rows are enqueued", func() bool { return rowsLeft(t, db) == 0 })
	if got := orders(t, client, "default"); !slices.Equal(got, want) {
		t.Errorf("the tasks are %v, want %v", got, want)
	}
	for line, want := range map[string]int{"rows can't be enqueued": 1, "rows can be enqueued again": 1, "rows of a queue are delayed": 0} {
		eventually(t, "logged: "+line, func() bool { return strings.Count(log.String(), line) >= want })
		if n := strings.Count(log.String(), line); n != want {
			t.Errorf("the log has %d lines with %q, want %d:\n%s", n, line, want, log.String())
		}
	}
}

// lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Nothing is sent after a request without a response.
func TestRelayKeepsTheOrderOfRequests(t *testing.T) {
	db := openDB(t, outbox.SQLite)
	box := newBox(t, outbox.SQLite, db)
	client := pawltest.New(t).Client(t)
	var want []string
	for range 5 {
		items := make([]pawl.Item, outbox.MaxItems)
		for i := range items {
			want = append(want, fmt.Sprint(len(want)))
			items[i] = pawl.Item{Args: receipt{want[len(want)-1]}, Options: []pawl.Option{pawl.Key("k")}}
		}
		inTx(t, db, func(tx *sql.Tx) {
			_, err := box.EnqueueMany(t.Context(), tx, items)
			must(t, err)
		})
	}
	var fulls atomic.Int64
	startRelay(t, box, &broken{Producer: client, before: func(items []pawl.Item) []pawl.Enqueued {
		if len(items) == 1000 && fulls.Add(1) == 1 {
			return all(items, &pawltype.Error{Code: pawl.ErrUnavailable})
		}
		return nil
	}}, outbox.RelayConfig{})
	eventually(t, "all rows are enqueued", func() bool { return rowsLeft(t, db) == 0 })
	if fulls.Load() < 2 {
		t.Fatalf("only %d requests were full, want 2, or the test proves nothing", fulls.Load())
	}
	if got := orders(t, client, "default"); !slices.Equal(got, want) {
		t.Errorf("the tasks are %v, want them in order", got)
	}
}

// PostgreSQL notifies the relay of committed rows, whoever wrote them. If a notification is lost, the relay finds the row by polling.
func TestRelayListens(t *testing.T) {
	dsn := testdb.Postgres(t)
	db, err := sql.Open("pgx", dsn)
	must(t, err)
	defer db.Close()
	box := newBox(t, outbox.Postgres, db)
	client := pawltest.New(t).Client(t)
	config, err := pgx.ParseConfig(dsn)
	must(t, err)
	heard := make(chan struct{}, 100)
	listen := func(ctx context.Context, wake func()) error {
		return pgxoutbox.Listen(config)(ctx, func() { wake(); heard <- struct{}{} })
	}
	r, stop := startRelay(t, box, client, outbox.RelayConfig{Listen: listen, Poll: time.Hour})
	<-heard
	eventually(t, "the relay is active", func() bool { return r.Stats().Active })
	for i := range 5 {
		enqueue(t, box, db, receipt{fmt.Sprint(i)})
		exec(t, db, `INSERT INTO pawl_outbox (task) VALUES ('{"type":"by hand","payload":{}}')`)
		eventually(t, "the rows are enqueued", func() bool { return rowsLeft(t, db) == 0 })
	}
	// The connection breaks. The relay finds rows that were written before it listens again.
	exec(t, db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
	enqueue(t, box, db, receipt{"6"})
	eventually(t, "the row is enqueued", func() bool { return rowsLeft(t, db) == 0 })
	stop()
	// No notifications.
	exec(t, db, "ALTER TABLE pawl_outbox DISABLE TRIGGER pawl_outbox_notify")
	startRelay(t, box, client, outbox.RelayConfig{Listen: listen, Poll: 100 * time.Millisecond})
	enqueue(t, box, db, receipt{"7"})
	eventually(t, "the row is enqueued", func() bool { return rowsLeft(t, db) == 0 })
}

// Frequent rows send no notifications, and are relayed all the same. When they stop, the next row sends a notification again.
func TestNotificationsPause(t *testing.T) {
	dsn := testdb.Postgres(t)
	db, err := sql.Open("pgx", dsn)
	must(t, err)
	defer db.Close()
	box := newBox(t, outbox.Postgres, db)
	client := pawltest.New(t).Client(t)
	config, err := pgx.ParseConfig(dsn)
	must(t, err)
	var heard atomic.Int64
	listen := func(ctx context.Context, wake func()) error {
		return pgxoutbox.Listen(config)(ctx, func() { wake(); heard.Add(1) })
	}
	on := func() bool { return count(t, db, "SELECT count(*) FROM pawl_outbox_relay WHERE notify") == 1 }
	exec(t, db, "UPDATE pawl_outbox_relay SET notify = false")
	late, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	_, err = box.Enqueue(t.Context(), late, receipt{"told by nobody"})
	must(t, err)

	_, stop := startRelay(t, box, client, outbox.RelayConfig{Listen: listen, Poll: time.Hour})
	eventually(t, "notifications are on", on)
	must(t, late.Commit())
	eventually(t, "the row of a transaction that began before is enqueued", func() bool { return rowsLeft(t, db) == 0 })

	var writers sync.WaitGroup
	var off atomic.Bool
	for range 4 {
		writers.Go(func() {
			for !off.Load() && t.Context().Err() == nil {
				enqueue(t, box, db, receipt{"often"})
			}
		})
	}
	eventually(t, "notifications are off", func() bool { return !on() })
	off.Store(true)
	writers.Wait()
	eventually(t, "all rows are enqueued, and notifications are on again", func() bool { return rowsLeft(t, db) == 0 && on() })
	before := heard.Load()
	enqueue(t, box, db, receipt{"alone"})
	eventually(t, "its notification is heard", func() bool { return heard.Load() > before })
	eventually(t, "the row is enqueued", func() bool { return rowsLeft(t, db) == 0 })
	stop()

	// A relay that does not listen needs no notifications.
	startRelay(t, box, client, outbox.RelayConfig{})
	eventually(t, "notifications are off", func() bool { return !on() })
}

// The trigger obeys the setting in the relay's row, also for a role that may only insert.
func TestNotificationsOfARoleThatInserts(t *testing.T) {
	dsn := testdb.Postgres(t)
	db, err := sql.Open("pgx", dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	newBox(t, outbox.Postgres, db)
	role := fmt.Sprintf("inserts_%016x", rand.Uint64())
	exec(t, db, "CREATE ROLE "+role)
	exec(t, db, "GRANT INSERT ON pawl_outbox TO "+role)
	defer func() { exec(t, db, "DROP OWNED BY "+role); exec(t, db, "DROP ROLE "+role) }()
	listener, err := pgx.Connect(t.Context(), dsn)
	must(t, err)
	defer listener.Close(context.Background())
	_, err = listener.Exec(t.Context(), "LISTEN pawl_outbox")
	must(t, err)
	for i, notify := range []bool{true, false, true} {
		exec(t, db, "UPDATE pawl_outbox_relay SET notify = $1", notify)
		inTx(t, db, func(tx *sql.Tx) {
			for _, query := range []string{"SET LOCAL ROLE " + role,
				`INSERT INTO pawl_outbox (task) VALUES ('{"type":"by hand","payload":{}}')`} {
				_, err := tx.ExecContext(t.Context(), query)
				must(t, err)
			}
		})
		exec(t, db, "SELECT pg_notify('pawl_outbox', 'end')") // notifications arrive in the order of commits
		var got []string
		for !slices.Contains(got, "end") {
			n, err := listener.WaitForNotification(t.Context())
			must(t, err)
			got = append(got, n.Payload)
		}
		if sent := len(got) == 2; sent != notify {
			t.Errorf("insert %d: got the notifications %q, with notify %t", i, got, notify)
		}
	}
}

// Wake is for databases that don't send notifications.
func TestRelayWake(t *testing.T) {
	db := openDB(t, outbox.SQLite)
	box := newBox(t, outbox.SQLite, db)
	looked := make(chan struct{}, 100)
	// A listener that sends nothing keeps the relay from polling.
	silent := func(ctx context.Context, wake func()) error { wake(); looked <- struct{}{}; <-ctx.Done(); return nil }
	r, _ := startRelay(t, box, pawltest.New(t).Client(t), outbox.RelayConfig{Listen: silent, Poll: time.Hour})
	<-looked
	for i := range 3 {
		enqueue(t, box, db, receipt{fmt.Sprint(i)})
		r.Wake()
		eventually(t, "the row is enqueued", func() bool { return rowsLeft(t, db) == 0 })
	}
}

// A relay whose listener has failed polls.
func TestRelayWithoutItsListener(t *testing.T) {
	db := openDB(t, outbox.SQLite)
	box := newBox(t, outbox.SQLite, db)
	var calls atomic.Int64
	fails := func(ctx context.Context, wake func()) error {
		if calls.Add(1) > 1 {
			<-ctx.Done()
			return nil
		}
		wake()
		return errors.New("connection lost")
	}
	r, _ := startRelay(t, box, pawltest.New(t).Client(t), outbox.RelayConfig{Listen: fails, Poll: time.Hour})
	eventually(t, "it listens again, in vain", func() bool { return r.Stats().Active && calls.Load() == 2 })
	enqueue(t, box, db, receipt{"1"})
	eventually(t, "the row is enqueued", func() bool { return rowsLeft(t, db) == 0 })
}

// A delay and an expiry count from the transaction, not from the relay.
func TestDelaysCountFromTransaction(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		box := newBox(t, d, db)
		client := pawltest.New(t).Client(t)
		enqueue(t, box, db, receipt{"late"}, pawl.In(time.Hour))
		enqueue(t, box, db, receipt{"waits"}, pawl.In(3*time.Hour))
		enqueue(t, box, db, receipt{"expired"}, pawl.ExpiresIn(time.Hour), pawl.Queue("expires"))
		enqueue(t, box, db, receipt{"lives"}, pawl.ExpiresIn(3*time.Hour), pawl.Queue("expires"))
		switch d {
		case outbox.Postgres:
			exec(t, db, "UPDATE pawl_outbox SET created_at = created_at - interval '2 hours'")
		case outbox.MySQL:
			exec(t, db, "UPDATE pawl_outbox SET created_at = created_at - INTERVAL 2 HOUR")
		default:
			exec(t, db, "UPDATE pawl_outbox SET created_at = strftime('%Y-%m-%dT%H:%M:%fZ', created_at, '-2 hours')")
		}
		startRelay(t, box, client, outbox.RelayConfig{})
		eventually(t, "all rows are enqueued", func() bool { return rowsLeft(t, db) == 0 })
		if got := orders(t, client, "default"); !slices.Equal(got, []string{"late"}) {
			t.Errorf("the tasks that are due are %v, want only the one whose delay has passed", got)
		}
		eventually(t, "one task is left of those that expire", func() bool {
			q, err := admin.New(client).Queues().Get(t.Context(), "expires")
			must(t, err)
			return q.Depth.Ready == 1
		})
		if got := orders(t, client, "expires"); !slices.Equal(got, []string{"lives"}) {
			t.Errorf("the tasks that have not expired are %v, want only the one with the later expiry", got)
		}
	})
}

// Rows are limited by bytes, not by number.
func TestRelayOfLargeRows(t *testing.T) {
	db := openDB(t, outbox.SQLite)
	box := newBox(t, outbox.SQLite, db)
	client := pawltest.New(t).Client(t)
	const n = 40
	large := strings.Repeat("x", 900<<10)
	inTx(t, db, func(tx *sql.Tx) {
		for range n {
			_, err := box.Enqueue(t.Context(), tx, receipt{large})
			must(t, err)
		}
	})
	reads, err := outbox.Reads(t.Context(), box, client, 3)
	must(t, err)
	if !slices.Equal(reads, []int{10, 10, 10}) {
		t.Errorf("reads have %v rows of 900 KiB, want 10 in each (8 MiB)", reads)
	}
	var most atomic.Int64
	r, _ := startRelay(t, box, &broken{Producer: client, after: func(items []pawl.Item) {
		most.Store(max(most.Load(), int64(len(items))))
	}}, outbox.RelayConfig{})
	eventually(t, "all rows are enqueued", func() bool { return r.Stats().Enqueued == n })
	if most.Load() != 3 {
		t.Errorf("the largest request had %d tasks of 900 KiB, want 3", most.Load())
	}
}

func TestRelayConfig(t *testing.T) {
	for _, c := range []struct {
		cfg  outbox.RelayConfig
		want string
	}{
		{outbox.RelayConfig{Poll: time.Millisecond}, "Poll: 1ms is not between 10ms and 1h"},
		{outbox.RelayConfig{Poll: 2 * time.Hour}, "Poll: "},
		{outbox.RelayConfig{Lease: time.Millisecond}, "Lease: 1ms is not between 1s and 1h"},
		{outbox.RelayConfig{Lease: 2 * time.Hour}, "Lease: "},
		{outbox.RelayConfig{Batch: -1}, "Batch: -1 is not between 1 and 10000"},
		{outbox.RelayConfig{Batch: 10_001}, "Batch: "},
	} {
		if _, err := outbox.NewRelay(nil, nil, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
}
