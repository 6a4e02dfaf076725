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
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

var workerPages = []web.Page{
	{Path: "/workers", Template: "workers", Nav: "/workers", Show: showWorkers},
	{Path: "/workers/{worker}", Template: "worker", Nav: "/workers", Show: showWorker},
}

var workerActions = []web.Action{
	{Path: "/workers/{worker}/quiet", Nav: "/workers", Form: workerForm("Quiet",
		"The worker takes no new tasks for this long. Running tasks continue, and the worker stays connected.", quietFor), Do: doQuiet},
	{Path: "/workers/{worker}/resume", Nav: "/workers", Form: workerForm("Resume", "The worker takes tasks again."), Do: doResumeWorker},
}

// workersLimit is the page size of the list.
const workersLimit = 40

type workersView struct {
	Rows           []workerRow
	Queue          string
	Slots          int
	Busy           int
	GettingStarted string // the command, shown if there are no workers
	Picks          []web.Chip
	Lost           string // "true": only lost workers; "false": only the others
	web.More
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
func workerPicks(req *web.Request, lost string) (chips []web.Chip) {
	for _, p := range []struct{ lost, label string }{{"", "all"}, {"false", "present"}, {"true", "lost"}} {
		chips = append(chips, web.Chip{Label: p.label, URL: req.Here("lost", p.lost, "cursor", ""), On: p.lost == lost})
	}
	return chips
}

func showWorkers(req *web.Request) (*web.Screen, error) {
	filter := admin.WorkerFilter{Queue: req.Query("queue")}
	lost := req.Query("lost")
	switch lost {
	case "true":
		filter.Lost = new(true)
	case "false":
		filter.Lost = new(false)
	}
	page, err := req.Admin().Workers().ListPage(req.Ctx, filter, pawltype.PageRequest{Limit: workersLimit, Cursor: req.Query("cursor")})
	if err != nil {
		return nil, err
	}
	view := workersView{Queue: req.Query("queue"), Lost: lost, Picks: workerPicks(req, lost), More: req.More(page.NextCursor)}
	for _, w := range page.Items {
		view.Rows = append(view.Rows, workerRowOf(w))
		if !w.Lost() {
			view.Slots += w.Slots
			view.Busy += w.Running
		}
	}
	req.Lacks(page.Missing)
	if len(view.Rows) == 0 {
		view.GettingStarted = req.Caller().Command("work", nil, "--type=mail.welcome", "--queue="+cmp.Or(view.Queue, "mail"), "--exec=cat")
	}
	return &web.Screen{Title: "Workers", Data: view}, nil
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
	Facts []web.LinkedFact
	Shown []admin.RunningTask
	Cut   int
}

// Actions returns the actions on a worker.
func (w workerView) Actions() (a web.ActionBar) {
	switch resume := web.Ask("Resume…", "workers", w.ID, "resume"); {
	case w.Lost():
	case w.Quiet != nil:
		a.Main = &resume
	default:
		a.Beside = []web.Button{web.Ask("Quiet…", "workers", w.ID, "quiet")}
	}
	return a
}

func showWorker(req *web.Request) (*web.Screen, error) {
	w, err := req.Admin().Workers().Get(req.Ctx, req.PathValue("worker"))
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
	facts := []form.Fact{{Name: "Queues", Value: view.Takes}, {Name: "Types", Value: format.Clip(types, 2000)},
		{Name: "Host", Value: w.Host}, {Name: "Process", Value: form.NumberText(int64(w.PID))}, {Name: "SDK", Value: w.Version},
		{Name: "Address", Value: w.Address}, {Name: "Node", Value: w.Node}}
	pages := map[string]string{"Node": req.URL("cluster")}
	if names := queueNames(w.Queues); len(names) == 1 {
		pages["Queues"] = req.URL("queues", names[0])
	}
	view.Facts = web.WithLinks(slices.DeleteFunc(facts, func(f form.Fact) bool { return f.Value == "" }), pages)
	return &web.Screen{Title: "Worker " + w.Name, Data: view}, nil
}

// quietFor asks for how long.
var quietFor = form.Field{Name: "for", Label: "For", Kind: "text", Placeholder: "24h", Hint: "1m to 30d, or until someone resumes it."}

func workerForm(verb, text string, fields ...form.Field) func(*web.Request) (*form.Form, error) {
	return func(req *web.Request) (*form.Form, error) {
		w, err := req.Admin().Workers().Get(req.Ctx, req.PathValue("worker"))
		if err != nil {
			return nil, err
		}
		return &form.Form{Title: verb + " " + format.Clip(w.Name, 80), Text: text, Button: verb, Back: workerPath(req),
			Facts:  []form.Fact{{Name: "Runs", Value: format.Plural(w.Running, "task")}, {Name: "Slots", Value: format.Number(w.Slots)}},
			Fields: append(slices.Clone(fields), form.Reason())}, nil
	}
}

func workerPath(req *web.Request) string {
	return web.PathTo("workers", req.PathValue("worker"))
}

func doQuiet(req *web.Request) (web.Done, error) {
	r := req.Reader()
	span := r.Duration("for")
	if r.Err != nil {
		return web.Done{}, r.Err
	}
	w, err := req.Admin().WithReason(req.Value("reason")).Workers().Quiet(req.Ctx, req.PathValue("worker"), span)
	if err != nil {
		return web.Done{}, err
	}
	return web.Done{Message: "The worker takes no new tasks for " + format.Duration(w.Quiet.Until.Sub(w.Quiet.At)) + ".",
		Next: workerPath(req)}, nil
}

func doResumeWorker(req *web.Request) (web.Done, error) {
	if _, err := req.Admin().WithReason(req.Value("reason")).Workers().Resume(req.Ctx, req.PathValue("worker")); err != nil {
		return web.Done{}, err
	}
	return web.Done{Message: "The worker takes tasks again.", Next: workerPath(req)}, nil
}
