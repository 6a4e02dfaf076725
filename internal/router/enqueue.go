package router

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

type enqueueArgs struct {
	Shard     uint32
	Namespace string
	Specs     []task.Spec
}

type enqueueAnswer struct {
	Out    []broker.Enqueued
	At     broker.Stamp
	Faults []*fault
}

func (a *enqueueAnswer) item(i int) *error { return &a.Out[i].Err }
func (a *enqueueAnswer) Pack()             { a.Faults = faultsOf(len(a.Out), a.item) }
func (a *enqueueAnswer) Unpack()           { errorsOf(a.Faults, len(a.Out), a.item) }

var enqueue = serve(&method[enqueueArgs, enqueueAnswer]{Rule: verb.Rule{Name: "enqueue"}, run: func(ctx context.Context, r *Router, a enqueueArgs) (out enqueueAnswer, err error) {
	out.Out, out.At, err = r.cfg.Broker.Enqueue(ctx, a.Shard, a.Namespace, a.Specs)
	return out, err
}})

// Enqueue enqueues tasks in the shard where they belong according to the caller's copy of the map. Tasks that belong elsewhere by now go
// there.
func (r *Router) Enqueue(ctx context.Context, shard uint32, ns string, specs []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
	if slices.ContainsFunc(specs, hasNewField) && r.requireLevel("") != nil {
		return r.enqueueOthers(ctx, shard, ns, specs)
	}
	if slices.ContainsFunc(specs, isNewMember) {
		return r.enqueueMembers(ctx, shard, ns, specs)
	}
	if len(specs) > 0 && specs[0].Restored != nil { // then all of them are
		by, err := r.auditAuthor(*specs[0].Restored)
		if err != nil {
			return nil, broker.Stamp{}, err
		}
		for i := range specs {
			specs[i].Restored = &by
		}
	}
	if !r.routeWhole(ns, specs) {
		return r.enqueueBySlot(ctx, shard, ns, specs, enqueueAnswer{})
	}
	out, err := call(ctx, r, enqueue, shard, enqueueArgs{shard, ns, specs})
	if err != nil && r.learnMoved(err) {
		return r.enqueueBySlot(ctx, shard, ns, specs, enqueueAnswer{})
	}
	if err == nil && anyMoved(out.Out) { // a queue was spread a moment ago
		return r.enqueueBySlot(ctx, shard, ns, specs, out)
	}
	return out.Out, out.At, err
}

// enqueueBySlot enqueues the tasks that were not taken yet.
func (r *Router) enqueueBySlot(ctx context.Context, shard uint32, ns string, specs []task.Spec, before enqueueAnswer) ([]broker.Enqueued, broker.Stamp, error) {
	s := &slotEnqueue{r: r, ns: ns, shard: shard, specs: specs, out: before.Out, at: before.At}
	s.run(ctx)
	return s.out, s.at, nil
}

// routeWhole records the version by which each task is routed, if every queue is in one shard. It returns false if some queue is spread
// over shards.
func (r *Router) routeWhole(ns string, specs []task.Spec) bool {
	var q queues.Queue
	for i := range specs {
		if i == 0 || specs[i].Queue != specs[i-1].Queue {
			q, _ = r.cfg.Map.Queue(ns, specs[i].Queue)
		}
		if q.Spread() {
			return false
		}
		specs[i].Routed = q.Config.Version
	}
	return true
}

func anyMoved(out []broker.Enqueued) bool {
	for i := range out {
		if errors.Is(out[i].Err, broker.ErrSlotMoved) {
			return true
		}
	}
	return false
}

// slotEnqueue is an enqueue whose tasks are routed slot by slot: each to the shards that may know it from before its slot moved, then to the
// one that takes it. A shard that neither knows a task nor takes it has certainly not created it.
type slotEnqueue struct {
	r     *Router
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
	since, pause := time.Now(), pauseMin
	for len(todo) > 0 {
		if end, ok := ctx.Deadline(); time.Since(since) >= routeTime || ok && time.Until(end) < pause+replyTime || s.r.ctx.Err() != nil {
			return // each has its error
		}
		for name := range s.queues(todo) {
			if err := s.r.refresh(ctx, s.ns, name); err != nil {
				return
			}
		}
		if todo = s.pass(ctx, todo); len(todo) > 0 { // the slots are moving
			s.r.sleep(ctx, pause/2+rand.N(pause/2))
			pause = min(2*pause, pauseMax)
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
		q, err := s.r.Directory().Place(ctx, s.ns, s.specs[i].Queue)
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
	keyed := spec.IdempotencyKey != "" || spec.Unique != nil
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
	got, err := call(ctx, s.r, enqueue, shard, enqueueArgs{shard, s.ns, specs})
	if err != nil && s.r.learnMoved(err) {
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
