package router

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/roster"
	"github.com/pawlq/pawl/internal/task"
)

// Each node knows the workers that are connected to it. A list asks all of them, and names those that give no answer: the others'
// workers are worth telling.

// rosterTime is how long a list waits for another node.
const rosterTime = 2 * time.Second

var listWorkers = &method[roster.Query, roster.Page]{name: "workers", again: true, run: func(_ context.Context, r *Router, q roster.Query) (roster.Page, error) {
	return r.cfg.Roster.List(q), nil
}}

// Workers reads a page of the workers of all nodes, or of the one that is named.
func (r *Router) Workers(ctx context.Context, q roster.Query, node string) (list roster.Listing, err error) {
	nodes := r.cfg.Map.Nodes()
	if len(nodes) == 0 {
		nodes = []Node{{Number: r.cfg.Node}}
	}
	if node != "" {
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return n.Name != node })
		if len(nodes) == 0 {
			return list, task.NotFound("node", node)
		}
	}
	pages, errs := onNodes(ctx, r, listWorkers, nodes, q)
	for i, err := range errs {
		if err != nil {
			list.Silent = append(list.Silent, roster.SilentNode{Node: nodes[i].Name, Why: err.Error()})
		}
		for w := range pages[i].Workers {
			pages[i].Workers[w].Node = nodes[i].Name
		}
	}
	all, more := merged(pages, q.Limit, func(p roster.Page) ([]roster.Info, bool) { return p.Workers, p.More },
		func(a, b roster.Info) int { return a.Place().Compare(b.Place()) })
	list.Workers, list.More = roster.Merge(all), more
	return list, ctx.Err()
}

type tallyArgs struct {
	Namespace string
	Queues    []string
}

var tallyWorkers = &method[tallyArgs, roster.Tally]{name: "tally-workers", again: true, run: func(_ context.Context, r *Router, a tallyArgs) (roster.Tally, error) {
	return r.cfg.Roster.Tally(a.Namespace, a.Queues), nil
}}

// CountWorkers counts the workers that take tasks of some queues, in their order, as far as the nodes answer soon.
func (r *Router) CountWorkers(ctx context.Context, ns string, queues []string) []int64 {
	answers, _ := eachNode(ctx, r, tallyWorkers, ratesTime, tallyArgs{ns, queues})
	return roster.Sum(answers, len(queues))
}

// onNodes runs a method on several nodes at the same time.
func onNodes[A, R any](ctx context.Context, r *Router, m *method[A, R], nodes []Node, a A) ([]R, []error) {
	ctx, cancel := context.WithTimeout(ctx, rosterTime)
	defer cancel()
	answers, errs := make([]R, len(nodes)), make([]error, len(nodes))
	var calls sync.WaitGroup
	for i, n := range nodes {
		calls.Go(func() { answers[i], errs[i] = onNode(ctx, r, m, n, a) })
	}
	calls.Wait()
	return answers, errs
}

type quietArgs struct {
	Worker cluster.WorkerName
	Called string
	By     task.Author
	For    time.Duration // quiet
}

var (
	quietWorker = onSystem("quiet-worker", true, func(ctx context.Context, c Control, a quietArgs) (cluster.QuietWorker, error) {
		return c.QuietWorker(ctx, a.By, a.Worker, a.Called, a.For)
	})
	resumeWorker = onSystem("resume-worker", true, func(ctx context.Context, c Control, a quietArgs) (bool, error) {
		return c.ResumeWorker(ctx, a.By, a.Worker)
	})
)

// QuietWorker has a worker take no new tasks: see cluster.Control.
func (r *Router) QuietWorker(ctx context.Context, by task.Author, name cluster.WorkerName, called string, span time.Duration) (cluster.QuietWorker, error) {
	by, err := r.noted(by)
	if err != nil {
		return cluster.QuietWorker{}, err
	}
	return call(ctx, r, quietWorker, systemShard, quietArgs{name, called, by, span})
}

// ResumeWorker lets a worker take tasks again, and says whether it was quiet.
func (r *Router) ResumeWorker(ctx context.Context, by task.Author, name cluster.WorkerName) (was bool, err error) {
	if by, err = r.noted(by); err != nil {
		return false, err
	}
	return call(ctx, r, resumeWorker, systemShard, quietArgs{Worker: name, By: by})
}

// TellRoster is what has a roster hear from a node's copy which workers are to be quiet: see cluster.Copy.OnQuiet.
func TellRoster(to *roster.Roster) func(version uint64, all bool, quiet []cluster.QuietWorker, resumed []cluster.WorkerName) {
	return func(version uint64, all bool, quiet []cluster.QuietWorker, resumed []cluster.WorkerName) {
		words := make([]roster.Word, 0, len(quiet)+len(resumed))
		for _, q := range quiet {
			words = append(words, roster.Word{Namespace: q.Namespace, ID: q.ID,
				Quiet: &roster.Quiet{By: q.By, Reason: q.Reason, At: q.At, Until: q.Until, Version: q.Version}})
		}
		for _, w := range resumed {
			words = append(words, roster.Word{Namespace: w.Namespace, ID: w.ID})
		}
		to.Tell(version, all, words)
	}
}
