package engine_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/datadriven"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/workflow"
	"github.com/pawlq/pawl/internal/task"
)

// groupStep is a step of a story about groups, which are named g1, g2 … in order of creation.
func (s *story) groupStep(d *datadriven.TestData) string {
	switch d.Cmd {
	case "group":
		return s.makeGroup(d)
	case "groups-made":
		var names []string
		var before task.ID
		for more := true; more; {
			var page []*workflow.View
			page, more = workflow.List(s.Store, "default", task.Scope{}, before, 2)
			for _, g := range page {
				names, before = append(names, s.groupName(g.ID)), g.ID
			}
		}
		return strings.Join(names, " ")
	}
	id := s.groupIDs[number(strings.TrimPrefix(d.CmdArgs[0].Key, "g"))-1]
	switch d.Cmd {
	case "add":
		tasks := thenOf(arg(d, "tasks"))
		for i := range tasks {
			tasks[i].Fill()
			if v := arg(d, "request"); v != "" {
				tasks[i].RequestID = task.NewID(1, 0, uint64(number(v)+i))
			}
		}
		joined, err := engine.Run(s.World, func(r *engine.Round) ([]workflow.Joined, error) {
			return workflow.Add(r, "default", id, workflow.NewMembers(tasks))
		})
		if err != nil {
			return answer(err, "")
		}
		return s.joined(joined)
	case "close":
		v, err := engine.Run(s.World, func(r *engine.Round) (*workflow.View, error) { return workflow.Close(r, "default", id) })
		return s.groupAnswer(v, err)
	case "cancel-group":
		v, err := engine.Run(s.World, func(r *engine.Round) (*workflow.View, error) {
			return workflow.Cancel(r, task.Author{}, "default", id)
		})
		return s.groupAnswer(v, err)
	case "members":
		return s.members(id)
	}
	v, err := workflow.Show(s.Store, "default", id)
	return s.groupAnswer(v, err)
}

func (s *story) makeGroup(d *datadriven.TestData) string {
	n := &workflow.Call{Namespace: "default", ID: s.NewID(), Group: task.Group{Name: arg(d, "name"), Tasks: thenOf(arg(d, "tasks")),
		Open: d.HasArg("open")}}
	for to, field := range map[**task.Spec]string{&n.OnComplete: "on-complete", &n.OnSuccess: "on-success", &n.OnDeath: "on-death"} {
		if of := thenOf(arg(d, field)); of != nil {
			*to = &of[0]
		}
	}
	if v := arg(d, "retention"); v != "" {
		keep := duration(v)
		n.Retention = &keep
	}
	if d.HasArg("again") {
		n.ID = s.groupIDs[len(s.groupIDs)-1]
	}
	n.Fill()
	if err := n.Check(task.DefaultLimits()); err != nil {
		return answer(err, "")
	}
	if !hasQueue(s.World, "default") {
		s.PutQueue("default", task.DefaultSettings(), false)
	}
	made, err := engine.Run(s.World, func(r *engine.Round) (workflow.Made, error) { return workflow.Make(r, n) })
	if err == nil && !slices.Contains(s.groupIDs, n.ID) {
		s.groupIDs = append(s.groupIDs, n.ID)
	}
	if err != nil {
		return answer(err, "")
	}
	return s.joined(made.Tasks) + s.groupAnswer(made.Group, nil)
}

func (s *story) joined(tasks []workflow.Joined) string {
	var b strings.Builder
	for _, j := range tasks {
		switch {
		case j.Err != nil:
			fmt.Fprintln(&b, answer(j.Err, ""))
		case j.Message != nil:
			fmt.Fprintln(&b, "on its way")
		case j.Duplicate:
			fmt.Fprintf(&b, "%s %s (duplicate)\n", s.know(j.ID), j.State)
		default:
			fmt.Fprintf(&b, "%s %s\n", s.know(j.ID), j.State)
		}
	}
	return b.String()
}

func (s *story) groupAnswer(v *workflow.View, err error) string {
	if err != nil {
		return answer(err, "")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", s.groupName(v.ID), v.State)
	if v.Open {
		b.WriteString(", open")
	}
	fmt.Fprintf(&b, ": %d members", v.Counts.Members)
	c := v.Counts
	counts := []int64{c.Pending, c.Succeeded, c.Dead, c.Poisoned, c.Discarded, c.Cancelled, c.Refused}
	for i, word := range []string{"pending", "succeeded", "dead", "poisoned", "discarded", "cancelled", "refused"} {
		if n := counts[i]; n > 0 {
			fmt.Fprintf(&b, ", %d %s", n, word)
		}
	}
	if v.EndedAt != 0 {
		fmt.Fprintf(&b, "; kept for %s", v.KeptUntil.Sub(v.EndedAt))
	}
	for _, f := range v.Points {
		fmt.Fprintf(&b, "\n  %s %s@%s %s", f.On, f.Type, f.Queue, f.State)
		if f.ID != (task.ID{}) {
			fmt.Fprintf(&b, " %s", s.know(f.ID))
		}
		if f.Reason != "" {
			fmt.Fprintf(&b, ": %s", f.Reason)
		}
	}
	return b.String()
}

func (s *story) members(id task.ID) string {
	var b strings.Builder
	var behind task.ID
	for more := true; more; {
		var page []workflow.Member
		var err error
		if page, more, err = workflow.Members(s.Store, "default", id, behind, 3); err != nil {
			return answer(err, "")
		}
		for _, m := range page {
			behind = m.Ref
			name, end := "?", "pending"
			if m.ID != (task.ID{}) {
				name = s.know(m.ID)
			}
			if m.State != 0 {
				end = m.State.String()
			}
			if m.Refused != "" {
				end = "refused: " + m.Refused
			}
			fmt.Fprintf(&b, "%s %s@%s %s", name, m.Type, m.Queue, end)
			if len(m.Result.Data) > 0 {
				fmt.Fprintf(&b, " with %q", m.Result.Data)
			}
			if m.Omitted {
				b.WriteString(", its result is too large")
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func (s *story) groupName(id task.ID) string {
	return fmt.Sprintf("g%d", slices.Index(s.groupIDs, id)+1)
}
