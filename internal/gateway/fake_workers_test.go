package gateway

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/system/workers"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// fakeWorkers is the worker registry of one node, which learns of changes immediately. Node "n2" does not answer.
type fakeWorkers struct{ *fake }

func (f fakeWorkers) Workers(_ context.Context, q registry.Query, node string) (list verb.Partial[registry.Page], err error) {
	switch node {
	case "", "n1":
		list.Value = f.registry.List(q)
	case "n2":
		list.Missing = []verb.Missing{{Node: "n2", Why: "it is asleep"}}
	default:
		return list, task.NotFound("node", node)
	}
	for i := range list.Value.Workers {
		list.Value.Workers[i].Node = "n1"
	}
	return list, f.faults.ask()
}

func (f fakeWorkers) CountWorkers(_ context.Context, ns string, queues []string) verb.Partial[[]int64] {
	names := make([]registry.QueueName, len(queues))
	for i, q := range queues {
		names[i] = registry.QueueName{Namespace: ns, Name: q}
	}
	out := make([]int64, len(queues))
	for i, w := range registry.Sum([]registry.Tally{f.registry.Tally(names)}, len(queues)) {
		out[i] = int64(w.Workers)
	}
	return verb.Partial[[]int64]{Value: out}
}

func (f fakeWorkers) QuietWorker(_ context.Context, by task.Author, name workers.Name, _ string, span time.Duration) (workers.Quiet,
	error) {
	now := time.Now()
	row := workers.Quiet{Namespace: name.Namespace, ID: name.ID, By: by.Name, Reason: by.Reason, At: now, Until: now.Add(span), Version: 1}
	f.registry.SetQuiet(1, false, []registry.QuietChange{{Namespace: name.Namespace, ID: name.ID, Quiet: &registry.Quiet{By: by.Name,
		Reason: by.Reason, At: now, Until: row.Until, Version: 1}}})
	return row, f.faults.ask()
}

func (f fakeWorkers) ResumeWorker(_ context.Context, _ task.Author, name workers.Name) (bool, error) {
	was := false
	for _, w := range f.registry.List(registry.Query{Namespace: name.Namespace, ID: name.ID, Limit: 1}).Workers {
		was = w.Quiet != nil
	}
	f.registry.SetQuiet(1, false, []registry.QuietChange{{Namespace: name.Namespace, ID: name.ID}})
	return was, f.faults.ask()
}
