package enqueue

import (
	"context"
	"errors"
	"sync"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/task"
)

// slotEnqueue is an enqueue whose tasks are routed slot by slot: each to the shards that may know it from before its slot moved, then to the
// one that takes it. A shard that neither knows a task nor takes it has certainly not created it.
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

// pass sends tasks along their routes, shard by shard, to all shards in parallel. It returns those that no shard of their route took: the
// map was out of date, or their slots are moving.
func (s *slotEnqueue) pass(ctx context.Context, todo []int) (lost []int) {
	routes := make(map[int][]uint32, len(todo))
	for _, i := range todo {
		q, err := s.to.queues.Place(ctx, s.ns, s.specs[i].Queue)
		if err != nil {
			s.out[i] = broker.Enqueued{Err: err}
			continue
		}
		s.specs[i].Routed = q.Config.Version
		routes[i] = s.route(q, &s.specs[i])
	}
	for len(routes) > 0 {
		next := map[uint32][]int{}
		for _, i := range todo {
			if route := routes[i]; len(route) > 0 {
				next[route[0]] = append(next[route[0]], i)
			}
		}
		var calls sync.WaitGroup
		for shard, tasks := range next {
			calls.Go(func() { s.ask(ctx, shard, tasks) })
		}
		calls.Wait()
		for i, route := range routes {
			switch {
			case !errors.Is(s.out[i].Err, broker.ErrSlotMoved):
				delete(routes, i)
			case len(route) == 1:
				lost = append(lost, i)
				delete(routes, i)
			default:
				routes[i] = route[1:]
			}
		}
	}
	return lost
}

// route returns the shards to ask for a task, in this order.
func (s *slotEnqueue) route(q queues.Queue, spec *task.Spec) []uint32 {
	slot, ok := spec.Slot()
	if !ok {
		if q.In(s.shard) {
			return []uint32{s.shard}
		}
		return []uint32{q.Home(spec)}
	}
	keyed := spec.IdempotencyKey != "" || spec.Unique != nil || spec.RequestTTL > 0 // it is a message
	route := q.Route(slot, keyed)
	if !keyed && spec.RequestID == (task.ID{}) { // no shard can know it
		return route[len(route)-1:]
	}
	return route
}

// ask enqueues tasks in one shard. An error of the call becomes the error of each.
func (s *slotEnqueue) ask(ctx context.Context, shard uint32, tasks []int) {
	specs := make([]task.Spec, len(tasks))
	for n, i := range tasks {
		specs[n] = s.specs[i]
	}
	got, err := s.to.enqueue.Call(ctx, shard, enqueueArgs{shard, s.ns, specs})
	if err != nil && s.to.forward.LearnMoved(err) {
		err = broker.ErrSlotMoved
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
