package outbox

import (
	"fmt"
	"strconv"
	"strings"
)

// Dialect is the SQL of a database.
type Dialect string

// Databases that can hold an outbox.
const (
	Postgres Dialect = "postgres" // PostgreSQL 13 or later
	MySQL    Dialect = "mysql"    // MySQL 8.0.13 or later, MariaDB 10.5 or later
	SQLite   Dialect = "sqlite"   // 3.35 or later
)

// ParseDialect parses the name of a dialect.
func ParseDialect(name string) (Dialect, error) {
	if _, ok := dialects[Dialect(name)]; !ok {
		return "", fmt.Errorf("outbox: dialect %q is not %s, %s or %s", name, Postgres, MySQL, SQLite)
	}
	return Dialect(name), nil
}

// words are the parts of statements that differ between dialects.
type words struct {
	now    string // the time, in the type of the columns ending in _at
	later  string // that time plus a number of seconds, its parameter
	waited string // how many microseconds a row has waited
	id     string // the column id as text
	task   string // the column task as text
	ignore string // makes an insert into pawl_effect leave an existing row
	lock   string // makes a select read committed data, and lock it
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
		// Times are rounded to milliseconds: one is subtracted, so that no task is early.
		// A time that can't be read, in a row that another program wrote, is now: a read must not fail because of one row.
		waited: "CAST((julianday('now') - coalesce(julianday(created_at), julianday('now'))) * 86400000000 AS INTEGER) - 1000",
		id:     "id",
		task:   "task",
		ignore: "ON CONFLICT (task_id, name) DO NOTHING",
	},
}

// bind replaces question marks by the dialect's placeholders. No statement of this package has one in a string.
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
