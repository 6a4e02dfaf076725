package rest

import (
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

var followerStates = [...]string{"unknown", "waiting", "sent", "born", "duplicate", "refused", "dropped"}

// then reads what follows a task, and the tasks that follow those.
func (r *jsonReader) then(path string) (then []*pawlv1.TaskSpec, err error) {
	err = r.items(path, func(i int) error {
		if i == task.MaxThen {
			return task.Invalid(path, "at most %d tasks may follow one", task.MaxThen)
		}
		spec, err := r.taskSpec(contract.Item(path, i))
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
