package apiproto

import (
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// MinRate is the slowest rate: one task per day.
const MinRate = 1.0 / 86400

// OperationOf decodes and validates the spec of an operation.
func OperationOf(p *pawlv1.OperationSpec, l task.Limits) (s broker.OperationSpec, err error) {
	s = broker.OperationSpec{ToQueue: p.GetToQueue(), Max: p.GetMax(), Canary: p.GetCanary(), Rate: p.GetRate()}
	if s.Action, err = contract.WordOf("action", contract.Actions, p.GetAction()); err != nil {
		return s, err
	}
	switch {
	case s.Action == "":
		return s, task.Invalid("action", "is required: one of %s", task.Listed(task.BulkActions))
	case p.GetFilter() == nil:
		return s, task.Invalid("filter", "is required: an empty one selects every task that the action applies to")
	case s.Max < 0:
		return s, task.Invalid("max", "%d is negative", s.Max)
	case s.Canary < 0:
		return s, task.Invalid("canary", "%d is negative", s.Canary)
	case s.Max > 0 && s.Canary >= s.Max:
		return s, task.Invalid("canary", "%d is not less than max, %d", s.Canary, s.Max)
	case s.Rate != 0 && !(s.Rate >= MinRate && s.Rate <= contract.MaxRate):
		return s, task.Invalid("rate", "%v a second is not between one a day and %v", s.Rate, float64(contract.MaxRate))
	}
	if s.Priority, err = priorityOf(p.GetPriority()); err != nil {
		return s, err
	}
	if err := checkTargets(&s, l); err != nil {
		return s, err
	}
	if s.Filter, err = FilterOf(p.GetFilter(), l); err != nil {
		return s, contract.FieldOf("filter", err)
	}
	if s.ToQueue != "" && s.Filter.Queue == s.ToQueue {
		return s, task.Invalid("to_queue", "%q is the queue that the filter selects", s.ToQueue)
	}
	s.Filter.Not = s.ToQueue
	s.Filter.States, err = s.Action.Selects(s.Filter.States)
	return s, err
}

// checkTargets rejects an action without the arguments it needs, or with arguments it doesn't take.
func checkTargets(s *broker.OperationSpec, l task.Limits) error {
	switch {
	case s.Action == task.Move:
		if err := task.CheckQueue("to_queue", s.ToQueue, l); err != nil {
			return err
		}
	case s.ToQueue != "":
		return task.Invalid("to_queue", "%q is given, but %s does not move tasks", task.Cut(s.ToQueue, 64), s.Action)
	}
	switch {
	case s.Action == task.SetPriority && s.Priority == 0:
		return task.Invalid("priority", "is required: high, normal or low")
	case s.Action != task.SetPriority && s.Priority != 0:
		return task.Invalid("priority", "%s is given, but %s does not change it", s.Priority, s.Action)
	}
	return nil
}

// OperationProto converts an operation for callers.
func OperationProto(o *broker.Operation, waitsFor string) *pawlv1.Operation {
	s := &o.Spec
	p := &pawlv1.Operation{OperationId: o.ID.String(), State: contract.NumberOf[pawlv1.OperationState](contract.OperationStates,
		o.State.String()),
		Author: operatorProto(s.By), CreatedAt: TimeProto(o.CreatedAt), PausedAt: TimeProto(o.PausedAt), EndedAt: TimeProto(o.EndedAt),
		Why: o.Why, StoppedBy: operatorProto(o.StoppedBy), ResumedBy: operatorProto(o.ResumedBy), Total: max(s.Total, o.Matched),
		TotalIsLowerBound: s.TotalSoFar, Stopping: contract.NumberOf[pawlv1.OperationState](contract.OperationStates, o.Stopping.String()),
		Matched: o.Matched, Done: o.Done, Skipped: o.SkippedCount(), Failed: o.Failed, WaitsFor: waitsFor,
		Spec: &pawlv1.OperationSpec{Action: contract.NumberOf[pawlv1.Action](contract.Actions, s.Action), Filter: filterProto(&s.Filter),
			ToQueue: textProto(s.ToQueue), Priority: priorityProto(s.Priority), Max: s.Max, Rate: s.Rate, Canary: s.Canary}}
	if s.Max > 0 {
		p.Total = min(p.Total, s.Max)
		p.TotalIsLowerBound = p.GetTotalIsLowerBound() && p.GetTotal() < s.Max
	}
	for _, k := range o.Skipped {
		p.SkippedReasons = append(p.SkippedReasons, &pawlv1.SkippedTasks{Reason: k.Reason, Count: k.Count})
	}
	for _, e := range o.Errors {
		p.Errors = append(p.Errors, &pawlv1.FailedTask{TaskId: e.ID.String(), Message: e.Message})
	}
	return p
}

func operatorProto(by task.Author) *pawlv1.Operator {
	if by.IsZero() {
		return nil
	}
	return &pawlv1.Operator{Actor: by.Name, Address: by.Address, Interface: string(by.Interface), Reason: by.Reason}
}

// filterProto is the inverse of FilterOf.
func filterProto(f *broker.Filter) *pawlv1.Filter {
	p := &pawlv1.Filter{Queue: textProto(f.Queue), Type: textProto(f.Type), Tag: textProto(f.Tag), Key: textProto(f.Key),
		Worker: textProto(f.Worker), Error: textProto(f.Error), Fingerprint: textProto(f.Fingerprint), Q: textProto(f.Text),
		CreatedAfter: TimeProto(f.CreatedAfter), CreatedBefore: TimeProto(f.CreatedBefore)}
	if f.Operation != (task.ID{}) {
		p.Operation = textProto(f.Operation.String())
	}
	for _, s := range f.States {
		p.States = append(p.States, StateProto(s))
	}
	for _, c := range f.Payload {
		p.Payload = append(p.Payload, &pawlv1.PayloadField{Path: c.Path, Value: c.Value})
	}
	return p
}
