package queues

import (
	"cmp"
	"slices"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/task"
)

// SpreadTarget selects the shards that a queue is spread over.
type SpreadTarget struct {
	Shards []uint32 // these; none: as many as Parts, preferring those that have the queue, then those with the fewest slots of other queues
	Parts  int
	// Own reserves these shards: no other queue is in them, and none is created there, until the queue is spread without Own or deleted.
	Own bool
	// Force spreads the queue even if tasks have keys in different slots: new tasks like them will be refused.
	Force bool
	// DryRun changes nothing, and returns the queue as it would be when its slots have moved.
	DryRun bool
}

// otherQueues is what the choice of shards considers about other queues.
type otherQueues struct {
	slots  map[uint32]int         // of other queues that are spread, by shard
	others map[uint32]system.Name // one other queue in each shard
	owners owners                 // except the queue itself
}

// owners maps shards to the queues that have them as their own.
type owners map[uint32]system.Name

func (o owners) add(q Queue) {
	for _, p := range q.Parts {
		if q.Own && p.Next != 0 {
			o[p.Shard] = q.FullName()
		}
	}
}

// free returns the data shards that other queues may be in.
func (o owners) free(shards int) []uint32 {
	return slices.DeleteFunc(system.DataShards(shards), func(id uint32) bool { _, owned := o[id]; return owned })
}

func queuesBeside(r store.Reader, q Queue) (otherQueues, error) {
	t := otherQueues{slots: map[uint32]int{}, others: map[uint32]system.Name{}, owners: owners{}}
	err := Scan(r, []byte{system.QueueTable}, []byte{system.QueueTable + 1}, func(other Queue, _ bool) bool {
		if other.FullName() == q.FullName() {
			return true
		}
		t.owners.add(other)
		for _, p := range other.Parts {
			t.slots[p.Shard] += p.Next.Len()
		}
		for _, shard := range other.Shards() {
			t.others[shard] = other.FullName()
		}
		return true
	})
	return t, err
}

// chooseShards returns the shards that a queue will be spread over.
func chooseShards(r store.Reader, q Queue, settings system.Settings, target SpreadTarget) ([]uint32, error) {
	if err := target.check(settings.DataShards); err != nil {
		return nil, err
	}
	t, err := queuesBeside(r, q)
	if err != nil {
		return nil, err
	}
	shards := target.Shards
	if len(shards) == 0 {
		shards, err = t.fewest(q, settings.DataShards, target)
	} else {
		err = t.allow(q, target)
	}
	if err == nil && target.Own && len(t.owners.free(settings.DataShards)) == len(shards) {
		err = system.WrongState("queue %q: no data shard would be left for other queues: see `pawl cluster add-shards`", q.Name)
	}
	return shards, err
}

func (o SpreadTarget) check(dataShards int) error {
	if len(o.Shards) == 0 {
		if most := min(dataShards, task.SlotCount); o.Parts < 1 || o.Parts > most {
			return task.Invalid("parts", "%d is not between 1 and %d, the number of data shards and of slots: see `pawl "+
				"cluster add-shards`",
				o.Parts, most)
		}
		return nil
	}
	if len(o.Shards) > task.SlotCount {
		return task.Invalid("shards", "%d shards, but a queue has %d slots", len(o.Shards), task.SlotCount)
	}
	for i, id := range o.Shards {
		if id < 1 || int(id) > dataShards {
			return task.Invalid("shards", "%d is not a data shard: they are numbered 1 to %d", id, dataShards)
		}
		if slices.Contains(o.Shards[:i], id) {
			return task.Invalid("shards", "%d is named twice", id)
		}
	}
	return nil
}

// allow returns an error for shards that the queue can't share with the queues in them.
func (t otherQueues) allow(q Queue, target SpreadTarget) error {
	for _, id := range target.Shards {
		if owner, owned := t.owners[id]; owned {
			return system.WrongState("queue %q: shard %d is queue %q's own", q.Name, id, owner.Name)
		}
		if other, there := t.others[id]; there && target.Own {
			return system.WrongState("queue %q: shard %d can't be its own, since it has tasks of queue %q: see `pawl queue "+
				"spread` and `pawl cluster add-shards`",
				q.Name, id, other.Name)
		}
	}
	return nil
}

// fewest chooses the shards with the least of other queues.
func (t otherQueues) fewest(q Queue, dataShards int, target SpreadTarget) ([]uint32, error) {
	shards := t.owners.free(dataShards)
	if target.Own {
		shards = slices.DeleteFunc(shards, func(id uint32) bool { _, shared := t.others[id]; return shared })
	}
	if len(shards) < target.Parts {
		return nil, system.WrongState("queue %q: only %d of %d data shards can take it: see `pawl cluster add-shards`", q.Name,
			len(shards), dataShards)
	}
	slices.SortStableFunc(shards, func(a, b uint32) int {
		_, hasA := q.SlotsIn(a)
		_, hasB := q.SlotsIn(b)
		return cmp.Or(cmp.Compare(hasB, hasA), cmp.Compare(t.slots[a], t.slots[b]))
	})
	return shards[:target.Parts], nil
}
