package forward

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/system/schedules"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Shards returns the data shards.
func (f *Forwarder) Shards() []uint32 { return f.cfg.Map.Shards() }

// Replicas returns the nodes with a replica of a shard.
func (f *Forwarder) Replicas(shard uint32) []uint32 { return f.cfg.Map.Replicas(shard) }

// EachShard runs a call on several shards in parallel.
func EachShard(shards []uint32, fn func(i int, shard uint32) error) []error {
	errs := make([]error, len(shards))
	var calls sync.WaitGroup
	for i, shard := range shards {
		calls.Go(func() { errs[i] = fn(i, shard) })
	}
	calls.Wait()
	return errs
}

// FirstRefusal returns the first *task.Error among some errors, or else all of them.
func FirstRefusal(errs []error, all error) error {
	for _, err := range errs {
		if _, ok := task.AsError(err); ok {
			return err
		}
	}
	return all
}

// FirstShard returns the shard that has what there is little of. Every cluster has it, and one shard can bound and list its operations.
func (f *Forwarder) FirstShard() (uint32, error) {
	shards := f.Shards()
	if len(shards) == 0 {
		return 0, task.Unavailable(time.Second, "operations: there is no data shard yet")
	}
	return slices.Min(shards), nil
}

// ShardByName finds the shard of a schedule. A name that the system shard does not know may have been lost with it: then the shards
// themselves are asked. It returns unavailable if none has the schedule, but one that may have it did not answer in time.
func (f *Forwarder) ShardByName(ctx context.Context, of verb.ByName) (uint32, error) {
	ctx = task.WithoutScope(ctx) // whether the caller may see it or not, names are unique
	ns, name := of.ObjectName()
	home, err := schedules.Find.Call(ctx, f, schedules.Place{Namespace: ns, Name: name})
	if !errors.Is(err, task.ErrNotFound) {
		return home.Shard, err
	}
	shards := f.Shards()
	has, bad := verb.AskShards(ctx, shards, func(ctx context.Context, i int) (bool, error) {
		on := broker.OnSchedule{OnShard: broker.OnShard{Shard: shards[i], Namespace: ns}, Name: name}
		err := f.atLeader(ctx, broker.ShowSchedule.Make(broker.AtHome{OnSchedule: on}))
		if errors.Is(err, task.ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	})
	switch i := slices.Index(has.Value, true); {
	case bad != nil:
		return 0, bad
	case i >= 0:
		return shards[i], nil
	case len(has.Missing) > 0:
		return 0, task.Unavailable(time.Second, "schedule %q: it is not known whether it exists: %s", name, has.Missing[0].Explained())
	}
	return 0, err
}
