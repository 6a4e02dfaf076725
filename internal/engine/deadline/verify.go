package deadline

import (
	"fmt"
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Verify checks that each lease in memory belongs to a claimed task, and that its row exists and counts its leases.
func (l Leases) Verify(from store.Reader) error {
	count := map[*Row]int{}
	for ns, of := range l {
		for id, row := range of {
			count[row]++
			v, _ := from.Get(row.Key)
			d, _ := schema.ParseDeadline(row.Key, v)
			x, err := schema.ReadExec(from, ns, id)
			if err != nil || x.State != task.Claimed || x.Claim.Until != row.At || row.Namespace != ns || row.ids != nil ||
				!slices.Contains(d.Shared, id) {
				return fmt.Errorf("the lease of task %s in row %q: the task is %+v (%v), the row names %v", id, row.Key, x, err, d.Shared)
			}
		}
	}
	for row, n := range count {
		if n != row.leases {
			return fmt.Errorf("row %q ends %d leases, and counts %d", row.Key, n, row.leases)
		}
	}
	return nil
}
