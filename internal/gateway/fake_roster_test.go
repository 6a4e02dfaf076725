package gateway

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/roster"
	"github.com/pawlq/pawl/internal/task"
)

// fakeWorkers are those of one node, which hears at once what is written. Node "n2" gives no answer.
type fakeWorkers struct{ roster *roster.Roster }

func (f fakeWorkers) Workers(_ context.Context, q roster.Query, node string) (list roster.Listing, err error) {
	switch node {
	case "", "n1":
		list.Page = f.roster.List(q)
	case "n2":
		list.Silent = []roster.SilentNode{{Node: "n2", Why: "it is asleep"}}
	default:
		return list, task.NotFound("node", node)
	}
	for i := range list.Workers {
		list.Workers[i].Node = "n1"
	}
	return list, nil
}

func (f fakeWorkers) CountWorkers(_ context.Context, ns string, queues []string) []int64 {
	names := make([]roster.QueueName, len(queues))
	for i, q := range queues {
		names[i] = roster.QueueName{Namespace: ns, Name: q}
	}
	out := make([]int64, len(queues))
	for i, w := range roster.Sum([]roster.Tally{f.roster.Tally(names)}, len(queues)) {
		out[i] = int64(w.Workers)
	}
	return out
}

func (f fakeWorkers) QuietWorker(_ context.Context, by task.Author, name cluster.WorkerName, _ string, span time.Duration) (cluster.QuietWorker, error) {
	now := time.Now()
	row := cluster.QuietWorker{Namespace: name.Namespace, ID: name.ID, By: by.Name, Reason: by.Reason, At: now, Until: now.Add(span), Version: 1}
	f.roster.Tell(1, false, []roster.Word{{Namespace: name.Namespace, ID: name.ID, Quiet: &roster.Quiet{By: by.Name, Reason: by.Reason, At: now, Until: row.Until, Version: 1}}})
	return row, nil
}

func (f fakeWorkers) ResumeWorker(_ context.Context, _ task.Author, name cluster.WorkerName) (bool, error) {
	was := false
	for _, w := range f.roster.List(roster.Query{Namespace: name.Namespace, ID: name.ID, Limit: 1}).Workers {
		was = w.Quiet != nil
	}
	f.roster.Tell(1, false, []roster.Word{{Namespace: name.Namespace, ID: name.ID}})
	return was, nil
}
