package sqs

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// A message move task is an operation that moves the tasks of a dead-letter queue. Without a destination every message returns to
// the queue it came from, with one operation per such queue. The request ids tell which operations belong together.

// moveID is the common prefix of the request ids of a move task's operations: a marker and 11 random bytes. It is followed by three
// bytes: whether a destination was named, the index of the operation, and the number of operations.
type moveID [13]byte

var moveMark = []byte("sq")

const moveOperations = 50 // of a move task, and so source queues of one dead-letter queue

// sourceTag returns the tag of dead letters that came from a queue. A name may be as long as a tag.
func sourceTag(queue string) string {
	const prefix = "sqs-from:"
	if most := task.DefaultLimits().Name; len(prefix)+len(queue) > most {
		return digest(prefix, queue)
	}
	return prefix + queue
}

func newMoveID() (id moveID) {
	copy(id[:], moveMark)
	_, _ = rand.Read(id[len(moveMark):]) // never fails
	return id
}

// moveHandle is the handle of a move task: its JSON in base64, as in Amazon SQS, where some clients look into it.
type moveHandle struct {
	Task   string `json:"taskId"`
	Source string `json:"sourceArn"`
}

// String returns a UUID, which clients parse.
func (id moveID) String() string { return id.request(false, 0, 0).String() }

func (id moveID) handle(source string) string {
	b, err := json.Marshal(moveHandle{id.String(), source})
	if err != nil {
		panic(err) // texts can always be encoded
	}
	return base64.StdEncoding.EncodeToString(b)
}

// parseMoveHandle also takes the handles of earlier builds: the 22 hexadecimal digits of the random bytes, without a source.
func parseMoveHandle(s string) (h moveHandle, ok bool) {
	var id moveID
	random := id[copy(id[:], moveMark):]
	b, err := hex.DecodeString(s)
	if err == nil && len(b) == len(random) {
		copy(random, b)
		return moveHandle{Task: id.String()}, true
	}
	b, err = base64.StdEncoding.DecodeString(s)
	return h, err == nil && json.Unmarshal(b, &h) == nil && h.Task != ""
}

// is reports whether the handle is that of a move task of its source.
func (h moveHandle) is(id moveID) bool { return h.Task == id.String() }

// request returns the request id of an operation.
func (id moveID) request(named bool, n, of int) (r task.ID) {
	copy(r[:], id[:])
	if named {
		r[13] = 1
	}
	r[14], r[15] = byte(n), byte(of) // #nosec G115 -- at most moveOperations
	return r
}

// move is a move task: its operations, by their index.
type move struct {
	id         moveID
	named      bool // whether a destination was named
	operations []*broker.Operation
}

// movesOf returns the move tasks of a queue, or of any if it is "", newest first, that are among the last 1,000 operations.
func (x *exchange) movesOf(queue string) (moves []*move, err error) {
	const pages, most = 10, 100
	known := map[moveID]*move{}
	var below task.ID
	for range pages {
		page, err := x.Core.Operations(x.ctx, below, most)
		if err != nil {
			return nil, err
		}
		for _, o := range page.Operations {
			below = o.ID
			r := o.Spec.Request
			if !bytes.HasPrefix(r[:], moveMark) || o.Spec.Action != task.Move || queue != "" && o.Spec.Filter.Queue != queue {
				continue
			}
			id := moveID(r[:13])
			if known[id] == nil {
				known[id] = &move{id: id, named: r[13] == 1}
				moves = append(moves, known[id])
			}
			known[id].operations = append(known[id].operations, o)
		}
		if !page.More {
			break
		}
	}
	return moves, nil
}

// status returns the status of a move task.
func (m *move) status() string {
	status := "COMPLETED"
	for _, o := range m.operations {
		switch {
		case o.State == broker.OperationFailed:
			return "FAILED"
		case o.State == broker.OperationAborted:
			status = "CANCELLED"
		case o.State.Ended():
		case o.Stopping == broker.OperationAborted:
			return "CANCELLING"
		default:
			return "RUNNING"
		}
	}
	return status
}

func (m *move) moved() (n int64) {
	for _, o := range m.operations {
		n += o.Done
	}
	return n
}

// moveQueue finds the queue that a move task names by ARN.
func (x *exchange) moveQueue(parameter, arn string) (queues.Queue, error) {
	name, ok := queueOfARN(arn)
	if !ok {
		return queues.Queue{}, wire.ErrInvalidParameterValue.With("You must use this format to specify the %s: "+
			"arn:<partition>:<service>:<region>:<account-id>:<resource-id>", parameter)
	}
	q, err := x.named(name, x.Core.Queue)
	if err == error(wire.ErrQueueDoesNotExist) {
		err = wire.ErrResourceNotFound.With("The resource that you specified for the %s parameter doesn't exist.", parameter)
	}
	return q, err
}

// sources returns the names of the queues that have the target as their dead-letter queue.
func (x *exchange) sources(target string) (names []string, err error) {
	for after := ""; ; {
		queues, err := x.Core.Queues(x.ctx, "*", after, maxListed)
		if err != nil {
			return nil, err
		}
		for i := range queues {
			if redrivesTo(&queues[i], target) {
				names = append(names, queues[i].Name)
			}
		}
		if len(queues) < maxListed {
			return names, nil
		}
		after = queues[len(queues)-1].Name
	}
}

const maxMoveRate = 500

// startMove implements StartMessageMoveTask.
func startMove(x *exchange) error {
	in := x.in
	if in.SourceARN == "" {
		return wire.Missing("SourceArn")
	}
	if n := in.MaxPerSecond; n != nil && (*n < 1 || *n > maxMoveRate) {
		return wire.BadValue(*n, "MaxNumberOfMessagesPerSecond", "Must be between 1 and 500, if provided.")
	}
	source, err := x.moveQueue("SourceArn", in.SourceARN)
	if err != nil {
		return err
	}
	from, err := x.sources(source.Name)
	if err != nil {
		return err
	}
	if len(from) == 0 {
		return wire.ErrInvalidParameterValue.With("Source queue must be configured as a Dead Letter Queue.")
	}
	specs, err := x.moveSpecs(&source, from)
	if err != nil {
		return err
	}
	moves, err := x.movesOf(source.Name)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(moves, func(m *move) bool { return !slices.Contains(moveEnds, m.status()) }) {
		return wire.ErrInvalidParameterValue.With("There is already a task running. Only one active task is allowed for a source " +
			"queue arn at a given time.")
	}
	id := newMoveID()
	for i := range specs {
		specs[i].Request = id.request(in.DestinationARN != "", i, len(specs))
		if in.MaxPerSecond != nil {
			specs[i].Rate = float64(*in.MaxPerSecond) / float64(len(specs))
		}
		if err := x.Core.StartOperation(x.ctx, specs[i]); err != nil {
			return err // those already started continue, and are listed
		}
	}
	x.out.TaskHandle = id.handle(x.arnOf(source.Name))
	return nil
}

// moveEnds are the final states of a move task.
var moveEnds = []string{"COMPLETED", "CANCELLED", "FAILED"}

// moveSpecs returns the operations of a move task that returns messages to their source queues.
func (x *exchange) moveSpecs(source *queues.Queue, from []string) (specs []broker.OperationSpec, err error) {
	to := func(queue, tag string) broker.OperationSpec {
		s := broker.OperationSpec{Action: task.Move, ToQueue: queue}
		s.Filter.Queue, s.Filter.Not, s.Filter.Tag = source.Name, queue, tag
		return s
	}
	if x.in.DestinationARN != "" {
		target, err := x.moveQueue("DestinationArn", x.in.DestinationARN)
		switch {
		case err != nil:
			return nil, err
		case target.Name == source.Name:
			return nil, wire.ErrInvalidParameterValue.With("Source queue arn and destination queue arn cannot be the same.")
		case isFIFO(&target.Config) != isFIFO(&source.Config):
			return nil, wire.ErrInvalidParameterValue.With("Source queue and destination queue must be of the same type.")
		}
		specs = append(specs, to(target.Name, ""))
	} else {
		for _, name := range from {
			specs = append(specs, to(name, sourceTag(name)))
		}
	}
	if len(specs) > moveOperations {
		return nil, wire.ErrOverLimit.With("%d queues have this dead-letter queue, and a task without a DestinationArn serves at most %d.",
			len(specs), moveOperations)
	}
	return specs, nil
}

// cancelMove implements CancelMessageMoveTask.
func cancelMove(x *exchange) error {
	if x.in.TaskHandle == "" {
		return wire.Missing("TaskHandle")
	}
	h, ok := parseMoveHandle(x.in.TaskHandle)
	if !ok {
		return wire.ErrInvalidParameterValue.With("Value for parameter TaskHandle is invalid.")
	}
	queue := "" // any
	if h.Source != "" {
		source, err := x.moveQueue("SourceArn", h.Source)
		if err != nil {
			return err
		}
		queue = source.Name
	}
	moves, err := x.movesOf(queue)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(moves, func(m *move) bool { return h.is(m.id) })
	if at < 0 {
		return wire.ErrResourceNotFound.With("Task does not exist.")
	}
	m := moves[at]
	if _, err := x.named(m.operations[0].Spec.Filter.Queue, x.Core.Queue); err != nil {
		return err
	}
	if m.status() != "RUNNING" {
		return wire.ErrUnsupportedOperation.With("Only active tasks can be cancelled.")
	}
	for _, o := range m.operations {
		if o.State.Ended() {
			continue
		}
		if err := x.Core.AbortOperation(x.ctx, o.ID); err != nil && !errors.Is(err, task.ErrWrongState) {
			return err
		}
	}
	n := m.moved()
	x.out.Moved = &n
	return nil
}

// listMoves implements ListMessageMoveTasks.
func listMoves(x *exchange) error {
	if x.in.SourceARN == "" {
		return wire.Missing("SourceArn")
	}
	limit := 1
	if n := x.in.MaxResults; n != nil {
		if limit = *n; limit < 1 || limit > 10 {
			return wire.BadValue(*n, "MaxResults", "Must be between 1 and 10, if provided.")
		}
	}
	source, err := x.moveQueue("SourceArn", x.in.SourceARN)
	if err != nil {
		return err
	}
	moves, err := x.movesOf(source.Name)
	if err != nil {
		return err
	}
	for _, m := range moves[:min(len(moves), limit)] {
		x.out.Moves = append(x.out.Moves, x.moveTask(m))
	}
	return nil
}

// moveTask converts a move task to an item of a list.
func (x *exchange) moveTask(m *move) wire.MoveTask {
	first := m.operations[len(m.operations)-1]
	t := wire.MoveTask{Status: m.status(), Source: x.arnOf(first.Spec.Filter.Queue), Moved: m.moved(),
		StartedUnixMillis: first.CreatedAt.Time().Truncate(time.Millisecond).UnixMilli()}
	if t.Status == "RUNNING" {
		t.Handle = m.id.handle(t.Source)
	}
	if m.named {
		t.Target = x.arnOf(first.Spec.ToQueue)
	}
	rate := 0.0
	for _, o := range m.operations {
		t.ToMove += o.Spec.Total
		rate += o.Spec.Rate
		if o.State == broker.OperationFailed {
			t.Failure = o.Why
			if _, err := x.named(o.Spec.ToQueue, x.Core.Queue); err == error(wire.ErrQueueDoesNotExist) {
				t.Failure = wire.ErrQueueDoesNotExist.Code
			}
		}
	}
	t.PerSecond = int(rate + 0.5)
	return t
}
