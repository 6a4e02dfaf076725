package lanes

import (
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Has reports whether a priority has a runnable task of one of the types; no types mean any.
func (s *Set) Has(p task.Priority, types []string) bool {
	at := int(p - task.High)
	if len(types) == 0 {
		return s.waits(at)
	}
	return slices.ContainsFunc(types, func(t string) bool { return s.byType[at][t] != nil }) || s.cold.first(at, types) != nil
}

// Next returns the next task of a priority and the types, with its lane. There must be one.
func (s *Set) Next(r *Round, p task.Priority, types []string) (schema.LaneName, schema.ReadyTask) {
	l := s.in(r, p).next(types)
	return l.LaneName, l.head[0]
}

// soonCount is how many tasks of different keys are read together.
const soonCount = 128

// Soon returns the first tasks of the flows whose turn comes next, as far as they are in memory.
func (s *Set) Soon(p task.Priority) []schema.ReadyTask {
	tasks := make([]schema.ReadyTask, 0, soonCount)
	s.order[p-task.High].firsts(soonCount, func(f *Flow) {
		if l := f.ready[p-task.High].top(); len(l.head) > 0 {
			tasks = append(tasks, l.head[0])
		}
	})
	if s.cold.order[p-task.High].Len() > 0 {
		s.cold.order[p-task.High].top().lanes.firsts(soonCount, func(c *coldLane) {
			if c.first.ID != (task.ID{}) {
				tasks = append(tasks, c.first)
			}
		})
	}
	return tasks
}
