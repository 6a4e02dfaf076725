package routertest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/router/claim"
	"github.com/pawlq/pawl/internal/router/enqueue"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// FakeBroker is a node's broker.
type FakeBroker struct{ M *Member }

// answers returns its answers to the verbs that most tests use.
func (b FakeBroker) answers() verbtest.Answers {
	on := verbtest.Answers{}
	verbtest.On(on, enqueue.EnqueueTasks, b.enqueue)
	verbtest.On(on, enqueue.ShowTask, b.showTask)
	verbtest.On(on, claim.ClaimTasks, b.claim)
	verbtest.On(on, claim.AwaitLocal, func(ctx context.Context, q claim.Claiming) (none verb.Nothing, err error) {
		return none, b.await(ctx, q.Shard, q.Call)
	})
	verbtest.On(on, claim.AwaitTasks, func(ctx context.Context, q claim.Claiming) (bool, error) { return claim.AwaitFor(ctx, q, b.await) })
	verbtest.On(on, claim.SettleClaims, b.settle)
	verbtest.On(on, router.PeekTask, b.peek)
	verbtest.On(on, router.ReadStatus, b.readStatus)
	verbtest.On(on, router.CountQueues, b.countQueues)
	verbtest.On(on, broker.OperateTask, b.operate)
	verbtest.On(on, broker.CloseBreakers, b.closeBreakers)
	verbtest.On(on, broker.PurgeQueue, func(context.Context, broker.QueueCommand) (broker.Purged, error) { panic("planted") })
	verbtest.On(on, broker.CopyQueues, b.copyQueues)
	verbtest.On(on, broker.ListGroups, b.listGroups)
	verbtest.On(on, broker.ListOperations, b.listOperations)
	verbtest.On(on, broker.ExplainTask, b.explain)
	verbtest.On(on, broker.ExplainQueue, b.explainQueue)
	return on
}

// begin takes the fleet's lock, if the node leads the shard.
func (b FakeBroker) begin(ctx context.Context, id uint32) (*Shard, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	b.M.Fleet.mu.Lock()
	s := b.M.Fleet.Shards[id]
	if s == nil || s.Leader != b.M.Number {
		defer b.M.Fleet.mu.Unlock()
		e := &broker.NotLeader{Shard: id}
		if s != nil && !s.Shy && slices.Contains(s.Replicas, b.M.Number) {
			e.Node = s.Leader
			if hint := s.Hints[b.M.Number]; hint != 0 {
				e.Node = hint
			}
		}
		return nil, e
	}
	return s, nil
}

func (s *Shard) stamp() broker.Stamp {
	return broker.Stamp{Shard: s.id, Index: uint64(s.made) + 1, Term: s.term}
}

func (b FakeBroker) Leader(id uint32) (node, term, index uint64) {
	b.M.Fleet.mu.Lock()
	defer b.M.Fleet.mu.Unlock()
	s := b.M.Fleet.Shards[id]
	if s == nil || !slices.Contains(s.Replicas, b.M.Number) || s.Shy && s.Leader != b.M.Number {
		return 0, 0, 0
	}
	if old := s.Hints[b.M.Number]; old != 0 {
		return uint64(old), 0, 1
	}
	return uint64(s.Leader), s.term, 1
}

func (b FakeBroker) Draining() <-chan struct{} { return b.M.Drain }

func (b FakeBroker) enqueue(ctx context.Context, q enqueue.Enqueueing) (out enqueue.TasksEnqueued, err error) {
	for _, spec := range q.Specs { // as broker.EnsureQueue would report
		b.M.mu.Lock()
		to, elsewhere := b.M.EnqueueIn[spec.Queue]
		b.M.mu.Unlock()
		if elsewhere && to == 0 {
			to = 3 - q.Shard // always the other one
		}
		if elsewhere && to != q.Shard {
			return out, forward.MovedTo(queues.Queue{Namespace: q.Namespace, Name: spec.Queue, Shard: to,
				Config: task.QueueConfig{Version: 9}})
		}
	}
	s, err := b.begin(ctx, q.Shard)
	if err != nil {
		return out, err
	}
	defer b.M.Fleet.mu.Unlock()
	out.Out = make([]broker.Enqueued, len(q.Specs))
	for i, spec := range q.Specs {
		if spec.Type == "bad" {
			out.Out[i].Err = task.Invalid("type", "is bad")
			continue
		}
		out.Out[i].ID, out.Out[i].State = s.Add(), task.Ready
	}
	out.At = s.stamp()
	s.Tell()
	return out, nil
}

// Add adds a ready task.
func (s *Shard) Add() task.ID {
	s.made++
	s.Ready++
	id := task.NewID(s.id, 1, uint64(s.made))
	s.Tasks[id] = &Task{State: task.Ready}
	return id
}

func (s *Shard) inOrder() []task.ID {
	return slices.SortedFunc(maps.Keys(s.Tasks), func(a, b task.ID) int { return slices.Compare(a[8:], b[8:]) })
}

func (s *Shard) claimed(ns string, id task.ID) broker.Claimed {
	return broker.Claimed{Envelope: &schema.Envelope{ID: id, Namespace: ns}, Token: s.token(id)}
}

func (s *Shard) token(id task.ID) task.Token {
	return task.Token{Epoch: 1, Fence: s.Tasks[id].Fence, Nonce: 7}
}

func (b FakeBroker) claim(ctx context.Context, q claim.Claiming) (out claim.TasksClaimed, err error) {
	timer := time.NewTimer(q.Wait)
	defer timer.Stop()
	for {
		s, err := b.begin(ctx, q.Shard)
		if err != nil {
			return out, err
		}
		out.At, out.Out = s.stamp(), s.claim(q.Call)
		changed := s.changed
		b.M.Fleet.mu.Unlock()
		if len(out.Out) > 0 && b.M.Fleet.OnClaim != nil {
			b.M.Fleet.OnClaim()
		}
		if len(out.Out) > 0 || q.Wait == 0 {
			return out, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return out, nil
		case <-b.M.Drain:
			return out, nil
		case <-ctx.Done():
			return out, ctx.Err()
		}
	}
}

func (s *Shard) claim(c broker.ClaimCall) (got []broker.Claimed) {
	for _, id := range s.byKey[c.ClaimKey] {
		if t := s.Tasks[id]; c.ClaimKey != "" && t.State == task.Claimed {
			t.repeated = true
			got = append(got, s.claimed(c.Namespace, id))
		}
	}
	if len(got) > 0 || len(c.Queues) == 0 || s.Ready == 0 {
		return got
	}
	for _, id := range s.inOrder() {
		if t := s.Tasks[id]; t.State == task.Ready && len(got) < c.Max {
			s.Ready--
			t.State, t.repeated = task.Claimed, false
			t.Fence++
			got = append(got, s.claimed(c.Namespace, id))
			if c.ClaimKey != "" {
				s.byKey[c.ClaimKey] = append(s.byKey[c.ClaimKey], id)
			}
		}
	}
	return got
}

func (b FakeBroker) await(ctx context.Context, id uint32, c broker.ClaimCall) error {
	for {
		s, err := b.begin(ctx, id)
		if err != nil {
			return err
		}
		ready, changed := s.Ready > 0, s.changed
		s.Awaits++
		b.M.Fleet.mu.Unlock()
		if !ready {
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
		b.M.Fleet.With(func() { s.Awaits-- })
		if ready || ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (b FakeBroker) settle(ctx context.Context, q claim.Settling) (out claim.ClaimsSettled, err error) {
	s, err := b.begin(ctx, q.Shard)
	if err != nil {
		return out, err
	}
	defer b.M.Fleet.mu.Unlock()
	out.Out, out.At = make([]broker.Settled, len(q.Calls)), s.stamp()
	for i, c := range q.Calls {
		t := s.Tasks[c.Hold.ID]
		switch {
		case t == nil:
			out.Out[i].Err = task.NotFound("task", c.Hold.ID.String())
		case t.State != task.Claimed || t.Fence != c.Hold.Token.Fence:
			out.Out[i].Err = &task.Error{Code: task.CodeStaleClaim, Reason: task.StaleExpired}
		case c.Verb == broker.GiveBack && t.repeated:
			out.Out[i].Err = &task.Error{Code: task.CodeWrongState}
		case c.Verb == broker.Ack:
			t.State, t.Outcome = task.Succeeded, task.StaleCompleted
		default:
			t.State, t.Outcome = task.Ready, task.StaleCompleted
			t.Released++
			s.Ready++
		}
		out.Out[i].State = task.Ready
		if t != nil {
			out.Out[i].State = t.State
		}
	}
	s.Tell()
	return out, nil
}

// show returns a task as a view.
func (s *Shard) show(id task.ID) (*broker.View, error) {
	t := s.Tasks[id]
	if t == nil {
		return nil, task.NotFound("task", id.String())
	}
	return &broker.View{Envelope: &schema.Envelope{ID: id}, Exec: &schema.Exec{State: t.State, Fence: t.Fence}}, nil
}

func (b FakeBroker) showTask(ctx context.Context, q enqueue.TaskWait) (out broker.Shown[*broker.View], err error) {
	timer := time.NewTimer(q.Wait)
	defer timer.Stop()
	for {
		s, err := b.begin(ctx, q.ID.Shard())
		if err != nil {
			return out, err
		}
		out.View, err = s.show(q.ID)
		out.At = s.stamp()
		changed := s.changed
		b.M.Fleet.mu.Unlock()
		if err != nil || out.View.Exec.State.Ended() || q.Wait == 0 {
			return out, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return out, nil
		case <-b.M.Drain:
			return out, nil
		case <-ctx.Done():
			return out, ctx.Err()
		}
	}
}

func (b FakeBroker) peek(_ context.Context, q broker.Explained) (out router.TaskPeeked, err error) {
	b.M.Fleet.mu.Lock()
	defer b.M.Fleet.mu.Unlock()
	s := b.M.Fleet.Shards[q.ID.Shard()]
	if s == nil || !slices.Contains(s.Replicas, b.M.Number) {
		return out, &broker.NotLeader{Shard: q.ID.Shard()}
	}
	out.View, err = s.show(q.ID)
	out.At, out.Age = s.stamp(), time.Second
	return out, err
}

func (b FakeBroker) operate(ctx context.Context, q broker.TaskCommand) (out broker.Shown[*broker.View], err error) {
	if q.Verb == broker.Retry {
		return out, forward.MovedTo(queues.Queue{Name: "q", Shard: 2})
	}
	s, err := b.begin(ctx, q.ID.Shard())
	if err != nil {
		return out, err
	}
	defer b.M.Fleet.mu.Unlock()
	out.At = s.stamp()
	t := s.Tasks[q.ID]
	if t == nil {
		return out, task.NotFound("task", q.ID.String())
	}
	lost := t.State == task.Claimed
	t.State, t.Outcome = task.Cancelled, task.StaleCancelled
	s.Tell()
	if lost {
		b.M.lost(broker.Lost{ID: q.ID, Token: s.token(q.ID), Reason: task.StaleCancelled})
	}
	out.View, err = s.show(q.ID)
	return out, err
}

func (b FakeBroker) closeBreakers(ctx context.Context, q broker.BreakersOf) (out broker.BreakersClosed, err error) {
	s, err := b.begin(ctx, q.Shard)
	if err == nil {
		out.Closed, out.At = 1, s.stamp()
		b.M.Fleet.mu.Unlock()
	}
	return out, err
}

func (b FakeBroker) copyQueues(ctx context.Context, q broker.QueueCopies) (none verb.Nothing, err error) {
	s, err := b.begin(ctx, q.Shard)
	if err == nil {
		s.made += len(q.Configs)
		b.M.Fleet.mu.Unlock()
	}
	return none, err
}

func (b FakeBroker) listGroups(ctx context.Context, q broker.GroupList) (out broker.Paged[broker.GroupPage], err error) {
	s, err := b.begin(ctx, q.Shard)
	if err == nil {
		out.Page.Groups, out.At = []*broker.GroupView{{ID: b.M.Fleet.Groups[q.Shard]}}, s.stamp()
		b.M.Fleet.mu.Unlock()
	}
	return out, err
}

func (b FakeBroker) listOperations(ctx context.Context, q broker.OperationList) (out broker.Paged[broker.OperationPage], err error) {
	s, err := b.begin(ctx, q.Shard)
	if err == nil {
		out.At = s.stamp()
		b.M.Fleet.mu.Unlock()
	}
	return out, err
}

// countQueues reports the totals of the member for each shard that it leads or has led.
func (b FakeBroker) countQueues(context.Context, broker.CountsQuery) (out verb.Sum[[]verb.OfShard[[]broker.QueueCount]], _ error) {
	for _, of := range b.reported() {
		out.Value = append(out.Value, verb.OfShard[[]broker.QueueCount]{Shard: of.Shard, Term: of.Term, Value: b.M.Totals})
	}
	return out, nil
}

// readStatus reports, in each shard that the member leads or has led, as many ready tasks as the member's number.
func (b FakeBroker) readStatus(context.Context, router.StatusOf) (out verb.Sum[[]verb.OfShard[broker.NamespaceStatus]], _ error) {
	for _, of := range b.reported() {
		of.Value = broker.NamespaceStatus{Ready: int64(b.M.Number), Queues: []string{"spread"}, Idle: b.M.Totals}
		out.Value = append(out.Value, of)
	}
	return out, nil
}

// reported returns the shards that the member reports on, and in which terms.
func (b FakeBroker) reported() (out []verb.OfShard[broker.NamespaceStatus]) {
	for _, id := range slices.Sorted(maps.Keys(b.M.Fleet.Shards)) {
		if term := b.M.Led[id]; term > 0 {
			out = append(out, verb.OfShard[broker.NamespaceStatus]{Shard: id, Term: term})
		} else if b.M.Fleet.Shards[id].Leader == b.M.Number {
			out = append(out, verb.OfShard[broker.NamespaceStatus]{Shard: id, Term: newTerm})
		}
	}
	return out
}

// newTerm is the term of the present leaders.
const newTerm = 9

func (b FakeBroker) explain(ctx context.Context, q broker.Explained) (out broker.Explains[*broker.Explanation], err error) {
	s, err := b.begin(ctx, q.ID.Shard())
	if err != nil {
		return out, err
	}
	defer b.M.Fleet.mu.Unlock()
	out.At = s.stamp()
	v, err := s.show(q.ID)
	if err != nil {
		return out, err
	}
	out.Explanation = broker.ExplainView(v)
	if out.Explanation.State == task.Ready {
		out.Explanation.Reasons = []broker.Reason{{Code: task.WhyNext}}
	}
	return out, nil
}

func (b FakeBroker) explainQueue(ctx context.Context, q broker.OnQueue) (out broker.Explains[*broker.QueueExplanation], err error) {
	s, err := b.begin(ctx, q.Shard)
	if err != nil {
		return out, err
	}
	defer b.M.Fleet.mu.Unlock()
	out.Explanation, out.At = &broker.QueueExplanation{Ready: int64(len(s.Tasks))}, s.stamp()
	return out, nil
}
