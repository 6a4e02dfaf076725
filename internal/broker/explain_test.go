package broker

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// Waiting claims are distinguished from earlier polls, and their end is noticed.
func TestWaitingClaimsAreCounted(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.enqueue(task.Spec{Queue: "q"})[0]
		codes := func() (all []task.Why) {
			out, err := ExplainTask.Call(w.t.Context(), w, Explained{ns, first})
			e := out.Explanation
			w.must(err)
			for _, r := range e.Reasons {
				all = append(all, r.Code)
			}
			return all
		}
		want := func(what string, code task.Why) {
			w.t.Helper()
			if got := codes(); len(got) != 1 || got[0] != code {
				w.t.Errorf("%s: reasons %v, want %s", what, got, code)
			}
		}
		want("nobody ever asked", task.WhyNoWorker)
		w.cfg.Workers = func(_ context.Context, queues []QueueName) []task.QueueWorkers {
			if !slices.Equal(queues, []QueueName{{ns, "q"}}) {
				w.t.Errorf("Workers was called for %v", queues)
			}
			return []task.QueueWorkers{{Silent: []string{"n2"}}}
		}
		want("a node does not say who asked there", task.WhyWorkersUnknown)
		w.cfg.Workers = nil
		c := call("q")
		c.Types = []string{"b"}
		ctx, hangUp := context.WithCancel(w.t.Context())
		w.claim(ctx, c, time.Minute)
		want("one waits for another type", task.WhyNoWorkerForType)
		c.Types = []string{"z", "job"}
		w.must(copyQueues(w.t.Context(), w.Broker, one, map[string]task.QueueConfig{"q": {Version: 9, Settings: task.DefaultSettings(),
			Paused: true}}))
		got := w.claim(ctx, c, time.Minute)
		want("one waits, but it is paused", task.WhyQueuePaused)
		hangUp()
		if tasks := <-got; len(tasks) > 0 {
			w.t.Errorf("a claim of the paused queue got %v", tasks)
		}
		w.must(copyQueues(w.t.Context(), w.Broker, one, map[string]task.QueueConfig{"q": {Version: 10, Settings: task.DefaultSettings()}}))
		want("it has hung up", task.WhyWorkersBusy)
		w.Drain()
		if got := codes(); len(got) != 2 || got[0] != task.WhyDraining || got[1] != task.WhyWorkersBusy {
			w.t.Errorf("reasons while the node drains: %v", got)
		}
	})
}
