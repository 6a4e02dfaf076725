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
	// maxRead bounds the rows that are held at a time, in bytes.
	maxRead = 8 << 20
	// firstRead is how many rows are read at first: nobody knows yet how large they are.
	firstRead = 100
	// maxCall and maxCallBytes make each call of EnqueueBatch one request, so that nothing is sent behind a task without an answer.
	maxCall      = 1000
	maxCallBytes = 3 << 20
	// callTime bounds one call, so that a queue whose shard is away doesn't hold up the others.
	callTime = 5 * time.Second
	// maxPutOff is how many queues are left out of a read. What others hold is enqueued in vain.
	maxPutOff = 64
	// firstPutOff and longestPutOff bound for how long a queue is left out after a refusal that may pass.
	firstPutOff   = 250 * time.Millisecond
	longestPutOff = 30 * time.Second
	// maxError bounds what a dead row says of its error, in bytes.
	maxError = 2000
	// leastExpiry is what remains to a task that has waited too long: it comes to be, and expires.
	leastExpiry = time.Millisecond
)

// session is the work of a relay while it holds the lease. One goroutine owns it.
type session struct {
	relay  *Relay
	lease  *lease
	limit  int                // rows of the next read
	putOff map[string]*putOff // by queue
	away   bool               // the last pass but idle ones has failed, and that was logged

	notifications notifications
}

// putOff is a queue whose rows wait: all of them, so that none overtakes another.
type putOff struct {
	until  time.Time
	pauses backoff
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

// pass enqueues the first rows of the table. More says that another pass at once may find others. The error says why no row could be
// enqueued.
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

// callOf is how many of the rows fit into one request.
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
		return nil, fmt.Errorf("read of pawl_outbox: %w", err)
	}
	defer found.Close()
	size := 0
	for size < maxRead && found.Next() {
		var r stored
		var micros int64
		if err := found.Scan(&r.seq, &r.id, &r.queue, &r.task, &micros); err != nil {
			return nil, fmt.Errorf("read of pawl_outbox: %w", err)
		}
		r.waited = micro(micros)
		rows = append(rows, r)
		size += len(r.task)
	}
	switch full := len(rows) == c.limit; {
	case size >= maxRead && !full:
		c.limit = len(rows)
		cancel() // or the driver would read the others, to throw them away
		return rows, nil
	case size < maxRead && full:
		c.limit = min(2*c.limit, c.relay.cfg.Batch)
	}
	if err := found.Err(); err != nil {
		return nil, fmt.Errorf("read of pawl_outbox: %w", err)
	}
	return rows, nil
}

// notPutOff is a condition that leaves out the queues that are put off, with its arguments.
func (c *session) notPutOff() (where string, args []any) {
	now := time.Now()
	for queue, p := range c.putOff {
		switch {
		case now.Before(p.until) && len(args) < maxPutOff:
			args = append(args, queue)
		case now.After(p.until.Add(longestPutOff)): // it has no rows any more
			delete(c.putOff, queue)
		}
	}
	if len(args) == 0 {
		return "", nil
	}
	return " WHERE queue NOT IN (?" + strings.Repeat(",?", len(args)-1) + ")", args
}

// outcome is what became of rows.
type outcome struct {
	accepted []int64 // their seq
	refused  []refusal
	waits    error // why another row is to be tried again; nil: none is
	putOff   bool  // queues were put off for reasons of their own: the next read leaves them out
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
	got, _ := c.relay.client.EnqueueBatch(limited, items) // each error is that of its items, too
	if len(sent) > 1 && refusedAsOne(got) {
		return c.halves(ctx, sent, out.refused)
	}
	for i, row := range sent {
		switch err := got[i].Err; {
		case err == nil:
			out.accepted = append(out.accepted, row.seq)
			delete(c.putOff, row.queue)
			c.relay.count(got[i].Ref)
		case isFinal(err):
			out.refused = append(out.refused, refusal{row.seq, err})
		}
	}
	for i, row := range sent { // last: a row that was accepted does not make the others of its queue welcome
		if err := got[i].Err; err != nil && !isFinal(err) {
			out.waits = err
			if c.wait(row.queue, err) && !isAway(err) {
				out.putOff = true
			}
		}
	}
	return out
}

// refusedAsOne says whether a request may have been refused as a whole: it had more tasks than an operator allows, say.
func refusedAsOne(got []pawl.Enqueued) bool {
	for _, e := range got {
		if e.Err == nil || !isFinal(e.Err) || e.Err.Error() != got[0].Err.Error() {
			return false
		}
	}
	return true
}

// halves sends rows that were refused as one in two requests, so that in the end each is judged by itself.
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

// isFinal says whether a row would be refused again, however often it is tried.
func isFinal(err error) bool {
	for _, code := range []pawltype.ErrorCode{pawltype.ErrInvalidArgument, pawltype.ErrPayloadTooLarge, pawltype.ErrConflict, pawltype.ErrNotFound, pawltype.ErrWrongState} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// isAway says whether an error is not about the row: nobody was there to take it.
func isAway(err error) bool {
	for _, code := range []pawltype.ErrorCode{pawltype.ErrUnavailable, pawltype.ErrUnauthenticated, pawltype.ErrClosed} {
		if errors.Is(err, code) {
			return true
		}
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// wait puts a queue off, unless it is.
func (c *session) wait(queue string, err error) bool {
	now := time.Now()
	p := c.putOff[queue]
	if p == nil {
		p = &putOff{pauses: backoff{first: firstPutOff, most: longestPutOff}}
		c.putOff[queue] = p
		if !isAway(err) {
			c.relay.cfg.Logger.Warn("outbox: the rows of a queue wait", "queue", queue, "error", err)
		}
	}
	if now.Before(p.until) {
		return false
	}
	p.until = now.Add(max(p.pauses.next(), min(convert.RetryAfter(err), longestPutOff)))
	return true
}

// settle deletes the rows that became tasks, and moves those that never will to the dead ones.
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
		return fmt.Errorf("deletion of enqueued rows from pawl_outbox: %w", err)
	}
	return nil
}

// deletion deletes rows, unless another relay holds the lease. Its numbers stand in the text: as parameters they would make a statement to
// prepare for each count of them.
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
	c.relay.cfg.Logger.Error("outbox: a row was refused for good, and is in pawl_outbox_dead now", "seq", r.seq, "error", text)
	_, err := tx.ExecContext(ctx, c.relay.box.dialect.bind("INSERT INTO pawl_outbox_dead (seq, id, queue, task, created_at, error) "+
		"SELECT seq, id, queue, task, created_at, ? FROM pawl_outbox WHERE seq = ? AND "+c.lease.fence()), text, r.seq)
	return err
}

// spec is the request for a row's task. What counts from the enqueue has passed in part while the row waited.
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

// relayed is a task that was read from a row, as arguments and as an option.
type relayed struct{ spec *pawlv1.TaskSpec }

func (r relayed) TaskType() string             { return r.spec.Type }
func (r relayed) RawPayload() ([]byte, string) { return nil, "" }

func (r relayed) Apply(s *pawlv1.TaskSpec) error {
	proto.Merge(s, r.spec)
	return nil
}
