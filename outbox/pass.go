package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pawlq/pawl"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/convert"
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
	// callTime bounds one call, so that a queue whose shard is unavailable doesn't hold up the others.
	callTime = 5 * time.Second
	// maxPutOff is how many queues a read leaves out. The rows of further ones are enqueued in vain.
	maxPutOff = 64
	// firstPutOff and longestPutOff bound for how long a queue is left out after a temporary refusal.
	firstPutOff   = 250 * time.Millisecond
	longestPutOff = 30 * time.Second
	// maxError bounds the error text of a dead row, in bytes.
	maxError = 2000
	// leastExpiry is the remaining expiry of a task that has waited too long: it is created, and expires.
	leastExpiry = time.Millisecond
)

// session is the work of a relay while it holds the lease. One goroutine owns it.
type session struct {
	relay  *Relay
	lease  *lease
	limit  int                // rows of the next read
	putOff map[string]*putOff // by queue

	notifications notifications
}

// putOff is the state of a queue whose rows wait: all of them, so that none overtakes another.
type putOff struct {
	until  time.Time
	pauses backoff
	delay  outage
}

func newSession(r *Relay, l *lease) *session {
	return &session{
		relay: r, lease: l, limit: min(firstRead, r.cfg.Batch), putOff: map[string]*putOff{},
		notifications: notifications{relay: r, lease: l, late: backoff{first: firstPoll, most: r.cfg.Poll}},
	}
}

// stored is a row of the table.
type stored struct {
	seq       int64
	id, queue string
	task      []byte
	waited    time.Duration
}

// pass enqueues the first rows of the table. more reports that another pass right away may find others. The error is why no row could be enqueued.
//
// Each read starts at the first row: a transaction may commit a row with a lower number than those that were read before.
func (c *session) pass(ctx context.Context) (more bool, err error) {
	rows, err := c.read(ctx)
	if err != nil {
		return false, err
	}
	for len(rows) > 0 {
		n := callOf(rows)
		out := c.send(ctx, rows[:n])
		if err := c.settle(ctx, &out); err != nil {
			return more, err
		}
		more = more || len(out.accepted)+len(out.refused) > 0 || out.putOff
		if out.waits != nil {
			if more {
				return true, nil
			}
			return false, out.waits
		}
		rows = rows[n:]
	}
	return more, nil
}

// callOf returns how many of the rows fit into one request.
func callOf(rows []stored) int {
	n, size := 0, 0
	for n < min(len(rows), maxCall) {
		if size += len(rows[n].task) + len(rows[n].queue) + 100; n > 0 && size > maxCallBytes {
			break
		}
		n++
	}
	return n
}

// read reads the first rows whose queues are not put off.
func (c *session) read(ctx context.Context) (rows []stored, err error) {
	box := c.relay.box
	w := dialects[box.dialect]
	where, args := c.notPutOff()
	query := fmt.Sprintf("SELECT seq, %s, queue, %s, %s FROM pawl_outbox%s ORDER BY seq LIMIT ?", w.id, w.task, w.waited, where)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found, err := box.db.QueryContext(ctx, box.dialect.bind(query), append(args, c.limit)...)
	if err != nil {
		return nil, fmt.Errorf("read pawl_outbox: %w", err)
	}
	defer found.Close()
	size := 0
	for size < maxRead && found.Next() {
		var r stored
		var micros int64
		if err := found.Scan(&r.seq, &r.id, &r.queue, &r.task, &micros); err != nil {
			return nil, fmt.Errorf("read pawl_outbox: %w", err)
		}
		r.waited = micro(micros)
		rows = append(rows, r)
		size += len(r.task)
	}
	switch full := len(rows) == c.limit; {
	case size >= maxRead && !full:
		c.limit = len(rows)
		cancel() // or the driver would read the others, to discard them
		return rows, nil
	case size < maxRead && full:
		c.limit = min(2*c.limit, c.relay.cfg.Batch)
	}
	if err := found.Err(); err != nil {
		return nil, fmt.Errorf("read pawl_outbox: %w", err)
	}
	return rows, nil
}

// notPutOff returns a condition that leaves out the queues that are put off, with its arguments.
func (c *session) notPutOff() (where string, args []any) {
	now := time.Now()
	for queue, p := range c.putOff {
		switch {
		case now.Before(p.until) && len(args) < maxPutOff:
			args = append(args, queue)
		case now.After(p.until.Add(warnEach)): // it has had no rows for a while
			delete(c.putOff, queue)
		}
	}
	if len(args) == 0 {
		return "", nil
	}
	return " WHERE queue NOT IN (?" + strings.Repeat(",?", len(args)-1) + ")", args
}

// outcome is the outcome of sending rows.
type outcome struct {
	accepted []int64 // their seq
	refused  []refusal
	waits    error // why a row must be retried; nil: none
	putOff   bool  // queues were put off for their own reasons: the next read leaves them out
}

type refusal struct {
	seq int64
	err error
}

// send enqueues rows with one request.
func (c *session) send(ctx context.Context, rows []stored) (out outcome) {
	items := make([]pawl.Item, 0, len(rows))
	sent := make([]stored, 0, len(rows))
	for _, row := range rows {
		s, err := row.spec()
		if err != nil {
			out.refused = append(out.refused, refusal{row.seq, err})
			continue
		}
		items = append(items, pawl.Item{Args: relayed{s}, Options: []pawl.Option{relayed{s}}})
		sent = append(sent, row)
	}
	if len(items) == 0 {
		return out
	}
	limited, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	got, _ := c.relay.client.EnqueueBatch(limited, items) // each error is also that of its items
	if len(sent) > 1 && refusedAsOne(got) {
		return c.halves(ctx, sent, out.refused)
	}
	for i, row := range sent {
		switch err := got[i].Err; {
		case err == nil:
			out.accepted = append(out.accepted, row.seq)
			if p := c.putOff[row.queue]; p != nil {
				p.until = time.Now()
				p.pauses.reset()
			}
			c.relay.count(got[i].Ref)
		case isFinal(err):
			out.refused = append(out.refused, refusal{row.seq, err})
		}
	}
	for i, row := range sent { // last: an accepted row does not mean that others of its queue would be accepted
		if err := got[i].Err; err != nil && !isFinal(err) {
			out.waits = err
			if c.wait(row.queue, err) && !isAway(err) {
				out.putOff = true
			}
		}
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
func (c *session) halves(ctx context.Context, rows []stored, refused []refusal) outcome {
	half := len(rows) / 2
	out := c.send(ctx, rows[:half])
	if out.waits == nil {
		second := c.send(ctx, rows[half:])
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
	for _, code := range []pawltype.ErrorCode{pawltype.ErrInvalidArgument, pawltype.ErrPayloadTooLarge, pawltype.ErrConflict, pawltype.ErrNotFound, pawltype.ErrWrongState} {
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

// wait puts a queue off, unless it already is. It reports whether it did.
func (c *session) wait(queue string, err error) bool {
	now := time.Now()
	p := c.putOff[queue]
	if p == nil {
		p = &putOff{pauses: backoff{first: firstPutOff, most: longestPutOff}}
		c.putOff[queue] = p
	}
	if !isAway(err) {
		p.delay.warn(c.relay.cfg.Logger.With("queue", queue), "outbox: the rows of a queue are delayed", err)
	}
	if now.Before(p.until) {
		return false
	}
	p.until = now.Add(max(p.pauses.next(), min(convert.RetryAfter(err), longestPutOff)))
	return true
}

// settle deletes the rows that became tasks, and moves those that never will to the dead rows.
func (c *session) settle(ctx context.Context, out *outcome) error {
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
	c.relay.dead.Add(int64(len(out.refused)))
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

// moveToDead copies a row into the table of dead rows.
func (c *session) moveToDead(ctx context.Context, tx *sql.Tx, r refusal) error {
	text := convert.CutText(strings.ReplaceAll(r.err.Error(), "\x00", "\uFFFD"), maxError)
	c.relay.cfg.Logger.Error("outbox: a row was refused for good and moved to pawl_outbox_dead", "seq", r.seq, "error", text)
	_, err := tx.ExecContext(ctx, c.relay.box.dialect.bind("INSERT INTO pawl_outbox_dead (seq, id, queue, task, created_at, error) "+
		"SELECT seq, id, queue, task, created_at, ? FROM pawl_outbox WHERE seq = ? AND "+c.lease.fence()), text, r.seq)
	return err
}

// spec returns the request for a row's task. Durations that count from the enqueue are reduced by the time that the row has waited.
func (r *stored) spec() (*pawlv1.TaskSpec, error) {
	s, err := readTask(r.task)
	if err != nil {
		return nil, err
	}
	s.Queue, s.RequestId = r.queue, r.id
	if d := s.Delay.AsDuration(); d > 0 {
		s.Delay = durationpb.New(max(d-r.waited, 0))
	}
	if d := s.ExpiresIn.AsDuration(); d > 0 {
		s.ExpiresIn = durationpb.New(max(d-r.waited, leastExpiry))
	}
	return s, nil
}

// relayed is a task read from a row. It implements both pawl.Args and pawl.Option.
type relayed struct{ spec *pawlv1.TaskSpec }

func (r relayed) TaskType() string             { return r.spec.Type }
func (r relayed) RawPayload() ([]byte, string) { return nil, "" }

func (r relayed) Apply(s *pawlv1.TaskSpec) error {
	proto.Merge(s, r.spec)
	return nil
}
