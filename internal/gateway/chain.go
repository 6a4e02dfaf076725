package gateway

import (
	"fmt"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// countThen counts what follows a task, up to one beyond what may.
func countThen(then []*pawlv1.TaskSpec, n int) int {
	for _, p := range then {
		if n++; n > task.MaxChain {
			break
		}
		n = countThen(p.GetThen(), n)
	}
	return n
}

// item is the path of an item of a list.
func item(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// thenOf reads what follows a task. It is filled and checked with the task itself.
func thenOf(path string, then []*pawlv1.TaskSpec, l task.Limits) ([]task.Spec, error) {
	if len(then) == 0 {
		return nil, nil
	}
	specs := make([]task.Spec, len(then))
	for i, p := range then {
		at := item(path, i)
		if p == nil {
			return nil, task.Invalid(at, "is needed")
		}
		var err error
		if specs[i], err = said(p, l); err != nil {
			return nil, fieldOf(at, err)
		}
		if err = checkData("payload", specs[i].Payload, specs[i].ContentType, l); err != nil {
			return nil, fieldOf(at, err)
		}
	}
	return specs, nil
}

// followersProto is what follows a task, or a group.
func followersProto(followers []broker.Follower) (out []*pawlv1.Follower) {
	for i := range followers {
		out = append(out, followerProto(&followers[i]))
	}
	return out
}

func followerProto(f *broker.Follower) *pawlv1.Follower {
	p := &pawlv1.Follower{Type: f.Type, Queue: f.Queue, State: pawlv1.FollowerState(f.Fate) + 1, Reason: f.Reason}
	if f.ID != (task.ID{}) {
		p.TaskId = f.ID.String()
	}
	return p
}

// parentProto is what a task follows; nil: nothing.
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

// restoredThen is what follows a task that is made of an archived one.
func restoredThen(archived [][]byte) (then []*pawlv1.TaskSpec, err error) {
	for _, b := range archived {
		spec, err := task.DecodeSpec(b)
		if err != nil {
			return nil, err
		}
		then = append(then, specProto(&spec))
	}
	return then, nil
}

var followerStates = [...]string{"unknown", "waiting", "sent", "born", "duplicate", "refused", "dropped"}

// then reads what follows a task, and the tasks that follow those.
func (r *jsonReader) then(path string) (then []*pawlv1.TaskSpec, err error) {
	err = r.items(path, func(i int) error {
		if i == task.MaxThen {
			return task.Invalid(path, "at most %d tasks may follow one", task.MaxThen)
		}
		spec, err := r.taskSpec(item(path, i))
		then = append(then, spec)
		return err
	})
	return then, err
}

// chained writes what a task follows, and what follows it.
func (x *exchange) chained(t *pawlv1.Task) {
	x.parent(t.GetParent())
	if len(t.GetThen()) > 0 {
		objects(x, "then", t.GetThen(), x.follower)
	}
}

func (x *exchange) follower(f *pawlv1.Follower) {
	x.str("type", f.GetType())
	x.str("queue", f.GetQueue())
	x.str("state", followerStates[f.GetState()])
	x.opt("task_id", f.GetTaskId())
	x.opt("reason", f.GetReason())
}

func (x *exchange) parent(p *pawlv1.Parent) {
	if p == nil {
		return
	}
	x.within("parent", '{')
	x.opt("task_id", p.GetTaskId())
	x.opt("group_id", p.GetGroupId())
	x.data("result", p.GetResult(), p.GetContentType())
	x.opt("content_type", p.GetContentType())
	if p.GetResultOmitted() {
		x.boolean("result_omitted", true)
	}
	x.close('}')
}
