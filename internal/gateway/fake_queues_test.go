package gateway

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

func (f *fake) Shards() []uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.shards)
}

func (f *fake) Place(_ context.Context, ns, name string) (queues.Queue, error) {
	return f.PutQueue(context.Background(), auditlog.Action{}, ns, name, func(*task.QueueConfig) error { return nil })
}

// Spread assigns all slots to the shards, in runs, immediately.
func (f *fake) Spread(_ context.Context, _ task.Author, _, name string, target queues.SpreadTarget) (queues.Queue, error) {
	if err := f.faults.ask(); err != nil {
		return queues.Queue{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.queues[name]
	shards := target.Shards
	if len(shards) == 0 {
		if target.Parts > len(f.shards) {
			return q, task.Invalid("parts", "%d is not between 1 and %d", target.Parts, len(f.shards))
		}
		shards = f.shards[:target.Parts]
	}
	q.Own = target.Own
	old := q.Shards()
	q.Parts = []queues.Part{}
	for i, shard := range shards {
		var slots task.SlotSet
		for slot := i * task.SlotCount / len(shards); slot < (i+1)*task.SlotCount/len(shards); slot++ {
			slots |= 1 << slot
		}
		q.Parts = append(q.Parts, queues.Part{Shard: shard, Slots: slots, Next: slots})
	}
	for _, shard := range old {
		if !slices.Contains(shards, shard) {
			q.Parts = append(q.Parts, queues.Part{Shard: shard})
		}
	}
	if target.DryRun {
		return q, nil
	}
	q.Config.Version++
	f.queues[name] = q
	return q, nil
}

func (f *fake) Queue1(name string) (queues.Queue, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q, ok := f.queues[name]
	return q, ok
}

func (f *fake) Queues(_ context.Context, _ string, of queues.Query) (found []queues.Queue, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range f.queues {
		if q.Name > of.After && of.Within.Sees(q.Name) && (of.Pattern == "" || task.Matches(of.Pattern, q.Name)) &&
			(!of.Paused || q.Config.Paused) && (of.Names == nil || slices.Contains(of.Names, q.Name)) {
			found = append(found, q)
		}
	}
	slices.SortFunc(found, func(a, b queues.Queue) int { return strings.Compare(a.Name, b.Name) })
	if of.Names != nil {
		slices.SortFunc(found, func(a, b queues.Queue) int { return slices.Index(of.Names, a.Name) - slices.Index(of.Names, b.Name) })
	}
	return found[:min(of.Limit, len(found))], cmp.Or(f.cluster, f.faults.ask())
}

func (f *fake) PutQueue(_ context.Context, _ auditlog.Action, ns, name string, change func(*task.QueueConfig) error) (queues.Queue, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q, ok := f.queues[name]
	if !ok {
		q = queues.Queue{Namespace: ns, Name: name, Shard: f.shards[0], Config: task.QueueConfig{Settings: task.DefaultSettings(),
			CreatedAt: time.Now()}}
		if s, ok := f.home[name]; ok {
			q.Shard = s
		}
	}
	if err := f.faults.ask(); err != nil {
		return q, err
	}
	before := q.Config
	if err := change(&q.Config); err != nil {
		return queues.Queue{}, err
	}
	if !ok || !q.Config.Equal(before) {
		q.Config.Version++
	}
	f.queues[name] = q
	return q, nil
}

func (f *fake) DropQueue(_ context.Context, _ task.Author, _, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.queues, name)
	return f.faults.ask()
}

// fakeCluster is the fake as a Cluster: it has a method with the same name as the Broker's.
type fakeCluster struct{ *fake }

func (c fakeCluster) Copied(_ context.Context, _, name string) (queues.Queue, bool) {
	return c.Queue1(name)
}

func (c fakeCluster) Queue(_ context.Context, _, name string) (queues.Queue, bool, error) {
	q, ok := c.Queue1(name)
	return q, ok, cmp.Or(c.cluster, c.faults.ask())
}

func (c fakeCluster) Current(ctx context.Context, ns, name string) (queues.Queue, bool, error) {
	return c.Queue(ctx, ns, name)
}

func (f *fake) Queue(_ context.Context, shard uint32, _, name string) (i broker.QueueInfo, at broker.Stamp, err error) {
	if err := f.begin(shard); err != nil {
		return i, at, err
	}
	defer f.mu.Unlock()
	found := false
	if name == "broken" {
		found, i.Breakers, i.BreakersOpen = true, slices.Clone(f.broken), len(f.broken)
	}
	for _, t := range f.tasks {
		if t.view.Queue != name {
			continue
		}
		found = true
		switch t.view.Exec.State {
		case task.Ready:
			i.Ready[t.view.Exec.Priority-1]++
		case task.Claimed:
			i.Claimed++
		case task.Dead:
			i.Dead++
		case task.Poisoned:
			i.Poisoned++
		}
	}
	if !found {
		return i, f.stamp(shard), task.NotFound("queue", name)
	}
	return i, f.stamp(shard), nil
}

func (f *fake) Purge(_ context.Context, _ task.Author, shard uint32, _, name string) (n int64, at broker.Stamp, err error) {
	if err := f.begin(shard); err != nil {
		return 0, at, err
	}
	defer f.mu.Unlock()
	for _, t := range f.tasks {
		if t.view.Queue == name && t.view.Exec.State.Waiting() {
			x := *t.view.Exec
			x.State, x.Reason = task.Discarded, task.ReasonPurged
			t.view.Exec = &x
			n++
		}
	}
	return n, f.stamp(shard), nil
}

// CloseBreakers closes the breakers of queue "broken", which are open until then.
func (f *fake) CloseBreakers(_ context.Context, _ task.Author, shard uint32, _, name, typ string) (n int, at broker.Stamp, err error) {
	if err := f.begin(shard); err != nil {
		return 0, at, err
	}
	defer f.mu.Unlock()
	before := len(f.broken)
	if name == "broken" {
		f.broken = slices.DeleteFunc(f.broken, func(i broker.BreakerInfo) bool { return typ == "" || i.Type == typ })
	}
	return before - len(f.broken), f.stamp(shard), nil
}
