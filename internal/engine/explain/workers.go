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

// Workers is what is known of the workers that take tasks of a queue. All claims come to the leader of the shard, but a worker makes none
// while its slots are in use or other queues give it enough. The nodes know of such workers.
type Workers struct {
	Since    store.Time // all claims since then are among the asks
	Polls    []Poll     // one for each set of types
	Workers  task.QueueWorkers
	Draining bool // the node is about to stop: nobody waits there any more
}

// Poll is what was asked for.
type Poll struct {
	Types   []string // sorted; none: any
	Waiting bool     // somebody waits for it at this moment
	Last    store.Time
	Worker  string // that asked last; "" where the claim was one over several shards
	// Called is when somebody asked last by a single call, Caller who did. A caller may name other queues in its next call, and these again
	// in the one after that: the nodes remember the last call only.
	Called store.Time
	Caller string
}

// askedLately is how long a worker that asked by single calls counts as one that will ask again.
const askedLately = 5 * time.Minute

// again is when somebody asked last who may ask again, and who; 0: nobody whom the nodes would not tell of, if they were there. A node that
// has started since does not know who was connected to it.
func (a *Poll) again(t *Workers, now store.Time) (store.Time, string) {
	switch lately := now.Add(-askedLately); {
	case a.Last >= lately && a.Last <= now.Add(-t.Workers.Known):
		return a.Last, a.Worker
	case a.Called != 0 && a.Called >= lately && !t.isQuiet(a.Caller):
		return a.Called, a.Caller
	}
	return 0, ""
}

// isQuiet says whether one who calls itself so is known to be quiet.
func (t *Workers) isQuiet(name string) bool {
	return name != "" && slices.ContainsFunc(t.Workers.Groups, func(g task.WorkerGroup) bool { return g.Quiet > 0 && g.Named == name })
}

// since is from when on every claim is known.
func (t *Workers) since(now store.Time) store.Time {
	return max(t.Since, now.Add(-min(t.Workers.Known, askedLately)))
}

// workersOf are those of some types.
type workersOf struct {
	queue   string
	wanted  []string         // those types
	waiting bool             // a claim that takes one of them
	workers task.WorkerGroup // that take one, all together
	asked   store.Time       // when one that may ask again asked last; 0: nobody did
	asker   string
	untold  int        // workers of which is not told what they take
	others  [][]string // the types of those who take none of them
	last    *Poll      // for whatever type, by whomever
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
			o.untold += g.Connected + g.Callers
		case takes(g.Types):
			o.workers.Add(g)
		case g.Active():
			o.others = append(o.others, g.Types)
		}
	}
	return o
}

// code is why no claim takes a task of the types now; "": some claim that waits does. Claimed counts the queue's tasks that are.
func (t *Workers) code(o *workersOf, claimed int64) task.Why {
	switch {
	case o.waiting:
		return ""
	case o.workers.Active() || o.asked != 0:
		return task.WhyWorkersBusy
	case o.untold > 0 || len(t.Workers.Silent) > 0 || len(o.others) == 0 && claimed > t.Workers.Held:
		return task.WhyWorkersUnknown
	case len(o.others) > 0:
		return task.WhyNoWorkerForType
	}
	return task.WhyNoWorker
}

// why says why no claim takes a task of a type now; nil: some claim that waits does.
func (t *Workers) why(queue, typ string, claimed int64, now store.Time) *Reason {
	o := t.of(queue, []string{typ}, now)
	if code := t.code(o, claimed); code != "" {
		why := t.reason(code, o, claimed, now)
		return &why
	}
	return nil
}

// reason puts a code of some types into words.
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

// what names the types.
func (o *workersOf) what() string {
	if len(o.wanted) == 1 {
		return fmt.Sprintf("type %q of queue %q", o.wanted[0], o.queue)
	}
	return fmt.Sprintf("%d types of queue %q", len(o.wanted), o.queue)
}

func (o *workersOf) whyBusy() Reason {
	g := &o.workers
	n := int64(g.Connected + g.Callers)
	detail := fmt.Sprintf("%s %s %s, but %s free", humanize.Count(n, "worker"), humanize.One(n, "handles", "handle"), o.what(), humanize.One(n, "it is not", "none of them is"))
	if g.Connected > 0 {
		detail += fmt.Sprintf(": %d of %s %s in use", g.Busy, humanize.Count(int64(g.Slots), "slot"), humanize.One(int64(g.Busy), "is", "are"))
	}
	if g.Callers > 0 {
		detail += fmt.Sprintf("; %d of them %s by single calls", g.Callers, humanize.One(int64(g.Callers), "claims", "claim"))
	}
	return Reason{Code: task.WhyWorkersBusy, Detail: detail, Change: "wait for a free slot, or start more workers"}
}

// whyAskedBefore tells of a worker that is not connected and may ask again.
func (o *workersOf) whyAskedBefore() Reason {
	return Reason{Code: task.WhyWorkersBusy, Since: o.asked,
		Detail: fmt.Sprintf("no connected worker handles %s, but one%s polled for it at %s and may poll again", o.what(), named(o.asker), Clock(o.asked)),
		Change: "wait for it to poll again, or start more workers"}
}

// whyUnknown says why nobody can say whether a worker takes the types.
func (t *Workers) whyUnknown(o *workersOf, claimed int64) Reason {
	r := Reason{Code: task.WhyWorkersUnknown, Change: fmt.Sprintf("start a worker for queue %q, unless there is one", o.queue)}
	switch n := claimed - t.Workers.Held; {
	case o.untold > 0:
		r.Detail = fmt.Sprintf("it is not known whether a worker handles %s: %s %s the queue, with too many different sets of types to list",
			o.what(), humanize.Count(int64(o.untold), "worker"), humanize.One(int64(o.untold), "serves", "serve"))
	case len(t.Workers.Silent) > 0:
		r.Detail = fmt.Sprintf("it is not known whether a worker handles %s: %s did not answer, and no worker at the other nodes does", o.what(), nodesText(t.Workers.Silent))
		r.Change = "check the nodes: pawl cluster status"
	default:
		r.Detail = fmt.Sprintf("no worker is known to serve queue %q, but %s of it %s: whoever holds %s may claim more, or may be gone",
			o.queue, humanize.Count(n, "task"), humanize.One(n, "is claimed", "are claimed"), humanize.One(n, "it", "them"))
	}
	r.Detail += o.whoRests()
	return r
}

// whyNoWorkerForType is of one type.
func (t *Workers) whyNoWorkerForType(o *workersOf) Reason {
	typ, others := o.wanted[0], map[string]bool{}
	for _, types := range o.others {
		for _, name := range types {
			others[name] = true
		}
	}
	names := schema.SortedKeys(others)
	told := names[:min(len(names), maxTypesTold)]
	list := strings.Join(quoteAll(told), ", ")
	if len(names) > maxTypesTold {
		list += ", …"
	}
	return Reason{Code: task.WhyNoWorkerForType, Type: typ, Types: told, More: len(names) > maxTypesTold,
		Detail: fmt.Sprintf("no known worker handles %s: they handle %s", o.what(), list) + o.whoRests() + t.whoIsAway(),
		Change: o.resume() + fmt.Sprintf("start a worker with a handler for type %q", typ)}
}

func (t *Workers) whyNoWorker(o *workersOf, now store.Time) Reason {
	detail := fmt.Sprintf("no worker serves queue %q: none is connected, and none has polled since %s", o.queue, Clock(t.since(now)))
	if rests := o.whoRests(); rests != "" {
		detail = fmt.Sprintf("no worker claims new tasks of queue %q", o.queue) + rests
	}
	if o.last != nil {
		detail += fmt.Sprintf("; the last one%s polled at %s", named(o.last.Worker), Clock(o.last.Last))
	}
	return Reason{Code: task.WhyNoWorker, Detail: detail + t.whoIsAway(), Change: o.resume() + fmt.Sprintf("start a worker for queue %q", o.queue)}
}

// whoRests tells of workers that would take a task if they took any.
func (o *workersOf) whoRests() (text string) {
	if n := int64(o.workers.Quiet); n > 0 {
		text += fmt.Sprintf("; %s that would handle it %s quiet%s", humanize.Count(n, "worker"), humanize.One(n, "is", "are"), named(o.workers.Named))
	}
	if n := int64(o.workers.Draining); n > 0 {
		text += fmt.Sprintf("; %s that would handle it %s", humanize.Count(n, "worker"), humanize.One(n, "is draining", "are draining"))
	}
	return text
}

// resume is how a worker is told to work again, before something else that would help.
func (o *workersOf) resume() string {
	if o.workers.QuietID == "" {
		return ""
	}
	return fmt.Sprintf("resume the quiet worker: pawl worker resume %s; or ", o.workers.QuietID)
}

func (t *Workers) whoIsAway() string {
	if len(t.Workers.Away) == 0 {
		return ""
	}
	return fmt.Sprintf("; %s away, so the workers connected there are not known", nodesText(t.Workers.Away)+humanize.One(int64(len(t.Workers.Away)), " is", " are"))
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
