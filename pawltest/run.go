package pawltest

import (
	"context"
	"testing"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

// Result is the outcome of one run of a task's handler.
type Result struct {
	// Task is the task as the broker has it after the run: State, Result, AttemptLog, Checkpoint, RunAt of the next attempt.
	*pawltype.Task
	// Err is what the handler returned. It is nil if the handler panicked: see the attempt log.
	Err error
}

// Run enqueues one task on a new broker, has a worker run it once with the mux, and returns the outcome. A handler that fails
// leaves its task retrying, unless it steers or opts allow no second attempt.
//
// The task must be due: Run does not wait for one with pawl.In.
func Run(t testing.TB, mux *pawl.Mux, args pawl.Args, opts ...pawl.Option) *Result {
	t.Helper()
	return New(t).Run(t, mux, args, opts...)
}

// RunFunc is Run for a single handler without a mux.
func RunFunc[T pawl.Args](t testing.TB, handle func(ctx context.Context, task *pawl.Task[T]) error, args T, opts ...pawl.Option) *Result {
	t.Helper()
	mux := pawl.NewMux()
	pawl.Handle(mux, handle)
	return Run(t, mux, args, opts...)
}

// Run enqueues one task on this broker and has a worker run it once. No other task may be waiting in its queue.
func (b *Broker) Run(t testing.TB, mux *pawl.Mux, args pawl.Args, opts ...pawl.Option) *Result {
	t.Helper()
	client := b.Client(t)
	ref, err := client.Enqueue(t.Context(), args, opts...)
	if err != nil {
		t.Fatalf("pawltest: %v", err)
	}
	return runTask(t, client, mux, ref.ID)
}

// RunAgain has a worker run the next attempt of a task that Run ran before, without waiting until it is due; a dead letter is
// replayed. It shows how a handler continues after a failure: with the results of its steps, its checkpoint and its once keys. The
// mux may be a different one, as after a new version of the program.
func (b *Broker) RunAgain(t testing.TB, mux *pawl.Mux, before *Result) *Result {
	t.Helper()
	client := b.Client(t)
	var err error
	switch before.State {
	case pawltype.StateReady: // released
	case pawltype.StateScheduled: // put off
		_, err = admin.New(client).Tasks().RunNow(t.Context(), before.ID)
	default:
		_, err = admin.New(client).Tasks().Retry(t.Context(), before.ID)
	}
	if err != nil {
		t.Fatalf("pawltest: %v", err)
	}
	return runTask(t, client, mux, before.ID)
}

// runTask has a worker run one attempt of a task that is due.
func runTask(t testing.TB, client *pawl.Client, mux *pawl.Mux, id string) *Result {
	t.Helper()
	task, err := client.Task(t.Context(), id)
	if err != nil {
		t.Fatalf("pawltest: %v", err)
	}
	if task.State != pawltype.StateReady {
		t.Fatalf("pawltest: task of type %q is %s, so no worker would run it now", task.Type, task.State)
	}
	result := &Result{}
	if !runOnce(t, client, mux, task, &result.Err) {
		t.Fatalf("pawltest: the mux has no handler for type %q, only for %q", task.Type, mux.Types())
	}
	if result.Task, err = client.Task(t.Context(), id); err != nil {
		t.Fatalf("pawltest: %v", err)
	}
	return result
}

// runOnce has a worker with one slot run the task. It reports false if the mux has no handler for the type.
func runOnce(t testing.TB, client *pawl.Client, mux *pawl.Mux, task *pawltype.Task, err *error) bool {
	known := false
	for _, name := range mux.Types() {
		known = known || name == task.Type
	}
	if !known {
		return false
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	handle := mux.Handler()
	one := pawl.NewMux()
	one.HandleFunc(task.Type, func(ctx context.Context, c *pawl.Claim) error {
		defer stop() // the worker takes no second task: it drains, and reports how this one ended
		e := handle(ctx, c)
		if c.ID == task.ID {
			*err = e
		}
		return e
	})
	worker := pawl.NewWorker(client, one, pawl.WorkerConfig{Queues: pawl.Strict{task.Queue}, Concurrency: 1})
	if e := worker.Run(ctx); e != nil {
		t.Fatalf("pawltest: %v", e)
	}
	return true
}
