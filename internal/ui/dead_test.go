package ui

import (
	"testing"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

// Without the queues that a page does not read, a sum would be too small.
func TestSumOfDeadLetters(t *testing.T) {
	queues := func(n int) (all []*admin.Queue) {
		for range n {
			all = append(all, &admin.Queue{Depth: admin.Depth{Dead: 2}})
		}
		return all
	}
	for _, c := range []struct {
		queues    int
		all, want int64
	}{{3, 7, 6}, {3, 0, 6}, {deadAmong, 1000, 1000}, {deadAmong, 0, 2 * deadAmong}, {deadAmong - 1, 1000, 2*deadAmong - 2}} {
		d := &deadView{Total: c.all, State: pawltype.StateDead}
		if d.sum(queues(c.queues)); d.Total != c.want {
			t.Errorf("with %d queues of 2 each, and %d according to the statistics, the page counts %d, want %d", c.queues,
				c.all, d.Total, c.want)
		}
	}
}
