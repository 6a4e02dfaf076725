package broker

import (
	"context"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Spaces tells what namespaces use of a shard, in their order.
func (b *Broker) Spaces(ctx context.Context, shardID uint32, names []string) ([]task.Space, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return nil, err
	}
	spaces, _, err := change(ctx, r, func(round *engine.Round) ([]task.Space, error) {
		out := make([]task.Space, len(names))
		for i, ns := range names {
			out[i] = engine.Space(round, ns)
		}
		return out, nil
	})
	return spaces, err
}

// PutShare replaces a namespace's share of a shard, unless the one that is there is as new, and tells what it uses.
func (b *Broker) PutShare(ctx context.Context, shardID uint32, ns string, to task.Share) (task.Space, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return task.Space{}, err
	}
	space, _, err := change(ctx, r, func(round *engine.Round) (task.Space, error) { return engine.PutShare(round, ns, to), nil })
	return space, err
}

// EraseNamespace removes what a shard has of a namespace without queues, some rows a round.
//
// Errors: wrong_state while there are queues, or tasks on their way to other shards.
func (b *Broker) EraseNamespace(ctx context.Context, shardID uint32, ns string) error {
	r, err := b.replica(shardID)
	if err != nil {
		return err
	}
	var behind []byte
	for {
		deadlines, next, err := eraseable(ctx, r, ns, behind)
		if err != nil {
			return err
		}
		more, _, err := change(ctx, r, func(round *engine.Round) (bool, error) { return engine.Erase(round, ns, deadlines, chunk) })
		if err != nil || !more && next == nil {
			return err
		}
		if next != nil {
			behind = next
		}
	}
}

// eraseable reads some of a namespace's deadlines behind one, and where to go on; nil: there are no more.
func eraseable(ctx context.Context, r *replica, ns string, behind []byte) (keys [][]byte, next []byte, err error) {
	_, _, err = read(ctx, r, func(from store.Reader) (struct{}, error) {
		keys, next = engine.DeadlinesOf(from, ns, behind, chunk)
		return struct{}{}, nil
	})
	return keys, next, err
}
