package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
)

// maxDeadShown bounds the dead rows in a Status.
const maxDeadShown = 1000

// Status is the state of an outbox.
type Status struct {
	Waiting int64         // committed rows that are not enqueued yet
	Oldest  time.Duration // how long the first of them has waited
	Dead    int64         // rows that Pawl has refused for good
	Newest  []DeadRow     // the newest of them, newest first
	Holder  string        // the relay that holds the lease, or held it last: host/pid/run; "": none yet
	Active  bool          // whether it holds the lease now
}

// DeadRow is a row of pawl_outbox_dead.
type DeadRow struct {
	Seq   int64
	ID    string // the request id
	Queue string
	Since time.Duration
	Error string
}

// Status returns the state of the outbox, with up to dead of the newest dead rows.
func (o *Outbox) Status(ctx context.Context, dead int) (*Status, error) {
	if dead < 0 || dead > maxDeadShown {
		return nil, fmt.Errorf("outbox: status: %w", convert.Invalid("dead", "%d is not between 0 and %d", dead, maxDeadShown))
	}
	s := &Status{}
	w := dialects[o.dialect]
	var micros, held int64
	for _, q := range []struct {
		query string
		to    []any
	}{
		{"SELECT count(*) FROM pawl_outbox", []any{&s.Waiting}},
		{"SELECT " + w.waited + " FROM pawl_outbox ORDER BY seq LIMIT 1", []any{&micros}},
		{"SELECT count(*) FROM pawl_outbox_dead", []any{&s.Dead}},
		{"SELECT holder, CASE WHEN expires_at > " + w.now + " THEN 1 ELSE 0 END FROM pawl_outbox_relay", []any{&s.Holder, &held}},
	} {
		if err := o.db.QueryRowContext(ctx, q.query).Scan(q.to...); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, fmt.Errorf("outbox: status: %w", err)
		}
	}
	s.Oldest, s.Active = micro(micros), held == 1
	var err error
	if s.Newest, err = o.readDead(ctx, fmt.Sprintf("ORDER BY died_at DESC, seq DESC LIMIT %d", dead)); err != nil {
		return nil, fmt.Errorf("outbox: status: %w", err)
	}
	return s, nil
}

// readDead reads the dead rows selected by which, the end of a SELECT.
func (o *Outbox) readDead(ctx context.Context, which string) (out []DeadRow, err error) {
	w := dialects[o.dialect]
	since := strings.ReplaceAll(w.waited, "created_at", "died_at")
	rows, err := o.db.QueryContext(ctx, fmt.Sprintf("SELECT seq, %s, queue, %s, error FROM pawl_outbox_dead %s", w.id, since, which))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r DeadRow
		var micros int64
		if err := rows.Scan(&r.Seq, &r.ID, &r.Queue, &micros, &r.Error); err != nil {
			return nil, err
		}
		r.Since = micro(micros)
		out = append(out, r)
	}
	return out, rows.Err()
}

// micro converts microseconds by the database's clock. It is not negative, even if that clock was set back.
func micro(n int64) time.Duration { return time.Duration(max(n, 0)) * time.Microsecond }
