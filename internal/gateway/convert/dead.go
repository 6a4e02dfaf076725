package convert

import (
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// DeadFilterOf decodes a filter for the tasks of a queue that are in one state.
func DeadFilterOf(p *pawlv1.Filter, queue string, s task.State, l task.Limits) (broker.Filter, error) {
	f, err := FilterOf(p, l)
	if err != nil {
		return f, err
	}
	if f.Queue != "" && f.Queue != queue {
		return f, task.Invalid("filter.queue", "%q is not %q", f.Queue, queue)
	}
	if len(f.States) > 1 || len(f.States) == 1 && f.States[0] != s {
		return f, task.Invalid("filter.state", "only %s can be selected here", s)
	}
	f.Queue, f.States = queue, []task.State{s}
	return f, nil
}

// IDsOf parses ids and drops duplicates.
func IDsOf(texts []string) ([]task.ID, error) {
	seen := make(map[task.ID]bool, len(texts))
	ids := make([]task.ID, 0, len(texts))
	for _, text := range texts {
		id, err := task.ParseID(text)
		if err != nil {
			return nil, task.Invalid("task_ids", "%v", err)
		}
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids, nil
}
