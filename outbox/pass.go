package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pawlq/pawl"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/spec"
	"github.com/pawlq/pawl/pawltype"
)

const (
	// maxRead bounds the rows that are held in memory, in bytes.
	maxRead = 8 << 20
	// firstRead is how many rows the first read fetches: their sizes are not known yet.
	firstRead = 100
	// maxCall and maxCallBytes make each call of EnqueueBatch one request, so that nothing is sent after a task without a response.
	maxCall      = 1000
	maxCallBytes = 3 << 20
	// callTime bounds one call: the rows without an answer by then wait in the lanes of their queues.
	callTime = time.Second
	// maxError bounds the error text of a dead row, in bytes.
	maxError = 2000
	// leastExpiry is the remaining expiry of a task that has waited too long: it is created, and expires.
	leastExpiry = time.Millisecond
)

// session is the work of a relay while it holds the lease. One goroutine owns it, besides the lanes.
type session struct {
	relay *Relay
	lease *lease
	limit int // rows of the next read
	call  int // max rows of the next call: fewer than maxCall if a call with more took too long
	lanes lanes

	notifications notifications

	database sync.Mutex // SQLite has one writer at a time, and refuses a second
}

func newSession(r *Relay, l *lease) *session {
	s := &session{
		relay: r, lease: l, limit: min(firstRead, r.cfg.Batch), call: maxCall,
		notifications: notifications{relay: r, lease: l, late: backoff{first: firstPoll, max: r.cfg.Poll}},
	}
	s.lanes = lanes{session: s, trying: make(chan struct{}, maxTries), queues: map[string]bool{}, delays: map[string]*outage{}}
	return s
}

// stored is a row of the table.
type stored struct {
	seq       int64
	id, queue string
	task      []byte
	waited    time.Duration
}

// pass enqueues the first rows of the queues that don't wait. more reports that another pass right away may find others.
//
// Each read starts at the first row: a transaction may commit a row with a lower number than those that were read before.
func (c *session) pass(ctx context.Context) (more bool, err error) {
	rows, err := c.read(ctx)
	if err != nil {
		return false, err
	}
	for len(rows) > 0 {
		n := callOf(rows, c.call)
		began := time.Now()
		out := c.send(ctx, callTime, rows[:n])
		c.fit(n, time.Since(began), &out)
		if err := c.settle(ctx, &out); err != nil {
			return more, err
		}
		more = more || len(out.accepted)+len(out.refused) > 0
		if len(out.waiting) > 0 { // rows read after those of a queue that waits would overtake them
			for queue, err := range out.waiting {
				more = c.lanes.begin(ctx, queue, err) || more
			}
			return more, nil
		}
		rows = rows[n:]
	}
	return more, nil
}

// fit adjusts the size of the next call to how long one with n rows took. A call that is cut off enqueues nothing, so a slow
// connection needs smaller ones.
func (c *session) fit(n int, took time.Duration, out *outcome) {
	switch {
	case took >= callTime && len(out.accepted)+len(out.refused) == 0:
		c.call = max(n/2, 1)
	case took < callTime/4:
		c.call = min(2*c.call, maxCall)
	}
}

// try enqueues the first row of a queue that waits. An error means that the row waits on.
func (c *session) try(ctx context.Context, queue string) error {
	rows, err := c.query(ctx, " WHERE queue = ?", []any{queue}, 1)
	if err != nil || len(rows) == 0 {
		return err
	}
	out := c.send(ctx, tryTime, rows)
	if err := c.settle(ctx, &out); err != nil {
		return err
	}
	return out.waiting[queue]
}

// callOf returns how many of the rows fit into one request of at most limit rows.
func callOf(rows []stored, limit int) int {
	n, size := 0, 0
	for n < min(len(rows), limit) {
		if size += len(rows[n].task) + len(rows[n].queue) + 100; n > 0 && size > maxCallBytes {
			break
		}
		n++
	}
	return n
}

// read reads the first rows of the queues that don't wait.
func (c *session) read(ctx context.Context) (rows []stored, err error) {
	where, waiting := "", c.lanes.waiting()
	if len(waiting) > 0 {
		where = " WHERE queue NOT IN (?" + strings.Repeat(",?", len(waiting)-1) + ")"
	}
	rows, err = c.query(ctx, where, waiting, c.limit)
	switch full := len(rows) == c.limit; {
	case err != nil:
	case !full && sizeOf(rows) >= maxRead:
		c.limit = len(rows)
	case full && sizeOf(rows) < maxRead:
		c.limit = min(2*c.limit, c.relay.cfg.Batch)
	}
	return rows, err
}

// query reads the first rows that match a condition: up to limit, and not more once they reach maxRead.
func (c *session) query(ctx context.Context, where string, args []any, limit int) (rows []stored, err error) {
	c.database.Lock()
	defer c.database.Unlock()
	box := c.relay.box
	w := dialects[box.dialect]
	query := fmt.Sprintf("SELECT seq, %s, queue, %s, %s FROM pawl_outbox%s ORDER BY seq LIMIT ?", w.id, w.task, w.waited, where)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // or the driver would read the rows that are left, to discard them
	found, err := box.db.QueryContext(ctx, box.dialect.bind(query), append(args, limit)...)
	if err != nil {
		return nil, fmt.Errorf("read pawl_outbox: %w", err)
	}
	defer found.Close()
	for size := 0; size < maxRead && found.Next(); {
		var r stored
		var micros int64
		if err := found.Scan(&r.seq, &r.id, &r.queue, &r.task, &micros); err != nil {
			return nil, fmt.Errorf("read pawl_outbox: %w", err)
		}
		r.waited = micro(micros)
		rows = append(rows, r)
		size += len(r.task)
	}
	if err := found.Err(); err != nil {
		return nil, fmt.Errorf("read pawl_outbox: %w", err)
	}
	return rows, nil
}

func sizeOf(rows []stored) (size int) {
	for i := range rows {
		size += len(rows[i].task)
	}
	return size
}

// outcome is the outcome of sending rows.
type outcome struct {
	accepted []int64 // their seq
	refused  []refusal
	waiting  map[string]error // the queues with a row that must be retried, and why the first of them must
}

type refusal struct {
	seq int64
	id  string
	err error
}

// send enqueues rows with one request, which may take up to d.
func (c *session) send(ctx context.Context, d time.Duration, rows []stored) (out outcome) {
	items := make([]pawl.Item, 0, len(rows))
	sent := make([]stored, 0, len(rows))
	for _, row := range rows {
		s, err := row.spec()
		if err != nil {
			out.refused = append(out.refused, refusal{row.seq, row.id, err})
			continue
		}
		items = append(items, pawl.Item{Args: spec.Made{TaskSpec: s}, Options: []pawl.Option{spec.Made{TaskSpec: s}}})
		sent = append(sent, row)
	}
	if len(items) == 0 {
		return out
	}
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	got, _ := c.relay.client.EnqueueBatch(limited, items) // each error is also that of its items
	if len(sent) > 1 && refusedAsOne(got) {
		return c.halves(ctx, d, sent, out.refused)
	}
	for i, row := range sent {
		switch err := got[i].Err; {
		case err == nil:
			out.accepted = append(out.accepted, row.seq)
			c.relay.count(got[i].Ref)
		case isFinal(err):
			out.refused = append(out.refused, refusal{row.seq, row.id, err})
		case out.waiting[row.queue] == nil:
			if out.waiting == nil {
				out.waiting = map[string]error{}
			}
			out.waiting[row.queue] = err
		}
	}
	if len(out.accepted) > 0 {
		c.lanes.accepted()
	}
	return out
}

// refusedAsOne reports whether a request may have been refused as a whole, for example because it had more tasks than an operator allows.
func refusedAsOne(got []pawl.Enqueued) bool {
	for _, e := range got {
		if e.Err == nil || !isFinal(e.Err) || e.Err.Error() != got[0].Err.Error() {
			return false
		}
	}
	return true
}

// halves sends rows that were refused as a whole in two requests, so that in the end each is judged on its own.
func (c *session) halves(ctx context.Context, d time.Duration, rows []stored, refused []refusal) outcome {
	half := len(rows) / 2
	out := c.send(ctx, d, rows[:half])
	if len(out.waiting) == 0 {
		second := c.send(ctx, d, rows[half:])
		second.accepted = append(out.accepted, second.accepted...)
		second.refused = append(out.refused, second.refused...)
		out = second
	}
	out.refused = append(refused, out.refused...)
	return out
}

// isFinal reports whether a row would be refused again, however often it is retried.
func isFinal(err error) bool {
	if convert.Unimplemented(err) { // not by Pawl
		return false
	}
	for _, code := range []pawltype.ErrorCode{pawltype.ErrInvalidArgument, pawltype.ErrPayloadTooLarge, pawltype.ErrConflict,
		pawltype.ErrNotFound, pawltype.ErrWrongState} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// isAway reports whether err is not about the row: Pawl was not available to take it.
func isAway(err error) bool {
	for _, code := range []pawltype.ErrorCode{pawltype.ErrUnavailable, pawltype.ErrUnauthenticated, pawltype.ErrClosed} {
		if errors.Is(err, code) {
			return true
		}
	}
	return convert.Unimplemented(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// settle deletes the rows that became tasks, and moves those that never will to the dead rows.
func (c *session) settle(ctx context.Context, out *outcome) error {
	c.database.Lock()
	defer c.database.Unlock()
	box := c.relay.box
	done := slices.Clone(out.accepted)
	if len(out.refused) == 0 {
		if len(done) == 0 {
			return nil
		}
		_, err := box.db.ExecContext(ctx, c.deletion(done))
		return settling(err)
	}
	tx, err := box.db.BeginTx(ctx, nil)
	if err != nil {
		return settling(err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, r := range out.refused {
		if err := c.moveToDead(ctx, tx, r); err != nil {
			return settling(err)
		}
		done = append(done, r.seq)
	}
	if _, err := tx.ExecContext(ctx, c.deletion(done)); err != nil {
		return settling(err)
	}
	if err := tx.Commit(); err != nil {
		return settling(err)
	}
	for _, r := range out.refused {
		c.relay.dead.Add(1)
		c.relay.cfg.Logger.Error("outbox: a row was refused for good and moved to pawl_outbox_dead", "id", r.id, "error", r.text())
	}
	return nil
}

func settling(err error) error {
	if err != nil {
		return fmt.Errorf("delete enqueued rows from pawl_outbox: %w", err)
	}
	return nil
}

// deletion returns a statement that deletes rows, unless another relay has taken the lease. The numbers are part of its text: as
// parameters they would make a different prepared statement for each count.
func (c *session) deletion(seqs []int64) string {
	list := make([]byte, 0, 8*len(seqs))
	for i, seq := range seqs {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, seq, 10)
	}
	return "DELETE FROM pawl_outbox WHERE seq IN (" + string(list) + ") AND " + c.lease.fence()
}

// text returns why the row was refused, as its table can hold it.
func (r *refusal) text() string {
	return convert.CutText(strings.ReplaceAll(r.err.Error(), "\x00", "\uFFFD"), maxError)
}

// moveToDead copies a row into the table of dead rows.
func (c *session) moveToDead(ctx context.Context, tx *sql.Tx, r refusal) error {
	_, err := tx.ExecContext(ctx, c.relay.box.dialect.bind("INSERT INTO pawl_outbox_dead (id, queue, task, created_at, error) "+
		"SELECT id, queue, task, created_at, ? FROM pawl_outbox WHERE seq = ? AND "+c.lease.fence()), r.text(), r.seq)
	return err
}

// spec returns the request for a row's task. Durations that count from the enqueue are reduced by the time that the row has waited.
func (r *stored) spec() (*pawlv1.TaskSpec, error) {
	s, err := readTask(r.task)
	if err != nil {
		return nil, err
	}
	s.Queue, s.RequestId = &r.queue, &r.id
	if d := s.Delay.AsDuration(); d > 0 {
		s.Delay = durationpb.New(max(d-r.waited, 0))
	}
	if d := s.ExpiresIn.AsDuration(); d > 0 {
		s.ExpiresIn = durationpb.New(max(d-r.waited, leastExpiry))
	}
	return s, nil
}
