package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/pawlq/pawl"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/spec"
	"github.com/pawlq/pawl/internal/client/telemetry"
)

const (
	// MaxItems is how many tasks EnqueueMany accepts in a call.
	MaxItems = 1000
	// maxStatement bounds the tasks of one statement, in bytes: MySQL accepts 16 MiB by default.
	maxStatement = 4 << 20
	// maxQueue is the longest name of a queue, in bytes.
	maxQueue = 256
)

// Tx is a transaction: an *sql.Tx, an *sql.Conn within one, or a pgx transaction wrapped by pgxoutbox.Tx.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Outbox writes tasks into a database. Its methods are safe for concurrent use.
type Outbox struct {
	db        *sql.DB
	dialect   Dialect
	telemetry *telemetry.Telemetry
	keep      time.Duration // rows of effects
}

// Open returns the outbox in a database whose tables exist: Schema creates them. The error is ErrSchema if they are
// missing or this version can't use them, and another one if the database can't be reached.
func Open(ctx context.Context, db *sql.DB, d Dialect) (*Outbox, error) {
	o, err := New(db, d)
	if err != nil {
		return nil, err
	}
	if err := checkSchema(ctx, db, d); err != nil {
		return nil, err
	}
	return o, nil
}

// New returns the outbox in a database without asking the database, for a program that may start before it. Relay.Run
// waits for the database and checks the tables.
func New(db *sql.DB, d Dialect) (*Outbox, error) {
	if _, err := ParseDialect(string(d)); err != nil {
		return nil, err
	}
	t, err := telemetry.New(telemetry.Config{})
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return &Outbox{db: db, dialect: d, telemetry: t, keep: defaultKeep}, nil
}

// Enqueue writes a task with one insert into tx. It takes the arguments and options of pawl.Client.Enqueue, and returns
// the request id under which the task will be enqueued. In and ExpiresIn count from now, by the database's clock. The
// trace of ctx is passed along.
//
// Options that Pawl's client would refuse are refused here, before anything is written. What only the broker can refuse becomes a dead row.
func (o *Outbox) Enqueue(ctx context.Context, tx Tx, args pawl.Args, opts ...pawl.Option) (id string, err error) {
	r, err := o.newRow(ctx, args, opts)
	if err != nil {
		return "", fmt.Errorf("outbox: enqueue: %w", err)
	}
	return r.id, o.insert(ctx, tx, []row{r})
}

// EnqueueMany writes up to MaxItems tasks, and returns their request ids in order. It makes one insert per 4 MiB of
// tasks. If it fails, roll tx back: some of the tasks may have been written.
func (o *Outbox) EnqueueMany(ctx context.Context, tx Tx, items []pawl.Item) (ids []string, err error) {
	if len(items) > MaxItems {
		return nil, fmt.Errorf("outbox: enqueue: %w", convert.Invalid("items", "%d tasks, at most %d are allowed", len(items), MaxItems))
	}
	rows := make([]row, len(items))
	ids = make([]string, len(items))
	for i, item := range items {
		if rows[i], err = o.newRow(ctx, item.Args, item.Options); err != nil {
			return nil, fmt.Errorf("outbox: enqueue: item %d: %w", i, err)
		}
		ids[i] = rows[i].id
	}
	for len(rows) > 0 {
		n, size := 1, len(rows[0].task)
		for n < len(rows) && size+len(rows[n].task) <= maxStatement {
			size += len(rows[n].task)
			n++
		}
		if err := o.insert(ctx, tx, rows[:n]); err != nil {
			return nil, err
		}
		rows = rows[n:]
	}
	return ids, nil
}

// row is a task as the program writes it.
type row struct {
	id, queue string
	task      string
}

func (o *Outbox) newRow(ctx context.Context, args pawl.Args, opts []pawl.Option) (r row, err error) {
	s, err := spec.Of(args, opts)
	if err != nil {
		return r, err
	}
	o.telemetry.Inject(ctx, s)
	if r.id, err = requestID(s); err != nil {
		return r, err
	}
	// If the database rejected a statement, the whole transaction would fail.
	if r.queue = convert.QueueName(s); len(r.queue) > maxQueue || strings.IndexByte(r.queue, 0) >= 0 {
		return r, convert.Invalid("queue", "%q has more than %d bytes, or contains a zero byte", convert.CutText(r.queue, 64), maxQueue)
	}
	s.Queue, s.RequestId = nil, nil
	text, err := writeTask(s)
	r.task = string(text)
	return r, err
}

// requestID returns the request id of a task, or makes one.
func requestID(s *pawlv1.TaskSpec) (string, error) {
	if s.RequestId == nil {
		id, err := uuid.NewV7()
		return id.String(), err
	}
	id, err := uuid.Parse(s.GetRequestId())
	if err != nil {
		return "", convert.Invalid("request_id", "%q is not a UUID", s.GetRequestId())
	}
	return id.String(), nil
}

// insert writes rows with one statement.
func (o *Outbox) insert(ctx context.Context, tx Tx, rows []row) error {
	var query strings.Builder
	query.WriteString("INSERT INTO pawl_outbox (id, queue, task) VALUES ")
	args := make([]any, 0, 3*len(rows))
	for i, r := range rows {
		if i > 0 {
			query.WriteByte(',')
		}
		query.WriteString("(?,?,?)")
		args = append(args, r.id, r.queue, r.task)
	}
	if _, err := tx.ExecContext(ctx, o.dialect.bind(query.String()), args...); err != nil {
		return fmt.Errorf("outbox: insert %d rows into pawl_outbox: %w", len(rows), err)
	}
	return nil
}
