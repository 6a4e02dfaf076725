package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/client/convert"
)

const (
	// maxEffectName and maxEffectResult are the limits of pawl.Once, in bytes.
	maxEffectName   = 256
	maxEffectResult = 64 << 10
	// defaultKeep is longer than dead letters are kept, since those can be replayed.
	defaultKeep = 30 * 24 * time.Hour
	maxKeep     = 10 * 365 * 24 * time.Hour
	// pruneStep is how many rows of effects one statement deletes.
	pruneStep = 1000
)

// ErrStaleEffect: a later run of the task has already had the effect. This run has lost its claim: roll its transaction back.
var ErrStaleEffect = errors.New("a later run of the task has performed the effect")

// WithEffectRetention returns a copy of o that keeps the rows of effects for d, from a minute to ten years, instead of 30 days. A task that
// runs again after that has its effect again: keep them for longer than you replay dead letters.
func (o *Outbox) WithEffectRetention(d time.Duration) (*Outbox, error) {
	if d < time.Minute || d > maxKeep {
		return nil, fmt.Errorf("outbox: %w", convert.Invalid("retention", "%s is not between 1m and %s", d, maxKeep))
	}
	other := *o
	other.keep = d
	return &other, nil
}

// Effect runs fn for an effect that a task should have only once, however often the task runs. fn writes the effect
// with tx, and Effect records it with tx. If a run finds that record, Effect returns nil without running fn. Name
// distinguishes the effects of a task; it has 1 to 256 bytes.
//
// The effect and its record are committed together or not at all, so nothing is done twice, and nothing is lost.
// Effects outside the database are not covered: docs/idempotency.md says what is possible for those. If Effect returns
// an error, roll tx back. If a later run has already had the effect, the error is ErrStaleEffect. Concurrent runs wait
// for each other, according to the database's locks.
//
// With Enqueue in the same transaction, the effect and the next task are committed together.
func (o *Outbox) Effect(ctx context.Context, tx Tx, c *pawl.Claim, name string, fn func(ctx context.Context) error) error {
	_, err := o.effect(ctx, tx, c, name, func(ctx context.Context) ([]byte, error) { return nil, fn(ctx) })
	return err
}

// Effect is Outbox.Effect for effects that have a result: at most 64 KiB of JSON, which later runs get instead of running fn.
func Effect[R any](ctx context.Context, o *Outbox, tx Tx, c *pawl.Claim, name string, fn func(ctx context.Context) (R, error)) (R, error) {
	var out R
	data, err := o.effect(ctx, tx, c, name, func(ctx context.Context) ([]byte, error) {
		v, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(v)
	})
	if err == nil && len(data) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.DisallowUnknownFields()
		if err = decoder.Decode(&out); err != nil {
			err = fmt.Errorf("outbox: effect %q of task %q: the recorded result doesn't fit %T: %w", name, c.ID, out, err)
		}
	}
	if err != nil {
		var none R
		return none, err
	}
	return out, nil
}

func (o *Outbox) effect(ctx context.Context, tx Tx, c *pawl.Claim, name string,
	fn func(ctx context.Context) ([]byte, error)) ([]byte, error) {
	if name == "" || len(name) > maxEffectName || !utf8.ValidString(name) || strings.IndexByte(name, 0) >= 0 {
		err := convert.Invalid("name", "%q is not 1 to %d bytes of UTF-8 without zero bytes", convert.CutText(name, 64), maxEffectName)
		return nil, fmt.Errorf("outbox: effect of task %q: %w", c.ID, err)
	}
	run, err := uuid.NewRandom()
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	e := effect{box: o, tx: tx, claim: c, name: name, run: run.String()}
	result, done, err := e.begin(ctx)
	if err == nil && !done {
		result, err = e.do(ctx, fn)
	}
	if err != nil {
		return nil, fmt.Errorf("outbox: effect %q of task %q: %w", name, c.ID, err)
	}
	return result, nil
}

// effect is one call of Effect.
type effect struct {
	box   *Outbox
	tx    Tx
	claim *pawl.Claim
	name  string
	run   string // identifies this call's row
}

// begin inserts the row of the effect, or finds that of another run. The insert waits for a row that is not committed yet.
//
// The number of affected rows would be enough if drivers agreed on what they count.
func (e *effect) begin(ctx context.Context) (result []byte, done bool, err error) {
	w := dialects[e.box.dialect]
	insert := e.box.dialect.bind("INSERT INTO pawl_effect (task_id, name, fence, run, result, keep_until) VALUES (?,?,?,?,''," +
		w.later + ") " + w.ignore)
	if _, err := e.tx.ExecContext(ctx, insert, e.claim.ID, e.name, e.claim.Fence, e.run, e.box.keep.Seconds()); err != nil {
		return nil, false, fmt.Errorf("insert into pawl_effect: %w", err)
	}
	var run string
	var fence int64
	found := "SELECT run, fence, result FROM pawl_effect WHERE task_id = ? AND name = ?" + w.lock
	if err := scanRow(ctx, e.tx, e.box.dialect.bind(found), []any{e.claim.ID, e.name}, []any{&run, &fence, &result}); err != nil {
		return nil, false, fmt.Errorf("read pawl_effect: %w", err)
	}
	switch {
	case run == e.run:
		return nil, false, nil
	case fence > e.claim.Fence:
		return nil, false, fmt.Errorf("%w: its fence is %d, this run's %d", ErrStaleEffect, fence, e.claim.Fence)
	}
	return result, true, nil
}

// do runs fn and writes its result. If that fails it deletes the row, for callers that commit anyway.
func (e *effect) do(ctx context.Context, fn func(ctx context.Context) ([]byte, error)) ([]byte, error) {
	result, err := fn(ctx)
	if err == nil && len(result) > maxEffectResult {
		err = convert.Invalid("result", "%d bytes, at most %d", len(result), maxEffectResult)
	}
	if err == nil && len(result) > 0 {
		err = e.exec(ctx, "UPDATE pawl_effect SET result = ? WHERE task_id = ? AND name = ?", string(result))
	}
	if err != nil {
		// If this fails, the transaction can't be committed either.
		_ = e.exec(context.WithoutCancel(ctx), "DELETE FROM pawl_effect WHERE task_id = ? AND name = ?")
		return nil, err
	}
	return result, nil
}

func (e *effect) exec(ctx context.Context, query string, args ...any) error {
	_, err := e.tx.ExecContext(ctx, e.box.dialect.bind(query), append(args, e.claim.ID, e.name)...)
	return err
}

// scanRow reads one row with a transaction of database/sql, or of another library that has ScanRow.
func scanRow(ctx context.Context, tx Tx, query string, args, to []any) error {
	switch tx := tx.(type) {
	case interface {
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}:
		return tx.QueryRowContext(ctx, query, args...).Scan(to...)
	case interface {
		ScanRow(ctx context.Context, query string, args, to []any) error
	}:
		return tx.ScanRow(ctx, query, args, to)
	}
	return fmt.Errorf("a %T can't read rows: it has neither QueryRowContext nor ScanRow", tx)
}

// DeleteExpired deletes the rows of effects whose retention has passed, and returns how many. Relays do so every minute; a program that has
// effects but no relay should call it from time to time.
func (o *Outbox) DeleteExpired(ctx context.Context) (deleted int64, err error) {
	now := dialects[o.dialect].now
	for {
		// Find the end of the next step, or of all rows: not every database has DELETE with LIMIT.
		var last any
		step := fmt.Sprintf("SELECT max(keep_until) FROM (SELECT keep_until FROM pawl_effect WHERE keep_until < %s ORDER BY keep_until "+
			"LIMIT %d) AS step", now, pruneStep)
		if err := o.db.QueryRowContext(ctx, step).Scan(&last); err != nil {
			return deleted, fmt.Errorf("outbox: read expired rows of pawl_effect: %w", err)
		}
		if last == nil {
			return deleted, nil
		}
		res, err := o.db.ExecContext(ctx, o.dialect.bind("DELETE FROM pawl_effect WHERE keep_until <= ?"), last)
		if err != nil {
			return deleted, fmt.Errorf("outbox: delete expired rows from pawl_effect: %w", err)
		}
		n, err := res.RowsAffected()
		if deleted += n; err != nil || n == 0 { // none: another relay was faster
			return deleted, err
		}
	}
}
