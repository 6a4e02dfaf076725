package routertest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// FakeControl is a system shard with the fleet's queues. It answers only on the node that leads it.
type FakeControl struct{ M *Member }

// answers returns its answers to the verbs that most tests use.
func (c FakeControl) answers() verbtest.Answers {
	on := verbtest.Answers{}
	verbtest.On(on, queues.Find, c.find)
	verbtest.On(on, queues.Place, func(ctx context.Context, q queues.Name) (queues.Queue, error) {
		return c.put(ctx, q, func(*task.QueueConfig) error { return nil })
	})
	verbtest.On(on, queues.List, c.list)
	verbtest.On(on, queues.Replace, func(ctx context.Context, q queues.Replacement) (queues.Queue, error) {
		return c.put(ctx, queues.Name{Namespace: q.Namespace, Name: q.Name}, q.Replace)
	})
	verbtest.On(on, queues.Drop, c.drop)
	verbtest.On(on, queues.Ensure, c.ensure)
	verbtest.On(on, queues.Spread, c.spread)
	verbtest.On(on, cluster.AwayNodes, c.awayNodes)
	verbtest.On(on, cluster.HasShard, c.hasShard)
	return on
}

// Check returns an error if another node leads the system shard.
func (c FakeControl) Check() error {
	if leader := c.M.Fleet.SystemLeader; leader != c.M.Number {
		return &broker.NotLeader{Shard: forward.SystemShard, Node: leader}
	}
	return nil
}

func (c FakeControl) find(_ context.Context, of queues.Name) (q queues.Queue, err error) {
	c.M.Fleet.With(func() {
		var ok bool
		if err = c.Check(); err == nil {
			if q, ok = c.M.Fleet.Queues[of.Name]; !ok {
				err = task.NotFound("queue", of.Name)
			}
		}
	})
	return q, err
}

func (c FakeControl) list(_ context.Context, of queues.Listing) (found []queues.Queue, err error) {
	c.M.Fleet.With(func() {
		err = c.Check()
		for name, q := range c.M.Fleet.Queues {
			if name > of.Query.After {
				found = append(found, q)
			}
		}
	})
	slices.SortFunc(found, func(a, b queues.Queue) int { return strings.Compare(a.Name, b.Name) })
	return found[:min(of.Query.Limit, len(found))], err
}

func (c FakeControl) put(ctx context.Context, of queues.Name, change func(*task.QueueConfig) error) (q queues.Queue, err error) {
	c.M.Fleet.With(func() {
		if err = c.Check(); err != nil {
			return
		}
		var ok bool
		if q, ok = c.M.Fleet.Queues[of.Name]; !ok {
			q = queues.Queue{Namespace: of.Namespace, Name: of.Name, Shard: 1, Config: task.QueueConfig{Settings: task.DefaultSettings(),
				CreatedAt: time.Now().UTC()}}
		}
		before := q.Config
		if err = change(&q.Config); err == nil {
			if !ok || !q.Config.Equal(before) {
				q.Config.Version = before.Version + 1
			}
			c.M.Fleet.Queues[of.Name] = q
		}
	})
	if err != nil {
		return queues.Queue{}, err
	}
	_, err = broker.CopyQueues.Call(ctx, c.M, broker.QueueCopies{OnShard: broker.OnShard{Shard: q.Shard, Namespace: of.Namespace},
		Configs: map[string]task.QueueConfig{of.Name: q.Config}})
	return q, err
}

func (c FakeControl) drop(_ context.Context, of queues.Removal) (none verb.Nothing, err error) {
	c.M.Fleet.With(func() {
		if err = c.Check(); err == nil {
			delete(c.M.Fleet.Queues, of.Name)
		}
	})
	return none, err
}

func (c FakeControl) ensure(ctx context.Context, of queues.InShard) (queues.Queue, error) {
	q, err := c.put(ctx, queues.Name{Namespace: of.Namespace, Name: of.Name}, func(*task.QueueConfig) error { return nil })
	if err == nil {
		c.M.Fleet.With(func() { c.M.Fleet.Ensured = append(c.M.Fleet.Ensured, of.Shard) })
	}
	return q, err
}

func (c FakeControl) spread(_ context.Context, of queues.Spreading) (q queues.Queue, err error) {
	c.M.Fleet.With(func() {
		if err = c.Check(); err == nil {
			q = c.M.Fleet.Queues[of.Name]
			q.Namespace, q.Name = of.Namespace, of.Name
			q.Config.Version++
			for i, shard := range of.Onto.Shards {
				var slots task.SlotSet
				for slot := i; slot < task.SlotCount; slot += len(of.Onto.Shards) {
					slots |= 1 << slot
				}
				q.Parts = append(q.Parts, queues.Part{Shard: shard, Slots: slots, Next: slots})
			}
			c.M.Fleet.Queues[of.Name] = q
		}
	})
	return q, err
}

// awayNodes returns the nodes that the test has marked as away.
func (c FakeControl) awayNodes(context.Context, verb.Nothing) (names []string, err error) {
	c.M.Fleet.With(func() { names, err = slices.Clone(c.M.Fleet.Away), c.Check() })
	return names, err
}

func (c FakeControl) hasShard(_ context.Context, id uint32) (has bool, err error) {
	c.M.Fleet.With(func() { has, err = c.M.Fleet.Shards[id] != nil, c.Check() })
	return has, err
}
