package apiproto

import (
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// GroupOf decodes and validates the spec of a group, and fills in defaults.
func GroupOf(r *pawlv1.CreateGroupRequest, l task.Limits) (g task.Group, err error) {
	g = task.Group{Name: r.GetName(), Open: r.GetOpen()}
	if g.RequestID, err = OptionalID("request_id", r.GetRequestId()); err != nil {
		return g, err
	}
	if r.GetRetention() != nil {
		keep, err := SpanOf("retention", r.GetRetention())
		if err != nil {
			return g, err
		}
		g.Retention = &keep
	}
	if g.Tasks, err = MembersOf(r.GetTasks(), l); err != nil {
		return g, err
	}
	for _, point := range []struct {
		field string
		spec  *pawlv1.TaskSpec
		to    **task.Spec
	}{{"on_complete", r.GetOnComplete(), &g.OnComplete}, {"on_success", r.GetOnSuccess(), &g.OnSuccess},
		{"on_death", r.GetOnDeath(), &g.OnDeath}} {
		if point.spec == nil {
			continue
		}
		spec, err := SpecOf(point.spec, l)
		if err != nil {
			return g, contract.FieldOf(point.field, err)
		}
		*point.to = &spec
	}
	return g, g.Check(l)
}

// MembersOf decodes tasks that will be members of a group.
func MembersOf(specs []*pawlv1.TaskSpec, l task.Limits) ([]task.Spec, error) {
	if len(specs) > l.Batch {
		return nil, task.Invalid("tasks", "%d tasks, at most %d are allowed in one call", len(specs), l.Batch)
	}
	tasks := make([]task.Spec, len(specs))
	for i, p := range specs {
		var err error
		if tasks[i], err = SpecOf(p, l); err != nil {
			return nil, contract.FieldOf(contract.Item("tasks", i), err)
		}
	}
	return tasks, nil
}

// GroupProto converts a group.
func GroupProto(v *broker.GroupView) *pawlv1.Group {
	c := &v.Counts
	p := &pawlv1.Group{GroupId: v.ID.String(), Name: v.Name, State: pawlv1.GroupState(v.State) + 1, Open: v.Open,
		Counts: &pawlv1.GroupCounts{Members: c.Members, Pending: c.Pending, Succeeded: c.Succeeded, Dead: c.Dead, Poisoned: c.Poisoned,
			Discarded: c.Discarded, Cancelled: c.Cancelled, Refused: c.Refused},
		CreatedAt: TimeProto(v.CreatedAt), EndedAt: TimeProto(v.EndedAt), KeptUntil: TimeProto(v.KeptUntil)}
	for i := range v.Points {
		f := followerProto(&v.Points[i])
		switch v.Points[i].On {
		case "on_complete":
			p.OnComplete = f
		case "on_success":
			p.OnSuccess = f
		case "on_death":
			p.OnDeath = f
		}
	}
	return p
}

// MemberProto converts a member of a group.
func MemberProto(m *broker.GroupMember) *pawlv1.GroupMember {
	p := &pawlv1.GroupMember{Type: m.Type, Queue: m.Queue, State: StateProto(m.State), Refused: m.Refused, Result: m.Result.Data,
		ResultContentType: m.Result.ContentType, ResultOmitted: m.Omitted}
	if m.ID != (task.ID{}) {
		p.TaskId = m.ID.String()
	}
	return p
}
