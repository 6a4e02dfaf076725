package unique

import "github.com/pawlq/pawl/internal/task"

// Needs tells how much room some new tasks will need, in the order in which they will be created.
type Needs struct {
	Round     Round
	Namespace string

	first map[name]int64 // the sizes of those that will wait with a unique key
}

type name struct{ queue, key string }

// Of returns how many more tasks and bytes there will be: fewer than the task has if it replaces another, and none if
// its unique key is taken.
func (n *Needs) Of(s *task.Spec) (tasks, bytes int64) {
	if s.Unique == nil {
		return 1, s.Size()
	}
	at := name{s.Queue, s.Unique.Key}
	if was, some := n.first[at]; some {
		if s.Unique.OnConflict != task.Replace && s.Unique.OnConflict != task.KeepLast {
			return 0, 0
		}
		n.first[at] = s.Size()
		return 0, s.Size() - was
	}
	found, err := Resolve(n.Round, n.Namespace, s)
	if err != nil || found.Duplicate {
		return 0, 0
	}
	if n.first == nil {
		n.first = map[name]int64{}
	}
	n.first[at] = s.Size()
	if found.Replaced != nil {
		return 0, s.Size() - found.Replaced.Size
	}
	return 1, s.Size()
}
