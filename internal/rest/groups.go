package rest

import (
	"net/http"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

var groupRoutes = []Route{
	{"GET", "/api/v1/groups", "GroupService/ListGroups", listGroups},
	{"POST", "/api/v1/groups", "GroupService/CreateGroup", createGroup},
	{"GET", "/api/v1/groups/{id}", "GroupService/GetGroup", getGroup},
	{"POST", "/api/v1/groups/{id}/tasks", "GroupService/AddGroupTasks", addGroupTasks},
	{"GET", "/api/v1/groups/{id}/members", "GroupService/ListGroupMembers", listGroupMembers},
	{"POST", "/api/v1/groups/{id}/close", "GroupService/CloseGroup", closeGroup},
	{"POST", "/api/v1/groups/{id}/cancel", "GroupService/CancelGroup", cancelGroup},
}

var groupStates = [...]string{"unknown", "running", "complete", "cancelled"}

// taskSpecs reads a list of tasks.
func (x *exchange) taskSpecs(r *jsonReader, field string) (specs []*pawlv1.TaskSpec, err error) {
	err = r.items(field, func(i int) error {
		if i == x.Batch {
			return task.Invalid(field, "more than %d tasks", x.Batch)
		}
		spec, err := r.taskSpec(contract.Item(field, i))
		specs = append(specs, spec)
		return err
	})
	return specs, err
}

// taskSpec reads a task at a path in a body.
func (r *jsonReader) taskSpec(path string) (*pawlv1.TaskSpec, error) {
	s := specReader{spec: &pawlv1.TaskSpec{}}
	if err := r.fields(path, func(field string) error { return contract.FieldOf(path, s.field(r, field)) }); err != nil {
		return nil, err
	}
	spec, err := s.done()
	return spec, contract.FieldOf(path, err)
}

// newGroup reads what a group is to be.
func (x *exchange) newGroup() (*pawlv1.CreateGroupRequest, error) {
	req := &pawlv1.CreateGroupRequest{}
	err := x.fields(func(r *jsonReader, name string) (err error) {
		switch name {
		case "name":
			req.Name, err = r.str(name)
		case "tasks":
			req.Tasks, err = x.taskSpecs(r, name)
		case "on_complete":
			req.OnComplete, err = r.taskSpec(name)
		case "on_success":
			req.OnSuccess, err = r.taskSpec(name)
		case "on_death":
			req.OnDeath, err = r.taskSpec(name)
		case "open":
			err = r.boolean(&req.Open, name)
		case "retention":
			req.Retention, err = r.span(name)
		case "request_id":
			req.RequestId, err = r.str(name)
		default:
			err = unknown("", name)
		}
		return err
	})
	if err == nil {
		err = x.fromHeader(&req.RequestId, headerRequestID, "request_id")
	}
	return req, err
}

func createGroup(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	req, err := x.newGroup()
	if err != nil {
		return err
	}
	got, err := x.API.Group.CreateGroup(x.ctx, req)
	if err != nil {
		return err
	}
	x.status = http.StatusCreated
	x.open('{')
	x.group(got.GetGroup())
	x.results("tasks", got.GetTasks())
	x.boolean("duplicate", got.GetDuplicate())
	x.close('}')
	return nil
}

// results writes what became of tasks, in their order. One that is neither made nor refused is on its way.
func (x *exchange) results(name string, results []*pawlv1.EnqueueResult) {
	x.within(name, '[')
	for _, r := range results {
		if r.GetTask() != nil {
			x.enqueued(r.GetTask())
			continue
		}
		x.open('{')
		if r.GetError() != nil {
			x.itemError(r.GetError())
		}
		x.close('}')
	}
	x.close(']')
}

func addGroupTasks(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	req := &pawlv1.AddGroupTasksRequest{GroupId: x.r.PathValue("id")}
	err := x.fields(func(r *jsonReader, name string) (err error) {
		if name != "tasks" {
			return unknown("", name)
		}
		req.Tasks, err = x.taskSpecs(r, name)
		return err
	})
	if err == nil {
		err = x.groupInPath()
	}
	if err != nil {
		return err
	}
	got, err := x.API.Group.AddGroupTasks(x.ctx, req)
	if err != nil {
		return err
	}
	x.open('{')
	x.results("results", got.GetResults())
	x.close('}')
	return nil
}

// groupInPath refuses what is no id like a group that does not exist.
func (x *exchange) groupInPath() error {
	if _, err := task.ParseID(x.r.PathValue("id")); err != nil {
		return task.NotFound("group", x.r.PathValue("id"))
	}
	return nil
}

func getGroup(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	if err := x.groupInPath(); err != nil {
		return err
	}
	got, err := x.API.Group.GetGroup(x.ctx, &pawlv1.GetGroupRequest{GroupId: x.r.PathValue("id")})
	return x.groupAnswer(got.GetGroup(), err)
}

func closeGroup(x *exchange) error {
	if err := x.alone(func(_ *jsonReader, name string) error { return unknown("", name) }); err != nil {
		return err
	}
	if err := x.groupInPath(); err != nil {
		return err
	}
	got, err := x.API.Group.CloseGroup(x.ctx, &pawlv1.CloseGroupRequest{GroupId: x.r.PathValue("id")})
	return x.groupAnswer(got.GetGroup(), err)
}

func cancelGroup(x *exchange) error {
	req := &pawlv1.CancelGroupRequest{GroupId: x.r.PathValue("id")}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		if name != "reason" {
			return unknown("", name)
		}
		req.Reason, err = r.str(name)
		return err
	})
	if err == nil {
		err = x.groupInPath()
	}
	if err != nil {
		return err
	}
	got, err := x.API.Group.CancelGroup(x.ctx, req)
	return x.groupAnswer(got.GetGroup(), err)
}

func (x *exchange) groupAnswer(g *pawlv1.Group, err error) error {
	if err != nil {
		return err
	}
	x.open('{')
	x.group(g)
	x.close('}')
	return nil
}

func listGroups(x *exchange) error {
	limit, cursor, err := x.page()
	if err != nil {
		return err
	}
	got, err := x.API.Group.ListGroups(x.ctx, &pawlv1.ListGroupsRequest{Limit: limit, Cursor: cursor})
	if err != nil {
		return err
	}
	listPage(x, got.GetItems(), got.GetNextCursor(), x.group)
	return nil
}

func listGroupMembers(x *exchange) error {
	limit, cursor, err := x.page()
	if err == nil {
		err = x.groupInPath()
	}
	if err != nil {
		return err
	}
	got, err := x.API.Group.ListGroupMembers(x.ctx,
		&pawlv1.ListGroupMembersRequest{GroupId: x.r.PathValue("id"), Limit: limit, Cursor: cursor})
	if err != nil {
		return err
	}
	listPage(x, got.GetItems(), got.GetNextCursor(), x.member)
	return nil
}

// member writes the fields of a member of a group.
func (x *exchange) member(m *pawlv1.GroupMember) {
	x.opt("task_id", m.GetTaskId())
	x.str("type", m.GetType())
	x.str("queue", m.GetQueue())
	if m.GetState() != 0 {
		x.str("state", task.State(m.GetState()).String())
	}
	x.opt("refused", m.GetRefused())
	x.data("result", m.GetResult(), m.GetResultContentType())
	x.opt("result_content_type", m.GetResultContentType())
	if m.GetResultOmitted() {
		x.boolean("result_omitted", true)
	}
}

// group writes the fields of a group.
func (x *exchange) group(g *pawlv1.Group) {
	c := g.GetCounts()
	x.str("group_id", g.GetGroupId())
	x.opt("name", g.GetName())
	x.str("state", groupStates[g.GetState()])
	x.boolean("open", g.GetOpen())
	x.within("counts", '{')
	for _, n := range []struct {
		name string
		n    int64
	}{{"members", c.GetMembers()}, {"pending", c.GetPending()}, {"succeeded", c.GetSucceeded()}, {"dead", c.GetDead()}, {"poisoned", c.GetPoisoned()},
		{"discarded", c.GetDiscarded()}, {"cancelled", c.GetCancelled()}, {"refused", c.GetRefused()}} {
		x.num(n.name, n.n)
	}
	x.close('}')
	x.time("created_at", g.GetCreatedAt())
	x.time("ended_at", g.GetEndedAt())
	x.time("kept_until", g.GetKeptUntil())
	x.point("on_complete", g.GetOnComplete())
	x.point("on_success", g.GetOnSuccess())
	x.point("on_death", g.GetOnDeath())
}

func (x *exchange) point(name string, f *pawlv1.Follower) {
	if f != nil {
		x.within(name, '{')
		x.follower(f)
		x.close('}')
	}
}
