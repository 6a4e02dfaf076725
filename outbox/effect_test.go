package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/testdb"
	"github.com/pawlq/pawl/outbox"
	"github.com/pawlq/pawl/outbox/pgxoutbox"
	"github.com/pawlq/pawl/pawltest"
	"github.com/pawlq/pawl/pawltype"
)

// claimOf returns the claim of a run of a task.
func claimOf(id string, fence int64) *pawl.Claim { return &pawl.Claim{ID: id, Fence: fence} }

// book runs an effect that writes a row.
func book(t testing.TB, box *outbox.Outbox, tx *sql.Tx, c *pawl.Claim, result string) (string, error) {
	return outbox.Effect(t.Context(), box, tx, c, "book", func(ctx context.Context) (string, error) {
		_, err := tx.ExecContext(ctx, "INSERT INTO books VALUES ('"+c.ID+"')")
		return result, err
	})
}

func newBooks(t testing.TB, d outbox.Dialect, db *sql.DB) *outbox.Outbox {
	box := newBox(t, d, db)
	exec(t, db, "CREATE TABLE books (id varchar(40))")
	return box
}

// An effect happens once, in whatever run. If it was rolled back it did not happen, later runs get its result, and
// earlier ones are refused.
func TestEffect(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		box := newBooks(t, d, db)
		for _, step := range []struct {
			what       string
			fence      int64
			end        func(*sql.Tx) error
			want       string
			stale      bool
			wantBooked int
		}{
			{"it is rolled back", 2, (*sql.Tx).Rollback, "fence 2", false, 0},
			{"it is committed", 3, (*sql.Tx).Commit, "fence 3", false, 1},
			{"a later run", 5, (*sql.Tx).Commit, "fence 3", false, 1},
			{"the same run again", 3, (*sql.Tx).Commit, "fence 3", false, 1},
			{"an earlier run", 2, (*sql.Tx).Rollback, "", true, 1},
			{"a run after a restore", 1767225600<<20 + 1, (*sql.Tx).Commit, "fence 3", false, 1},
		} {
			tx, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			got, err := book(t, box, tx, claimOf("a", step.fence), fmt.Sprintf("fence %d", step.fence))
			if got != step.want || errors.Is(err, outbox.ErrStaleEffect) != step.stale || (err != nil) != step.stale {
				t.Errorf("%s: the result is %q, %v, want %q, stale %v", step.what, got, err, step.want, step.stale)
			}
			must(t, step.end(tx))
			if n := count(t, db, "SELECT count(*) FROM books"); n != step.wantBooked {
				t.Errorf("%s: the effect happened %d times, want %d", step.what, n, step.wantBooked)
			}
		}
		inTx(t, db, func(tx *sql.Tx) { // other tasks and other effects
			_, err := book(t, box, tx, claimOf("b", 1), "")
			must(t, err)
			ran := 0
			for range 2 { // the second finds the record that the transaction has not committed yet
				must(t, box.Effect(t.Context(), tx, claimOf("a", 5), "other", func(context.Context) error { ran++; return nil }))
			}
			if ran != 1 {
				t.Errorf("another effect ran %d times, want once", ran)
			}
		})
		if n := count(t, db, "SELECT count(*) FROM books"); n != 2 {
			t.Errorf("the effect happened %d times for two tasks, want 2", n)
		}
	})
}

// Two concurrent runs of each task have one effect.
func TestEffectsAtOnce(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		box := newBooks(t, d, db)
		const tasks = 30
		var both sync.WaitGroup
		for fence := range int64(2) {
			both.Go(func() {
				for i := range tasks {
					for tries := 0; ; tries++ {
						tx, err := db.BeginTx(t.Context(), nil)
						if err == nil {
							_, err = book(t, box, tx, claimOf(fmt.Sprint(i), fence), "")
						}
						if err == nil {
							err = tx.Commit()
						}
						if err == nil || errors.Is(err, outbox.ErrStaleEffect) {
							_ = tx.Rollback()
							break
						}
						_ = tx.Rollback() // such as a deadlock: the task would be retried
						if tries == 100 {
							t.Errorf("task %d, fence %d: %v", i, fence, err)
							return
						}
					}
				}
			})
		}
		both.Wait()
		if n, single := count(t, db, "SELECT count(*) FROM books"), count(t, db, "SELECT count(DISTINCT id) FROM books"); n != tasks ||
			single != tasks {
			t.Errorf("got %d effects of %d tasks, want %d of %d", n, single, tasks, tasks)
		}
	})
}

// A transaction that started before the other run committed still sees its effect.
func TestEffectSeesCommittedRun(t *testing.T) {
	for _, d := range []outbox.Dialect{outbox.Postgres, outbox.MySQL} { // SQLite allows only one writer at a time
		t.Run(string(d), func(t *testing.T) {
			db := openDB(t, d)
			box := newBooks(t, d, db)
			old, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			defer func() { _ = old.Rollback() }()
			var n int
			must(t, old.QueryRowContext(t.Context(), "SELECT count(*) FROM books").Scan(&n)) // takes the snapshot
			inTx(t, db, func(tx *sql.Tx) {
				_, err := book(t, box, tx, claimOf("a", 1), "first")
				must(t, err)
			})
			got, err := book(t, box, old, claimOf("a", 2), "second")
			if got != "first" || err != nil {
				t.Errorf("the result is %q, %v, want that of the first run", got, err)
			}
		})
	}
}

// An effect that fails did not happen, whatever happens to the transaction.
func TestEffectFails(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		box := newBooks(t, d, db)
		bad := errors.New("bad")
		inTx(t, db, func(tx *sql.Tx) {
			if err := box.Effect(t.Context(), tx, claimOf("a", 1), "book", func(context.Context) error { return bad }); !errors.Is(err,
				bad) {
				t.Errorf("a failing effect returned %v, want its error", err)
			}
			large := func(context.Context) (string, error) { return strings.Repeat("x", 64<<10), nil }
			if _, err := outbox.Effect(t.Context(), box, tx, claimOf("a", 1), "book", large); !errors.Is(err, pawl.ErrInvalidArgument) {
				t.Errorf("a result of more than 64 KiB: %v, want ErrInvalidArgument", err)
			}
			for _, name := range []string{"", strings.Repeat("x", 257), "\xff", "a\x00"} {
				if err := box.Effect(t.Context(), tx, claimOf("a", 1), name, nil); !errors.Is(err, pawl.ErrInvalidArgument) {
					t.Errorf("name %q: %v, want ErrInvalidArgument", name, err)
				}
			}
		})
		inTx(t, db, func(tx *sql.Tx) {
			if got, err := book(t, box, tx, claimOf("a", 2), "second"); got != "second" || err != nil {
				t.Errorf("the result is %q, %v, want that of the second run", got, err)
			}
			type before struct{ Receipt, Account string }
			type after struct{ Receipt string }
			_, err := outbox.Effect(t.Context(), box, tx, claimOf("a", 3), "charge", func(context.Context) (before, error) {
				return before{}, nil
			})
			must(t, err)
			for _, name := range []string{"book", "charge"} { // a string, and a field that the new type lacks
				_, err := outbox.Effect(t.Context(), box, tx, claimOf("a", 4), name, func(context.Context) (after, error) {
					return after{}, nil
				})
				if err == nil || !strings.Contains(err.Error(), "doesn't fit") {
					t.Errorf("decoding a result into another type: %v, want an error", err)
				}
			}
		})
	})
}

func TestEffectWithPgx(t *testing.T) {
	dsn := testdb.Postgres(t)
	db, err := sql.Open("pgx", dsn)
	must(t, err)
	defer db.Close()
	box := newBooks(t, outbox.Postgres, db)
	conn, err := pgx.Connect(t.Context(), dsn)
	must(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	for range 2 {
		tx, err := conn.Begin(t.Context())
		must(t, err)
		got, err := outbox.Effect(t.Context(), box, pgxoutbox.Tx(tx), claimOf("a", 1), "book", func(ctx context.Context) (int, error) {
			_, err := tx.Exec(ctx, "INSERT INTO books VALUES ('a')")
			return 7, err
		})
		if got != 7 || err != nil {
			t.Errorf("the result is %d, %v, want 7", got, err)
		}
		must(t, tx.Commit(t.Context()))
	}
	if n := count(t, db, "SELECT count(*) FROM books"); n != 1 {
		t.Errorf("the effect happened %d times, want once", n)
	}
}

// Only rows of effects whose retention has passed are deleted.
func TestEffectsExpire(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		box := newBooks(t, d, db)
		brief, err := box.WithEffectRetention(time.Minute)
		must(t, err)
		for _, bad := range []time.Duration{time.Second, 100 * 365 * 24 * time.Hour} {
			if _, err := box.WithEffectRetention(bad); !errors.Is(err, pawl.ErrInvalidArgument) {
				t.Errorf("a retention of %s: %v, want ErrInvalidArgument", bad, err)
			}
		}
		inTx(t, db, func(tx *sql.Tx) {
			_, err := book(t, box, tx, claimOf("a", 1), "")
			must(t, err)
			for i := range 2500 { // three steps
				must(t, brief.Effect(t.Context(), tx, claimOf(fmt.Sprint(i), 1), "brief", func(context.Context) error { return nil }))
			}
		})
		n, err := box.DeleteExpired(t.Context())
		if n != 0 || err != nil {
			t.Errorf("DeleteExpired deleted %d rows immediately, %v, want 0", n, err)
		}
		switch d { // two minutes pass
		case outbox.Postgres:
			exec(t, db, "UPDATE pawl_effect SET keep_until = keep_until - interval '2 minutes'")
		case outbox.MySQL:
			exec(t, db, "UPDATE pawl_effect SET keep_until = keep_until - INTERVAL 2 MINUTE")
		default:
			exec(t, db, "UPDATE pawl_effect SET keep_until = strftime('%Y-%m-%dT%H:%M:%fZ', keep_until, '-2 minutes')")
		}
		startRelay(t, box, pawltest.New(t).Client(t), outbox.RelayConfig{})
		eventually(t, "the rows are deleted", func() bool { return count(t, db, "SELECT count(*) FROM pawl_effect") == 1 })
		if name := count(t, db, "SELECT count(*) FROM pawl_effect WHERE name = 'book'"); name != 1 {
			t.Error("the remaining row is not that of the effect with the long retention")
		}
	})
}

// A handler's effect and next task share a transaction. The handler fails after the commit and runs again, and there is one of each.
func TestEffectAndNextTask(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		box := newBooks(t, d, db)
		runs := 0
		mux := pawl.NewMux()
		pawl.Handle(mux, func(ctx context.Context, task *pawl.Task[receipt]) error {
			runs++
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			err = box.Effect(ctx, tx, task.Claim, "book", func(ctx context.Context) error {
				if _, err := tx.ExecContext(ctx, "INSERT INTO books VALUES ('a')"); err != nil {
					return err
				}
				_, err := box.Enqueue(ctx, tx, receipt{"next"})
				return err
			})
			if err != nil {
				return err
			}
			if err := tx.Commit(); err != nil || runs > 1 {
				return err
			}
			return errors.New("it died")
		})
		b := pawltest.New(t)
		first := b.Run(t, mux, receipt{"7"})
		second := b.RunAgain(t, mux, first)
		if runs != 2 || second.State != pawltype.StateSucceeded {
			t.Fatalf("%d runs, and the task is %s, want 2 and succeeded", runs, second.State)
		}
		if books, rows := count(t, db, "SELECT count(*) FROM books"), rowsLeft(t, db); books != 1 || rows != 1 {
			t.Errorf("there are %d effects and %d next tasks, want 1 of each", books, rows)
		}
	})
}
