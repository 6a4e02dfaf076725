package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/client/convert"
)

// maxRetryRows bounds the rows of one call of RetryDead, so that its transaction is short.
const maxRetryRows = 1000

// errDeadChanged: two calls moved the same rows back.
var errDeadChanged = errors.New("another call has moved some of the rows back: check the status and try again")

// RetryDead moves dead rows back to the outbox, by their numbers, all or none: they are enqueued again under the same request ids, after
// the rows that are waiting. Delay and expires_in count from now. At most 1,000 rows in a call.
//
// Errors: pawl.ErrNotFound names the first number that is not of a dead row.
func (o *Outbox) RetryDead(ctx context.Context, seqs ...int64) error {
	if len(seqs) == 0 || len(seqs) > maxRetryRows {
		return fmt.Errorf("outbox: retry: %w", convert.Invalid("seqs", "%d rows, want 1 to %d", len(seqs), maxRetryRows))
	}
	tx, err := o.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("outbox: retry: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := o.retryDead(ctx, tx, seqs); err != nil {
		return fmt.Errorf("outbox: retry: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("outbox: retry: %w", err)
	}
	return nil
}

func (o *Outbox) retryDead(ctx context.Context, tx *sql.Tx, seqs []int64) error {
	unique := map[int64]bool{}
	var list []string
	for _, seq := range seqs {
		if !unique[seq] {
			unique[seq] = true
			list = append(list, strconv.FormatInt(seq, 10))
		}
	}
	in := "(" + strings.Join(list, ",") + ")"
	// The insert comes first: it takes SQLite's write lock right away.
	back, err := affected(ctx, tx, "INSERT INTO pawl_outbox (id, queue, task) SELECT id, queue, task FROM pawl_outbox_dead WHERE seq IN "+
		in+
		" ORDER BY seq")
	if err != nil {
		return err
	}
	if back < int64(len(list)) {
		return o.missingDead(ctx, tx, seqs, in)
	}
	gone, err := affected(ctx, tx, "DELETE FROM pawl_outbox_dead WHERE seq IN "+in)
	if err == nil && gone != back {
		err = errDeadChanged
	}
	return err
}

// missingDead names the first number that is not of a dead row.
func (o *Outbox) missingDead(ctx context.Context, tx *sql.Tx, seqs []int64, in string) error {
	there := map[int64]bool{}
	rows, err := tx.QueryContext(ctx, "SELECT seq FROM pawl_outbox_dead WHERE seq IN "+in)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var seq int64
		if err := rows.Scan(&seq); err != nil {
			return err
		}
		there[seq] = true
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, seq := range seqs {
		if !there[seq] {
			return fmt.Errorf("%w: there is no dead row %d", pawl.ErrNotFound, seq)
		}
	}
	return errDeadChanged
}

// DeadRows lists up to limit dead rows with numbers above behind, in the order of their numbers.
func (o *Outbox) DeadRows(ctx context.Context, behind int64, limit int) ([]DeadRow, error) {
	if limit < 1 || limit > maxDeadShown {
		return nil, fmt.Errorf("outbox: dead rows: %w", convert.Invalid("limit", "%d is not between 1 and %d", limit, maxDeadShown))
	}
	rows, err := o.readDead(ctx, fmt.Sprintf("WHERE seq > %d ORDER BY seq LIMIT %d", behind, limit))
	if err != nil {
		return nil, fmt.Errorf("outbox: dead rows: %w", err)
	}
	return rows, nil
}

func affected(ctx context.Context, tx *sql.Tx, query string) (int64, error) {
	r, err := tx.ExecContext(ctx, query)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}
