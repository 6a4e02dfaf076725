package workers

import (
	"context"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster/workers"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Each node knows the workers that are connected to it. A list asks all of them, and names those that don't answer: it is useful without
// them.

// TallyTime is how long a count waits for a node.
const TallyTime = 500 * time.Millisecond

// Control makes workers quiet where the system shard is led; elsewhere it returns the shard's error.
type Control interface {
	QuietWorker(ctx context.Context, by task.Author, name workers.Name, called string, span time.Duration) (workers.Quiet, error)
	ResumeWorker(ctx context.Context, by task.Author, name workers.Name) (was bool, err error)
	// AwayNodes returns the names of the nodes that have not been heard from for a while.
	AwayNodes(ctx context.Context) ([]string, error)
}

// ClaimWatch reports claims that end without an action of their holders. It is an alias, so that implementations need not import this package.
type ClaimWatch = interface {
	Add(h broker.Hold)
	Remove(id task.ID, t task.Token)
	Close()
}

// Workers are those of all nodes.
type Workers struct {
	forward  *forward.Forwarder
	registry *registry.Registry // of this node
	watch    func(lost func(broker.Lost)) ClaimWatch

	list   forward.Caller[registry.Query, registry.Page]
	seen   forward.Caller[missedArgs, []bool]
	tally  forward.Caller[tallyArgs, registry.Tally]
	away   forward.Caller[nothing, []string]
	quiet  forward.Caller[quietArgs, workers.Quiet]
	resume forward.Caller[quietArgs, bool]
}

// New returns the workers of all nodes. The registry has those of this one, and watch starts a watch of claims.
func New(f *forward.Forwarder, c Control, here *registry.Registry, watch func(lost func(broker.Lost)) ClaimWatch) *Workers {
	return &Workers{forward: f, registry: here, watch: watch,
		list: forward.RegisterIdempotent(f, "workers", func(_ context.Context, q registry.Query) (registry.Page, error) {
			return here.List(q), nil
		}),
		seen: forward.RegisterIdempotent(f, "seen-workers", func(_ context.Context, a missedArgs) ([]bool, error) {
			return here.Seen(a.Missed), nil
		}),
		tally: forward.RegisterIdempotent(f, "tally-workers", func(_ context.Context, a tallyArgs) (registry.Tally, error) {
			queues := make([]registry.QueueName, len(a.Queues))
			for i, q := range a.Queues {
				queues[i] = registry.QueueName(q)
			}
			return here.Tally(queues), nil
		}),
		away: forward.Register(f, &forward.Method[nothing, []string]{Rule: verb.Rule{Name: "away-nodes", Idempotent: true, Patience: TallyTime}, Run: func(ctx context.Context, _ nothing) ([]string, error) {
			out, err := c.AwayNodes(ctx)
			return out, broker.Refusal(forward.SystemShard, err)
		}}),
		quiet: forward.RegisterSystem(f, "quiet-worker", true, func(ctx context.Context, a quietArgs) (workers.Quiet, error) {
			return c.QuietWorker(ctx, a.By, a.Worker, a.Called, a.For)
		}),
		resume: forward.RegisterSystem(f, "resume-worker", true, func(ctx context.Context, a quietArgs) (bool, error) {
			return c.ResumeWorker(ctx, a.By, a.Worker)
		}),
	}
}

type nothing struct{}

type missedArgs struct{ Missed []registry.Absence }

type tallyArgs struct{ Queues []broker.QueueName }

type quietArgs struct {
	Worker workers.Name
	Called string
	By     task.Author
	For    time.Duration // how long the worker is quiet
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
	pages := w.list.OnNodes(ctx, verb.PartTime, nodes, q)
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
	for _, a := range w.seen.OnNodes(ctx, verb.PartTime, others, missedArgs{missed}).Value {
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
	answers := w.tally.OnAllNodes(ctx, TallyTime, tallyArgs{queues})
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

// splitMissing divides the nodes that did not answer into those that run, as far as is known, and those that have not been heard from for a while.
// When a node is away, its workers come back through others.
func (w *Workers) splitMissing(ctx context.Context, missing []verb.Missing) (silent, away []string) {
	if len(missing) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, TallyTime)
	defer cancel()
	gone, _ := w.away.Call(ctx, forward.SystemShard, nothing{}) // without an answer none is known to be away
	for _, m := range missing {
		if slices.Contains(gone, m.Node) {
			away = append(away, m.Node)
		} else {
			silent = append(silent, m.Node)
		}
	}
	return silent, away
}

// CountWorkers returns the numbers of workers that take tasks of some queues, in their order. If a node that runs is missing, there may be more.
func (w *Workers) CountWorkers(ctx context.Context, ns string, queues []string) (out verb.Partial[[]int64]) {
	names := make([]broker.QueueName, len(queues))
	for i, q := range queues {
		names[i] = broker.QueueName{Namespace: ns, Name: q}
	}
	for _, of := range w.QueueWorkers(ctx, names) {
		out.Value = append(out.Value, int64(of.Workers))
		for _, node := range of.Silent {
			out.Missing = append(out.Missing, verb.Missing{Node: node, Why: "did not answer in time"})
		}
	}
	out.Missing = verb.JoinMissing(out.Missing)
	return out
}

// QuietWorker has a worker take no new tasks: see the control plane's workers.Workers.
func (w *Workers) QuietWorker(ctx context.Context, by task.Author, name workers.Name, called string, span time.Duration) (workers.Quiet, error) {
	return w.quiet.Call(ctx, forward.SystemShard, quietArgs{name, called, by, span})
}

// ResumeWorker lets a worker take tasks again, and reports whether it was quiet.
func (w *Workers) ResumeWorker(ctx context.Context, by task.Author, name workers.Name) (was bool, err error) {
	return w.resume.Call(ctx, forward.SystemShard, quietArgs{Worker: name, By: by})
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
