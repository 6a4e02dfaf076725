package enqueue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// slotEnqueue is an enqueue whose tasks are routed slot by slot: each to the shards that may know it from before its
// slot moved, then to the one that takes it. A shard that neither knows a task nor takes it has certainly not created
// it.
type slotEnqueue struct {
	to    *Enqueuer
	ns    string
	shard uint32 // that the caller named
	specs []task.Spec
	out   []broker.Enqueued // nil: none was tried yet
	at    broker.Stamp      // of the last answer, that of shard itself if there is one

	mu sync.Mutex // guards out and at
}

// run enqueues the tasks that no shard has taken yet.
func (s *slotEnqueue) run(ctx context.Context) {
	todo := make([]int, 0, len(s.specs))
	if s.out == nil {
		s.out = make([]broker.Enqueued, len(s.specs))
		for i := range s.specs {
			todo = append(todo, i)
		}
		todo = s.pass(ctx, todo)
	} else {
		for i := range s.out {
			if errors.Is(s.out[i].Err, broker.ErrSlotMoved) {
				todo = append(todo, i)
			}
		}
	}
	for retries := s.to.forward.NewRetries(); len(todo) > 0; {
		if !retries.More(ctx) {
			return // each has its error
		}
		for name := range s.queues(todo) {
			if err := s.to.queues.Refresh(ctx, s.ns, name); err != nil {
				return
			}
		}
		if todo = s.pass(ctx, todo); len(todo) > 0 { // the slots are moving
			retries.Pause(ctx)
		}
	}
}

// queues returns the queues of some tasks.
func (s *slotEnqueue) queues(tasks []int) map[string]bool {
	names := map[string]bool{}
	for _, i := range tasks {
		names[s.specs[i].Queue] = true
	}
	return names
}

// pass sends tasks along their routes, shard by shard, to all shards in parallel. It returns those that no shard of
// their route took, in the order of the batch: the map was out of date, or their slots are moving.
func (s *slotEnqueue) pass(ctx context.Context, todo []int) (lost []int) {
	routes := s.routes(ctx, todo)
	for len(routes) > 0 {
		next := map[uint32][]int{}
		for _, i := range todo {
			if r, ok := routes[i]; ok {
				s.specs[i].Routed, s.specs[i].Left, s.specs[i].OnlyFind = r.version, r.steps[0].left, r.steps[0].find
				next[r.steps[0].shard] = append(next[r.steps[0].shard], i)
			}
		}
		var calls sync.WaitGroup
		for shard, tasks := range next {
			calls.Go(func() { s.ask(ctx, shard, tasks) })
		}
		calls.Wait()
		for _, i := range todo {
			r, ok := routes[i]
			switch {
			case !ok:
				continue
			case s.out[i].Err == errStaleMap:
				lost = append(lost, i)
			case errors.Is(s.out[i].Err, broker.ErrSlotMoved) && len(r.steps) > 1:
				r.steps = r.steps[1:]
				routes[i] = r
				continue
			case errors.Is(s.out[i].Err, broker.ErrSlotMoved) && r.steps[0].find: // none takes it
				s.out[i].Err = s.specs[i].CheckSlots()
			case errors.Is(s.out[i].Err, broker.ErrSlotMoved):
				lost = append(lost, i)
			}
			delete(routes, i)
		}
	}
	return lost
}

// errStaleMap means that a shard has no part of a queue of the call any more. What else it was asked for, it did not look up.
var errStaleMap error = &task.Error{Code: task.CodeUnavailable, Reason: "slot_moved", RetryAfter: 100 * time.Millisecond,
	Message: "a queue of the call is in another shard now"}

// route is the way of a task through shards, according to a version of the map.
type route struct {
	version uint64
	steps   []step
}

// step is a shard to ask for a task.
type step struct {
	shard uint32
	left  bool // the task's slot has left the shard
	find  bool // the shard only says what the task's idempotency key or request stands for there, and creates nothing
}

// search says which shards a task needs to be asked for before the one that takes it.
type search int

const (
	searchNone   search = iota // no other shard can know it
	searchRecent               // those that its slot has left, while its request may be repeated
	searchOld                  // those that its slot has left
	// searchTwice: those, and the one that takes it, are first asked for its idempotency key. A shard that holds its
	// unique key would answer by that, even if another one knows the idempotency key, which counts first.
	searchTwice
)

func searchFor(spec *task.Spec) search {
	switch {
	case spec.Unique != nil && spec.IdempotencyKey != "":
		return searchTwice
	// the last is a message: it may be repeated for as long as a key
	case spec.Unique != nil, spec.IdempotencyKey != "", spec.RequestTTL > 0:
		return searchOld
	case spec.RequestID != task.ID{}:
		return searchRecent
	}
	return searchNone
}

// slotName is a slot of a queue.
type slotName struct {
	queue string
	slot  int
}

// routes returns the route of each task. All tasks of a slot take the same steps, so that those of one key stay in the order of the batch.
func (s *slotEnqueue) routes(ctx context.Context, todo []int) map[int]route {
	routes := make(map[int]route, len(todo))
	places := map[string]queues.Queue{}
	searches := map[slotName]search{}
	slots := make(map[int]slotName, len(todo))
	for _, i := range todo {
		spec := &s.specs[i]
		q, known := places[spec.Queue]
		if !known {
			var err error
			if q, err = s.to.queues.Place(ctx, s.ns, spec.Queue); err != nil {
				s.out[i] = broker.Enqueued{Err: err}
				continue
			}
			places[spec.Queue] = q
		}
		slot, ok := spec.Slot()
		_, takes := q.SlotsIn(s.shard)
		switch {
		case !ok && takes > 0:
			routes[i] = route{q.Config.Version, []step{{shard: s.shard}}}
		case !ok:
			routes[i] = route{q.Config.Version, []step{{shard: q.Home(spec)}}}
		case !q.Keeps(spec.Slots()):
			routes[i] = route{q.Config.Version, findIn(q.Knows(spec.Slots()))}
		default:
			slots[i] = slotName{spec.Queue, slot}
			searches[slots[i]] = max(searches[slots[i]], searchFor(spec))
		}
	}
	for i, name := range slots {
		q, need := places[name.queue], searches[name]
		shards := q.Route(name.slot, need >= searchOld)
		if need == searchNone {
			shards = shards[len(shards)-1:]
		}
		var steps []step
		if need == searchTwice && len(shards) > 1 {
			steps = findIn(shards)
		}
		for i := range shards {
			steps = append(steps, step{shard: shards[i], left: i < len(shards)-1})
		}
		routes[i] = route{q.Config.Version, steps}
	}
	return routes
}

func findIn(shards []uint32) []step {
	steps := make([]step, len(shards))
	for i, shard := range shards {
		steps[i] = step{shard: shard, find: true}
	}
	return steps
}

// ask enqueues tasks in one shard. An error of the call becomes the error of each.
func (s *slotEnqueue) ask(ctx context.Context, shard uint32, tasks []int) {
	specs := make([]task.Spec, len(tasks))
	for n, i := range tasks {
		specs[n] = s.specs[i]
	}
	got, err := s.to.in(ctx, shard, s.ns, specs)
	if err != nil && s.to.forward.LearnMoved(err) {
		err = errStaleMap
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if got.At.Index > 0 && (shard == s.shard || s.at.Shard != s.shard) {
		s.at = got.At
	}
	for n, i := range tasks {
		if err != nil {
			s.out[i] = broker.Enqueued{Err: err}
		} else {
			s.out[i] = got.Out[n]
		}
	}
}
