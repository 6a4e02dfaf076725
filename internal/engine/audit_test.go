package engine_test

import (
	"fmt"
	"strings"

	"github.com/cockroachdb/datadriven"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/actions"
	"github.com/pawlq/pawl/internal/engine/schedule"
	"github.com/pawlq/pawl/internal/task"
)

// onSchedule runs an operator's call on a schedule in a round.
func onSchedule[T any](s *story, action task.Action, name string, do func(r *engine.Round) (T, error)) (T, error) {
	return engine.Run(s.World, func(r *engine.Round) (T, error) {
		return schedule.Audited(r, s.by, action, "default", name, func() (T, error) { return do(r) })
	})
}

// purgeStep purges a queue, in rounds of n tasks, by default 1,000.
func (s *story) purgeStep(d *datadriven.TestData) string {
	total, queue := int64(0), d.CmdArgs[0].Key
	s.versions++
	limit := 1000
	if d.HasArg("n") {
		limit = number(arg(d, "n"))
	}
	bulk := actions.Bulk{By: s.by, Action: task.QueuePurged, Call: s.versions, Queue: queue}
	for p := (engine.Purging{}); !p.Done; {
		var err error
		p, err = engine.Run(s.World, func(r *engine.Round) (engine.Purging, error) {
			n, p, err := engine.Purge(r, "default", queue, p, limit)
			if err == nil {
				bulk.Record(r, "default", int64(n))
			}
			total += int64(n)
			return p, err
		})
		if err != nil {
			return answer(err, "")
		}
		if d.HasArg("interrupted") {
			break
		}
	}
	return fmt.Sprintf("discarded %d", total)
}

// auditStep sets the operator for the following steps, or shows the shard's audit log, oldest first. Times are omitted from changes.
func (s *story) auditStep(d *datadriven.TestData) string {
	if d.Cmd == "as" {
		s.by = task.Author{Name: d.CmdArgs[0].Key, Address: "10.0.0.1", Interface: task.InterfaceREST,
			Reason: strings.ReplaceAll(arg(d, "because"), "_", " ")}
		if s.by.Name == "nobody" {
			s.by = task.Author{}
		}
		return "now " + d.CmdArgs[0].Key
	}
	q := audit.Query{Namespace: "default", Action: arg(d, "action"), Actor: arg(d, "actor"), Queue: arg(d, "queue")}
	page, err := audit.Read(s.Store, 1, q, nil, 1000)
	if err != nil {
		return err.Error()
	}
	var lines []string
	for i := len(page.Entries) - 1; i >= 0; i-- {
		e := &page.Entries[i]
		line := fmt.Sprintf("%d %s %s %s", e.Seq, e.By.Name, e.Action, e.Target.Kind)
		if name := e.Target.Name; e.Target.Kind == task.OnTask {
			id, _ := task.ParseID(name)
			line += " " + s.name(id)
		} else {
			line += " " + name
		}
		if e.Tasks > 0 {
			line += fmt.Sprintf(", %d tasks", e.Tasks)
		}
		line += ": " + string(e.Before) + " → " + string(e.After)
		if e.By.Reason != "" {
			line += " because " + e.By.Reason
		}
		lines = append(lines, line)
	}
	if lines == nil {
		return "nothing"
	}
	return strings.Join(lines, "\n")
}

// operate is an operator's call on a task, which is recorded if it changes something and is not refused.
func (d *duel) operate(action task.Action, t *modelTask, changes bool, do func(*engine.Round) error) error {
	_, err := engine.Run(d.World, func(r *engine.Round) (struct{}, error) {
		return struct{}{}, actions.OnTask(r, task.Author{Name: "lena"}, action, "default", t.id, func() error { return do(r) })
	})
	if err == nil && changes {
		d.noted++
	}
	page, bad := audit.Read(d.Store, 1, audit.Query{Namespace: "default"}, nil, 1)
	newest := audit.Entry{}
	if len(page.Entries) > 0 {
		newest = page.Entries[0]
	}
	if noted := err == nil && changes; bad != nil || newest.Seq != d.noted || noted && (newest.Action != action ||
		newest.Target.Name != t.id.String()) {
		d.T.Fatalf("%s of %s, which is %s (%v): the newest audit entry is %+v (%v), want number %d", action, t.id, t.state, err,
			newest, bad, d.noted)
	}
	return err
}
