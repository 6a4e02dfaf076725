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
	"github.com/pawlq/pawl/internal/engine/actions"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Policy implements bulk operations.
var Policy = engine.Policy{
	Admitted: admitMoved, Delivered: delivered, Check: check,
	Due: map[schema.DeadlineKind]func(*engine.Round, schema.Deadline){schema.OnOperation: operationEnds, schema.OnStep: stepEnds},
}

// An operation acts on many tasks, in all shards, step by step. It lives in one shard, its home, whose leader asks one shard after another
// to do a step (step.go) and records the outcome of each here. A step has a number, and the shard that does it stores the number with the
// answer: a repeated request, even from another leader, gets the same answer, and nothing is done or counted twice. If a shard does not
// answer, the others go first: it is postponed, and asked for the same step later.

// Spec is what the operator has requested.
type Spec struct {
	Action   task.BulkAction
	Filter   query.Filter  // including the states that it selects
	ToQueue  string        // of task.Move
	Priority task.Priority // of task.SetPriority
	Max      int64         // maximum number of tasks; 0: all that match
	Canary   int64         // it pauses by itself after that many tasks; 0: it does not
	Rate     float64       // maximum tasks per second; 0: as fast as other calls allow
	By       task.Author   // including the reason
	// Request is the request id of the call: a repeat finds the same operation.
	Request task.ID
	// Total is how many tasks matched before the start, or a lower bound if TotalSoFar is set.
	Total      int64
	TotalSoFar bool
	// Until holds the shards' times when they counted: the operation is for tasks created up to then.
	Until []ShardTime
}

// ShardTime is a time of a shard's clock. The clocks of two shards may differ by half a second.
type ShardTime struct {
	Shard uint32
	At    store.Time
}

// identity encodes what a repeated request must have in common with the first: everything but the counts and the author.
func (s Spec) identity() []byte {
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

// State is the state of an operation. The values are stored.
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

// Ended reports whether the operation has ended.
func (s State) Ended() bool { return s >= Done }

// Operation is an operation with its progress.
type Operation struct {
	ID        task.ID
	Spec      Spec
	State     State
	CreatedAt store.Time
	EndedAt   store.Time
	PausedAt  store.Time
	// Why it is paused, was aborted or has failed, and who requested that; zero: the operation itself.
	Why       string
	StoppedBy task.Author
	ResumedBy task.Author // the last time
	// Stopping is the state it changes to when the steps in progress, if any, are answered; 0: it continues.
	Stopping State
	Tally
	Progress
}

// Progress is the position of an operation.
type Progress struct {
	Visit             // the current one
	Postponed []Visit // to be continued, in this order
	Last      uint32  // the highest shard with a visit: those below that have none are done
	Probed    bool    // the canary is done
}

// Visit is the position of an operation in a shard that it has not finished. A shard has one visit, whose steps are numbered from 1.
type Visit struct {
	Shard  uint32
	Step   uint64     // the next one
	Cursor []byte     // where the step begins
	Swept  bool       // the whole shard was searched; waiting for the tasks sent away from there
	Open   bool       // of a postponed visit: its step may have been done, or tasks sent away have not arrived
	Since  store.Time // when it was postponed
}

// Tally counts what an operation, or one of its steps, has done.
type Tally struct {
	Matched int64
	Done    int64
	Skipped []Skipped // by reason
	Failed  int64
	Errors  []TaskError // the first ones
}

// Skipped counts tasks that were skipped for one reason.
type Skipped struct {
	Reason string // such as task.SkipChanged
	Count  int64
}

// TaskError says why the action failed for a task.
type TaskError struct {
	ID      task.ID
	Message string
}

// maxTaskErrors bounds the errors that an operation records.
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

// In returns the operation's filter for a shard, which selects only tasks that existed at the start.
func (o *Operation) In(shard uint32) query.Filter {
	until := o.CreatedAt // by the home's clock: the shard was added later, or did not answer in time
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

// SkippedCount returns how many tasks were skipped.
func (t *Tally) SkippedCount() (n int64) {
	for _, s := range t.Skipped {
		n += s.Count
	}
	return n
}

const (
	// maxOperations bounds the operations of a namespace that run or are paused.
	maxOperations = 10
	// keptOperations is how many ended operations are kept, and operationKept for how long.
	keptOperations = 1000
	operationKept  = 30 * 24 * time.Hour
	// maxPostponed bounds the time that a visit waits while others are answered: its shard forgets its last step after task.StepWindow.
	maxPostponed = 24 * time.Hour
)

// Start creates an operation, which runs from now on, in a namespace that exists since a version (see engine.Begin). A repeat of the
// request returns it again. If too many operations have not ended, the error is task.ErrWrongState.
func Start(r *engine.Round, ns string, since uint64, id task.ID, spec Spec) (*Operation, error) {
	var ended []*Operation
	unfinished := 0
	for _, o := range readOperations(r.Tx(), ns) {
		switch {
		case o.Spec.Request == spec.Request && bytes.Equal(o.Spec.identity(), spec.identity()):
			return o, nil
		case o.Spec.Request == spec.Request:
			return nil, &task.Error{Code: task.CodeConflict, Field: "request_id",
				Message: fmt.Sprintf("request_id %q was used for operation %s, which differs from this one", spec.Request, o.ID)}
		case o.State.Ended():
			ended = append(ended, o)
		default:
			unfinished++
		}
	}
	if unfinished >= maxOperations {
		return nil, &task.Error{Code: task.CodeWrongState, Message: fmt.Sprintf(
			"%d operations have not ended, the maximum: wait for one to end, or abort one", unfinished)}
	}
	for ; len(ended) >= keptOperations; ended = ended[1:] { // the oldest
		forgetOperation(r, ns, ended[0])
	}
	o := &Operation{ID: id, Spec: spec, State: Running, CreatedAt: r.Now(), Progress: Progress{Visit: Visit{Shard: id.Shard(), Step: 1},
		Last: id.Shard()}}
	engine.Begin(r, ns, since)
	setOperation(r, ns, o)
	r.ToOperate = true
	_, facts := audit.Changed(nil, spec.facts())
	noteOperation(r, ns, o, spec.By, task.OperationStarted, facts)
	emitEvent(r, ns, o, "started", spec.By.Reason)
	return o, nil
}

// operationFacts describes an operation in the audit log, without the values searched for in payloads.
type operationFacts struct {
	Action      task.BulkAction `json:"action"`
	States      []task.State    `json:"states"`
	Type        string          `json:"type"`
	Tag         string          `json:"tag"`
	Key         string          `json:"key"`
	Worker      string          `json:"worker"`
	Error       string          `json:"error"`
	Fingerprint string          `json:"fingerprint"`
	Of          string          `json:"operation,omitempty"` // filter by operation
	Text        string          `json:"text"`
	Payload     []string        `json:"payload,omitempty"` // paths without the values, which may be taken from a payload
	ToQueue     string          `json:"to_queue"`
	Priority    task.Priority   `json:"priority"`
	Max         int64           `json:"max"`
	Canary      int64           `json:"canary"`
	Rate        float64         `json:"rate"`
	Total       int64           `json:"total"`
}

func (s *Spec) facts() operationFacts {
	f := &s.Filter
	out := operationFacts{Action: s.Action, States: f.States, Type: f.Type, Tag: f.Tag, Key: f.Key, Worker: f.Worker, Error: f.Error,
		Fingerprint: f.Fingerprint, ToQueue: s.ToQueue, Priority: s.Priority, Max: s.Max, Canary: s.Canary, Rate: s.Rate, Total: s.Total}
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
	actions.Record(r, audit.Entry{By: by, Action: action, Namespace: ns, Target: task.Target{Kind: task.OnOperation, Name: o.ID.String()},
		Queue: o.Spec.Filter.Queue, After: after})
}

// Pause pauses an operation as soon as its steps in progress, if any, are answered.
func Pause(r *engine.Round, ns string, id task.ID, by task.Author) (*Operation, error) {
	return control(r, ns, id, by, task.OperationPaused, func(o *Operation) {
		if o.State == Running {
			o.Stopping, o.Why, o.StoppedBy = Paused, by.Reason, by
		}
	})
}

// Resume continues a paused operation where it stopped.
func Resume(r *engine.Round, ns string, id task.ID, by task.Author) (*Operation, error) {
	return control(r, ns, id, by, task.OperationResumed, func(o *Operation) {
		o.State, o.Stopping, o.PausedAt, o.Why, o.StoppedBy, o.ResumedBy = Running, 0, 0, "", task.Author{}, by
	})
}

// Abort ends an operation as soon as its steps in progress, if any, are answered. What is done stays done.
func Abort(r *engine.Round, ns string, id task.ID, by task.Author) (*Operation, error) {
	return control(r, ns, id, by, task.OperationAborted, func(o *Operation) {
		o.Why, o.StoppedBy = by.Reason, by
		if o.State == Paused {
			stop(r, ns, o, Aborted)
		} else {
			o.Stopping = Aborted
		}
	})
}

// control changes an operation that has not ended, or is about to: as aborted or failed. A repeated abort is a no-op.
func control(r *engine.Round, ns string, id task.ID, by task.Author, action task.Action, change func(*Operation)) (*Operation, error) {
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
	case o.Stopping == Failed:
		return nil, &task.Error{Code: task.CodeWrongState,
			Message: fmt.Sprintf("%s operation %q: it has failed, and waits for the last answers",
				verb, id)}
	}
	state, stopping := o.State, o.Stopping
	change(o)
	setOperation(r, ns, o)
	r.ToOperate = true
	if o.State != state || o.Stopping != stopping {
		noteOperation(r, ns, o, by, action, nil)
		if action == task.OperationResumed {
			emitEvent(r, ns, o, "resumed", by.Reason)
		}
	}
	return o, nil
}

// Wants returns how many tasks of a chunk the next step may take; 0: the step only reports what has become of tasks sent away.
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

// CanPostpone reports whether another shard may be asked while a step is not answered: not if the tasks that this step may have taken
// count, up to Max or the canary.
func (o *Operation) CanPostpone() bool {
	return o.Spec.Max == 0 && (o.Spec.Canary == 0 || o.Probed)
}

// Advance reports a step's outcome to the home of an operation.
type Advance struct {
	Shard      uint32
	Step       uint64
	Answer     StepAnswer
	Unanswered bool   // the shard did not answer: it is postponed
	Next       uint32 // the shard after Last, needed once this one is finished or postponed; 0: none
	Failed     string // why the operation can't continue; "": it can
}

// Advanced records the outcome of a step, once: repeating it is a no-op. So is an outcome whose next shard was begun meanwhile, under
// another leader: the visit may be the current one again. It returns the operation as it is afterwards.
func Advanced(r *engine.Round, ns string, id task.ID, a Advance) (*Operation, error) {
	o, err := Show(r.Tx(), ns, id)
	if err != nil || o.State != Running || o.Shard != a.Shard || o.Step != a.Step || a.Next != 0 && a.Next <= o.Last {
		return o, err
	}
	if !a.Unanswered {
		o.answered(r, ns, &a)
	} else if o.Open = true; !o.CanPostpone() || !o.turn(r, a.Next, false) {
		return o, nil
	}
	setOperation(r, ns, o)
	return o, nil
}

// answered records the answer to a step of the current visit.
func (o *Operation) answered(r *engine.Round, ns string, a *Advance) {
	o.Step++
	o.add(&a.Answer.Tally)
	o.Cursor, o.Swept, o.Open = a.Answer.Next, a.Answer.Swept, a.Answer.Away > 0
	if o.Spec.Canary > 0 && !o.Probed && o.Matched >= o.Spec.Canary && o.Stopping == 0 {
		o.Probed, o.Stopping, o.Why = true, Paused, fmt.Sprintf("the canary of %d is done", o.Spec.Canary)
	}
	if a.Failed != "" {
		o.Stopping, o.Why, o.StoppedBy = Failed, a.Failed, task.Author{}
	}
	through := o.Swept && a.Failed == ""
	switch {
	case o.Stopping == 0 && (o.Open || !o.Swept) && len(o.Postponed) > 0 && o.Postponed[0].Since.Add(maxPostponed) <= r.Now():
		o.turn(r, 0, false)
	case o.Open:
	case through && a.Next == 0 && len(o.Postponed) == 0, a.Failed == "" && o.Spec.Max > 0 && o.Matched >= o.Spec.Max:
		o.Why, o.StoppedBy = "", task.Author{}
		stop(r, ns, o, Done)
	case o.Stopping != 0 && !o.turn(r, 0, false):
		stop(r, ns, o, o.Stopping)
	case o.Stopping == 0 && through:
		o.turn(r, a.Next, true)
	}
}

// turn continues in another shard: the next one, if any, or the first that was postponed; an operation that stops continues only open
// visits. The current visit is postponed, unless the shard is finished. If there is no other shard, turn returns false and changes nothing.
func (o *Operation) turn(r *engine.Round, next uint32, finished bool) bool {
	was := o.Visit
	i := slices.IndexFunc(o.Postponed, func(v Visit) bool { return v.Open || o.Stopping == 0 })
	switch {
	case next != 0 && o.Stopping == 0:
		o.Visit, o.Last = Visit{Shard: next, Step: 1}, next
	case i >= 0:
		o.Visit = o.Postponed[i]
		o.Postponed = slices.Delete(o.Postponed, i, i+1)
	default:
		return false
	}
	if !finished {
		was.Since = r.Now()
		o.Postponed = append(o.Postponed, was)
	}
	return true
}

// stop pauses or ends an operation that has no step in progress.
func stop(r *engine.Round, ns string, o *Operation, s State) {
	o.State, o.Stopping, o.PausedAt = s, 0, 0
	if s == Paused {
		o.PausedAt = r.Now()
	} else {
		o.EndedAt = r.Now()
		r.SetDeadline(o.EndedAt.Add(operationKept), schema.OnOperation, ns, o.ID[:])
	}
	r.Stopped = append(r.Stopped, o.ID)
	emitEvent(r, ns, o, s.String(), o.Why)
}

func setOperation(r *engine.Round, ns string, o *Operation) {
	r.Tx().Set(schema.IDKey(ns, schema.TableOperation, o.ID), o.encode())
}

// operationEnds deletes an operation that ended long ago.
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
	o, ok := schema.Read(from, schema.IDKey(ns, schema.TableOperation, id), func(row []byte) (*Operation, error) {
		return decodeOperation(id, row)
	})
	if !ok {
		return nil, task.NotFound("operation", id.String())
	}
	return o, nil
}

// readOperations reads all operations of a namespace, oldest first: there are not many.
func readOperations(from store.Reader, ns string) (all []*Operation) {
	lo, hi := schema.TableBounds(ns, schema.TableOperation)
	from.Scan(lo, hi, func(k, row []byte) bool {
		o, err := decodeOperation(schema.IDAt(k), row)
		o = schema.MustRow(k, o, err)
		all = append(all, o)
		return true
	})
	return all
}

// Ref names a running operation.
type Ref struct {
	Namespace string
	ID        task.ID
}

// ListRunning returns the running operations of all namespaces. It does not use the list of namespaces, because after a
// start that may arrive later than the shard's leadership.
func ListRunning(from store.Reader) (running []Ref) {
	from.Scan([]byte{schema.TableOperation}, []byte{schema.TableOperation + 1}, func(k, row []byte) bool {
		id := schema.IDAt(k)
		o, err := decodeOperation(id, row)
		o = schema.MustRow(k, o, err)
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

// List reads up to limit operations below an id, newest first; a zero id: from the newest. Operations outside the scope are skipped.
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
		o = schema.MustRow(k, o, err)
		if s.Covers(o.Scope()) {
			page.Operations = append(page.Operations, o)
		}
		return true
	})
	return page
}

// Within returns a not-found error for an operation that may act on tasks outside a scope.
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

// Scope returns the scope of the caller that started the operation.
func (o *Operation) Scope() task.Scope { return task.Scope{Queues: o.Spec.Filter.Within} }

// emitEvent publishes an event of an operation.
func emitEvent(r *engine.Round, ns string, o *Operation, what, why string) {
	r.Events = append(r.Events, engine.Event{Kind: "operation." + what, Namespace: ns, Name: o.ID.String(), Queue: o.Spec.Filter.Queue,
		Reason: why})
}
