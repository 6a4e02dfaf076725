package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Workers is what is known of the workers that take tasks of a queue. The leader of the shard sees all claims, but a
// worker makes none while its slots are in use or other queues keep it busy. The nodes know of such workers.
type Workers struct {
	Since    store.Time // Polls includes all claims since then
	Polls    []Poll     // one per set of types
	Workers  task.QueueWorkers
	Draining bool // the node is about to stop: no claims wait there any more
}

// Poll records the claims for one set of types.
type Poll struct {
	Types   []string // sorted; none: any
	Waiting bool     // a claim is waiting at the moment
	Last    store.Time
	Worker  string // that polled last; "" if the claim spanned several shards
	// Called is the time of the last single call, and Caller who made it. A caller may name other queues in its next call
	// and these again in the one after that, but the nodes remember only the last call.
	Called store.Time
	Caller string
}

// askedLately is how long a worker that polls by single calls is expected to poll again.
const askedLately = 5 * time.Minute

// again returns when a worker that may poll again polled last, and its name. It returns 0 if there is no such worker
// apart from those that the nodes would report. A node that has started since does not know who was connected to it.
func (a *Poll) again(t *Workers, now store.Time) (store.Time, string) {
	switch lately := now.Add(-askedLately); {
	case a.Last >= lately && a.Last <= now.Add(-t.Workers.Known):
		return a.Last, a.Worker
	case a.Called != 0 && a.Called >= lately && !t.isQuiet(a.Caller):
		return a.Called, a.Caller
	}
	return 0, ""
}

// isQuiet reports whether a worker of that name is known to be quiet.
func (t *Workers) isQuiet(name string) bool {
	return name != "" && slices.ContainsFunc(t.Workers.Groups, func(g task.WorkerGroup) bool { return g.Quiet > 0 && g.Named == name })
}

// since returns the time since which every claim is known.
func (t *Workers) since(now store.Time) store.Time {
	return max(t.Since, now.Add(-min(t.Workers.Known, askedLately)))
}

// workersOf summarizes the workers for some types.
type workersOf struct {
	queue    string
	wanted   []string         // the types
	waiting  bool             // a claim that takes one of them is waiting
	workers  task.WorkerGroup // the workers that take one, added up
	asked    store.Time       // when a worker that may poll again polled last; 0: none did
	asker    string
	unlisted int        // workers whose types are not known
	others   [][]string // the types of workers that take none of them
	last     *Poll      // for any type, by any worker
}

func (t *Workers) of(queue string, types []string, now store.Time) *workersOf {
	o := &workersOf{queue: queue, wanted: types}
	takes := func(taken []string) bool {
		return slices.ContainsFunc(types, func(typ string) bool { return task.TakesType(taken, typ) })
	}
	for i := range t.Polls {
		a := &t.Polls[i]
		if o.last == nil || a.Last > o.last.Last {
			o.last = a
		}
		at, asker := a.again(t, now)
		switch {
		case !a.Waiting && at == 0:
		case !takes(a.Types):
			o.others = append(o.others, a.Types)
		case a.Waiting:
			o.waiting = true
		case at > o.asked:
			o.asked, o.asker = at, asker
		}
	}
	for i := range t.Workers.Groups {
		switch g := &t.Workers.Groups[i]; {
		case g.Untold:
			o.unlisted += g.Connected + g.Callers
		case takes(g.Types):
			o.workers.Add(g)
		case g.Active():
			o.others = append(o.others, g.Types)
		}
	}
	return o
}

// takenWith returns which types the workers take that take a type; nil: any, or it is not known.
func (t *Workers) takenWith(typ string, now store.Time) func(string) bool {
	var taken [][]string
	for i := range t.Polls {
		if at, _ := t.Polls[i].again(t, now); t.Polls[i].Waiting || at != 0 {
			taken = append(taken, t.Polls[i].Types)
		}
	}
	for i := range t.Workers.Groups {
		if g := &t.Workers.Groups[i]; g.Active() {
			if g.Untold {
				return nil
			}
			taken = append(taken, g.Types)
		}
	}
	taken = slices.DeleteFunc(taken, func(types []string) bool { return !task.TakesType(types, typ) })
	if len(taken) == 0 {
		return nil
	}
	return func(other string) bool {
		return slices.ContainsFunc(taken, func(types []string) bool { return task.TakesType(types, other) })
	}
}

// code returns why no claim takes a task of the types now; "": a waiting claim does. Claimed is the number of claimed tasks of the queue.
func (t *Workers) code(o *workersOf, claimed int64) task.Why {
	switch {
	case o.waiting:
		return ""
	case o.workers.Active() || o.asked != 0:
		return task.WhyWorkersBusy
	case o.unlisted > 0 || len(t.Workers.Silent) > 0 || len(o.others) == 0 && claimed > t.Workers.Held:
		return task.WhyWorkersUnknown
	case len(o.others) > 0:
		return task.WhyNoWorkerForType
	}
	return task.WhyNoWorker
}

// why returns why no claim takes a task of a type now; nil: a waiting claim does.
func (t *Workers) why(queue, typ string, claimed int64, now store.Time) *Reason {
	o := t.of(queue, []string{typ}, now)
	if code := t.code(o, claimed); code != "" {
		why := t.reason(code, o, claimed, now)
		return &why
	}
	return nil
}

// reason words a code for some types.
func (t *Workers) reason(code task.Why, o *workersOf, claimed int64, now store.Time) Reason {
	switch {
	case code == task.WhyWorkersBusy && o.workers.Active():
		return o.whyBusy()
	case code == task.WhyWorkersBusy:
		return o.whyAskedBefore()
	case code == task.WhyWorkersUnknown:
		return t.whyUnknown(o, claimed)
	case code == task.WhyNoWorkerForType:
		return t.whyNoWorkerForType(o)
	}
	return t.whyNoWorker(o, now)
}

// what describes the types.
func (o *workersOf) what() string {
	if len(o.wanted) == 1 {
		return fmt.Sprintf("type %q of queue %q", o.wanted[0], o.queue)
	}
	return fmt.Sprintf("%d types of queue %q", len(o.wanted), o.queue)
}

func (o *workersOf) whyBusy() Reason {
	g := &o.workers
	n := int64(g.Connected + g.Callers)
	detail := fmt.Sprintf("%s %s %s, but %s free", humanize.Count(n, "worker"), humanize.One(n, "handles", "handle"), o.what(),
		humanize.One(n, "it is not", "none of them is"))
	if g.Connected > 0 {
		detail += fmt.Sprintf(": %d of %s %s in use", g.Busy, humanize.Count(int64(g.Slots), "slot"),
			humanize.One(int64(g.Busy), "is", "are"))
	}
	if g.Callers > 0 {
		detail += fmt.Sprintf("; %d of them %s by single calls", g.Callers, humanize.One(int64(g.Callers), "claims", "claim"))
	}
	return Reason{Code: task.WhyWorkersBusy, Detail: detail, Change: "wait for a free slot, or start more workers"}
}

// whyAskedBefore is the reason if a worker is not connected but may poll again.
func (o *workersOf) whyAskedBefore() Reason {
	return Reason{Code: task.WhyWorkersBusy, Since: o.asked,
		Detail: fmt.Sprintf("no connected worker handles %s, but one%s polled for it at %s and may poll again", o.what(),
			named(o.asker), Clock(o.asked)),
		Change: "wait for it to poll again, or start more workers"}
}

// whyUnknown is the reason if it is not known whether a worker takes the types.
func (t *Workers) whyUnknown(o *workersOf, claimed int64) Reason {
	r := Reason{Code: task.WhyWorkersUnknown, Change: fmt.Sprintf("start a worker for queue %q, unless there is one", o.queue)}
	switch n := claimed - t.Workers.Held; {
	case o.unlisted > 0:
		r.Detail = fmt.Sprintf("it is not known whether a worker handles %s: %s %s the queue, with too many different sets of "+
			"types to list",
			o.what(), humanize.Count(int64(o.unlisted), "worker"), humanize.One(int64(o.unlisted), "serves", "serve"))
	case len(t.Workers.Silent) > 0:
		r.Detail = fmt.Sprintf("it is not known whether a worker handles %s: %s did not answer, and no worker at the other nodes does",
			o.what(), nodesText(t.Workers.Silent))
		r.Change = "check the nodes: pawl cluster status"
	default:
		r.Detail = fmt.Sprintf("no worker is known to serve queue %q, but %s of it %s: whoever holds %s may claim more, or may be gone",
			o.queue, humanize.Count(n, "task"), humanize.One(n, "is claimed", "are claimed"), humanize.One(n, "it", "them"))
	}
	r.Detail += o.restingText()
	return r
}

// whyNoWorkerForType is the reason if workers serve the queue, but none takes the type.
func (t *Workers) whyNoWorkerForType(o *workersOf) Reason {
	typ, others := o.wanted[0], map[string]bool{}
	for _, types := range o.others {
		for _, name := range types {
			others[name] = true
		}
	}
	names := schema.SortedKeys(others)
	shown := names[:min(len(names), maxTypesShown)]
	list := strings.Join(quoteAll(shown), ", ")
	if len(names) > maxTypesShown {
		list += ", …"
	}
	return Reason{Code: task.WhyNoWorkerForType, Type: typ, Types: shown, More: len(names) > maxTypesShown,
		Detail: fmt.Sprintf("no known worker handles %s: they handle %s", o.what(), list) + o.restingText() + t.awayText(),
		Change: o.resume() + fmt.Sprintf("start a worker with a handler for type %q", typ)}
}

func (t *Workers) whyNoWorker(o *workersOf, now store.Time) Reason {
	detail := fmt.Sprintf("no worker serves queue %q: none is connected, and none has polled since %s", o.queue, Clock(t.since(now)))
	if rests := o.restingText(); rests != "" {
		detail = fmt.Sprintf("no worker claims new tasks of queue %q", o.queue) + rests
	}
	if o.last != nil {
		detail += fmt.Sprintf("; the last one%s polled at %s", named(o.last.Worker), Clock(o.last.Last))
	}
	return Reason{Code: task.WhyNoWorker, Detail: detail + t.awayText(), Change: o.resume() + fmt.Sprintf("start a worker for queue %q",
		o.queue)}
}

// restingText describes workers that would take the task if they were not quiet or draining.
func (o *workersOf) restingText() (text string) {
	if n := int64(o.workers.Quiet); n > 0 {
		text += fmt.Sprintf("; %s that would handle it %s quiet%s", humanize.Count(n, "worker"), humanize.One(n, "is", "are"),
			named(o.workers.Named))
	}
	if n := int64(o.workers.Draining); n > 0 {
		text += fmt.Sprintf("; %s that would handle it %s", humanize.Count(n, "worker"), humanize.One(n, "is draining", "are draining"))
	}
	return text
}

// resume returns the advice to resume a quiet worker, to be followed by other advice.
func (o *workersOf) resume() string {
	if o.workers.QuietID == "" {
		return ""
	}
	return "resume the quiet worker: " + humanize.Command("worker resume", []string{o.workers.QuietID}) + "; or "
}

func (t *Workers) awayText() string {
	if len(t.Workers.Away) == 0 {
		return ""
	}
	return fmt.Sprintf("; %s away, so the workers connected there are not known", nodesText(t.Workers.Away)+
		humanize.One(int64(len(t.Workers.Away)), " is", " are"))
}

func nodesText(names []string) string {
	return humanize.One(int64(len(names)), "node ", "nodes ") + strings.Join(names, ", ")
}

func named(worker string) string {
	if worker == "" {
		return ""
	}
	return " (" + quoted(worker) + ")"
}

func quoteAll(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = quoted(name)
	}
	return out
}
