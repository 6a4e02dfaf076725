package ui

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/pawltype"
)

var workerPages = []page{
	{path: "/workers", template: "workers", nav: "/workers", show: showWorkers},
	{path: "/workers/{worker}", template: "worker", nav: "/workers", show: showWorker},
}

var workerActions = []action{
	{path: "/workers/{worker}/quiet", nav: "/workers", form: workerForm("Quiet", "The worker takes no new tasks for this long. Running tasks continue, and the worker stays connected.", quietFor), do: doQuiet},
	{path: "/workers/{worker}/resume", nav: "/workers", form: workerForm("Resume", "The worker takes tasks again."), do: doResumeWorker},
}

// workersLimit is the page size of the list.
const workersLimit = 40

type workersView struct {
	Rows   []workerRow
	Queue  string
	Silent []form.Fact // nodes that didn't answer, and why
	Slots  int
	Busy   int
	Hello  string // the command, shown if there are no workers
	Picks  []chip
	Lost   string // "true": only lost workers; "false": only the others
	more
}

type workerRow struct {
	*admin.Worker
	Takes string // its queues
	Used  int    // used slots, in percent
	State string
}

// maxRuns is how many of a worker's tasks its row names.
const maxRuns = 3

// Runs returns the tasks that the row names. NotShown is the number of the others.
func (r workerRow) Runs() []admin.RunningTask { return r.Tasks[:min(len(r.Tasks), maxRuns)] }
func (r workerRow) NotShown() int             { return max(r.Running-len(r.Runs()), 0) }

func workerRowOf(w *admin.Worker) workerRow {
	row := workerRow{Worker: w, Takes: queuesText(w.Queues), Used: min(w.Running*100/max(w.Slots, 1), 100), State: "connected"}
	switch {
	case w.Lost():
		row.State = "lost"
	case w.Quiet != nil:
		row.State = "quiet"
	case w.Draining:
		row.State = "draining"
	case !w.Connected:
		row.State = "by calls"
	}
	return row
}

func queuesText(q pawl.Queues) string {
	switch q := q.(type) {
	case pawl.Strict:
		return strings.Join(q, ", then ")
	case pawl.Weighted:
		all := make([]string, 0, len(q))
		for _, name := range slices.Sorted(maps.Keys(q)) {
			all = append(all, fmt.Sprintf("%s ×%d", name, q[name]))
		}
		return strings.Join(all, ", ")
	}
	return ""
}

// queueNames returns the queues that a worker takes tasks from.
func queueNames(q pawl.Queues) []string {
	switch q := q.(type) {
	case pawl.Strict:
		return q
	case pawl.Weighted:
		return slices.Sorted(maps.Keys(q))
	}
	return nil
}

// workerPicks link to all workers, to those that are present, and to the lost ones.
func (v *visit) workerPicks(lost string) (chips []chip) {
	for _, p := range []struct{ lost, label string }{{"", "all"}, {"false", "present"}, {"true", "lost"}} {
		chips = append(chips, chip{Label: p.label, URL: v.base + v.here("lost", p.lost, "cursor", ""), On: p.lost == lost})
	}
	return chips
}

func showWorkers(v *visit) (*screen, error) {
	filter := admin.WorkerFilter{Queue: v.query("queue")}
	lost := v.query("lost")
	switch lost {
	case "true":
		filter.Lost = new(true)
	case "false":
		filter.Lost = new(false)
	}
	page, err := v.admin().Workers().ListPage(v.ctx, filter, pawltype.PageRequest{Limit: workersLimit, Cursor: v.query("cursor")})
	if err != nil {
		return nil, err
	}
	view := workersView{Queue: v.query("queue"), Lost: lost, Picks: v.workerPicks(lost), more: v.moreOf(page.NextCursor)}
	for _, w := range page.Items {
		view.Rows = append(view.Rows, workerRowOf(w))
		if !w.Lost() {
			view.Slots += w.Slots
			view.Busy += w.Running
		}
	}
	for _, node := range slices.Sorted(maps.Keys(page.Silent)) {
		view.Silent = append(view.Silent, form.Fact{Name: node, Value: page.Silent[node]})
	}
	if len(view.Rows) == 0 {
		view.Hello = v.caller().command("pawl work --type mail.welcome --queue " + format.ShellWord(cmp.Or(view.Queue, "mail")) + " --exec cat")
	}
	return &screen{Title: "Workers", Data: view}, nil
}

// lostWhy explains why a worker counts as lost, by the API's reason.
var lostWhy = map[string]string{
	"disconnected": "Its connection broke, and the worker did not reconnect.",
	"lease_lost":   "A lease expired, and the worker has made no call since.",
}

// maxTasksShown is how many tasks a worker's page lists.
const maxTasksShown = 100

type workerView struct {
	workerRow
	Why   string // why it counts as lost
	Facts []linkedFact
	Shown []admin.RunningTask
	Cut   int
}

func showWorker(v *visit) (*screen, error) {
	w, err := v.admin().Workers().Get(v.ctx, v.r.PathValue("worker"))
	if err != nil {
		return nil, err
	}
	view := workerView{workerRow: workerRowOf(w), Shown: w.Tasks[:min(len(w.Tasks), maxTasksShown)]}
	view.Cut = w.Running - len(view.Shown)
	view.Why = lostWhy[w.LostReason]
	types := strings.Join(w.Types, ", ")
	if types == "" {
		types = "all"
	}
	facts := []form.Fact{{Name: "Queues", Value: view.Takes}, {Name: "Types", Value: format.Clip(types, 2000)}, {Name: "Host", Value: w.Host}, {Name: "Process", Value: form.NumberText(int64(w.PID))}, {Name: "SDK", Value: w.Version}, {Name: "Address", Value: w.Address}, {Name: "Node", Value: w.Node}}
	pages := map[string]string{"Node": v.url("cluster")}
	if names := queueNames(w.Queues); len(names) == 1 {
		pages["Queues"] = v.url("queues", names[0])
	}
	view.Facts = linked(slices.DeleteFunc(facts, func(f form.Fact) bool { return f.Value == "" }), pages)
	return &screen{Title: "Worker " + w.Name, Data: view}, nil
}

// quietFor asks for how long.
var quietFor = form.Field{Name: "for", Label: "For", Kind: "text", Placeholder: "24h", Hint: "1m to 30d, or until someone resumes it."}

func workerForm(verb, text string, fields ...form.Field) func(*visit) (*form.Form, error) {
	return func(v *visit) (*form.Form, error) {
		w, err := v.admin().Workers().Get(v.ctx, v.r.PathValue("worker"))
		if err != nil {
			return nil, err
		}
		return &form.Form{Title: verb + " " + format.Clip(w.Name, 80), Text: text, Button: verb, Back: v.workerPath(),
			Facts: []form.Fact{{Name: "Runs", Value: format.Plural(w.Running, "task")}, {Name: "Slots", Value: format.Number(w.Slots)}}, Fields: append(slices.Clone(fields), form.Reason())}, nil
	}
}

func (v *visit) workerPath() string {
	return strings.TrimPrefix(v.url("workers", v.r.PathValue("worker")), v.base)
}

func doQuiet(v *visit) (done, error) {
	r := v.reader()
	span := r.Duration("for")
	if r.Err != nil {
		return done{}, r.Err
	}
	w, err := v.admin().Workers().Quiet(v.ctx, v.r.PathValue("worker"), v.value("reason"), span)
	if err != nil {
		return done{}, err
	}
	return done{Said: "The worker takes no new tasks for " + format.Duration(w.Quiet.Until.Sub(w.Quiet.At)) + ".", Next: v.workerPath()}, nil
}

func doResumeWorker(v *visit) (done, error) {
	if _, err := v.admin().WithReason(v.value("reason")).Workers().Resume(v.ctx, v.r.PathValue("worker")); err != nil {
		return done{}, err
	}
	return done{Said: "The worker takes tasks again.", Next: v.workerPath()}, nil
}
