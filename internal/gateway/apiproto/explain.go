package apiproto

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// maxToldOfQueue bounds the keys and types that an explanation names, as each shard does.
const maxToldOfQueue = 10

// ExplainedQueue adds up the parts of a queue. A reason that several shards report identically is listed once; any other names its
// shard if the queue is spread.
func ExplainedQueue(q queues.Queue, parts []*broker.QueueExplanation) *pawlv1.ExplainQueueResponse {
	type heldKey struct{ key, code string }
	type reason struct{ code, detail string }
	out := &pawlv1.ExplainQueueResponse{Queue: q.Name}
	keys, types, reasons := map[heldKey]*pawlv1.HeldKey{}, map[string]*pawlv1.IdleType{}, map[reason]*pawlv1.Reason{}
	var next, oldest broker.Time
	for i, shard := range q.Shards() {
		e := parts[i]
		if e == nil {
			continue
		}
		out.Ready, out.Claimable, out.Claimed, out.Waiting = out.Ready+e.Ready, out.Claimable+e.Claimable, out.Claimed+e.Claimed,
			out.Waiting+e.Waiting
		out.Partial = out.Partial || e.Partial
		next, oldest = earlier(next, e.NextDue), earlier(oldest, e.OldestReady)
		for j := range e.Reasons {
			p := ReasonProto(&e.Reasons[j], q.Name)
			if same := reasons[reason{p.Code, p.Detail}]; same != nil {
				same.Count, same.Shard = same.Count+p.Count, 0
				continue
			}
			if q.Spread() {
				p.Shard = shard
			}
			reasons[reason{p.Code, p.Detail}] = p
			out.Reasons = append(out.Reasons, p)
		}
		for _, k := range e.Keys {
			of := heldKey{k.Key, string(k.Code)}
			if keys[of] == nil {
				keys[of] = &pawlv1.HeldKey{Key: k.Key, Code: of.code, Until: TimeProto(k.Until)}
				out.Keys = append(out.Keys, keys[of])
			}
			keys[of].Tasks += k.Tasks
		}
		for _, t := range e.Idle {
			if types[t.Type] == nil {
				types[t.Type] = &pawlv1.IdleType{Type: t.Type}
				out.IdleTypes = append(out.IdleTypes, types[t.Type])
			}
			types[t.Type].Tasks += t.Tasks
		}
	}
	out.NextDue, out.OldestReadyAt = TimeProto(next), TimeProto(oldest)
	slices.SortStableFunc(out.Reasons, func(a, b *pawlv1.Reason) int {
		return cmp.Compare(task.Why(a.Code).Order(),
			task.Why(b.Code).Order())
	})
	slices.SortStableFunc(out.Keys, func(a, b *pawlv1.HeldKey) int { return cmp.Compare(b.Tasks, a.Tasks) })
	slices.SortStableFunc(out.IdleTypes, func(a, b *pawlv1.IdleType) int { return cmp.Compare(b.Tasks, a.Tasks) })
	out.Keys, out.IdleTypes = out.Keys[:min(len(out.Keys), maxToldOfQueue)], out.IdleTypes[:min(len(out.IdleTypes), maxToldOfQueue)]
	return out
}

// earlier returns the earlier of two times, of which either may be unknown.
func earlier(a, b broker.Time) broker.Time {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// ReasonProto converts a reason for callers.
func ReasonProto(r *broker.Reason, queue string) *pawlv1.Reason {
	p := &pawlv1.Reason{Code: string(r.Code), Detail: r.Detail, Change: r.Change, Since: TimeProto(r.Since), Until: TimeProto(r.Until),
		Type: r.Type, Key: r.Key, Cause: r.Cause, Error: r.Error, Limit: Int32Of(r.Limit), Types: r.Types, Count: r.Count, More: r.More}
	if p.Queue = r.Queue; r.Code.Order() > task.WhyNotDue.Order() {
		p.Queue = queue
	}
	if r.Rate.IsSet() {
		p.Rate = &pawlv1.Reason_Rate{Limit: Int32Of(r.Rate.Limit), Period: durationpb.New(r.Rate.Period), Burst: Int32Of(r.Rate.Capacity())}
	}
	for _, t := range r.Running {
		p.Running = append(p.Running, &pawlv1.Runner{TaskId: t.ID.String(), Worker: t.Worker, Since: TimeProto(t.Since),
			Until: TimeProto(t.Until)})
	}
	return p
}
