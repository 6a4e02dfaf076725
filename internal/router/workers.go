package router

import (
	"context"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/system/workers"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Each node knows the workers that are connected to it. A list asks all of them, and names those that don't answer: it is useful without
// them.

// ClaimWatch reports claims that end without an action of their holders. It is an alias, so that implementations need
// not import this package.
type ClaimWatch = interface {
	Add(h broker.Hold)
	Remove(id task.ID, t task.Token)
	Close()
}

// Workers are those of all nodes.
type Workers struct {
	forward  *forward.Forwarder
	registry *registry.Registry                      // of this node
	watch    func(lost func(broker.Lost)) ClaimWatch // starts a watch of claims
}

// Workers returns a page of the workers of all nodes, or of the one that is named.
func (w *Workers) Workers(ctx context.Context, q registry.Query, node string) (list verb.Partial[registry.Page], err error) {
	nodes := w.forward.Nodes()
	if node != "" {
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(n forward.Node) bool { return n.Name != node })
		if len(nodes) == 0 {
			return list, task.NotFound("node", node)
		}
	}
	pages := forward.AskNodes(ctx, w.forward, verb.PartTime, nodes, registry.ListWorkers, registry.Listing{Query: q})
	for i, page := range pages.Value {
		for n := range page.Workers {
			page.Workers[n].Node = nodes[i].Name
		}
	}
	all, more := verb.MergePages(pages.Value, q.Limit, func(p registry.Page) ([]registry.Info, bool) { return p.Workers, p.More },
		func(a, b registry.Info) int { return a.Place().Compare(b.Place()) })
	list.Value, list.Missing = registry.Page{Workers: registry.Merge(all), More: more}, pages.Missing
	return list, ctx.Err()
}

// Watch has the registry of this node find out which workers are lost, until ctx is done.
func (w *Workers) Watch(ctx context.Context) {
	over := w.watch(func(l broker.Lost) { w.registry.LeaseOver(l.ID, l.Token, l.Reason) })
	defer over.Close()
	w.registry.Run(ctx, registry.Links{Elsewhere: w.seenElsewhere, Watch: func(ns string, id task.ID, t task.Token) {
		over.Add(broker.Hold{Namespace: ns, ID: id, Token: t})
	}, Unwatch: over.Remove})
}

// seenElsewhere reports which workers other nodes have seen since this one began to miss them. A node that does not answer has seen none.
func (w *Workers) seenElsewhere(ctx context.Context, missed []registry.Absence) []bool {
	others := slices.DeleteFunc(slices.Clone(w.forward.Nodes()), func(n forward.Node) bool { return n.Number == w.forward.Node() })
	seen := make([]bool, len(missed))
	for _, a := range forward.AskNodes(ctx, w.forward, verb.PartTime, others, registry.SeenWorkers, registry.Missed{Missed: missed}).Value {
		for i := range a[:min(len(a), len(seen))] {
			seen[i] = seen[i] || a[i]
		}
	}
	return seen
}

// unlisted stands for nodes that this one does not know of yet.
const unlisted = "(all others, which this node does not know of yet)"

// QueueWorkers returns what the nodes know of the workers of some queues, in their order, and which nodes did not answer in time.
func (w *Workers) QueueWorkers(ctx context.Context, queues []broker.QueueName) []task.QueueWorkers {
	of := registry.TallyOf{Queues: make([]registry.QueueName, len(queues))}
	for i, q := range queues {
		of.Queues[i] = registry.QueueName(q)
	}
	answers, _ := registry.TallyWorkers.Call(ctx, w.forward, of)
	if !w.forward.HasMap() {
		answers.Missing = []verb.Missing{{Node: unlisted}}
	}
	silent, away := w.splitMissing(ctx, answers.Missing)
	out := registry.Sum(answers.Value, len(queues))
	for i := range out {
		out[i].Silent, out[i].Away = silent, away
	}
	return out
}

// splitMissing divides the nodes that did not answer into those that run, as far as is known, and those that have not
// been heard from for a while. When a node is away, its workers come back through others.
func (w *Workers) splitMissing(ctx context.Context, missing []verb.Missing) (silent, away []string) {
	if len(missing) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, registry.TallyTime)
	defer cancel()
	gone, _ := cluster.AwayNodes.Call(ctx, w.forward, verb.Nothing{}) // without an answer none is known to be away
	for _, m := range missing {
		if slices.Contains(gone, m.Node) {
			away = append(away, m.Node)
		} else {
			silent = append(silent, m.Node)
		}
	}
	return silent, away
}

// CountWorkers returns the numbers of workers that take tasks of some queues, in their order. If a node that runs is
// missing, there may be more.
func (w *Workers) CountWorkers(ctx context.Context, ns string, queues []string) (out verb.Partial[[]int64]) {
	names := make([]broker.QueueName, len(queues))
	for i, q := range queues {
		names[i] = broker.QueueName{Namespace: ns, Name: q}
	}
	for _, of := range w.QueueWorkers(ctx, names) {
		out.Value = append(out.Value, int64(of.Workers))
		for _, node := range of.Silent {
			out.Missing = append(out.Missing, verb.Missing{Node: node, Why: verb.WhyLate})
		}
	}
	out.Missing = verb.JoinMissing(out.Missing)
	return out
}

// QuietWorker has a worker take no new tasks: see the control plane's workers.Workers.
func (w *Workers) QuietWorker(ctx context.Context, by task.Author, name workers.Name, called string, span time.Duration) (workers.Quiet,
	error) {
	return workers.MakeQuiet.Call(ctx, w.forward, workers.Quieting{Worker: name, Called: called, By: by, For: span})
}

// ResumeWorker lets a worker take tasks again, and reports whether it was quiet.
func (w *Workers) ResumeWorker(ctx context.Context, by task.Author, name workers.Name) (was bool, err error) {
	return workers.Resume.Call(ctx, w.forward, workers.Quieting{Worker: name, By: by})
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
