package pawl

import (
	"maps"
	"slices"
	"unicode/utf8"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Queues says which queues a worker takes tasks from, and how it chooses: Weighted or Strict.
type Queues interface {
	shares() ([]*pawlv1.QueueShare, pawlv1.Order)
}

// Weighted takes from queues in proportion to their weights, 1 to 1,000 each, exactly, while they have tasks:
// Weighted{"mail": 7, "default": 3}.
type Weighted map[string]int

// Strict takes from the first queue that has a task: Strict{"urgent", "default"}.
type Strict []string

// shares sorts by name, so that the same weights are the same request.
func (w Weighted) shares() ([]*pawlv1.QueueShare, pawlv1.Order) {
	out := make([]*pawlv1.QueueShare, 0, len(w))
	for _, name := range slices.Sorted(maps.Keys(w)) {
		out = append(out, &pawlv1.QueueShare{Queue: name, Weight: clampInt32(w[name])})
	}
	return out, pawlv1.Order_ORDER_WEIGHTED
}

func (s Strict) shares() ([]*pawlv1.QueueShare, pawlv1.Order) {
	out := make([]*pawlv1.QueueShare, 0, len(s))
	for _, name := range s {
		out = append(out, &pawlv1.QueueShare{Queue: name})
	}
	return out, pawlv1.Order_ORDER_STRICT
}

const (
	maxClaimQueues = 100
	maxClaimTypes  = 1000
	maxWeight      = 1000
	maxClaimTasks  = 1000
)

func checkQueues(shares []*pawlv1.QueueShare, order pawlv1.Order) error {
	if len(shares) == 0 || len(shares) > maxClaimQueues {
		return invalid("queues", "%d queues, want 1 to %d", len(shares), maxClaimQueues)
	}
	seen := make(map[string]bool, len(shares))
	for _, s := range shares {
		switch {
		case s.Queue == "" || !utf8.ValidString(s.Queue):
			return invalid("queues", "%q is not a queue", s.Queue)
		case seen[s.Queue]:
			return invalid("queues", "%q is there twice", s.Queue)
		case order == pawlv1.Order_ORDER_WEIGHTED && (s.Weight < 1 || s.Weight > maxWeight):
			return invalid("queues."+s.Queue, "%d is not between 1 and %d", s.Weight, maxWeight)
		}
		seen[s.Queue] = true
	}
	return nil
}
