package router

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// shardArgs are what the calls on a queue of a shard, or on a page of it, take.
type shardArgs struct {
	Shard     uint32
	Namespace string
	Queue     string
	State     task.State
	Filter    broker.Filter
	Cursor    []byte
	Limit     int
	Selection broker.Selection
	Configs   map[string]task.QueueConfig
	Slots     task.SlotSet
	By        task.Author
}

type pageAnswer struct {
	Page broker.Page
	At   broker.Stamp
}

var listTasks = &method[shardArgs, pageAnswer]{name: "tasks", again: true, run: func(ctx context.Context, r *Router, a shardArgs) (out pageAnswer, err error) {
	out.Page, out.At, err = r.cfg.Broker.Tasks(ctx, a.Shard, a.Namespace, a.Filter, a.Cursor, a.Limit)
	return out, err
}}

// Tasks reads a page of a shard's tasks, newest first.
func (r *Router) Tasks(ctx context.Context, shard uint32, ns string, f broker.Filter, cursor []byte, limit int) (broker.Page, broker.Stamp, error) {
	out, err := call(ctx, r, listTasks, shard, shardArgs{Shard: shard, Namespace: ns, Filter: f, Cursor: cursor, Limit: limit})
	return out.Page, out.At, err
}

// verb names what operate does with a task.
type verb string

const (
	cancel  verb = "cancel"
	retry   verb = "retry"
	runNow  verb = "run"
	discard verb = "discard"
	update  verb = "update"
)

type operateArgs struct {
	Verb      verb
	By        task.Author
	Namespace string
	ID        task.ID
	Edit      broker.Edit // of update
}

// pack keeps an empty payload from looking like none on the wire.
func (a *operateArgs) pack() {
	if a.Edit.Payload != nil && *a.Edit.Payload == nil {
		a.Edit.Payload = &[]byte{}
	}
}

func (a *operateArgs) unpack() {}

var operate = &method[operateArgs, showAnswer]{name: "operate", run: func(ctx context.Context, r *Router, a operateArgs) (out showAnswer, err error) {
	b := r.cfg.Broker
	switch a.Verb {
	case cancel:
		out.View, out.At, err = b.Cancel(ctx, a.By, a.Namespace, a.ID)
	case retry:
		out.View, out.At, err = b.Retry(ctx, a.By, a.Namespace, a.ID)
	case runNow:
		out.View, out.At, err = b.RunNow(ctx, a.By, a.Namespace, a.ID)
	case discard:
		out.View, out.At, err = b.Discard(ctx, a.By, a.Namespace, a.ID)
	case update:
		out.View, out.At, err = b.Update(ctx, a.By, a.Namespace, a.ID, a.Edit)
	default:
		err = &notRun{fmt.Errorf("it does not know the verb %q", a.Verb)}
	}
	return out, err
}}

func (r *Router) operate(ctx context.Context, a operateArgs) (*broker.View, broker.Stamp, error) {
	if err := r.check(ctx, a.ID); err != nil {
		return nil, broker.Stamp{}, err
	}
	var err error
	if a.By, err = r.noted(a.By); err != nil {
		return nil, broker.Stamp{}, err
	}
	out, err := call(ctx, r, operate, a.ID.Shard(), a)
	return out.View, out.At, r.stranded(err)
}

// stranded puts into the API's words that a task's queue lies in other shards by now: the task can't follow.
func (r *Router) stranded(err error) error {
	var m *moved
	if !errors.As(err, &m) {
		return err
	}
	r.cfg.Map.Learned(m.queue())
	return &task.Error{Code: task.CodeWrongState,
		Message: fmt.Sprintf("queue %q has left the shard of the task since that ended: enqueue it as a new one", m.Name)}
}

// Cancel ends a task that has not ended.
func (r *Router) Cancel(ctx context.Context, by task.Author, ns string, id task.ID) (*broker.View, broker.Stamp, error) {
	return r.operate(ctx, operateArgs{By: by, Verb: cancel, Namespace: ns, ID: id})
}

// Retry gives a task a new life, or its next attempt now.
func (r *Router) Retry(ctx context.Context, by task.Author, ns string, id task.ID) (*broker.View, broker.Stamp, error) {
	return r.operate(ctx, operateArgs{By: by, Verb: retry, Namespace: ns, ID: id})
}

// RunNow makes a scheduled or retrying task ready.
func (r *Router) RunNow(ctx context.Context, by task.Author, ns string, id task.ID) (*broker.View, broker.Stamp, error) {
	return r.operate(ctx, operateArgs{By: by, Verb: runNow, Namespace: ns, ID: id})
}

// Discard ends a task that waits, or drops a dead letter.
func (r *Router) Discard(ctx context.Context, by task.Author, ns string, id task.ID) (*broker.View, broker.Stamp, error) {
	return r.operate(ctx, operateArgs{By: by, Verb: discard, Namespace: ns, ID: id})
}

// Update changes a task that waits.
func (r *Router) Update(ctx context.Context, by task.Author, ns string, id task.ID, e broker.Edit) (*broker.View, broker.Stamp, error) {
	if e.IfETag != "" {
		if err := r.knows(task.FieldIfETag); err != nil {
			return nil, broker.Stamp{}, err
		}
	}
	return r.operate(ctx, operateArgs{By: by, Verb: update, Namespace: ns, ID: id, Edit: e})
}

type infoAnswer struct {
	Info broker.QueueInfo
	At   broker.Stamp
}

var readQueue = &method[shardArgs, infoAnswer]{name: "queue", again: true, run: func(ctx context.Context, r *Router, a shardArgs) (out infoAnswer, err error) {
	out.Info, out.At, err = r.cfg.Broker.Queue(ctx, a.Shard, a.Namespace, a.Queue)
	return out, err
}}

// Queue tells how a queue stands in a shard.
func (r *Router) Queue(ctx context.Context, shard uint32, ns, name string) (broker.QueueInfo, broker.Stamp, error) {
	out, err := call(ctx, r, readQueue, shard, shardArgs{Shard: shard, Namespace: ns, Queue: name})
	return out.Info, out.At, err
}

type groupsAnswer struct {
	Groups  []broker.Group
	Partial bool
	At      broker.Stamp
}

var deadGroups = &method[shardArgs, groupsAnswer]{name: "dead-groups", again: true, run: func(ctx context.Context, r *Router, a shardArgs) (out groupsAnswer, err error) {
	out.Groups, out.Partial, out.At, err = r.cfg.Broker.DeadGroups(ctx, a.Shard, a.Namespace, a.Queue, a.State)
	return out, err
}}

// DeadGroups counts dead letters that read alike.
func (r *Router) DeadGroups(ctx context.Context, shard uint32, ns, queue string, s task.State) ([]broker.Group, bool, broker.Stamp, error) {
	out, err := call(ctx, r, deadGroups, shard, shardArgs{Shard: shard, Namespace: ns, Queue: queue, State: s})
	return out.Groups, out.Partial, out.At, err
}

// bulkAnswer also tells what was done before an error.
type bulkAnswer struct {
	Matched, Done int64
	At            broker.Stamp
}

var purge = &method[shardArgs, bulkAnswer]{name: "purge", run: func(ctx context.Context, r *Router, a shardArgs) (out bulkAnswer, err error) {
	out.Done, out.At, err = r.cfg.Broker.Purge(ctx, a.By, a.Shard, a.Namespace, a.Queue)
	return out, err
}}

// Purge discards the tasks of a queue that wait.
func (r *Router) Purge(ctx context.Context, by task.Author, shard uint32, ns, name string) (int64, broker.Stamp, error) {
	by, err := r.noted(by)
	if err != nil {
		return 0, broker.Stamp{}, err
	}
	out, err := call(ctx, r, purge, shard, shardArgs{Shard: shard, Namespace: ns, Queue: name, By: by})
	return out.Done, out.At, err
}

var replay = &method[shardArgs, bulkAnswer]{name: "replay", run: func(ctx context.Context, r *Router, a shardArgs) (out bulkAnswer, err error) {
	out.Matched, out.Done, out.At, err = r.cfg.Broker.Replay(ctx, a.Shard, a.Namespace, a.Selection)
	return out, err
}}

// Replay puts selected dead letters back into their queue.
func (r *Router) Replay(ctx context.Context, shard uint32, ns string, s broker.Selection) (matched, done int64, at broker.Stamp, err error) {
	if s.By, err = r.noted(s.By); err != nil {
		return 0, 0, at, err
	}
	out, err := call(ctx, r, replay, shard, shardArgs{Shard: shard, Namespace: ns, Selection: s})
	return out.Matched, out.Done, out.At, r.stranded(err)
}

var discardDead = &method[shardArgs, bulkAnswer]{name: "discard-dead", run: func(ctx context.Context, r *Router, a shardArgs) (out bulkAnswer, err error) {
	out.Matched, out.Done, out.At, err = r.cfg.Broker.DiscardDead(ctx, a.Shard, a.Namespace, a.Selection)
	return out, err
}}

// DiscardDead drops selected dead letters.
func (r *Router) DiscardDead(ctx context.Context, shard uint32, ns string, s broker.Selection) (matched, done int64, at broker.Stamp, err error) {
	if s.By, err = r.noted(s.By); err != nil {
		return 0, 0, at, err
	}
	out, err := call(ctx, r, discardDead, shard, shardArgs{Shard: shard, Namespace: ns, Selection: s})
	return out.Matched, out.Done, out.At, err
}

type nothing struct{}

// What changes a shard's copies may be repeated: a copy never replaces a newer one, and what is gone is gone.
var (
	copyQueues = &method[shardArgs, nothing]{name: "copy-queues", again: true, run: func(ctx context.Context, r *Router, a shardArgs) (nothing, error) {
		return nothing{}, r.cfg.Broker.CopyQueues(ctx, a.Shard, a.Namespace, a.Configs)
	}}
	dropCopy = &method[shardArgs, nothing]{name: "drop-copy", again: true, run: func(ctx context.Context, r *Router, a shardArgs) (nothing, error) {
		return nothing{}, r.cfg.Broker.DropQueue(ctx, a.Shard, a.Namespace, a.Queue)
	}}
	keysUntil = &method[shardArgs, broker.Time]{name: "keys-until", again: true, run: func(ctx context.Context, r *Router, a shardArgs) (broker.Time, error) {
		return r.cfg.Broker.KeysUntil(ctx, a.Shard, a.Namespace, a.Queue)
	}}
	holdsUnique = &method[shardArgs, bool]{name: "holds-unique", again: true, run: func(ctx context.Context, r *Router, a shardArgs) (bool, error) {
		return r.cfg.Broker.HoldsUnique(ctx, a.Shard, a.Namespace, a.Queue, a.Slots)
	}}
)

// CopyQueues makes a shard's copies of queue configurations at least as new as these.
func (r *Router) CopyQueues(ctx context.Context, shard uint32, ns string, configs map[string]task.QueueConfig) error {
	_, err := call(ctx, r, copyQueues, shard, shardArgs{Shard: shard, Namespace: ns, Configs: configs})
	return err
}

// DropQueue removes a shard's copy of an empty queue.
func (r *Router) DropQueue(ctx context.Context, shard uint32, ns, name string) error {
	_, err := call(ctx, r, dropCopy, shard, shardArgs{Shard: shard, Namespace: ns, Queue: name})
	return err
}

// KeysUntil is when the last idempotency key ends that a queue has in a shard; 0: it has none.
func (r *Router) KeysUntil(ctx context.Context, shard uint32, ns, name string) (broker.Time, error) {
	return call(ctx, r, keysUntil, shard, shardArgs{Shard: shard, Namespace: ns, Queue: name})
}

// HoldsUnique says whether a unique key of a queue is held in a shard by a task of one of the slots.
func (r *Router) HoldsUnique(ctx context.Context, shard uint32, ns, name string, slots task.SlotSet) (bool, error) {
	return call(ctx, r, holdsUnique, shard, shardArgs{Shard: shard, Namespace: ns, Queue: name, Slots: slots})
}
