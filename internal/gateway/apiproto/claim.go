package apiproto

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// defaultClaimBytes bounds the tasks of one answer, unless the caller does.
const defaultClaimBytes = 4 << 20

// ClaimOf decodes and validates a claim.
func ClaimOf(ns string, r *pawlv1.ClaimRequest, l task.Limits) (broker.ClaimCall, error) {
	c := broker.ClaimCall{Namespace: ns, Types: r.GetTypes(), Max: int(r.GetMax()), MaxBytes: int(r.GetMaxBytes()), Worker: r.GetWorker(),
		ClaimKey: r.GetClaimKey(), Runs: r.GetRuns()}
	var err error
	if c.Queues, c.Weighted, err = sharesOf(r.GetQueues(), r.GetOrder(), l); err != nil {
		return c, err
	}
	if err := checkTypes(c.Types, l); err != nil {
		return c, err
	}
	if c.Max == 0 {
		c.Max = 1
	}
	if c.Max < 1 || c.Max > task.MaxClaim {
		return c, task.Invalid("max", "%d is not between 1 and %d", c.Max, task.MaxClaim)
	}
	if r.GetMaxBytes() < 0 || r.GetMaxBytes() > contract.MaxClaimBytes {
		return c, task.Invalid("max_bytes", "%d is not between 1 and %d", r.GetMaxBytes(), contract.MaxClaimBytes)
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = defaultClaimBytes
	}
	if r.GetLease() != nil {
		if c.Lease, err = SpanOf("lease", r.GetLease()); err != nil {
			return c, err
		}
		if err := task.CheckLease("lease", c.Lease); err != nil {
			return c, err
		}
	}
	if err := task.CheckName("worker", c.Worker, l); err != nil {
		return c, err
	}
	return c, task.CheckName("claim_key", c.ClaimKey, l)
}

// sharesOf decodes the queues of a claim. Weighted ones are sorted, so that equal sets share one state.
func sharesOf(queues []*pawlv1.QueueShare, order pawlv1.Order, l task.Limits) (shares []broker.Share, weighted bool, err error) {
	if len(queues) == 0 || len(queues) > task.MaxClaimQueues {
		return nil, false, task.Invalid("queues", "%d queues, 1 to %d are allowed", len(queues), task.MaxClaimQueues)
	}
	weighted = order == pawlv1.Order_ORDER_WEIGHTED
	if order == pawlv1.Order_ORDER_UNSPECIFIED {
		weighted = slices.ContainsFunc(queues, func(q *pawlv1.QueueShare) bool { return q.GetWeight() != 0 })
	}
	if order < 0 || order > pawlv1.Order_ORDER_WEIGHTED {
		return nil, false, task.Invalid("order", "%d is not strict or weighted", order)
	}
	shares = make([]broker.Share, len(queues))
	for i, q := range queues {
		if err := task.CheckQueue("queues", q.GetQueue(), l); err != nil {
			return nil, false, err
		}
		if w := q.GetWeight(); w < 0 || w > task.MaxWeight || weighted && w == 0 {
			return nil, false, task.Invalid("queues."+q.GetQueue(), "%d is not between 1 and %d", w, task.MaxWeight)
		}
		shares[i] = broker.Share{Queue: q.GetQueue()}
		if weighted {
			shares[i].Weight = int(q.GetWeight())
		}
	}
	return shares, weighted, sortShares(shares, weighted)
}

func sortShares(shares []broker.Share, weighted bool) error {
	sorted := shares
	if !weighted {
		if len(shares) == 1 {
			return nil
		}
		sorted = slices.Clone(shares)
	}
	slices.SortFunc(sorted, func(a, b broker.Share) int { return strings.Compare(a.Queue, b.Queue) })
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Queue == sorted[i-1].Queue {
			return task.Invalid("queues", "%q is given twice", sorted[i].Queue)
		}
	}
	return nil
}

func checkTypes(types []string, l task.Limits) error {
	if len(types) > task.MaxClaimTypes {
		return task.Invalid("types", "%d types, at most %d are allowed", len(types), task.MaxClaimTypes)
	}
	for _, t := range types {
		if t == "" {
			return task.Invalid("types", "a type is empty")
		}
		if err := task.CheckName("types", t, l); err != nil {
			return err
		}
	}
	return nil
}

// ClaimedProto converts a claimed task for its worker.
func ClaimedProto(c *broker.Claimed) *pawlv1.ClaimedTask {
	t := &pawlv1.ClaimedTask{
		TaskId: c.ID.String(), Type: c.Type, Queue: c.Queue, Payload: c.Payload, ContentType: c.ContentType,
		Priority: priorityProto(c.Exec.Priority), Attempt: Int32Of(c.Exec.Attempt()), MaxAttempts: Int32Of(c.LastAttempt),
		ClaimToken: c.Token.String(), Fence: int64(c.Exec.Fence),
		LeaseExpiresAt: TimeProto(c.Exec.Claim.Until), Lease: durationpb.New(c.Exec.Claim.Lease), Timeout: spanProto(c.Timeout),
		Headers: c.Headers, Checkpoint: c.Checkpoint, CreatedAt: TimeProto(c.Exec.CreatedAt), ReadyAt: TimeProto(c.Exec.ReadyAt),
		Key: c.Key, Tags: c.Tags, IdempotencyKey: c.IdempotencyKey, Parent: parentProto(c.Parent),
	}
	if links := c.Exec.Links; links != nil && links.Group != (task.ID{}) {
		t.GroupId = links.Group.String()
	}
	return t
}

// maxFrame bounds the claims in one message, below the limit of a message.
const maxFrame = 15 << 20

// sizeOf estimates the size of a claim in a message.
func sizeOf(c *broker.Claimed) int {
	n := 1024 + len(c.Payload) + len(c.Checkpoint) + len(c.IdempotencyKey)
	if c.Parent != nil {
		n += len(c.Parent.Result)
	}
	for name, value := range c.Headers {
		n += len(name) + len(value) + 8
	}
	for _, tag := range c.Tags {
		n += len(tag) + 4
	}
	return n
}

// Fitting returns how many of the claims fit into one message, at least one, and an estimate of their size.
func Fitting(claimed []broker.Claimed) (n, size int) {
	for i := range claimed {
		more := sizeOf(&claimed[i])
		if size+more > maxFrame && i > 0 {
			return i, size
		}
		size += more
	}
	return len(claimed), size
}
