package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/workflow"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// TestModelOfGroups is TestModel in short queues without limits, where most tasks succeed, so that chains and groups complete.
func TestModelOfGroups(t *testing.T) {
	runModel(t, []string{"a", "c"}, modelSteps/2, func(d *duel) []func() string {
		return []func() string{d.groupStep, d.groupStep, d.enqueueStep, d.claimStep, d.claimStep, d.claimStep, d.workStep,
			d.workStep, d.workStep, d.passStep, d.cancelStep, d.retryStep, d.leaderStep}
	})
}

// workStep ends a claim that holds, most often with success.
func (d *duel) workStep() string {
	t := d.any(func(t *modelTask) bool { return t.state == task.Claimed })
	if t == nil {
		return "nothing to end"
	}
	return d.settle(t, t.fence, d.pick("ack", "ack", "ack", "ack", "fail", "release"))
}

// modelGroup is a list of members, which are counted on every query. A forgotten group is removed from the model's lists.
type modelGroup struct {
	makes              *workflow.Call
	created            store.Time
	state              workflow.State
	open, gone         bool
	joining            bool // members are about to be added: it is not complete meanwhile
	members            []modelMember
	points             [len(modelPoints)]modelPoint
	endedAt, keptUntil store.Time
	cancelledAt        store.Time // its members must be cancelled; 0: they need not, or have been
	compared           workflow.Counts
}

type modelMember struct {
	t       *modelTask
	refused bool    // its queue refused it
	request task.ID // of the call that added it; zero: none
	content string  // its queue and type, which a repeat of the request must have
}

// modelPoints are the points of a group's life, in the order in which they are shown.
var modelPoints = [3]string{modelOnComplete: "on_complete", modelOnSuccess: "on_success", modelOnDeath: "on_death"}

const (
	modelOnComplete = iota
	modelOnSuccess
	modelOnDeath
)

// modelReport is the report of a group that a task at a point gets.
type modelReport struct {
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
	TaskID    string `json:"task_id,omitempty"`
}

// modelPoint is what a group enqueues at a point.
type modelPoint struct {
	spec    *task.Spec // nil: nothing
	outcome schema.FollowerState
	reason  string
	t       *modelTask  // the created task; its id is learnt from the engine
	other   *modelTask  // the task that had its unique key
	report  modelReport // the counts at that moment
}

// id is the group's id.
func (g *modelGroup) id() task.ID { return g.makes.ID }

// join adds members to a group; a nil group gets none.
func (g *modelGroup) join(come func()) {
	if g != nil {
		g.joining = true
		defer func() { g.joining = false }()
	}
	come()
}

// note makes a task a member, if it belongs to a known group.
func (g *modelGroup) note(t *modelTask, outcome schema.FollowerState) {
	if g != nil && !g.gone {
		g.members = append(g.members, modelMember{t: t, refused: outcome != schema.FollowerCreated})
	}
}

func (g *modelGroup) counts() (c workflow.Counts) {
	for _, m := range g.members {
		c.Members++
		*m.counter(&c)++
	}
	return c
}

func (m *modelMember) counter(c *workflow.Counts) *int64 {
	if m.refused {
		return &c.Refused
	}
	switch m.t.state {
	case task.Succeeded:
		return &c.Succeeded
	case task.Dead:
		return &c.Dead
	case task.Discarded:
		return &c.Discarded
	case task.Cancelled:
		return &c.Cancelled
	}
	return &c.Pending
}

// updateGroup updates the group of a task that has moved.
func (m *model) updateGroup(t *modelTask) {
	if t.group != nil && t.state.Ended() {
		m.advance(t.group, t)
	}
}

// advance is the rule of groups, after the end of a task or another change.
func (m *model) advance(g *modelGroup, ended *modelTask) {
	if g.joining || g.gone {
		return
	}
	c := g.counts()
	if ended != nil && ended.state == task.Dead {
		m.reach(g, modelOnDeath, ended)
	}
	if g.state == workflow.Running && !g.open && c.Pending == 0 {
		g.state = workflow.Complete
		if c.Succeeded == c.Members {
			m.reach(g, modelOnSuccess, nil)
		}
		m.reach(g, modelOnComplete, nil)
		g.drop("complete")
	}
	if g.state != workflow.Running && c.Pending == 0 && g.endedAt == 0 {
		keep := 24 * time.Hour
		switch {
		case g.makes.Retention != nil:
			keep = *g.makes.Retention
		case c.Dead > 0:
			keep = 14 * 24 * time.Hour
		}
		g.endedAt, g.keptUntil = m.now, m.now.Add(keep)
	}
}

// reach enqueues what waits for a point.
func (m *model) reach(g *modelGroup, point int, died *modelTask) {
	p := &g.points[point]
	if p.outcome != schema.FollowerWaiting {
		return
	}
	c := g.counts()
	p.report = modelReport{GroupID: g.id().String(), State: g.state.String(), Members: c.Members, Pending: c.Pending,
		Succeeded: c.Succeeded, Dead: c.Dead, Discarded: c.Discarded, Cancelled: c.Cancelled, Refused: c.Refused}
	if died != nil {
		p.report.TaskID = died.id.String()
	}
	p.outcome = schema.FollowerCreated // assumed already: it may replace the last member
	p.t = m.taskOf(p.spec)
	p.outcome, p.other = m.enter(p.t)
	if p.outcome == schema.FollowerRefused {
		p.reason = string(task.CodeConflict)
	}
}

func (g *modelGroup) drop(reason string) {
	for i := range g.points {
		if p := &g.points[i]; p.outcome == schema.FollowerWaiting {
			p.outcome, p.reason = schema.FollowerDropped, reason
		}
	}
}

// cancelLate cancels tasks created in an already cancelled group.
func (m *model) cancelLate(g *modelGroup, births []*modelTask) {
	if g == nil || g.gone || g.state != workflow.Cancelled {
		return
	}
	for _, t := range births {
		if !t.state.Ended() {
			m.cancel(t)
		}
	}
}

// cancelMembers cancels the members of cancelled groups, which the passage of time does first.
func (m *model) cancelMembers() {
	for _, g := range m.groups {
		if g.cancelledAt == 0 {
			continue
		}
		m.now = g.cancelledAt
		for _, member := range g.members {
			if !member.refused && !member.t.state.Ended() {
				m.cancel(member.t)
			}
		}
		g.cancelledAt = 0
	}
}

func (m *model) forgetGroups() {
	m.groups = slices.DeleteFunc(m.groups, func(g *modelGroup) bool {
		g.gone = g.keptUntil != 0 && g.keptUntil <= m.now
		return g.gone
	})
}

// groupStep does one thing with groups.
func (d *duel) groupStep() string {
	if len(d.m.groups) == 0 {
		return d.makeGroup()
	}
	g := d.m.groups[d.rng.IntN(len(d.m.groups))]
	switch d.rng.IntN(10) {
	case 0, 1, 2:
		return d.makeGroup()
	case 3:
		return d.makeAgain()
	case 4, 5, 6:
		return d.addToGroup(g)
	case 7, 8:
		return d.closeGroup(g)
	}
	return d.cancelGroup(g)
}

// makeGroup creates a group, which may be empty or have only refused members.
func (d *duel) makeGroup() string {
	n := &workflow.Call{Namespace: "default", ID: d.NewID()}
	n.Open = d.rng.IntN(3) == 0
	for range d.rng.IntN(4) {
		n.Tasks = append(n.Tasks, d.spec(1))
	}
	if n.Tasks == nil {
		n.Open = true
	}
	if d.rng.IntN(6) > 0 {
		keep := time.Duration(20+d.rng.IntN(60)) * time.Second // longer than a passStep: see learn
		n.Retention = &keep
	}
	g := &modelGroup{makes: n, open: n.Open, created: d.Now}
	for i, to := range []**task.Spec{&n.OnComplete, &n.OnSuccess, &n.OnDeath} {
		if d.rng.IntN(4) == 0 {
			g.points[i].outcome = schema.FollowerDropped
			continue
		}
		s := d.spec(1)
		s.Delay = 0
		*to, g.points[i].spec = &s, &s
	}
	n.Fill()
	if err := n.Check(task.DefaultLimits()); err != nil {
		d.T.Fatal(err)
	}
	made, err := engine.Run(d.World, func(r *engine.Round) (workflow.Made, error) { return workflow.Make(r, n) })
	if err != nil || made.Duplicate {
		d.T.Fatalf("creating group %s: %+v, %v", n.ID, made, err)
	}
	g.join(func() {
		for i := range n.Tasks {
			t := d.m.taskOf(&n.Tasks[i])
			t.group = g
			outcome, other := d.m.enter(t)
			d.entered(t, outcome, other, made.Tasks[i].Accepted, made.Tasks[i].Err)
			g.note(t, outcome)
		}
	})
	d.m.groups, d.m.made = append(d.m.groups, g), append(d.m.made, g)
	d.m.advance(g, nil)
	return "group"
}

// makeAgain repeats a call that created a group which is still kept, or was created in the last ten minutes.
func (d *duel) makeAgain() string {
	d.m.made = slices.DeleteFunc(d.m.made, func(g *modelGroup) bool { return g.gone && d.Now >= g.created.Add(10*time.Minute) })
	g := d.m.made[d.rng.IntN(len(d.m.made))]
	made, err := engine.Run(d.World, func(r *engine.Round) (workflow.Made, error) { return workflow.Make(r, g.makes) })
	if err != nil || !made.Duplicate {
		d.T.Fatalf("repeating the creation of group %s: %+v, %v, want a duplicate", g.id(), made, err)
	}
	if found, err := engine.Run(d.World, func(r *engine.Round) (workflow.Made, error) { return workflow.Find(r, g.makes) }); err != nil ||
		len(found.Tasks) != len(made.Tasks) {
		d.T.Fatalf("looking up group %s: %+v, %v", g.id(), found, err)
	}
	for i, j := range made.Tasks {
		m := &g.members[i]
		if m.refused != (j.Err != nil) || !m.refused && (j.ID != m.t.id || !g.gone && j.State != m.t.state || !j.Duplicate) {
			d.T.Fatalf("repeating the creation returned for member %d of group %s %+v, the model has %+v", i, g.id(), j, m.t)
		}
	}
	if g.gone {
		return "forgotten group again"
	}
	return "group again"
}

// addToGroup adds one or two members, sometimes with a repeated request.
func (d *duel) addToGroup(g *modelGroup) string {
	specs := make([]task.Spec, 1+d.rng.IntN(2))
	for i := range specs {
		if specs[i] = d.spec(1); d.rng.IntN(2) == 0 {
			specs[i].RequestID = task.NewID(1, 1, uint64(d.rng.IntN(4)))
		}
	}
	joined, err := engine.Run(d.World, func(r *engine.Round) ([]workflow.Joined, error) {
		return workflow.Add(r, "default", g.id(), workflow.NewMembers(specs))
	})
	if err != nil {
		d.T.Fatal(err)
	}
	what := "add"
	for i := range specs {
		j, request := joined[i], specs[i].RequestID
		content := specs[i].Queue + "/" + specs[i].Type
		before := slices.IndexFunc(g.members, func(m modelMember) bool { return request != task.ID{} && m.request == request })
		switch {
		case before >= 0 && g.members[before].content != content:
			if !errors.Is(j.Err, task.ErrConflict) {
				d.T.Fatalf("adding another member to group %s with a request id that was used returned %+v", g.id(), j)
			}
			what = "add another"
			continue
		case before >= 0:
			if t := g.members[before].t; j.Err != nil || !j.Duplicate || j.ID != t.id {
				d.T.Fatalf("adding a member to group %s again returned %+v, the model has %+v", g.id(), j, t)
			}
			what = "add again"
			continue
		case g.state != workflow.Running:
			if !errors.Is(j.Err, task.ErrWrongState) {
				d.T.Fatalf("group %s is %s, but accepted a member: %+v", g.id(), g.state, j)
			}
			what = "add too late"
			continue
		}
		g.join(func() {
			t := d.m.taskOf(&specs[i])
			t.group = g
			outcome, other := d.m.enter(t)
			refused := outcome != schema.FollowerCreated
			if d.entered(t, outcome, other, j.Accepted, j.Err); !refused {
				g.note(t, outcome)
				added := &g.members[len(g.members)-1]
				added.request, added.content = request, content
			}
		})
	}
	d.m.advance(g, nil)
	return what
}

func (d *duel) closeGroup(g *modelGroup) string {
	if _, err := engine.Run(d.World, func(r *engine.Round) (*workflow.View, error) { return workflow.Close(r, "default", g.id()) }); err !=
		nil {
		d.T.Fatal(err)
	}
	g.open = false
	d.m.advance(g, nil)
	return "close a group"
}

func (d *duel) cancelGroup(g *modelGroup) string {
	_, err := engine.Run(d.World, func(r *engine.Round) (*workflow.View, error) {
		return workflow.Cancel(r, task.Author{Name: "lena"}, "default", g.id())
	})
	if g.state == workflow.Complete {
		if !errors.Is(err, task.ErrWrongState) {
			d.T.Fatalf("cancelling a complete group: %v, want wrong_state", err)
		}
		return "late cancel of a group"
	}
	if err != nil {
		d.T.Fatal(err)
	}
	if g.state == workflow.Cancelled {
		return "cancel of a group again"
	}
	d.noted++
	g.state, g.open, g.cancelledAt = workflow.Cancelled, false, d.Now
	g.drop("cancelled")
	d.m.advance(g, nil)
	return "cancel a group"
}

// compareGroups compares the engine's groups with the model's.
func (d *duel) compareGroups() error {
	kept, _ := workflow.List(d.Store, "default", task.Scope{}, task.ID{}, 1000) // the newest first
	if len(kept) != len(d.m.groups) {
		return fmt.Errorf("%d groups are kept, the model has %d", len(kept), len(d.m.groups))
	}
	byID := map[task.ID]*workflow.View{}
	for _, v := range kept {
		byID[v.ID] = v
	}
	for _, g := range d.m.groups {
		if v := byID[g.id()]; v == nil {
			return fmt.Errorf("group %s is not there", g.id())
		} else if err := d.learn(g, v.Points); err != nil {
			return err
		}
	}
	for _, g := range d.m.groups {
		v := byID[g.id()]
		if v.State != g.state || v.Open != g.open || v.Counts != g.counts() || v.EndedAt != g.endedAt || v.KeptUntil != g.keptUntil {
			return fmt.Errorf("group %s is %+v; the model has %+v with %+v", g.id(), v, g, g.counts())
		}
		if err := errors.Join(g.comparePoints(v.Points), d.compareMembers(g)); err != nil {
			return err
		}
	}
	return nil
}

// learn takes the ids of tasks created at a group's points from the engine, and checks their reports.
func (d *duel) learn(g *modelGroup, points []schema.Follower) error {
	for _, f := range points {
		p := &g.points[slices.Index(modelPoints[:], f.On)]
		if f.State != schema.FollowerCreated || p.outcome != schema.FollowerCreated || p.t.id == f.ID {
			continue
		}
		v, err := query.Show(d.Store, "default", f.ID)
		if err != nil || p.t.id != (task.ID{}) || v.Parent == nil || v.Parent.Group != g.id() || v.Exec.Type != p.t.typ {
			return fmt.Errorf("%s of group %s is %+v (%w); the model has %+v", f.On, g.id(), v, err, p.t)
		}
		var report modelReport
		if err := json.Unmarshal(v.Parent.Result, &report); err != nil || report != p.report {
			return fmt.Errorf("%s of group %s is told %s (%w); the model has %+v", f.On, g.id(), v.Parent.Result, err, p.report)
		}
		p.t.id = f.ID
		d.seen["group comes to "+f.On]++
	}
	return nil
}

// comparePoints compares the points of a group, in order.
func (g *modelGroup) comparePoints(got []schema.Follower) error {
	want := []*modelPoint{}
	for i := range g.points {
		if p := &g.points[i]; p.spec != nil {
			want = append(want, p)
		}
	}
	for i, p := range want {
		if len(got) != len(want) || got[i].Type != p.spec.Type || got[i].State != p.outcome || got[i].Reason != p.reason ||
			p.outcome == schema.FollowerCreated && got[i].ID != p.t.id || p.outcome == schema.FollowerDuplicate && got[i].ID != p.other.id {
			return fmt.Errorf("group %s has points %+v; the model has at number %d %+v of %d", g.id(), got, i, p, len(want))
		}
	}
	return nil
}

// compareMembers compares members by their tasks, and the number of refused ones. It does so when the counts have
// changed, and occasionally.
func (d *duel) compareMembers(g *modelGroup) error {
	c := g.counts()
	if c == g.compared && d.rng.IntN(20) > 0 {
		return nil
	}
	g.compared = c
	list, more, err := workflow.Members(d.Store, "default", g.id(), task.ID{}, 1000)
	if err != nil || more || len(list) != len(g.members) {
		return fmt.Errorf("group %s has members %+v (%t, %w); the model has %d", g.id(), list, more, err, len(g.members))
	}
	for i := range g.members {
		m := &g.members[i]
		at := slices.IndexFunc(list, func(got workflow.Member) bool {
			return m.refused == (got.Refused != "") && (m.refused || got.ID == m.t.id) && got.Type == m.t.typ && got.Queue == m.t.queue
		})
		end := task.State(0)
		if !m.refused && m.t.state.Ended() {
			end = m.t.state
		}
		if at < 0 || !m.refused && list[at].State != end {
			return fmt.Errorf("group %s knows %+v; the model has member %+v (refused: %t)", g.id(), list, m.t, m.refused)
		}
		list = slices.Delete(list, at, at+1)
	}
	return nil
}
