package convert

import (
	"maps"
	"slices"
	"unicode/utf8"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/pawltype"
)

const (
	maxClaimQueues = 100
	MaxClaimTypes  = 1000
	maxWeight      = 1000
)

// QueueShares returns the queues of a claim as its request has them. Weighted ones are sorted, so that equal weights
// make equal requests.
func QueueShares(of pawltype.Queues) (shares []*pawlv1.QueueShare, order pawlv1.Order, err error) {
	switch of := of.(type) {
	case pawltype.Weighted:
		order = pawlv1.Order_ORDER_WEIGHTED
		for _, name := range slices.Sorted(maps.Keys(of)) {
			shares = append(shares, &pawlv1.QueueShare{Queue: name, Weight: Int32(of[name])})
		}
	case pawltype.Strict:
		order = pawlv1.Order_ORDER_STRICT
		for _, name := range of {
			shares = append(shares, &pawlv1.QueueShare{Queue: name})
		}
	}
	if len(shares) == 0 || len(shares) > maxClaimQueues {
		return nil, 0, Invalid("queues", "%d queues, want 1 to %d", len(shares), maxClaimQueues)
	}
	seen := make(map[string]bool, len(shares))
	for _, s := range shares {
		switch {
		case s.Queue == "" || !utf8.ValidString(s.Queue):
			return nil, 0, Invalid("queues", "%q is not a queue", s.Queue)
		case seen[s.Queue]:
			return nil, 0, Invalid("queues", "%q is given twice", s.Queue)
		case order == pawlv1.Order_ORDER_WEIGHTED && (s.Weight < 1 || s.Weight > maxWeight):
			return nil, 0, Invalid("queues."+s.Queue, "%d is not between 1 and %d", s.Weight, maxWeight)
		}
		seen[s.Queue] = true
	}
	return shares, order, nil
}
