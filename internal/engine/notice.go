package engine

import (
	"encoding/json"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Notice tells the home of a group how a member is.
type Notice struct {
	Group   task.ID
	Ref     task.ID
	Turn    uint64     // how often the member has ended or come to life again; 0: it was born
	ID      task.ID    // zero: it was refused
	State   task.State // the end; 0: it lives
	Type    string
	Queue   string
	Refused string        // the code; "": it was not
	Result  schema.Result // of success, if it is not too large to keep
	Omitted bool
	// Born is what follows the member and belongs to the group, too: known to the home in the entry that counts the member's end, or
	// the group could be complete in between.
	Born []Birth
}

// Birth is a member that was born in another shard.
type Birth struct {
	Ref     task.ID
	ID      task.ID // zero: it is on its way
	Type    string
	Queue   string
	Refused string
}

// tell lets the home of a task's group know how the task is.
func (r *Round) tell(ns string, id task.ID, x *schema.Exec, result schema.Result, born []Birth) {
	n := &Notice{Group: x.Links.Group, Ref: x.Links.Ref, Turn: x.Links.Turn, ID: id, Type: x.Type, Queue: x.Queue, Born: born}
	if x.State.Ended() {
		n.State = x.State
	}
	if len(result.Data) <= task.MaxMemberResult {
		n.Result = result
	} else {
		n.Omitted = true
	}
	r.notify(ns, id.Shard(), n)
}

// notify brings a notice to its group's home: now, if that is this shard.
func (r *Round) notify(ns string, shard uint32, n *Notice) {
	if n.Group.Shard() == shard {
		Hear(r, ns, n)
		return
	}
	r.send(ns, &OutboxMessage{Request: noticeID(n), Notice: n})
}

// noticeID names a notice as a message.
func noticeID(n *Notice) task.ID { return requestOf(partID(n.Group, n.Ref), noticeTurns+n.Turn) }

// noticeTurns are apart from the births of tasks.
const noticeTurns = 1 << 40

// Hear takes in what a member tells. What is old, and what is of a group that is forgotten, changes nothing.
func Hear(r *Round, ns string, n *Notice) {
	g, ok := r.group(ns, n.Group)
	if !ok {
		return
	}
	from, known := r.member(ns, n.Group, n.Ref)
	to := &member{}
	if known {
		*to = *from
	}
	if known && from.id != (task.ID{}) && n.ID != from.id {
		return // a member of a group that the same request made long before
	}
	fresh := !known || n.Turn > from.turn
	met := to.id == (task.ID{}) && n.ID != (task.ID{})
	if met {
		to.id = n.ID
	}
	if to.typ == "" {
		to.typ, to.queue = n.Type, n.Queue
	}
	var died task.ID
	if fresh {
		to.turn, to.state, to.refused = n.Turn, n.State, n.Refused
		g.keepResult(to, n)
		if n.State == task.Dead || n.State == task.Poisoned {
			died = n.ID
		}
	}
	if !fresh && !met {
		return
	}
	r.setMember(ns, g, n.Ref, from, to)
	for _, b := range n.Born {
		r.hearBirth(ns, g, b)
	}
	r.advance(ns, g, died)
	if g.state == GroupCancelled && met && to.turn == 0 && to.pending() {
		r.cancelMember(ns, g.id, n.Ref, to.id)
	}
}

// hearBirth adds what follows a member, unless it has been heard of already.
func (r *Round) hearBirth(ns string, g *taskGroup, b Birth) {
	if _, known := r.member(ns, g.id, b.Ref); known {
		return
	}
	m := &member{id: b.ID, typ: b.Type, queue: b.Queue, refused: b.Refused}
	if b.Refused != "" {
		m.turn = 1
	}
	r.setMember(ns, g, b.Ref, nil, m)
	if g.state == GroupCancelled && m.id != (task.ID{}) {
		r.cancelMember(ns, g.id, b.Ref, m.id)
	}
}

// keepResult keeps a member's result as long as there is room.
func (g *taskGroup) keepResult(m *member, n *Notice) {
	g.results -= int64(len(m.result.Data))
	m.result, m.omitted = n.Result, n.Omitted
	if g.results+int64(len(m.result.Data)) > task.MaxGroupResults {
		m.result, m.omitted = schema.Result{}, true
	}
	g.results += int64(len(m.result.Data))
}

// advance lets a group come to the points that it has reached. Died is a member that has just died; zero: none has.
func (r *Round) advance(ns string, g *taskGroup, died task.ID) {
	if g.joining {
		return // whoever makes it join comes again
	}
	if g.state == GroupRunning && died != (task.ID{}) {
		r.reach(ns, g, onDeath, died)
	}
	if g.state == GroupRunning && !g.open && g.counts.Pending == 0 {
		g.state = GroupComplete
		if g.counts.Succeeded == g.counts.Members {
			r.reach(ns, g, onSuccess, task.ID{})
		}
		r.reach(ns, g, onComplete, task.ID{})
		r.dropPoints(ns, g, "complete")
	}
	if g.state != GroupRunning && g.counts.Pending == 0 && g.endedAt == 0 {
		g.endedAt, g.dirty = r.now, true
		g.keptUntil = r.now.Add(g.keep())
		if !g.walking {
			r.wakeGroup(ns, g, g.keptUntil)
		}
	}
}

// keep is how long a group is kept that has ended.
func (g *taskGroup) keep() (keep time.Duration) {
	switch {
	case g.retention != nil:
		return *g.retention
	case g.counts.Dead+g.counts.Poisoned > 0:
		return keepDeadGroup
	}
	return keepGroup
}

// groupReport is what a task of a group's that is no member gets as the result of its parent.
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
	TaskID    string `json:"task_id,omitempty"` // that died
}

// reach enqueues the task that waits for a point of a group, once.
func (r *Round) reach(ns string, g *taskGroup, point int, of task.ID) {
	if g.waits>>point&1 == 0 {
		return
	}
	g.waits &^= 1 << point
	g.dirty = true
	c := &g.counts
	report := groupReport{GroupID: g.id.String(), Name: g.name, State: g.state.String(), Members: c.Members, Pending: c.Pending, Succeeded: c.Succeeded,
		Dead: c.Dead, Poisoned: c.Poisoned, Discarded: c.Discarded, Cancelled: c.Cancelled, Refused: c.Refused}
	if of != (task.ID{}) {
		report.TaskID = of.String()
	}
	b, err := json.Marshal(report)
	if err != nil {
		panic(err) // texts and numbers
	}
	f := schema.ReadFollowers(r.tx, ns, g.id)[point]
	r.bear(ns, g.id, point, &f, &task.Parent{Group: g.id, Result: b}, nil, nil)
	points := schema.ReadFollowers(r.tx, ns, g.id) // which may have come to another point meanwhile
	points[point] = f
	r.setFollowers(ns, g.id, points)
}

// dropPoints forgets the tasks that wait for points to which the group can't come any more.
func (r *Round) dropPoints(ns string, g *taskGroup, reason string) {
	if g.waits == 0 {
		return
	}
	points := schema.ReadFollowers(r.tx, ns, g.id)
	for i := range points {
		if g.waits>>i&1 == 1 {
			points[i].Fate, points[i].Reason, points[i].Spec = schema.FateDropped, reason, nil
		}
	}
	g.waits, g.dirty = 0, true
	r.setFollowers(ns, g.id, points)
}
