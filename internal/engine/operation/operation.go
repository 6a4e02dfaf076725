package operation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/auditlog"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Policy does one thing with many tasks, step by step.
var Policy = engine.Policy{
	Admitted: settleIn, Delivered: arrived, Check: check,
	Due: map[schema.DeadlineKind]func(*engine.Round, schema.Deadline){schema.OnOperation: operationEnds, schema.OnStep: stepEnds},
}

// An operation does one thing with many tasks, in all shards, step by step. It lives in one shard, its home, whose leader asks one
// shard after another to do some (operation_step.go) and notes here what came of each step. A step has a number, and the shard that
// does it remembers that number with the answer: whoever asks again, also another leader, gets the same answer, and nothing is done
// or counted twice.

// Spec is what an operator asks for.
type Spec struct {
	Action   task.BulkAction
	Filter   query.Filter  // with the states that it selects
	ToQueue  string        // of task.Move
	Priority task.Priority // of task.SetPriority
	Max      int64         // tasks at most; 0: all that match
	Canary   int64         // it pauses by itself after so many; 0: it does not
	Rate     float64       // tasks a second at most; 0: as fast as others allow
	By       task.Author   // with the reason
	// Request is that of the call: a repeat finds the same operation.
	Request task.ID
	// Total is how many tasks matched before the start, or at least so many.
	Total      int64
	TotalSoFar bool
	// Until is what the shards' clocks said when they counted: the operation is for the tasks created up to then.
	Until []ShardTime
}

// ShardTime is a moment by the clock of a shard. Those of two shards may be half a second apart.
type ShardTime struct {
	Shard uint32
	At    store.Time
}

// says is what a repeated request must say again: all but what was counted meanwhile, and from where it was said.
func (s Spec) says() []byte {
	s.Total, s.TotalSoFar, s.Until, s.By = 0, false, nil, task.Author{}
	return s.encode()
}

func (s *Spec) encode() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a rate is a finite number
	}
	return b
}

// State is where an operation is in its life. The values are stored.
type State byte

// The states of operations.
const (
	Running State = 1 + iota
	Paused
	Done
	Aborted
	Failed
)

var operationStates = []string{"", "running", "paused", "done", "aborted", "failed"}

func (s State) String() string {
	if int(s) >= len(operationStates) { // of a later release
		return fmt.Sprintf("state_%d", byte(s))
	}
	return operationStates[s]
}

// Ended says whether the operation has come to an end.
func (s State) Ended() bool { return s >= Done }

// Operation is everything known of an operation.
type Operation struct {
	ID        task.ID
	Spec      Spec
	State     State
	CreatedAt store.Time
	EndedAt   store.Time
	PausedAt  store.Time
	// Why it is paused, was aborted or has failed, and who wanted that; nobody: it was the operation itself.
	Why       string
	StoppedBy task.Author
	ResumedBy task.Author // last
	// Stopping is what it becomes when the step that may be under way is answered; 0: it goes on.
	Stopping State
	Tally
	Course
}

// Course is how far an operation has come.
type Course struct {
	Step   uint64 // the next one, from 1
	Shard  uint32 // where it is; 0: at none yet
	Cursor []byte // where the step begins in the shard
	Swept  bool   // all of the shard was looked at; what was sent away from there is waited for
	Probed bool   // the canary is over
}

// Tally counts what an operation, or a step of it, has done.
type Tally struct {
	Matched int64
	Done    int64
	Skipped []Skipped // by reason
	Failed  int64
	Errors  []TaskError // the first
}

// Skipped counts tasks that were passed over for one reason.
type Skipped struct {
	Reason string // task.SkipChanged and its like
	Count  int64
}

// TaskError says why nothing could be done with a task.
type TaskError struct {
	ID      task.ID
	Message string
}

// maxTaskErrors is how many errors an operation remembers.
const maxTaskErrors = 10

func (t *Tally) skip(reason string, n int64) {
	i := slices.IndexFunc(t.Skipped, func(s Skipped) bool { return s.Reason == reason })
	if i < 0 {
		i = len(t.Skipped)
		t.Skipped = append(t.Skipped, Skipped{Reason: reason})
	}
	t.Skipped[i].Count += n
}

func (t *Tally) fail(id task.ID, message string) {
	t.Failed++
	if len(t.Errors) < maxTaskErrors {
		t.Errors = append(t.Errors, TaskError{id, task.Cut(message, 512)})
	}
}

func (t *Tally) add(o *Tally) {
	t.Matched, t.Done, t.Failed = t.Matched+o.Matched, t.Done+o.Done, t.Failed+o.Failed
	for _, s := range o.Skipped {
		t.skip(s.Reason, s.Count)
	}
	t.Errors = append(t.Errors, o.Errors[:min(len(o.Errors), maxTaskErrors-len(t.Errors))]...)
}

// In is the filter of an operation as a shard is to have it: it selects only tasks that were there at the start.
func (o *Operation) In(shard uint32) query.Filter {
	until := o.CreatedAt // by the home's clock: the shard came later
	for _, u := range o.Spec.Until {
		if u.Shard == shard {
			until = u.At
		}
	}
	f := o.Spec.Filter
	if before := until + 1; f.CreatedBefore == 0 || f.CreatedBefore > before {
		f.CreatedBefore = before
	}
	return f
}

// Passed is how many tasks were skipped.
func (t *Tally) Passed() (n int64) {
	for _, s := range t.Skipped {
		n += s.Count
	}
	return n
}

const (
	// maxOperations is how many operations of a namespace may run or be paused.
	maxOperations = 10
	// keptOperations is how many that have ended are kept, and operationKept how long.
	keptOperations = 1000
	operationKept  = 30 * 24 * time.Hour
)

// Start makes an operation, which runs from now on. A repeat of its
// request finds it again. Too many that have not ended are refused with task.ErrWrongState.
func Start(r *engine.Round, ns string, id task.ID, spec Spec) (*Operation, error) {
	var ended []*Operation
	unfinished := 0
	for _, o := range readOperations(r.Tx(), ns) {
		switch {
		case o.Spec.Request == spec.Request && bytes.Equal(o.Spec.says(), spec.says()):
			return o, nil
		case o.Spec.Request == spec.Request:
			return nil, &task.Error{Code: task.CodeConflict, Field: "request_id",
				Message: fmt.Sprintf("request_id %q stands for operation %s, which says something else", spec.Request, o.ID)}
		case o.State.Ended():
			ended = append(ended, o)
		default:
			unfinished++
		}
	}
	if unfinished >= maxOperations {
		return nil, &task.Error{Code: task.CodeWrongState, Message: fmt.Sprintf(
			"%d operations have not ended, and no more can be: wait for one, or abort one", unfinished)}
	}
	for ; len(ended) >= keptOperations; ended = ended[1:] { // the oldest
		forgetOperation(r, ns, ended[0])
	}
	o := &Operation{ID: id, Spec: spec, State: Running, CreatedAt: r.Now(), Course: Course{Step: 1, Shard: id.Shard()}}
	setOperation(r, ns, o)
	r.ToOperate = true
	_, facts := audit.Changed(nil, spec.facts())
	noteOperation(r, ns, o, spec.By, task.OperationStarted, facts)
	operationHappened(r, ns, o, "started", spec.By.Reason)
	return o, nil
}

// operationFacts is what the audit tells of an operation, without what is looked for in payloads.
type operationFacts struct {
	Action   task.BulkAction `json:"action"`
	States   []task.State    `json:"states"`
	Type     string          `json:"type"`
	Tag      string          `json:"tag"`
	Key      string          `json:"key"`
	Worker   string          `json:"worker"`
	Error    string          `json:"error"`
	Print    string          `json:"fingerprint"`
	Of       string          `json:"operation,omitempty"` // whose tasks are meant
	Text     string          `json:"text"`
	Payload  []string        `json:"payload,omitempty"` // paths without their values, which may be out of a payload
	ToQueue  string          `json:"to_queue"`
	Priority task.Priority   `json:"priority"`
	Max      int64           `json:"max"`
	Canary   int64           `json:"canary"`
	Rate     float64         `json:"rate"`
	Total    int64           `json:"total"`
}

func (s *Spec) facts() operationFacts {
	f := &s.Filter
	out := operationFacts{Action: s.Action, States: f.States, Type: f.Type, Tag: f.Tag, Key: f.Key, Worker: f.Worker, Error: f.Error, Print: f.Fingerprint,
		ToQueue: s.ToQueue, Priority: s.Priority, Max: s.Max, Canary: s.Canary, Rate: s.Rate, Total: s.Total}
	if f.Operation != (task.ID{}) {
		out.Of = f.Operation.String()
	}
	if f.Text != "" {
		out.Text = fmt.Sprintf("%d bytes", len(f.Text))
	}
	out.Payload = f.PayloadPaths()
	return out
}

func noteOperation(r *engine.Round, ns string, o *Operation, by task.Author, action task.Action, after json.RawMessage) {
	auditlog.Record(r, audit.Entry{By: by, Action: action, Namespace: ns, Target: task.Target{Kind: task.OnOperation, Name: o.ID.String()}, Queue: o.Spec.Filter.Queue, After: after})
}

// Pause lets an operation rest once the step that may be under way is answered: then it is paused.
func Pause(r *engine.Round, ns string, id task.ID, by task.Author) (*Operation, error) {
	return steer(r, ns, id, by, task.OperationPaused, func(o *Operation) {
		if o.State == Running {
			o.Stopping, o.Why, o.StoppedBy = Paused, by.Reason, by
		}
	})
}

// Resume lets an operation go on where it was.
func Resume(r *engine.Round, ns string, id task.ID, by task.Author) (*Operation, error) {
	return steer(r, ns, id, by, task.OperationResumed, func(o *Operation) {
		o.State, o.Stopping, o.PausedAt, o.Why, o.StoppedBy, o.ResumedBy = Running, 0, 0, "", task.Author{}, by
	})
}

// Abort ends an operation, once the step that may be under way is answered. What is done stays done.
func Abort(r *engine.Round, ns string, id task.ID, by task.Author) (*Operation, error) {
	return steer(r, ns, id, by, task.OperationAborted, func(o *Operation) {
		o.Why, o.StoppedBy = by.Reason, by
		if o.State == Paused {
			stop(r, ns, o, Aborted)
		} else {
			o.Stopping = Aborted
		}
	})
}

// steer changes an operation that has not ended. A repeated abort changes nothing.
func steer(r *engine.Round, ns string, id task.ID, by task.Author, action task.Action, change func(*Operation)) (*Operation, error) {
	o, err := Show(r.Tx(), ns, id)
	if err != nil {
		return nil, err
	}
	_, verb, _ := strings.Cut(string(action), ".")
	aborted := o.State == Aborted || o.Stopping == Aborted
	switch {
	case aborted && action == task.OperationAborted:
		return o, nil
	case o.State.Ended():
		return nil, &task.Error{Code: task.CodeWrongState, Message: fmt.Sprintf("%s operation %q: it is %s", verb, id, o.State)}
	case aborted:
		return nil, &task.Error{Code: task.CodeWrongState, Message: fmt.Sprintf("%s operation %q: it is being aborted", verb, id)}
	}
	state, stopping := o.State, o.Stopping
	change(o)
	setOperation(r, ns, o)
	r.ToOperate = true
	if o.State != state || o.Stopping != stopping {
		noteOperation(r, ns, o, by, action, nil)
		if action == task.OperationResumed {
			operationHappened(r, ns, o, "resumed", by.Reason)
		}
	}
	return o, nil
}

// Wants is how many tasks the next step is to take at most, of a chunk; 0: it is only asked for what became of the last.
func (o *Operation) Wants(chunk int64) int {
	left := chunk
	if o.Spec.Max > 0 {
		left = min(left, o.Spec.Max-o.Matched)
	}
	if o.Spec.Canary > 0 && !o.Probed {
		left = min(left, o.Spec.Canary-o.Matched)
	}
	if o.Stopping != 0 || o.Swept {
		left = 0
	}
	return int(max(left, 0))
}

// Advance is what the leader of an operation's home has learned.
type Advance struct {
	Step   uint64
	Answer StepAnswer
	Next   uint32 // the shard that comes when the one of the step is through; 0: none
	Failed string // why the operation can't go on; "": it can
}

// Advanced notes what came of a step, once: a step that was noted before changes nothing. It returns the operation as it is
// then.
func Advanced(r *engine.Round, ns string, id task.ID, a Advance) (*Operation, error) {
	o, err := Show(r.Tx(), ns, id)
	if err != nil || o.State != Running || o.Step != a.Step {
		return o, err
	}
	o.Step++
	o.add(&a.Answer.Tally)
	o.Cursor, o.Swept = a.Answer.Next, a.Answer.Swept
	if o.Spec.Canary > 0 && !o.Probed && o.Matched >= o.Spec.Canary && o.Stopping == 0 {
		o.Probed, o.Stopping, o.Why = true, Paused, fmt.Sprintf("the canary of %d is over", o.Spec.Canary)
	}
	settled := a.Answer.Away == 0
	through := settled && o.Swept
	if through {
		o.Shard, o.Cursor, o.Swept = a.Next, nil, false
	}
	switch {
	case a.Failed != "":
		o.Why, o.StoppedBy = a.Failed, task.Author{}
		stop(r, ns, o, Failed)
	case through && a.Next == 0, settled && o.Spec.Max > 0 && o.Matched >= o.Spec.Max:
		o.Why, o.StoppedBy = "", task.Author{}
		stop(r, ns, o, Done)
	case settled && o.Stopping != 0:
		stop(r, ns, o, o.Stopping)
	}
	setOperation(r, ns, o)
	return o, nil
}

// stop brings an operation to rest or to its end. No step of it is under way.
func stop(r *engine.Round, ns string, o *Operation, s State) {
	o.State, o.Stopping, o.PausedAt = s, 0, 0
	if s == Paused {
		o.PausedAt = r.Now()
	} else {
		o.EndedAt = r.Now()
		r.SetDeadline(o.EndedAt.Add(operationKept), schema.OnOperation, ns, o.ID[:])
	}
	r.Rested = append(r.Rested, o.ID)
	operationHappened(r, ns, o, s.String(), o.Why)
}

func setOperation(r *engine.Round, ns string, o *Operation) {
	r.Tx().Set(schema.IDKey(ns, schema.TableOperation, o.ID), o.encode())
}

// operationEnds forgets an operation that ended long ago.
func operationEnds(r *engine.Round, d schema.Deadline) {
	if o, err := Show(r.Tx(), d.Namespace, d.ID()); err == nil {
		forgetOperation(r, d.Namespace, o)
	}
}

func forgetOperation(r *engine.Round, ns string, o *Operation) {
	r.Tx().Delete(schema.IDKey(ns, schema.TableOperation, o.ID))
	r.Tx().Delete(schema.DeadlineKey(o.EndedAt.Add(operationKept), schema.OnOperation, ns, o.ID[:]))
}

// Show reads an operation.
func Show(from store.Reader, ns string, id task.ID) (*Operation, error) {
	row, ok := from.Get(schema.IDKey(ns, schema.TableOperation, id))
	if !ok {
		return nil, task.NotFound("operation", id.String())
	}
	o, err := decodeOperation(id, row)
	schema.Must(err)
	return o, nil
}

// readOperations reads all, the oldest first: there are not many.
func readOperations(from store.Reader, ns string) (all []*Operation) {
	lo, hi := schema.TableBounds(ns, schema.TableOperation)
	from.Scan(lo, hi, func(k, row []byte) bool {
		o, err := decodeOperation(schema.IDAt(k), row)
		schema.Must(err)
		all = append(all, o)
		return true
	})
	return all
}

// Ref names an operation that runs.
type Ref struct {
	Namespace string
	ID        task.ID
}

// ListRunning are those of all namespaces. It asks no list of namespaces: after a start that may come later than a leader.
func ListRunning(from store.Reader) (running []Ref) {
	from.Scan([]byte{schema.TableOperation}, []byte{schema.TableOperation + 1}, func(k, row []byte) bool {
		id := schema.IDAt(k)
		o, err := decodeOperation(id, row)
		schema.Must(err)
		if o.State == Running {
			running = append(running, Ref{string(k[1 : len(k)-17]), id})
		}
		return true
	})
	return running
}

// Page is a page of a list.
type Page struct {
	Operations []*Operation
	More       bool
}

// List reads up to limit operations below an id, the newest first; a zero id: from the newest. A scope passes over those
// that are not there for it.
func List(from store.Reader, ns string, s task.Scope, below task.ID, limit int) (page Page) {
	lo, hi := schema.TableBounds(ns, schema.TableOperation)
	if below != (task.ID{}) {
		hi = schema.IDKey(ns, schema.TableOperation, below)
	}
	from.ScanBack(lo, hi, func(k, row []byte) bool {
		if page.More = len(page.Operations) == limit; page.More {
			return false
		}
		o, err := decodeOperation(schema.IDAt(k), row)
		schema.Must(err)
		if s.Covers(o.Scope()) {
			page.Operations = append(page.Operations, o)
		}
		return true
	})
	return page
}

// Within refuses an operation that may be about tasks outside a scope.
func Within(r *engine.Round, s task.Scope, ns string, id task.ID) error {
	if s.All() {
		return nil
	}
	o, err := Show(r.Tx(), ns, id)
	if err == nil && !s.Covers(o.Scope()) {
		err = task.NotFound("operation", id.String())
	}
	return err
}

// Scope is what the operation was limited to by who started it.
func (o *Operation) Scope() task.Scope { return task.Scope{Queues: o.Spec.Filter.Within} }

// operationHappened tells what became of an operation.
func operationHappened(r *engine.Round, ns string, o *Operation, what, why string) {
	r.Happened = append(r.Happened, engine.Happened{What: "operation." + what, Namespace: ns, Name: o.ID.String(), Queue: o.Spec.Filter.Queue, Reason: why})
}
