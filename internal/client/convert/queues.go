package convert

import (
	"unicode/utf8"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

const (
	maxClaimQueues = 100
	MaxClaimTypes  = 1000
	maxWeight      = 1000
)

func CheckQueues(shares []*pawlv1.QueueShare, order pawlv1.Order) error {
	if len(shares) == 0 || len(shares) > maxClaimQueues {
		return Invalid("queues", "%d queues, want 1 to %d", len(shares), maxClaimQueues)
	}
	seen := make(map[string]bool, len(shares))
	for _, s := range shares {
		switch {
		case s.Queue == "" || !utf8.ValidString(s.Queue):
			return Invalid("queues", "%q is not a queue", s.Queue)
		case seen[s.Queue]:
			return Invalid("queues", "%q is given twice", s.Queue)
		case order == pawlv1.Order_ORDER_WEIGHTED && (s.Weight < 1 || s.Weight > maxWeight):
			return Invalid("queues."+s.Queue, "%d is not between 1 and %d", s.Weight, maxWeight)
		}
		seen[s.Queue] = true
	}
	return nil
}
