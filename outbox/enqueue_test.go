package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/testdb"
	"github.com/pawlq/pawl/outbox"
	"github.com/pawlq/pawl/outbox/pgxoutbox"
)

type receipt struct {
	Order string `json:"order"`
}

func (receipt) TaskType() string { return "receipt" }

// A task exists once its transaction commits, like the application's row, and never exists if it is rolled back.
func TestEnqueueInTransaction(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		box := newBox(t, d, db)
		exec(t, db, "CREATE TABLE orders (id varchar(10))")
		for _, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
			tx, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			_, err = tx.ExecContext(t.Context(), "INSERT INTO orders VALUES ('7')")
			must(t, err)
			id, err := box.Enqueue(t.Context(), tx, receipt{"7"}, pawl.Queue("mail"))
			must(t, err)
			if u, err := uuid.Parse(id); err != nil || u.Version() != 7 {
				t.Errorf("the id is %q, want a UUIDv7", id)
			}
			must(t, end(tx))
			if orders, rows := count(t, db, "SELECT count(*) FROM orders"), count(t, db, "SELECT count(*) FROM pawl_outbox"); orders != 1 ||
				rows != 1 {
				t.Errorf("there are %d orders and %d rows, want 1 of each: the second transaction was rolled back", orders, rows)
			}
		}
		var queue, task string
		must(t, db.QueryRowContext(t.Context(), "SELECT queue, task FROM pawl_outbox").Scan(&queue, &task))
		if want := `{"type":"receipt","payload":{"order":"7"}}`; queue != "mail" || task != want {
			t.Errorf("the row has queue %q and task %s, want mail and %s", queue, task, want)
		}
	})
}

func TestEnqueueMany(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		box := newBox(t, d, db)
		items := make([]pawl.Item, outbox.MaxItems)
		for i := range items {
			items[i] = pawl.Item{Args: receipt{strings.Repeat("x", 9000)}} // 9 MB: three statements
		}
		inTx(t, db, func(tx *sql.Tx) {
			counting := &countingTx{Tx: tx}
			ids, err := box.EnqueueMany(t.Context(), counting, items)
			must(t, err)
			if counting.statements != 3 {
				t.Errorf("9 MB took %d statements, want 3", counting.statements)
			}
			if len(ids) != len(items) {
				t.Errorf("enqueuing %d tasks returned %d ids", len(items), len(ids))
			}
		})
		if n := count(t, db, "SELECT count(DISTINCT id) FROM pawl_outbox"); n != len(items) {
			t.Errorf("there are %d rows, want %d", n, len(items))
		}
		// With one invalid item, or one too many, none is written, and the transaction can continue.
		inTx(t, db, func(tx *sql.Tx) {
			bad := append(items[:2:2], pawl.Item{Args: receipt{}, Options: []pawl.Option{pawl.Priority("urgent")}})
			if _, err := box.EnqueueMany(t.Context(), tx, bad); !errors.Is(err, pawl.ErrInvalidArgument) ||
				!strings.Contains(err.Error(), "item 2") {
				t.Errorf("enqueuing an invalid task: %v, want an error about item 2", err)
			}
			if _, err := box.EnqueueMany(t.Context(), tx, append(items, items[0])); !errors.Is(err, pawl.ErrInvalidArgument) {
				t.Errorf("enqueuing 1,001 tasks: %v, want ErrInvalidArgument", err)
			}
			_, err := box.EnqueueMany(t.Context(), tx, nil)
			must(t, err)
		})
		if n := count(t, db, "SELECT count(*) FROM pawl_outbox"); n != len(items) {
			t.Errorf("the refused calls left %d rows", n-len(items))
		}
		inTx(t, db, func(tx *sql.Tx) {
			_, err := box.EnqueueMany(t.Context(), tx, items[:1])
			must(t, err)
		})
		if n := count(t, db, "SELECT count(*) FROM pawl_outbox"); n != len(items)+1 {
			t.Errorf("enqueuing a single task left %d rows, want %d", n, len(items)+1)
		}
	})
}

type countingTx struct {
	outbox.Tx
	statements int
}

func (c *countingTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	c.statements++
	return c.Tx.ExecContext(ctx, query, args...)
}

// The trace context of the transaction is passed on to the task.
func TestEnqueueKeepsTheTrace(t *testing.T) {
	db := openDB(t, outbox.SQLite)
	box := newBox(t, outbox.SQLite, db)
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
		TraceFlags: trace.FlagsSampled})
	inTx(t, db, func(tx *sql.Tx) {
		_, err := box.Enqueue(trace.ContextWithSpanContext(t.Context(), span), tx, receipt{"7"})
		must(t, err)
	})
	var task string
	must(t, db.QueryRowContext(t.Context(), "SELECT task FROM pawl_outbox").Scan(&task))
	if want := `"headers":{"traceparent":"00-01000000000000000000000000000000-0200000000000000-01"}`; !strings.Contains(task, want) {
		t.Errorf("the row is %s, want it to contain %s", task, want)
	}
}

// A task that is refused before it is written leaves the transaction intact. In PostgreSQL, a statement that fails aborts it.
func TestEnqueueRefuses(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		box := newBox(t, d, db)
		inTx(t, db, func(tx *sql.Tx) {
			for _, c := range []struct {
				args pawl.Args
				opt  pawl.Option
				want string
			}{
				{pawl.RawTask{}, pawl.Queue("q"), "type: is empty"},
				{pawl.RawTask{Type: "a", Payload: []byte(`{`)}, pawl.Queue("q"), "payload: is not JSON"},
				{receipt{}, pawl.RequestID("7"), `request_id: "7" is not a UUID`},
				{receipt{}, pawl.Queue(strings.Repeat("q", 257)), "queue: "},
				{receipt{}, pawl.Queue("a\x00b"), "queue: "},
				{receipt{}, pawl.Key("\xff"), "key: "},
				{receipt{}, pawl.Then(pawl.RawTask{Type: "b", Payload: []byte("{")}), "then[0].payload: is not JSON"},
			} {
				_, err := box.Enqueue(t.Context(), tx, c.args, c.opt)
				if !errors.Is(err, pawl.ErrInvalidArgument) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%+v: %v, want %q", c.args, err, c.want)
				}
			}
			_, err := box.Enqueue(t.Context(), tx, receipt{}, pawl.Queue(strings.Repeat("q", 256)))
			must(t, err)
		})
	})
}

func TestOpenChecksTheSchema(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		wants := func(text string) {
			t.Helper()
			if _, err := outbox.Open(t.Context(), db, d); !errors.Is(err, outbox.ErrSchema) || !strings.Contains(err.Error(), text) {
				t.Errorf("Open returned %v, want an error with %q", err, text)
			}
		}
		wants("run what \"pawl-outbox schema --dialect " + string(d) + "\" prints")
		newBox(t, d, db)
		exec(t, db, "UPDATE pawl_outbox_schema SET version = 2")
		wants("schema version 2, this program supports 1: run a newer version")
		exec(t, db, "UPDATE pawl_outbox_schema SET version = 0")
		wants("schema version 0, this program needs 1; run what \"pawl-outbox schema --dialect " + string(d) + " --from 0\"")
		exec(t, db, "DELETE FROM pawl_outbox_schema")
		wants("pawl-outbox schema")
	})
	if _, err := outbox.Open(t.Context(), nil, "oracle"); err == nil || !strings.Contains(err.Error(),
		`dialect "oracle" is not postgres, mysql or sqlite`) {
		t.Error(err)
	}
}

func TestUpgrade(t *testing.T) {
	for _, d := range []outbox.Dialect{outbox.SQLite, outbox.Postgres, outbox.MySQL} {
		if s, err := outbox.Upgrade(d, outbox.SchemaVersion); s != "" || err != nil {
			t.Errorf("%s: upgrading from the current version: %q, %v", d, s, err)
		}
		for _, from := range []int{-1, outbox.SchemaVersion + 1} {
			if _, err := outbox.Upgrade(d, from); err == nil {
				t.Errorf("%s: upgrading from version %d returned no error", d, from)
			}
		}
	}
	if _, err := outbox.Schema("oracle"); err == nil {
		t.Error("Schema returned tables for an unknown dialect")
	}
}

// The error of a read-only transaction is returned.
func TestEnqueueReadOnly(t *testing.T) {
	db := openDB(t, outbox.Postgres)
	box := newBox(t, outbox.Postgres, db)
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	if _, err := box.Enqueue(t.Context(), tx, receipt{}); err == nil || !strings.Contains(err.Error(), "pawl_outbox") ||
		!strings.Contains(err.Error(), "read-only") {
		t.Errorf("enqueuing in a read-only transaction: %v", err)
	}
}

func TestEnqueueWithPgx(t *testing.T) {
	dsn := testdb.Postgres(t)
	db, err := sql.Open("pgx", dsn)
	must(t, err)
	defer db.Close()
	box := newBox(t, outbox.Postgres, db)
	conn, err := pgx.Connect(t.Context(), dsn)
	must(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, end := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { return tx.Commit(t.Context()) }, func(tx pgx.Tx) error { return tx.Rollback(t.Context()) },
	} {
		tx, err := conn.Begin(t.Context())
		must(t, err)
		_, err = box.Enqueue(t.Context(), pgxoutbox.Tx(tx), receipt{"7"}, pawl.In(time.Minute))
		must(t, err)
		must(t, end(tx))
		if n := count(t, db, "SELECT count(*) FROM pawl_outbox"); n != 1 {
			t.Errorf("there are %d rows, want 1", n)
		}
	}
}

// A row that a program inserts in SQL needs no id in PostgreSQL, since it gets a UUIDv7.
func TestDefaultIDIsVersion7(t *testing.T) {
	db := openDB(t, outbox.Postgres)
	newBox(t, outbox.Postgres, db)
	before := time.Now().Add(-time.Minute).UnixMilli()
	exec(t, db, `INSERT INTO pawl_outbox (task) VALUES ('{"type":"a"}')`)
	var text string
	must(t, db.QueryRowContext(t.Context(), "SELECT id::text FROM pawl_outbox").Scan(&text))
	id := uuid.MustParse(text)
	seconds, nanos := id.Time().UnixTime()
	if at := time.Unix(seconds, nanos).UnixMilli(); id.Version() != 7 || id.Variant() != uuid.RFC4122 || at < before ||
		at > before+120_000 {
		t.Errorf("the default id %s has version %d, variant %s and time %d, want a current UUIDv7", id, id.Version(), id.Variant(), at)
	}
}
