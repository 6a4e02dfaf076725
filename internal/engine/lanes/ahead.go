package lanes

import (
	"math"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
)

// headsAhead is how many heads' worth of tasks are read ahead at a time. When fewer than lowAhead of them are left, the
// next are read. Few large reads cost less than many small ones: each begins with a block of every table and level.
const (
	headsAhead = 4
	lowAhead   = 2
)

// ahead records which tasks of a lane behind scan were read ahead.
type ahead struct {
	n   int // roughly
	end uint64
}

// Range is a part of a lane behind its head. Its tasks are read concurrently with the rounds.
type Range struct {
	Namespace string
	queue     string
	name      schema.LaneName
	lane      *Lane // owned by the shard's loop
	from      uint64
}

// readAhead requests the tasks behind the head of a lane that was just filled, unless enough were read.
func (r *Round) readAhead(s *Set, l *Lane) {
	if l.ahead.n -= min(l.ahead.n, len(l.head)); l.scan >= l.ahead.end {
		l.ahead = ahead{end: l.scan}
	}
	if l.ahead.n < lowAhead*Bounds.LaneHead && l.count > int64(len(l.head)+l.ahead.n) {
		r.Behind = append(r.Behind, Range{s.ns, s.queue, l.LaneName, l, l.ahead.end})
	}
}

// Tasks reads the tasks of the range.
func (s *Range) Tasks(from store.Reader) (tasks []schema.ReadyTask) {
	schema.ScanLane(from, s.Namespace, s.queue, s.name, schema.ReadyTask{}, s.from, math.MaxUint64, func(t schema.ReadyTask) bool {
		tasks = append(tasks, t)
		return len(tasks) < headsAhead*Bounds.LaneHead
	})
	return tasks
}

// Done records, for the next fill, that tasks of the range are in memory.
func (s *Range) Done(tasks []schema.ReadyTask) {
	if len(tasks) > 0 {
		s.lane.ahead.n += len(tasks)
		s.lane.ahead.end = tasks[len(tasks)-1].Seq + 1
	}
}
