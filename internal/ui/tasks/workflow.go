package tasks

import (
	"sync"

	"github.com/pawlq/pawl/internal/ui/chart"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

// Limits of a drawing, which says what it leaves out. A page reads at most this many tasks, all concurrently except for the ancestors.
const (
	flowFollowers = 8 // of a task; the API allows no more
	flowSecond    = 3 // of each follower
	flowAncestors = 3
	flowMembers   = 6
)

// flowOfTask draws a task with its neighbours: those that it follows, that it waits for and that follow it; nil: it has none.
func flowOfTask(req *web.Request, t *pawltype.Task) *flow {
	if t.Parent == nil && t.WaitsFor == "" && t.GroupID == "" && len(t.Then) == 0 && t.MovedTo == "" && t.MovedFrom == "" {
		return nil
	}
	f := &flow{}
	here := f.add(0, taskNode("this task", t))
	here.Here = true
	near := nearOf(req, t)
	f.drawBefore(req, here, t, near)
	f.drawAfter(here, t, near)
	f.layout()
	return f
}

// neighbours are the tasks and groups around a task that could be read.
type neighbours struct {
	mu     sync.Mutex
	tasks  map[string]*pawltype.Task
	groups map[string]*pawltype.Group
}

// nearOf reads a task's neighbours concurrently, as they may be in several shards.
func nearOf(req *web.Request, t *pawltype.Task) *neighbours {
	n := &neighbours{tasks: map[string]*pawltype.Task{}, groups: map[string]*pawltype.Group{}}
	tasks, groups := map[string]bool{t.WaitsFor: true, t.MovedTo: true, t.MovedFrom: true}, map[string]bool{t.GroupID: true}
	if t.Parent != nil {
		tasks[t.Parent.TaskID], groups[t.Parent.GroupID] = true, true
	}
	for _, follower := range t.Then[:min(len(t.Then), flowFollowers)] {
		tasks[follower.TaskID] = true
	}
	delete(tasks, "")
	delete(groups, "")
	var all sync.WaitGroup
	for id := range tasks {
		all.Go(func() { n.readTask(req, id) })
	}
	for id := range groups {
		all.Go(func() {
			if g, err := req.Client.Group(req.Ctx, id); err == nil { // otherwise it is drawn without what is unknown
				n.mu.Lock()
				defer n.mu.Unlock()
				n.groups[id] = g
			}
		})
	}
	all.Wait()
	return n
}

func (n *neighbours) readTask(req *web.Request, id string) *pawltype.Task {
	t, err := req.Client.Task(req.Ctx, id)
	if err != nil { // it has expired or is not visible to this visitor: it is drawn without what is unknown
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tasks[id] = t
	return t
}

// taskNode returns the node of a task that was read.
func taskNode(role string, t *pawltype.Task) *flowNode {
	return &flowNode{Role: role, ID: t.ID, Kind: "tasks", Name: t.Type, Queue: t.Queue, State: string(t.State)}
}

// task returns the node of a task by its id.
func (n *neighbours) task(role, id string) *flowNode {
	if t := n.tasks[id]; t != nil {
		return taskNode(role, t)
	}
	return &flowNode{Role: role, ID: id, Kind: "tasks", Name: id, State: "unknown"}
}

func (n *neighbours) group(role, id string) *flowNode {
	if g := n.groups[id]; g != nil {
		return groupNode(role, g)
	}
	return &flowNode{Role: role, ID: id, Kind: "groups", Name: "Group", State: "unknown"}
}

// groupNode returns the node of a group with its members by state.
func groupNode(role string, g *pawltype.Group) *flowNode {
	name := g.Name
	if name == "" {
		name = "Group"
	}
	return &flowNode{Role: role, ID: g.ID, Kind: "groups", Name: name, Queue: format.Plural(g.Counts.Members, "member"),
		State: string(g.State), Counts: groupRowOf(g).Bar}
}

// followerNode returns the node of a follow-up task, with its current state if it has been enqueued and read.
func (n *neighbours) followerNode(role string, follower *pawltype.Follower) *flowNode {
	node := &flowNode{Role: role, Name: follower.Type, Queue: follower.Queue, State: string(follower.State)}
	if follower.TaskID == "" {
		return node
	}
	node.ID, node.Kind = follower.TaskID, "tasks"
	switch t := n.tasks[follower.TaskID]; {
	case t != nil:
		node.State = string(t.State)
	case follower.State == pawltype.FollowerCreated:
		node.State = "enqueued"
	}
	return node
}

// drawBefore draws what a task follows and waits for.
func (f *flow) drawBefore(req *web.Request, here *flowNode, t *pawltype.Task, near *neighbours) {
	if t.Parent != nil && t.Parent.GroupID != "" {
		id := t.Parent.GroupID
		f.join(f.add(-1, near.group("it follows", id)), here, pointOf(near.groups[id], t.ID), false)
	}
	child, col := here, -1
	for parent := t.Parent; parent != nil && parent.TaskID != ""; col-- {
		if -col > flowAncestors {
			f.Omitted = append(f.Omitted, "what comes before the first task shown")
			break
		}
		id := parent.TaskID
		if near.tasks[id] == nil && col < -1 {
			near.readTask(req, id)
		}
		node := f.add(col, near.task("it follows", id))
		f.join(node, child, "", false)
		child, parent = node, nil
		if read := near.tasks[id]; read != nil {
			parent = read.Parent
		}
	}
	if t.WaitsFor != "" {
		f.join(f.add(-1, near.task("it waits for", t.WaitsFor)), here, "waits for", true)
	}
	if t.MovedFrom != "" {
		f.join(f.add(-1, near.task("it came from", t.MovedFrom)), here, "moved", false)
	}
}

// drawAfter draws what follows a task: its follow-up tasks, the task it was moved to, and its group.
func (f *flow) drawAfter(here *flowNode, t *pawltype.Task, near *neighbours) {
	for i := range t.Then[:min(len(t.Then), flowFollowers)] {
		follower := &t.Then[i]
		node := f.add(1, near.followerNode("then", follower))
		f.join(here, node, "", node.waits())
		if read := near.tasks[follower.TaskID]; read != nil {
			f.drawSecond(node, read, near)
		}
	}
	f.omit(len(t.Then)-flowFollowers, "follower")
	if t.MovedTo != "" {
		f.join(here, f.add(1, near.task("it lives on as", t.MovedTo)), "moved", false)
	}
	if t.GroupID == "" {
		return
	}
	group := f.add(1, near.group("member of", t.GroupID))
	f.join(here, group, "", group.State == string(pawltype.GroupRunning))
	if g := near.groups[t.GroupID]; g != nil {
		f.drawPoints(2, group, g, near)
	}
}

// drawSecond draws the follow-up tasks of a follow-up task.
func (f *flow) drawSecond(from *flowNode, t *pawltype.Task, near *neighbours) {
	for i := range t.Then[:min(len(t.Then), flowSecond)] {
		node := f.add(2, near.followerNode("then", &t.Then[i]))
		f.join(from, node, "", node.waits())
	}
	f.omit(len(t.Then)-flowSecond, "follower")
}

// drawPoints draws the tasks that a group enqueues.
func (f *flow) drawPoints(col int, group *flowNode, g *pawltype.Group, near *neighbours) {
	for _, p := range groupPoints(g) {
		node := f.add(col, near.followerNode(p.When, p.Follower))
		f.join(group, node, pointWords[p.When], node.waits())
	}
}

// pointWords are short words for the points in a group's life, as edges have no room for more.
var pointWords = map[string]string{whenComplete: "complete", whenSucceeded: "succeeded", whenDead: "first death"}

// pointOf returns the point at which a group has enqueued a task.
func pointOf(g *pawltype.Group, id string) string {
	if g != nil {
		for _, p := range groupPoints(g) {
			if p.TaskID == id {
				return pointWords[p.When]
			}
		}
	}
	return ""
}

// flowOfGroup draws a group with some of its members and the tasks that it enqueues.
func flowOfGroup(g *pawltype.Group, members []*pawltype.GroupMember) *flow {
	f := &flow{}
	near := &neighbours{}
	group := f.add(1, groupNode("this group", g))
	group.Here = true
	left := map[string]int64{}
	for _, c := range memberCounts(g) {
		left[c.Word] = c.N
	}
	rest := g.Counts.Members
	for _, m := range members[:min(len(members), flowMembers)] {
		node := memberNode(m)
		f.join(f.add(0, node), group, "", node.State == memberPending)
		left[node.State]--
		rest--
	}
	if rest > 0 {
		f.join(f.add(0, restNode(rest, left)), group, "", left[memberPending] > 0)
	}
	f.drawPoints(2, group, g, near)
	f.layout()
	return f
}

// States that only members of a group have.
const (
	memberPending = "pending"
	memberRefused = "refused"
)

func memberNode(m *pawltype.GroupMember) *flowNode {
	node := &flowNode{Role: "member", Name: m.Type, Queue: m.Queue, State: string(m.State)}
	if m.TaskID != "" {
		node.ID, node.Kind = m.TaskID, "tasks"
	}
	switch {
	case m.Refused != "":
		node.State = memberRefused
	case m.State == "":
		node.State = memberPending
	}
	return node
}

// restNode stands for the members that are not drawn individually.
func restNode(n int64, left map[string]int64) *flowNode {
	var counts []chart.Count
	for _, c := range memberCounts(&pawltype.Group{}) {
		counts = append(counts, chart.Count{Word: c.Word, N: max(left[c.Word], 0)})
	}
	bar := chart.NewBar(counts)
	return &flowNode{Role: "member", Name: "+" + format.Number(n) + " more", Queue: bar.Label, State: "", Counts: bar}
}
