package explain

import (
	"fmt"

	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/task"
)

// keyOrder adds the reason that the task waits for the first task of its key, or for claimed tasks of its key.
func (e *explainer) keyOrder() {
	if e.x.Order != 0 {
		first, _ := schema.ReadFirst(e.r.State(), e.ns, e.x.Queue, e.x.Key)
		if first.ID != e.id {
			x := schema.Must(e.r.Exec(e.ns, first.ID))
			n, more := e.countOrder()
			e.add(whyBehind(e.x.Queue, first.ID, x, n, more))
			return
		}
	}
	if n := e.at.KeyHolders(); e.at.InLane() && e.config.Settings.KeyOrder == task.KeyOrderStrict && n > 0 {
		e.add(whyBeside(e.x.Queue, e.x.Key, n, e.keyRunners()))
	}
}

// countOrder returns the number of tasks before it in the order of their key.
func (e *explainer) countOrder() (n int64, more bool) {
	n = 1 // the first
	schema.ScanOrder(e.r.State(), e.ns, e.x.Queue, e.x.Key, 0, func(order uint64, _ task.ID) bool {
		more = n == lanes.MaxBefore
		if order >= e.x.Order || more {
			more = more && order < e.x.Order
			return false
		}
		n++
		return true
	})
	return n, more
}

// whyBehind is the reason of a task that waits for the first task of its key.
func whyBehind(queue string, id task.ID, first *schema.Exec, n int64, more bool) Reason {
	w := Reason{Code: task.WhyKeyOrder, Key: first.Key, Count: n, More: more,
		Change: "wait until they end, one after the other; why the first waits: " + taskCommand("explain", id)}
	var state string
	state, w.Running = firstOf(id, first)
	w.Detail = fmt.Sprintf("queue %q runs the tasks of key %q one at a time, and %s%s before it %s not ended; the first is %s, %s",
		queue, first.Key, over(more), humanize.Count(n, "task"), humanize.One(n, "has", "have"), id, state)
	return w
}

// whyBeside is the reason of the first task of a key that waits because others of the key are claimed.
func whyBeside(queue, key string, claimed int, running []Runner) Reason {
	return Reason{Code: task.WhyKeyOrder, Key: key, Count: int64(claimed), Running: running,
		Detail: fmt.Sprintf("queue %q runs the tasks of key %q one at a time, and %s of the key still %s%s",
			queue, key, humanize.Count(int64(claimed), "task"), humanize.One(int64(claimed), "runs", "run"), by(running)),
		Change: "wait until they end or are released"}
}

// whyOrder is the reason of ready tasks that each wait for a predecessor. It names the one that the oldest of them waits for.
func (e *queueExplainer) whyOrder(n int64, oldest query.Behind) Reason {
	w := Reason{Code: task.WhyKeyOrder, Count: n, Since: oldest.Since, Key: oldest.Key,
		Detail: fmt.Sprintf("%s of queue %q %s for one before %s with the same key to end", humanize.Count(n, "task"), e.name,
			humanize.One(n, "waits", "wait"), humanize.One(n, "it", "them")),
		Change: "wait until those before them end; to run more at once, use more keys"}
	first, ok := schema.ReadFirst(e.from, e.ns, e.name, oldest.Key)
	if oldest.Since == 0 || !ok {
		return w
	}
	x, err := schema.ReadExec(e.from, e.ns, first.ID)
	if err != nil {
		return w
	}
	var state string
	state, w.Running = firstOf(first.ID, x)
	w.Detail += fmt.Sprintf("; the oldest has been ready since %s, and waits for the first of key %q, %s, %s", Clock(oldest.Since),
		oldest.Key, first.ID, state)
	w.Change = "wait until those before them end; why the first waits: " + taskCommand("explain", first.ID)
	return w
}

// firstOf describes the first task of a key.
func firstOf(id task.ID, x *schema.Exec) (state string, running []Runner) {
	state = x.State.String()
	switch x.State {
	case task.Claimed:
		return state + " by " + worker(x.Claim.Worker), []Runner{runnerOf(id, x)}
	case task.Scheduled, task.Retrying:
		state += " until " + Clock(x.RunAt)
	}
	return state, []Runner{{ID: id}}
}

// orders reports whether claimed tasks of a key hold the next one back.
func (e *queueExplainer) orders(k *keyState) bool {
	return e.config.Settings.KeyOrder == task.KeyOrderStrict && k.claimed > k.yielding
}

// keysLimit returns how many claimed tasks of a key hold back its others; 0: any number may run.
func (e *queueExplainer) keysLimit(key string) int {
	if e.config.Settings.KeyOrder == task.KeyOrderStrict {
		return 1
	}
	return e.config.Settings.RulesOf(key).MaxRunning
}
