package router

import (
	"context"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
)

func isUnique(s task.Spec) bool { return s.Unique != nil }

// mayBeUnique refuses unique keys while a shard may be led by a node that does not know them. The copy of the map may be behind,
// but levels only rise.
func (r *Router) mayBeUnique() error {
	switch level := r.cfg.Map.Level(); {
	case level == 0:
		return task.Unavailable(searchRest, "unique: this node does not know yet at which feature level the cluster works")
	case level < cluster.PoliciesLevel:
		return &task.Error{Code: task.CodeWrongState, Field: "unique", Message: task.Invalid("unique",
			"the cluster must work at feature level %d, and it is at %d: see `pawl cluster raise-level`", cluster.PoliciesLevel, level).Message}
	}
	return nil
}

// enqueueOthers makes the tasks that have no unique key, and refuses the others.
func (r *Router) enqueueOthers(ctx context.Context, shard uint32, ns string, specs []task.Spec, refusal error) ([]broker.Enqueued, broker.Stamp, error) {
	out := make([]broker.Enqueued, len(specs))
	var others []task.Spec
	var index []int
	for i, s := range specs {
		if isUnique(s) {
			out[i].Err = refusal
		} else {
			others, index = append(others, s), append(index, i)
		}
	}
	if len(others) == 0 {
		return out, broker.Stamp{}, nil
	}
	got, at, err := r.Enqueue(ctx, shard, ns, others)
	if err != nil {
		return nil, at, err
	}
	for n, i := range index {
		out[i] = got[n]
	}
	return out, at, nil
}
