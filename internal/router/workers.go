package router

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster/workers"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Each node knows the workers that are connected to it. A list asks all of them, and names those that don't answer: it is useful without
// them.

// workersTime is how long a list waits for another node.
const workersTime = 2 * time.Second

var listWorkers = serve(&method[registry.Query, registry.Page]{Rule: verb.Rule{Name: "workers", Idempotent: true}, run: func(_ context.Context, r *Router, q registry.Query) (registry.Page, error) {
	return r.cfg.Registry.List(q), nil
}})

// Workers returns a page of the workers of all nodes, or of the one that is named.
func (r *Router) Workers(ctx context.Context, q registry.Query, node string) (list registry.Listing, err error) {
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
			list.Silent = append(list.Silent, registry.SilentNode{Node: nodes[i].Name, Why: err.Error()})
		}
		for w := range pages[i].Workers {
			pages[i].Workers[w].Node = nodes[i].Name
		}
	}
	all, more := verb.MergePages(pages, q.Limit, func(p registry.Page) ([]registry.Info, bool) { return p.Workers, p.More },
		func(a, b registry.Info) int { return a.Place().Compare(b.Place()) })
	list.Workers, list.More = registry.Merge(all), more
	return list, ctx.Err()
}

type missedArgs struct{ Missed []registry.Absence }

var seenWorkers = serve(&method[missedArgs, []bool]{Rule: verb.Rule{Name: "seen-workers", Idempotent: true}, run: func(_ context.Context, r *Router, a missedArgs) ([]bool, error) {
	return r.cfg.Registry.Seen(a.Missed), nil
}})

// WatchWorkers has the registry of this node find out which workers are lost, until ctx is done.
func (r *Router) WatchWorkers(ctx context.Context) {
	over := r.WatchClaims(func(l broker.Lost) { r.cfg.Registry.LeaseOver(l.ID, l.Token, l.Reason) })
	defer over.Close()
	r.cfg.Registry.Run(ctx, registry.Links{Elsewhere: r.seenElsewhere, Watch: func(ns string, id task.ID, t task.Token) {
		over.Add(broker.Hold{Namespace: ns, ID: id, Token: t})
	}})
}

// seenElsewhere reports which workers other nodes have seen since this one began to miss them. A node that does not answer has seen none.
func (r *Router) seenElsewhere(ctx context.Context, missed []registry.Absence) []bool {
	others := slices.DeleteFunc(slices.Clone(r.cfg.Map.Nodes()), func(n Node) bool { return n.Number == r.cfg.Node })
	answers, _ := onNodes(ctx, r, seenWorkers, others, missedArgs{missed})
	seen := make([]bool, len(missed))
	for _, a := range answers {
		for i := range a[:min(len(a), len(seen))] {
			seen[i] = seen[i] || a[i]
		}
	}
	return seen
}

type tallyArgs struct{ Queues []broker.QueueName }

var tallyWorkers = serve(&method[tallyArgs, registry.Tally]{Rule: verb.Rule{Name: "tally-workers", Idempotent: true}, run: func(_ context.Context, r *Router, a tallyArgs) (registry.Tally, error) {
	queues := make([]registry.QueueName, len(a.Queues))
	for i, q := range a.Queues {
		queues[i] = registry.QueueName(q)
	}
	return r.cfg.Registry.Tally(queues), nil
}})

// unlisted stands for nodes that this one does not know of yet.
const unlisted = "(all others, which this node does not know of yet)"

// QueueWorkers returns what the nodes know of the workers of some queues, in their order, and which nodes did not answer in time.
func (r *Router) QueueWorkers(ctx context.Context, queues []broker.QueueName) []task.QueueWorkers {
	answers, missing := eachNode(ctx, r, tallyWorkers, ratesTime, tallyArgs{queues})
	if len(r.cfg.Map.Nodes()) == 0 {
		missing = []string{unlisted}
	}
	silent, away := r.splitMissing(ctx, missing)
	out := registry.Sum(answers, len(queues))
	for i := range out {
		out[i].Silent, out[i].Away = silent, away
	}
	return out
}

var awayNodes = serve(&method[nothing, []string]{Rule: verb.Rule{Name: "away-nodes", Idempotent: true, Patience: ratesTime}, run: func(ctx context.Context, r *Router, _ nothing) ([]string, error) {
	out, err := r.cfg.Control.AwayNodes(ctx)
	return out, broker.Refusal(systemShard, err)
}})

// splitMissing divides the nodes that did not answer into those that run, as far as is known, and those that have not been heard from for a while.
// When a node is away, its workers come back through others.
func (r *Router) splitMissing(ctx context.Context, missing []string) (silent, away []string) {
	if len(missing) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ratesTime)
	defer cancel()
	gone, _ := call(ctx, r, awayNodes, systemShard, nothing{}) // without an answer none is known to be away
	for _, name := range missing {
		if slices.Contains(gone, name) {
			away = append(away, name)
		} else {
			silent = append(silent, name)
		}
	}
	return silent, away
}

// CountWorkers returns the numbers of workers that take tasks of some queues, in their order; nil: a node did not answer, so there may be
// more.
func (r *Router) CountWorkers(ctx context.Context, ns string, queues []string) []int64 {
	names := make([]broker.QueueName, len(queues))
	for i, q := range queues {
		names[i] = broker.QueueName{Namespace: ns, Name: q}
	}
	out := make([]int64, len(queues))
	for i, w := range r.QueueWorkers(ctx, names) {
		if len(w.Silent) > 0 {
			return nil
		}
		out[i] = int64(w.Workers)
	}
	return out
}

// onNodes runs a method on several nodes in parallel.
func onNodes[A, R any](ctx context.Context, r *Router, m *method[A, R], nodes []Node, a A) ([]R, []error) {
	ctx, cancel := context.WithTimeout(ctx, workersTime)
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
	Worker workers.Name
	Called string
	By     task.Author
	For    time.Duration // how long the worker is quiet
}

var (
	quietWorker = onSystem("quiet-worker", true, func(ctx context.Context, c Control, a quietArgs) (workers.Quiet, error) {
		return c.QuietWorker(ctx, a.By, a.Worker, a.Called, a.For)
	})
	resumeWorker = onSystem("resume-worker", true, func(ctx context.Context, c Control, a quietArgs) (bool, error) {
		return c.ResumeWorker(ctx, a.By, a.Worker)
	})
)

// QuietWorker has a worker take no new tasks: see cluster.Control.
func (r *Router) QuietWorker(ctx context.Context, by task.Author, name workers.Name, called string, span time.Duration) (workers.Quiet, error) {
	by, err := r.auditAuthor(by)
	if err != nil {
		return workers.Quiet{}, err
	}
	return call(ctx, r, quietWorker, systemShard, quietArgs{name, called, by, span})
}

// ResumeWorker lets a worker take tasks again, and reports whether it was quiet.
func (r *Router) ResumeWorker(ctx context.Context, by task.Author, name workers.Name) (was bool, err error) {
	if by, err = r.auditAuthor(by); err != nil {
		return false, err
	}
	return call(ctx, r, resumeWorker, systemShard, quietArgs{Worker: name, By: by})
}

// TellRegistry returns a function that tells a registry which workers are quiet according to a node's copy: see cluster.Copy.OnQuiet.
func TellRegistry(to *registry.Registry) func(version uint64, all bool, quiet []workers.Quiet, resumed []workers.Name) {
	return func(version uint64, all bool, quiet []workers.Quiet, resumed []workers.Name) {
		words := make([]registry.QuietChange, 0, len(quiet)+len(resumed))
		for _, q := range quiet {
			words = append(words, registry.QuietChange{Namespace: q.Namespace, ID: q.ID,
				Quiet: &registry.Quiet{By: q.By, Reason: q.Reason, At: q.At, Until: q.Until, Version: q.Version}})
		}
		for _, w := range resumed {
			words = append(words, registry.QuietChange{Namespace: w.Namespace, ID: w.ID})
		}
		to.SetQuiet(version, all, words)
	}
}
