package pawl

import (
	"maps"
	"slices"

	"github.com/pawlq/pawl/internal/client/convert"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Queues are the queues from which a worker takes tasks, and how it chooses between them: Weighted or Strict.
type Queues interface {
	Shares() ([]*pawlv1.QueueShare, pawlv1.Order)
}

// Weighted takes from the queues that have tasks in exact proportion to their weights, 1 to 1,000 each:
// Weighted{"mail": 7, "default": 3}.
type Weighted map[string]int

// Strict takes from the first queue that has a task: Strict{"urgent", "default"}.
type Strict []string

// Shares sorts by name, so that equal weights make equal requests.
func (w Weighted) Shares() ([]*pawlv1.QueueShare, pawlv1.Order) {
	out := make([]*pawlv1.QueueShare, 0, len(w))
	for _, name := range slices.Sorted(maps.Keys(w)) {
		out = append(out, &pawlv1.QueueShare{Queue: name, Weight: convert.Int32(w[name])})
	}
	return out, pawlv1.Order_ORDER_WEIGHTED
}

func (s Strict) Shares() ([]*pawlv1.QueueShare, pawlv1.Order) {
	out := make([]*pawlv1.QueueShare, 0, len(s))
	for _, name := range s {
		out = append(out, &pawlv1.QueueShare{Queue: name})
	}
	return out, pawlv1.Order_ORDER_STRICT
}
