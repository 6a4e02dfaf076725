package router

import (
	"context"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
)

// newField returns a field of a task that leaders of an older release would lose; "": it has none.
func newField(s *task.Spec) string {
	switch {
	case s.Unique != nil:
		return "unique"
	case s.Then != nil:
		return "then"
	case s.Member != nil:
		return "group_id"
	}
	return ""
}

func hasNewField(s task.Spec) bool { return newField(&s) != "" }

// requireLevel returns an error if a shard may be led by a node that does not know a field. The copy of the map may be out of date, but levels
// only rise.
func (r *Router) requireLevel(field string) error {
	switch level := r.cfg.Map.Level(); {
	case level == 0:
		return task.Unavailable(noLeaderRetry, "%s: this node does not know the cluster's feature level yet", field)
	case level < cluster.PoliciesLevel:
		return &task.Error{Code: task.CodeWrongState, Field: field, Message: task.Invalid(field,
			"needs feature level %d, and the cluster is at %d: see `pawl cluster raise-level`", cluster.PoliciesLevel, level).Message}
	}
	return nil
}

// enqueueOthers enqueues the tasks without a new field, and refuses the others.
func (r *Router) enqueueOthers(ctx context.Context, shard uint32, ns string, specs []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
	out := make([]broker.Enqueued, len(specs))
	var others []task.Spec
	var index []int
	for i, s := range specs {
		if field := newField(&s); field != "" {
			out[i].Err = r.requireLevel(field)
		}
		if out[i].Err == nil {
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
