package broker

import (
	"context"
	"math"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// OnSpaces is a request about what namespaces or queues use in a shard.
type OnSpaces struct {
	Shard uint32
	Names []task.SpaceName
}

// TargetShard implements verb.Sharded.
func (o *OnSpaces) TargetShard() uint32 { return o.Shard }

// Spaces returns what namespaces or queues use in a shard, in the order of the request.
var Spaces = changes(verb.Rule{Name: "spaces", Idempotent: true}, func(round *engine.Round, q *OnSpaces) ([]task.Space, error) {
	out := make([]task.Space, len(q.Names))
	for i, name := range q.Names {
		out[i] = engine.Space(round, name)
	}
	return out, nil
})

// NewShare sets a shard's share of a namespace's quotas, or of a queue's limits.
type NewShare struct {
	OnSpaces
	Share task.Share
}

// PutShare replaces a shard's share, unless the existing one is as new, and returns what the namespace or the queue uses.
var PutShare = receives(verb.Rule{Name: "put-share", Idempotent: true}, func(round *engine.Round, q *NewShare) (task.Space, error) {
	return engine.PutShare(round, q.Names[0], q.Share), nil
})

// Removal is a request to erase a namespace that was removed in a version of the system shard.
type Removal struct {
	OnShard
	Version uint64
}

// EraseNamespace removes a shard's data of a namespace without queues, some rows per round, and late copies of its deleted queues.
//
// Errors: wrong_state while there are tasks that wait, run, are dead or on their way to other shards, or if the namespace was added again,
// or kept, after the removal.
var EraseNamespace = onReplica(verb.Rule{Name: "erase-namespace", Idempotent: true}, func(ctx context.Context, r *replica,
	q *Removal) (verb.Nothing, error) {
	late, _, err := read(ctx, r, func(from store.Reader) ([]string, error) { return query.Copies(from, q.Namespace), nil })
	for i := 0; i < len(late) && err == nil; i++ {
		_, _, err = changeWhenFree(ctx, r, func(round *engine.Round) (verb.Nothing, error) {
			if engine.Space(round, task.SpaceName{Namespace: q.Namespace}).Share.Version > q.Version {
				return verb.Nothing{}, nil // Erase refuses
			}
			return verb.Nothing{}, engine.DropQueue(round, q.Namespace, late[i], math.MaxUint64)
		})
	}
	if err != nil {
		return verb.Nothing{}, err
	}
	var deadlines [][]byte
	var behind, next []byte
	for {
		if _, _, err := read(ctx, r, func(from store.Reader) (verb.Nothing, error) {
			deadlines, next = query.Deadlines(from, q.Namespace, behind, chunk)
			return verb.Nothing{}, nil
		}); err != nil {
			return verb.Nothing{}, err
		}
		more, _, err := changeWhenFree(ctx, r, func(round *engine.Round) (bool, error) {
			return engine.Erase(round, q.Namespace, q.Version, deadlines, chunk)
		})
		if err != nil || !more && next == nil {
			return verb.Nothing{}, err
		}
		if next != nil {
			behind = next
		}
	}
})
