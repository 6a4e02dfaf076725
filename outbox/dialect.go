package outbox

import (
	"fmt"
	"strconv"
	"strings"
)

// Dialect is the SQL of a database.
type Dialect string

// The databases that can hold an outbox.
const (
	Postgres Dialect = "postgres" // PostgreSQL 13 or later
	MySQL    Dialect = "mysql"    // MySQL 8.0.13 or later, MariaDB 10.5 or later
	SQLite   Dialect = "sqlite"   // 3.35 or later
)

// ParseDialect reads the name of a dialect.
func ParseDialect(name string) (Dialect, error) {
	if _, ok := dialects[Dialect(name)]; !ok {
		return "", fmt.Errorf("outbox: dialect %q is not %s, %s or %s", name, Postgres, MySQL, SQLite)
	}
	return Dialect(name), nil
}

// words are the parts of statements in which the dialects differ.
type words struct {
	now    string // the time, of the type of the columns that end with _at
	later  string // that many seconds later: takes a parameter
	waited string // for how many microseconds a row has waited
	id     string // the column id as text
	task   string // the column task as text
	ignore string // makes an insert into pawl_effect leave a row that is there
	lock   string // makes a select read what is committed, and lock it
}

// Read only.
var dialects = map[Dialect]words{
	Postgres: {
		now:    "clock_timestamp()",
		later:  "clock_timestamp() + make_interval(secs => ?)",
		waited: "(extract(epoch FROM clock_timestamp() - created_at) * 1000000)::bigint",
		id:     "id::text",
		task:   "task::text",
		ignore: "ON CONFLICT (task_id, name) DO NOTHING",
		lock:   " FOR UPDATE",
	},
	MySQL: {
		now:    "UTC_TIMESTAMP(6)",
		later:  "UTC_TIMESTAMP(6) + INTERVAL ? SECOND",
		waited: "TIMESTAMPDIFF(MICROSECOND, created_at, UTC_TIMESTAMP(6))",
		id:     "id",
		task:   "task",
		ignore: "ON DUPLICATE KEY UPDATE task_id = task_id",
		lock:   " FOR UPDATE",
	},
	SQLite: {
		now:   "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')",
		later: "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ? || ' seconds')",
		// Times are rounded to milliseconds: one less, so that no task is early.
		waited: "CAST((julianday('now') - julianday(created_at)) * 86400000000 AS INTEGER) - 1000",
		id:     "id",
		task:   "task",
		ignore: "ON CONFLICT (task_id, name) DO NOTHING",
	},
}

// bind puts the dialect's placeholders in place of question marks. No statement of this package has one in a text.
func (d Dialect) bind(query string) string {
	if d != Postgres {
		return query
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, more := strings.Cut(query, "?")
		b.WriteString(before)
		if !more {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		query = after
	}
}
