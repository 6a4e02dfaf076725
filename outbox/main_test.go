package outbox_test

import (
	"database/sql"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/pawlq/pawl/internal/testdb"
	"github.com/pawlq/pawl/outbox"
)

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }

// everyDialect runs a test with an empty database of each kind.
func everyDialect(t *testing.T, fn func(t *testing.T, d outbox.Dialect, db *sql.DB)) {
	for _, d := range []outbox.Dialect{outbox.SQLite, outbox.Postgres, outbox.MySQL} {
		t.Run(string(d), func(t *testing.T) { fn(t, d, openDB(t, d)) })
	}
}

func openDB(t testing.TB, d outbox.Dialect) *sql.DB {
	t.Helper()
	var driver, dsn string
	switch d {
	case outbox.Postgres:
		driver, dsn = "pgx", testdb.Postgres(t)
	case outbox.MySQL:
		driver, dsn = "mysql", testdb.MariaDB(t)+"?multiStatements=true"
	default:
		if driver = "sqlite"; !slices.Contains(sql.Drivers(), driver) {
			t.Skip("SQLite is not linked into builds with the race detector")
		}
		dsn = fmt.Sprintf("file:%s/db?_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)&_txlock=immediate", t.TempDir())
	}
	db, err := sql.Open(driver, dsn)
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

// newBox creates the tables.
func newBox(t testing.TB, d outbox.Dialect, db *sql.DB) *outbox.Outbox {
	t.Helper()
	statements, err := outbox.Schema(d)
	must(t, err)
	exec(t, db, statements)
	box, err := outbox.Open(t.Context(), db, d)
	must(t, err)
	return box
}

func exec(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// count returns the number that a query returns.
func count(t testing.TB, db *sql.DB, query string) (n int) {
	t.Helper()
	must(t, db.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

func inTx(t testing.TB, db *sql.DB, fn func(tx *sql.Tx)) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	fn(tx)
	must(t, tx.Commit())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
