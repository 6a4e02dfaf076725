package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Takers is what the leader of a shard knows of the workers that take tasks of a queue: all of them ask there, wherever they
// are connected. A worker whose slots are all in use asks for nothing until one is free, so what was asked lately counts too.
type Takers struct {
	Since    store.Time // all that was asked since then is known
	Asks     []Ask      // one for each set of types
	Draining bool       // the node is about to stop: nobody waits there any more
}

// Ask is what was asked for.
type Ask struct {
	Types   []string // sorted; none: any
	Waiting bool     // somebody waits for it at this moment
	Last    store.Time
	Worker  string // that asked last; "" where the claim was one over several shards
}

// askedLately is how long a worker that asked counts as one that will ask again.
const askedLately = 5 * time.Minute

func (a *Ask) takes(typ string) bool {
	if len(a.Types) == 0 {
		return true
	}
	_, found := slices.BinarySearch(a.Types, typ)
	return found
}

func (a *Ask) lately(now store.Time) bool { return a.Waiting || a.Last >= now.Add(-askedLately) }

// since is from when on it is known that nobody asked who is not among the asks.
func (t *Takers) since(now store.Time) store.Time { return max(t.Since, now.Add(-askedLately)) }

// none says why no worker is known that takes tasks of a type, if that is so. Running are the queue's tasks that are claimed.
func (t *Takers) none(queue, typ string, running int64, now store.Time) (Reason, bool) {
	var last *Ask
	types, lately := map[string]bool{}, false
	for i := range t.Asks {
		a := &t.Asks[i]
		if last == nil || a.Last > last.Last {
			last = a
		}
		if !a.lately(now) {
			continue
		}
		if a.takes(typ) {
			return Reason{}, false
		}
		lately = true
		for _, name := range a.Types {
			types[name] = true
		}
	}
	if lately {
		names := sortedKeys(types)
		told := strings.Join(quoteAll(names[:min(len(names), maxTypesTold)]), ", ")
		if len(names) > maxTypesTold {
			told += ", …"
		}
		return Reason{Code: task.WhyNoWorkerForType, Type: typ, Types: names[:min(len(names), maxTypesTold)], More: len(names) > maxTypesTold,
			Detail: fmt.Sprintf("no claim of queue %q takes type %q, of those that wait and those since %s: they take %s", queue, typ, clock(t.since(now)), told),
			Change: fmt.Sprintf("start a worker that has a handler for type %q", typ)}, true
	}
	if running > 0 { // somebody takes tasks of the queue, though nobody asks
		return Reason{}, false
	}
	detail := fmt.Sprintf("no worker is known that takes queue %q: none asked for it since %s, and none of its tasks runs", queue, clock(t.since(now)))
	if last != nil {
		detail += fmt.Sprintf("; the last one%s asked at %s", named(last.Worker), clock(last.Last))
	}
	return Reason{Code: task.WhyNoWorker, Detail: detail, Change: fmt.Sprintf("start a worker that takes queue %q", queue)}, true
}

// busy says that nobody waits for a task of a type, though workers take it.
func (t *Takers) busy(queue, typ string, running int64, now store.Time) (Reason, bool) {
	var last *Ask
	for i := range t.Asks {
		a := &t.Asks[i]
		if !a.takes(typ) || !a.lately(now) {
			continue
		}
		if a.Waiting {
			return Reason{}, false
		}
		if last == nil || a.Last > last.Last {
			last = a
		}
	}
	switch {
	case last != nil:
		return Reason{Code: task.WhyWorkersBusy, Since: last.Last,
			Detail: fmt.Sprintf("no claim of queue %q that takes type %q waits now; the last worker%s asked at %s, and has no free slot or will ask again in a moment",
				queue, typ, named(last.Worker), clock(last.Last)),
			Change: "a worker has a free slot; or start more workers"}, true
	case running > 0:
		return Reason{Code: task.WhyWorkersBusy, Since: t.since(now),
			Detail: fmt.Sprintf("no worker asked for queue %q since %s, but %s of it %s: who runs them may have no free slot", queue, clock(t.since(now)), count(running, "task"), one(running, "runs", "run")),
			Change: "a worker has a free slot; or start more workers"}, true
	}
	return Reason{}, false
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
