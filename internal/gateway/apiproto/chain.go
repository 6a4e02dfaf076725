package apiproto

import (
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// countThen counts the follow-up tasks of a task, up to one more than allowed.
func countThen(then []*pawlv1.TaskSpec, n int) int {
	for _, p := range then {
		if n++; n > task.MaxChain {
			break
		}
		n = countThen(p.GetThen(), n)
	}
	return n
}

// thenOf decodes the follow-up tasks of a task. Defaults and checks are applied with the task itself.
func thenOf(path string, then []*pawlv1.TaskSpec, l task.Limits) ([]task.Spec, error) {
	if len(then) == 0 {
		return nil, nil
	}
	specs := make([]task.Spec, len(then))
	for i, p := range then {
		at := contract.Item(path, i)
		if p == nil {
			return nil, task.Invalid(at, "is required")
		}
		var err error
		if specs[i], err = decodeSpec(p, l); err != nil {
			return nil, contract.FieldOf(at, err)
		}
		if err = CheckData("payload", specs[i].Payload, specs[i].ContentType, l); err != nil {
			return nil, contract.FieldOf(at, err)
		}
	}
	return specs, nil
}

// followersProto converts the follow-up tasks of a task or a group.
func followersProto(followers []broker.Follower) (out []*pawlv1.Follower) {
	for i := range followers {
		out = append(out, followerProto(&followers[i]))
	}
	return out
}

func followerProto(f *broker.Follower) *pawlv1.Follower {
	p := &pawlv1.Follower{Type: f.Type, Queue: f.Queue, State: pawlv1.FollowerState(f.State) + 1, Reason: f.Reason}
	if f.ID != (task.ID{}) {
		p.TaskId = f.ID.String()
	}
	return p
}

// parentProto converts the parent of a task; nil: it has none.
func parentProto(p *task.Parent) *pawlv1.Parent {
	if p == nil {
		return nil
	}
	out := &pawlv1.Parent{Result: p.Result, ContentType: p.ContentType, ResultOmitted: p.Omitted}
	if p.ID != (task.ID{}) {
		out.TaskId = p.ID.String()
	}
	if p.Group != (task.ID{}) {
		out.GroupId = p.Group.String()
	}
	return out
}
