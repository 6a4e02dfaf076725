package engine_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/operation"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// worldOf returns a world with a queue of n tasks.
func worldOf(t *testing.T, n int, payload []byte) *engine.World {
	w := engine.NewWorld(t)
	w.PutQueue("default", task.DefaultSettings(), false)
	w.EnqueueMany(n, payload)
	return w
}

// start starts an operation.
func start(w *engine.World, action task.BulkAction, spec operation.Spec) *operation.Operation {
	w.T.Helper()
	spec.Action, spec.Request = action, w.NewID()
	if spec.Filter.States == nil {
		spec.Filter.States, _ = action.Selects(nil)
	}
	o, err := engine.Run(w, func(r *engine.Round) (*operation.Operation, error) {
		return operation.Start(r, "default", 0, w.NewID(), spec)
	})
	if err != nil {
		w.T.Fatal(err)
	}
	w.Now = w.Now.Add(time.Second)
	return o
}

// advance does the next step of an operation.
func advance(w *engine.World, o *operation.Operation, chunk int64) *operation.Operation {
	w.T.Helper()
	c := stepCall(w, o, chunk)
	a, err := doStep(w, c, nil)
	if err != nil {
		w.T.Fatal(err)
	}
	o, err = engine.Run(w, func(r *engine.Round) (*operation.Operation, error) {
		return operation.Advanced(r, "default", o.ID, operation.Advance{Shard: o.Shard, Step: c.Step, Answer: a})
	})
	if err != nil {
		w.T.Fatal(err)
	}
	return o
}

func abort(w *engine.World, o *operation.Operation) *operation.Operation {
	w.T.Helper()
	if _, err := engine.Run(w, func(r *engine.Round) (*operation.Operation, error) {
		return operation.Abort(r, "default", o.ID, task.Author{})
	}); err != nil {
		w.T.Fatal(err)
	}
	return advance(w, o, 0)
}

// rowsIn counts the rows of a table.
func rowsIn(w *engine.World, table byte) (n int) {
	lo, hi := schema.TableBounds("default", table)
	w.Store.Scan(lo, hi, func(_, _ []byte) bool { n++; return true })
	return n
}

// A thousand ended operations are kept; the oldest makes room.
func TestKeptOperations(t *testing.T) {
	w := engine.NewWorld(t)
	ended := abort(w, start(w, task.Cancel, operation.Spec{}))
	old := func(i int) task.ID { return task.NewID(1, 1, uint64(i)) }
	w.Round(func(r *engine.Round) {
		row, _ := r.Tx().Get(schema.IDKey("default", schema.TableOperation, ended.ID))
		for i := range 999 {
			r.Tx().Set(schema.IDKey("default", schema.TableOperation, old(i)), row)
		}
	})
	for i, want := range []int{1000, 1001} { // the first that runs takes the place of the oldest, the second that of none
		start(w, task.Cancel, operation.Spec{})
		if n := rowsIn(w, schema.TableOperation); n != want {
			t.Errorf("after start %d there are %d operations, want %d", i, n, want)
		}
	}
	for i, want := range []bool{false, true} {
		if _, err := operation.Show(w.Store, "default", old(i)); (err == nil) != want {
			t.Errorf("operation %d, counted from the oldest: found = %t", i, !want)
		}
	}
}

// Operations are listed in pages, to callers who may see everything that they may act on.
func TestListOfOperations(t *testing.T) {
	w := engine.NewWorld(t)
	var ids []task.ID
	for i := range 4 {
		o := start(w, task.Cancel, operation.Spec{Filter: query.Filter{Within: [][]string{nil, {"mail*"}}[i%2]}})
		if i == 0 {
			abort(w, o)
		}
		ids = append(ids, o.ID)
	}
	all, mail := task.Scope{}, task.Scope{Queues: []string{"mail*"}}
	for _, c := range []struct {
		scope task.Scope
		below task.ID
		limit int
		want  string
	}{
		{all, task.ID{}, 9, "3 2 1 0 false"}, {all, task.ID{}, 4, "3 2 1 0 false"}, {all, task.ID{}, 3, "3 2 1 true"},
		{all, ids[2], 9, "1 0 false"}, {mail, task.ID{}, 9, "3 1 false"}, {mail, task.ID{}, 1, "3 true"}, {mail, ids[1], 9, "false"},
	} {
		page, got := operation.List(w.Store, "default", c.scope, c.below, c.limit), ""
		for _, o := range page.Operations {
			for i, id := range ids {
				if o.ID == id {
					got += fmt.Sprint(i, " ")
				}
			}
		}
		if got += fmt.Sprint(page.More); got != c.want {
			t.Errorf("List with %+v = %s", c, got)
		}
	}
	w.Round(func(r *engine.Round) {
		for i, id := range ids {
			if err := operation.Within(r, all, "default", id); err != nil {
				t.Error(err)
			}
			if err := operation.Within(r, mail, "default", id); (err == nil) != (i%2 == 1) {
				t.Errorf("operation %d for a caller that may see mail: %v", i, err)
			}
		}
		if err := operation.Within(r, all, "default", task.ID{9}); err != nil {
			t.Errorf("an unknown operation for a caller that may see everything: %v", err)
		}
		if err := operation.Within(r, mail, "default", task.ID{9}); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("an unknown operation for a caller that may see mail: %v, want ErrNotFound", err)
		}
	})
	if got, want := fmt.Sprint(operation.ListRunning(w.Store)), fmt.Sprint([]operation.Ref{{Namespace: "default", ID: ids[1]},
		{Namespace: "default", ID: ids[2]}, {Namespace: "default", ID: ids[3]}}); got != want {
		t.Errorf("running operations are %s, want %s", got, want)
	}
}

// Each change by an operator is in the audit log, once.
func TestAuditOfOperations(t *testing.T) {
	w := engine.NewWorld(t)
	by := task.Author{Name: "ada"}
	o := start(w, task.Cancel, operation.Spec{By: by})
	type verb func(*engine.Round, string, task.ID, task.Author) (*operation.Operation, error)
	for i, c := range []struct {
		do   verb
		want int
	}{{nil, 1}, {operation.Pause, 2}, {operation.Pause, 2}, {operation.Resume, 3}, {operation.Resume, 3}, {operation.Abort, 4},
		{operation.Abort, 4}} {
		if c.do != nil {
			if _, err := engine.Run(w, func(r *engine.Round) (*operation.Operation, error) {
				return c.do(r, "default", o.ID, by)
			}); err != nil {
				t.Fatal(err)
			}
		}
		page, err := audit.Read(w.Store, 1, audit.Query{Namespace: "default"}, nil, 100)
		if err != nil || len(page.Entries) != c.want {
			t.Errorf("after call %d there are %d audit entries, want %d: %v", i, len(page.Entries), c.want, err)
		}
	}
}

// An answer counts only for its own step of a running operation.
func TestAdvancedOnlyWhileItRuns(t *testing.T) {
	w := worldOf(t, 3, nil)
	o := start(w, task.Cancel, operation.Spec{Max: 1})
	if _, err := engine.Run(w, func(r *engine.Round) (*operation.Operation, error) {
		return operation.Advanced(r, "default", task.ID{9}, operation.Advance{Step: 1})
	}); !errors.Is(err, task.ErrNotFound) {
		t.Errorf("Advanced of an unknown operation: %v, want ErrNotFound", err)
	}
	if o = advance(w, o, 100); o.State != operation.Done || o.Matched != 1 {
		t.Errorf("an operation limited to one task is %s with %d matched", o.State, o.Matched)
	}
	paused := start(w, task.Cancel, operation.Spec{})
	if _, err := engine.Run(w, func(r *engine.Round) (*operation.Operation, error) {
		return operation.Pause(r, "default", paused.ID, task.Author{})
	}); err != nil {
		t.Fatal(err)
	}
	paused = advance(w, paused, 1)
	late, err := engine.Run(w, func(r *engine.Round) (*operation.Operation, error) {
		return operation.Advanced(r, "default", paused.ID, operation.Advance{Shard: paused.Shard, Step: paused.Step,
			Answer: operation.StepAnswer{
				Tally: operation.Tally{Matched: 1, Done: 1}}})
	})
	if err != nil || late.State != operation.Paused || late.Matched != paused.Matched {
		t.Errorf("a late answer to a paused operation: %s with %d matched, %v", late.State, late.Matched, err)
	}
}

// A step reads dead letters and tasks to move completely; their bytes bound it.
func TestSelectedBytes(t *testing.T) {
	w := worldOf(t, 3, make([]byte, schema.PageBytes/2))
	for _, c := range []struct {
		action task.BulkAction
		want   int
		views  bool
	}{{task.Cancel, 3, false}, {task.Move, 2, true}} {
		o := start(w, c.action, operation.Spec{ToQueue: "other"})
		s, err := operation.SelectStep(w.Store, "default", stepCall(w, o, 100))
		if err != nil || len(s.Tasks) != c.want || (s.Tasks[0].View != nil) != c.views || s.Swept == c.views {
			t.Errorf("%s selected %d tasks, read completely: %t, none left: %t, %v", c.action, len(s.Tasks), s.Tasks[0].View != nil,
				s.Swept, err)
		}
	}
}

// Between the search and the entry a task may have changed, or its queue may be gone.
func TestSelectedHasChanged(t *testing.T) {
	w := engine.NewWorld(t)
	w.Die("mail", 1, engine.Deadly)
	for _, c := range []struct {
		spoil func(s *operation.Selected)
		gone  []string
		want  string // why it is skipped
		err   error
	}{
		{func(s *operation.Selected) { s.Ended++ }, nil, task.SkipChanged, nil},
		{func(s *operation.Selected) { s.State = task.Poisoned }, nil, task.SkipChanged, nil},
		{func(s *operation.Selected) { s.ID[15]++ }, nil, task.SkipChanged, nil},
		{func(s *operation.Selected) { s.Queue = "lost" }, nil, "", engine.ErrUnknownQueue},
		{func(s *operation.Selected) { s.Queue = "lost" }, []string{"other", "lost"}, task.SkipQueueGone, nil},
		{func(*operation.Selected) {}, nil, "", nil},
	} {
		o := start(w, task.Replay, operation.Spec{})
		call := stepCall(w, o, 1)
		s, err := operation.SelectStep(w.Store, "default", call)
		if err != nil {
			t.Fatal(err)
		}
		c.spoil(&s.Tasks[0])
		a, err := engine.Run(w, func(r *engine.Round) (operation.StepAnswer, error) {
			return operation.DoStep(r, "default", call, s, c.gone)
		})
		if !errors.Is(err, c.err) {
			t.Errorf("want skipped as %q, got the error %v", c.want, err)
		}
		skipped := ""
		for _, k := range a.Skipped {
			skipped = k.Reason
		}
		if skipped != c.want || (a.Done == 1) != (c.want == "" && c.err == nil) {
			t.Errorf("skipped as %q with %d done, want %q", skipped, a.Done, c.want)
		}
		abort(w, o)
	}
}

// A task that its new queue refuses is restored, and the operation records why; one whose unique key another task has
// by now counts as skipped.
func TestRefusedMove(t *testing.T) {
	for code, want := range map[task.Code]string{
		task.CodeInvalidArgument: "1 matched, 0 done, 1 failed: no",
		task.CodeConflict:        "1 matched, 0 done, 1 skipped as unique_key_taken",
		task.CodeQueueFull:       "1 matched, 0 done",
	} {
		w := worldOf(t, 1, nil)
		o := advance(w, start(w, task.Move, operation.Spec{ToQueue: "other"}), 9)
		moved := w.Messages(9)
		w.Round(func(r *engine.Round) {
			engine.Delivered(r, "default", moved[0].Request, engine.Accepted{}, &task.Error{Code: code, Message: "no"})
		})
		o = advance(w, o, 9)
		if got := tallyWords(&o.Tally); got != want {
			t.Errorf("%s: %s, want %s", code, got, want)
		}
		if n := w.ReadyIn("default"); (n == 1) != (code != task.CodeQueueFull) {
			t.Errorf("%s: %d tasks are ready in the old queue", code, n)
		}
	}
}

// A moved task whose message is answered only days later is still there: it is restored if it is refused, and else it
// says where it went for an hour more at most.
func TestMoveRefusedLate(t *testing.T) {
	for _, code := range []task.Code{"", task.CodeInvalidArgument} {
		w := worldOf(t, 1, nil)
		o := advance(w, start(w, task.Move, operation.Spec{ToQueue: "other"}), 9)
		m := w.Messages(9)[0]
		w.Pass(task.MessageWindow + 49*time.Hour)
		if err := w.Check(); err != nil {
			t.Errorf("while the message is on its way: %v", err)
		}
		var refused *task.Error
		if code != "" {
			refused = &task.Error{Code: code, Message: "no"}
		}
		w.Round(func(r *engine.Round) {
			engine.Delivered(r, "default", m.Request, engine.Accepted{ID: w.NewID()}, refused)
		})
		v, err := query.Show(w.Store, "default", m.Spec.Moved.From)
		if err != nil || (v.Exec.State == task.Ready) != (code != "") || (v.Exec.MovedTo == task.ID{}) != (code != "") {
			t.Errorf("after the answer %q, three days later: %+v, %v", code, v, err)
		}
		advance(w, o, 9)
		w.Pass(2 * time.Hour)
		if _, err := query.Show(w.Store, "default", m.Spec.Moved.From); (err == nil) != (code != "") {
			t.Errorf("two hours after the answer %q: %v", code, err)
		}
		if err := w.Check(); err != nil {
			t.Errorf("after the answer %q: %v", code, err)
		}
	}
}

// A shard remembers its last step for 30 days, and at least as long as a task is on its way.
func TestStepsAreForgotten(t *testing.T) {
	const day = 24 * time.Hour
	w := worldOf(t, 3, nil)
	expect := func(when string, want int) {
		t.Helper()
		if n := rowsIn(w, schema.TableStep); n != want {
			t.Errorf("%s: %d step rows, want %d", when, n, want)
		}
		if err := w.Check(); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	o := advance(w, start(w, task.SetPriority, operation.Spec{Priority: task.Low}), 1)
	w.Pass(20 * day)
	advance(w, o, 1)
	w.Pass(10*day + time.Minute)
	expect("30 days after the first step", 1)
	w.Pass(20*day - 2*time.Minute)
	expect("30 days after the second, nearly,", 1)
	w.Pass(2 * time.Minute)
	expect("30 days after the second", 0)

	o = advance(w, start(w, task.Move, operation.Spec{ToQueue: "other"}), 1)
	w.Round(func(r *engine.Round) {
		id := o.ID
		operation.Policy.Due[schema.OnStep](r, schema.Deadline{At: w.Now, Kind: schema.OnStep, Namespace: "default", Rest: id[:]})
	})
	expect("after a deadline that is not the step's", 1)
	w.Pass(40 * day)
	expect("while a task is on its way", 1)
	for _, p := range w.Messages(9) {
		w.Round(func(r *engine.Round) { engine.Delivered(r, "default", p.Request, engine.Accepted{ID: w.NewID()}, nil) })
	}
	w.Pass(2 * time.Hour)
	expect("when it has arrived", 0)
}

// A moved task of an operation without a step is damage.
func TestMoveWithoutAStep(t *testing.T) {
	w := worldOf(t, 1, nil)
	o := advance(w, start(w, task.Move, operation.Spec{ToQueue: "other"}), 9)
	w.Round(func(r *engine.Round) { r.Tx().Delete(schema.IDKey("default", schema.TableStep, o.ID)) })
	defer func() {
		if recover() == nil {
			t.Error("a moved task of an operation without a step was accepted")
		}
	}()
	w.Round(func(r *engine.Round) {
		engine.Delivered(r, "default", w.Messages(1)[0].Request, engine.Accepted{}, nil)
	})
}
