package workflow

import (
	"encoding/json"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// notifyHome notifies the home of a task's group of the task's state.
func notifyHome(r *engine.Round, ns string, id task.ID, x *schema.Exec, result schema.Result, created []schema.NewMember) {
	n := &schema.Notice{Group: x.Links.Group, Ref: x.Links.Ref, Revision: x.Links.Revision, ID: id, Type: x.Type, Queue: x.Queue,
		NewMembers: created}
	if x.State.Ended() {
		n.State = x.State
	}
	if len(result.Data) <= task.MaxMemberResult {
		n.Result = result
	} else {
		n.Omitted = true
	}
	sendNotice(r, ns, id.Shard(), n)
}

// sendNotice delivers a notice to its group's home: directly if that is this shard, else through the outbox.
func sendNotice(r *engine.Round, ns string, shard uint32, n *schema.Notice) {
	if n.Group.Shard() == shard {
		Receive(r, ns, n)
		return
	}
	r.Send(ns, &schema.Message{Request: noticeID(n), Notice: n})
}

// noticeID returns the request id of a notice.
func noticeID(n *schema.Notice) task.ID {
	return task.RequestOf(task.PartID(n.Group, n.Ref), noticeRevisions+n.Revision)
}

// noticeRevisions keeps the ids of notices apart from those of tasks.
const noticeRevisions = 1 << 40

// Receive processes a notice of a member. Outdated notices, and those for a forgotten group, change nothing.
func Receive(r *engine.Round, ns string, n *schema.Notice) {
	g, ok := group(r, ns, n.Group)
	if !ok {
		return
	}
	from, known := readMember(r, ns, n.Group, n.Ref)
	to := &member{}
	if known {
		*to = *from
	}
	if known && from.id != (task.ID{}) && n.ID != from.id {
		return // a member of a group that the same request created long ago
	}
	fresh := !known || n.Revision > from.revision
	met := to.id == (task.ID{}) && n.ID != (task.ID{})
	if met {
		to.id = n.ID
	}
	if to.typ == "" {
		to.typ, to.queue = n.Type, n.Queue
	}
	var died task.ID
	if fresh {
		to.revision, to.state, to.refused = n.Revision, n.State, n.Refused
		g.keepResult(to, n)
		if n.State == task.Dead || n.State == task.Poisoned {
			died = n.ID
		}
	}
	if !fresh && !met {
		return
	}
	setMember(r, ns, g, n.Ref, from, to)
	for _, b := range n.NewMembers {
		noteFollower(r, ns, g, b)
	}
	advance(r, ns, g, died)
	if g.state == Cancelled && met && to.revision == 0 && to.pending() {
		cancelMember(r, ns, g.id, to.id)
	}
}

// noteFollower adds a follow-up of a member to the group, unless it is known already.
func noteFollower(r *engine.Round, ns string, g *taskGroup, b schema.NewMember) {
	if _, known := readMember(r, ns, g.id, b.Ref); known {
		return
	}
	m := &member{id: b.ID, typ: b.Type, queue: b.Queue, refused: b.Refused}
	if b.Refused != "" {
		m.revision = 1
	}
	setMember(r, ns, g, b.Ref, nil, m)
	if g.state == Cancelled && m.id != (task.ID{}) {
		cancelMember(r, ns, g.id, m.id)
	}
}

// keepResult stores a member's result if there is room.
func (g *taskGroup) keepResult(m *member, n *schema.Notice) {
	g.results -= int64(len(m.result.Data))
	m.result, m.omitted = n.Result, n.Omitted
	if g.results+int64(len(m.result.Data)) > task.MaxGroupResults {
		m.result, m.omitted = schema.Result{}, true
	}
	g.results += int64(len(m.result.Data))
}

// advance updates the group's state and enqueues the tasks of the points that it has reached. Died is a member that has
// just died; zero: none has.
func advance(r *engine.Round, ns string, g *taskGroup, died task.ID) {
	if g.joining {
		return // the caller will call again
	}
	if died != (task.ID{}) {
		reachPoint(r, ns, g, onDeath, died)
	}
	if g.state == Running && !g.open && g.counts.Pending == 0 {
		g.state = Complete
		if g.counts.Succeeded == g.counts.Members {
			reachPoint(r, ns, g, onSuccess, task.ID{})
		}
		reachPoint(r, ns, g, onComplete, task.ID{})
		dropPoints(r, ns, g, "complete")
	}
	if g.state != Running && g.counts.Pending == 0 && g.endedAt == 0 {
		g.endedAt, g.dirty = r.Now(), true
		g.keptUntil = r.Now().Add(g.keep())
		if !g.cancelling {
			setGroupDeadline(r, ns, g, g.keptUntil)
		}
	}
}

// keep returns how long the group is kept after it has ended.
func (g *taskGroup) keep() (keep time.Duration) {
	switch {
	case g.retention != nil:
		return *g.retention
	case g.counts.Dead+g.counts.Poisoned > 0:
		return keepDeadGroup
	}
	return keepGroup
}

// groupReport is passed as the parent's result to a task that a group enqueues at one of its points.
type groupReport struct {
	GroupID   string `json:"group_id"`
	Name      string `json:"name,omitempty"`
	State     string `json:"state"`
	Members   int64  `json:"members"`
	Pending   int64  `json:"pending"`
	Succeeded int64  `json:"succeeded"`
	Dead      int64  `json:"dead"`
	Poisoned  int64  `json:"poisoned"`
	Discarded int64  `json:"discarded"`
	Cancelled int64  `json:"cancelled"`
	Refused   int64  `json:"refused"`
	TaskID    string `json:"task_id,omitempty"` // the member that died
}

// reachPoint enqueues the task that waits for a point of the group, once.
func reachPoint(r *engine.Round, ns string, g *taskGroup, point int, of task.ID) {
	if g.waits>>point&1 == 0 {
		return
	}
	g.waits &^= 1 << point
	g.dirty = true
	c := &g.counts
	report := groupReport{GroupID: g.id.String(), Name: g.name, State: g.state.String(), Members: c.Members, Pending: c.Pending,
		Succeeded: c.Succeeded, Dead: c.Dead, Poisoned: c.Poisoned, Discarded: c.Discarded, Cancelled: c.Cancelled, Refused: c.Refused}
	if of != (task.ID{}) {
		report.TaskID = of.String()
	}
	b, err := json.Marshal(report)
	if err != nil {
		panic(err) // strings and numbers
	}
	f := schema.ReadFollowers(r.Tx(), ns, g.id)[point]
	createFollower(r, ns, g.id, point, &f, &task.Parent{Group: g.id, Result: b}, nil, nil)
	points := schema.ReadFollowers(r.Tx(), ns, g.id) // the group may have reached another point meanwhile
	points[point] = f
	setFollowers(r, ns, g.id, points)
}

// dropPoints drops the tasks that wait for points that the group can no longer reach.
func dropPoints(r *engine.Round, ns string, g *taskGroup, reason string) {
	if g.waits == 0 {
		return
	}
	points := schema.ReadFollowers(r.Tx(), ns, g.id)
	for i := range points {
		if g.waits>>i&1 == 1 {
			points[i].State, points[i].Reason, points[i].Spec = schema.FollowerDropped, reason, nil
		}
	}
	g.waits, g.dirty = 0, true
	setFollowers(r, ns, g.id, points)
}
