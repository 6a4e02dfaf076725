package ui

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/chart"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

var queuePages = []web.Page{
	{Path: "/queues", Template: "queues", Nav: "/queues", Show: showQueues},
	{Path: "/queues/{queue}", Template: "queue", Nav: "/queues", Show: showQueue},
}

var queueActions = []web.Action{
	{Path: "/queues/{queue}/pause", Nav: "/queues", Form: pauseForm, Do: doPause},
	{Path: "/queues/{queue}/resume", Nav: "/queues", Form: resumeForm, Do: doResume},
	{Path: "/queues/{queue}/purge", Nav: "/queues", Form: purgeForm, Do: doPurge},
	{Path: "/queues/{queue}/delete", Nav: "/queues", Form: deleteQueueForm, Do: doDeleteQueue},
	{Path: "/queues/{queue}/close-breaker", Nav: "/queues", Form: closeBreakerForm, Do: doCloseBreaker},
}

// queuesLimit is the page size of the list.
const queuesLimit = 40

// queueWorkers is how many workers a queue's page lists.
const queueWorkers = 5

// sparkTime is the time span of a queue's sparkline.
const sparkTime = time.Hour

// queueRow is a queue in a list.
type queueRow struct {
	*admin.Queue
	Bar   chart.Bar
	Spark *chart.Spark // nil: not requested
}

func rowOf(q *admin.Queue) queueRow {
	return queueRow{Queue: q, Bar: chart.NewBar(chart.DepthCounts(q.Depth)), Spark: chart.NewSpark(q.Series)}
}

// WorkerCount is how many workers take the queue's tasks; "": unknown.
func (r queueRow) WorkerCount() string {
	if r.Workers == nil {
		return ""
	}
	return format.Number(*r.Workers)
}

// Idle reports whether a queue has ready tasks but no workers.
func (r queueRow) Idle() bool { return r.Workers != nil && *r.Workers == 0 && r.Depth.Ready > 0 }

// waitingOf returns how many tasks a purge would discard.
func waitingOf(d admin.Depth) int64 { return d.Scheduled + d.Ready + d.Retrying }

type queuesView struct {
	Rows           []queueRow
	Having         string // preserved by the search field
	Picks          []web.Chip
	GettingStarted []form.Fact // commands, shown if there are none
	web.Names
	web.More
}

// queuePicks are what operators look for among many queues.
var queuePicks = []struct {
	having admin.QueueTrait
	most   bool
	label  string
}{{"", false, "all"}, {"", true, "busiest"}, {admin.QueueDead, false, "with dead letters"}, {admin.QueuePoisoned, false, "with poison"},
	{admin.QueueNoWorker, false, "without workers"}, {admin.QueuePaused, false, "paused"}}

// queueFilterOf reads the filter of the list from the URL.
func queueFilterOf(req *web.Request) admin.QueueFilter {
	return admin.QueueFilter{Pattern: req.Pattern(), Having: admin.QueueTrait(req.Query("having")), Most: req.Query("order") == "most",
		Series: sparkTime}
}

func queuePickChips(req *web.Request, f admin.QueueFilter) (chips []web.Chip) {
	for _, p := range queuePicks {
		order := ""
		if p.most {
			order = "most"
		}
		chips = append(chips, web.Chip{Label: p.label, URL: req.Here("having", string(p.having), "order", order, "cursor", ""),
			On: p.having == f.Having && p.most == (f.Most && f.Having == "")})
	}
	return chips
}

func showQueues(req *web.Request) (*web.Screen, error) {
	f := queueFilterOf(req)
	view := &queuesView{Names: req.Names(), Having: string(f.Having), Picks: queuePickChips(req, f)}
	s := &web.Screen{Title: "Queues", Watch: &web.Watch{}}
	page, err := req.Admin().Queues().ListPage(req.Ctx, f, pawltype.PageRequest{Limit: queuesLimit, Cursor: req.Query("cursor")})
	if err = view.Refuse(err); err != nil {
		return nil, err
	}
	view.More = req.MoreByName(page.NextCursor)
	req.Lacks(page.Missing)
	for _, q := range page.Items {
		view.Rows = append(view.Rows, rowOf(q))
	}
	if len(view.Rows) == 0 && view.Refused == nil {
		view.GettingStarted = req.GettingStarted()
	}
	s.Data = view
	return s, nil
}

// Filtered reports whether the list shows only some of the queues.
func (q *queuesView) Filtered() bool { return q.Like != "" || q.Having != "" || q.NotFirst }

type queueView struct {
	queueRow
	Counts []chart.Count
	Why    *admin.QueueExplanation
	// WhyError is why there is no Why.
	WhyError string
	Settings []factGroup
	Actions  web.ActionBar
	Keys     []keyRow
	Stats    *admin.Stats
	Windows  []web.Chip
	Chart    chart.Chart
	Drain    string      // time until the ready tasks are done
	Workers  []workerRow // the first few
	Scale    *admin.QueueScale
}

// keyRow holds a key's limits in words.
type keyRow struct{ Key, Rules string }

func showQueue(req *web.Request) (*web.Screen, error) {
	q, err := req.Admin().Queues().Get(req.Ctx, req.PathValue("queue"))
	if err != nil {
		return nil, err
	}
	view := queueView{queueRow: rowOf(q), Counts: chart.DepthCounts(q.Depth), Actions: actionsOnQueue(req, q),
		Settings: settingsGroups(&q.Settings), Keys: keyRows(&q.Settings)}
	if view.Why, err = req.Admin().Queues().Explain(req.Ctx, q.Name); err != nil {
		view.WhyError = format.ProblemOf(err).Message
	}
	if err := view.addStats(req); err != nil {
		return nil, err
	}
	workers, err := req.Admin().Workers().ListPage(req.Ctx, admin.WorkerFilter{Queue: q.Name, Lost: new(false)},
		pawltype.PageRequest{Limit: queueWorkers})
	if err != nil {
		return nil, err
	}
	req.Lacks(q.Missing)
	req.Lacks(workers.Missing)
	for _, w := range workers.Items {
		view.Workers = append(view.Workers, workerRowOf(w))
	}
	return &web.Screen{Title: "Queue " + q.Name, Data: view, Watch: &web.Watch{Queue: q.Name}}, nil
}

// Troubled reports whether something that may need fixing keeps tasks from running.
func (q queueView) Troubled() bool {
	return q.Paused || len(q.PausedSubsets)+len(q.Breakers) > 0 || q.Idle() || q.Why != nil && len(q.Why.UnservedTypes) > 0
}

// actionsOnQueue returns the actions on a queue.
func actionsOnQueue(req *web.Request, q *admin.Queue) web.ActionBar {
	to := func(label, verb string) web.Button {
		return web.Button{Label: label, URL: req.URL("queues", q.Name, verb)}
	}
	enqueue := web.Button{Label: "Enqueue…", URL: req.URL("enqueue", "?queue="+url.QueryEscape(q.Name)), Needs: "produce", Page: true}
	a := web.ActionBar{Main: &enqueue, Beside: []web.Button{to("Pause…", "pause"), {Label: "Settings…", URL: req.URL("queues", q.Name,
		"settings"), Needs: "operate", Page: true}},
		More: []web.Button{{Label: "Tasks", URL: req.Find("queue", q.Name), Page: true}, {Label: "Dead letters",
			URL: req.URL("dead", "?queue="+url.QueryEscape(q.Name)), Page: true}},
		Danger: []web.Button{to("Purge…", "purge"), to("Delete…", "delete")}}
	if q.Paused {
		resume := to("Resume…", "resume")
		a.Main, a.Beside[0] = &resume, enqueue
		a.More = append(a.More, to("Pause a type or key…", "pause"))
	}
	return a
}

// addStats adds recent statistics and what follows from them.
func (q *queueView) addStats(req *web.Request) error {
	window, chips, err := windowOf(req)
	if err != nil {
		return err
	}
	if q.Stats, err = req.Admin().Queues().Stats(req.Ctx, q.Name, window); err != nil {
		return err
	}
	req.Lacks(q.Stats.Missing)
	q.Windows, q.Chart, q.Drain = chips, chart.Throughput("Tasks of the queue ended and enqueued", q.Stats), drainText(q.Queue)
	addMarkers(req, &q.Chart, q.Name, "", ownMarkers(q.Queue)...)
	if q.Scale, err = req.Admin().Queues().Scale(req.Ctx, q.Name, 0, 0); errors.Is(err, pawltype.ErrUnavailable) { // it needs all shards
		return nil
	}
	return err
}

// drainText returns when no task will be ready any more, at the rates of the last minute.
func drainText(q *admin.Queue) string {
	switch {
	case q.Depth.Ready == 0:
		return "now"
	case q.Rates == nil:
		return "unknown"
	case q.Drain == nil:
		return "never at this rate"
	}
	return "about " + format.Coarse(*q.Drain)
}

// queueOf returns the queue that a request is about.
func queueOf(req *web.Request) (*admin.Queue, error) {
	return req.Admin().Queues().Get(req.Ctx, req.PathValue("queue"))
}

func queueDone(req *web.Request, format string, args ...any) web.Done {
	return web.Done{Message: fmt.Sprintf(format, args...), Next: "/queues/" + req.PathValue("queue")}
}

func pauseForm(req *web.Request) (*form.Form, error) {
	q, err := queueOf(req)
	if err != nil {
		return nil, err
	}
	return &form.Form{Title: "Pause " + q.Name, Button: "Pause", Back: "/queues/" + q.Name,
		Text: "No new task starts. Tasks are still accepted, and running ones continue. You can pause only one type or one key.",
		Fields: []form.Field{
			{Name: "what", Label: "What", Kind: "choice", Options: []form.Option{{Value: "", Label: "the whole queue"},
				{Value: "type", Label: "one type"}, {Value: "key", Label: "one key"}}, Value: req.Query("what")},
			{Name: "name", Label: "Name of the type or key", Kind: "text", Value: req.Query("name"),
				Hint: "Leave empty for the whole queue."},
			form.Reason(),
		}}, nil
}

// subsetOf reads what to pause or resume.
func subsetOf(req *web.Request, ask func(*web.Request) (*form.Form, error)) (h admin.Subset, err error) {
	f, err := ask(req)
	if err != nil {
		return h, err
	}
	r := req.Edits(f)
	name := r.Text("name")
	switch what := r.Text("what"); {
	case what == "" && name != "":
		return h, format.BadField("name", "%q is given, but the whole queue is chosen", format.Clip(name, 60))
	case what != "" && name == "":
		return h, format.BadField("name", "give the name of the %s", what)
	case what == "type":
		h.Type = name
	case what == "key":
		h.Key = name
	case what != "":
		return h, format.BadField("what", "%q is neither a type nor a key", format.Clip(what, 60))
	}
	return h, nil
}

func doPause(req *web.Request) (web.Done, error) {
	h, err := subsetOf(req, pauseForm)
	if err != nil {
		return web.Done{}, err
	}
	if queues := req.Admin().WithReason(req.Value("reason")).Queues(); h == (admin.Subset{}) {
		_, err = queues.Pause(req.Ctx, req.PathValue("queue"))
	} else {
		_, err = queues.PauseSubset(req.Ctx, req.PathValue("queue"), h)
	}
	if err != nil {
		return web.Done{}, err
	}
	return queueDone(req, "Paused %s.", subsetWords(h)), nil
}

func subsetWords(h admin.Subset) string {
	switch {
	case h.Type != "":
		return "type " + h.Type
	case h.Key != "":
		return "key " + h.Key
	}
	return "the queue"
}

func resumeForm(req *web.Request) (*form.Form, error) {
	q, err := queueOf(req)
	if err != nil {
		return nil, err
	}
	f := &form.Form{Title: "Resume " + q.Name, Button: "Resume", Back: "/queues/" + q.Name, Fields: []form.Field{
		{Name: "what", Kind: "hidden", Value: req.Query("what")}, {Name: "name", Kind: "hidden", Value: req.Query("name")}, form.Reason(),
	}}
	switch what, name := req.Query("what"), req.Query("name"); {
	case what != "":
		f.Title = "Resume " + what + " " + name
	case q.PausedReason != "":
		f.Text = fmt.Sprintf("Paused %s: %s", format.Ago(q.PausedAt, req.Now).Text, q.PausedReason)
	}
	if f.Text == "" {
		f.Text = fmt.Sprintf("%s can start.", format.Plural(q.Depth.Ready, "ready task"))
	}
	return f, nil
}

func doResume(req *web.Request) (web.Done, error) {
	h, err := subsetOf(req, resumeForm)
	if err != nil {
		return web.Done{}, err
	}
	if queues := req.Admin().WithReason(req.Value("reason")).Queues(); h == (admin.Subset{}) {
		_, err = queues.Resume(req.Ctx, req.PathValue("queue"))
	} else {
		_, err = queues.ResumeSubset(req.Ctx, req.PathValue("queue"), h)
	}
	if err != nil {
		return web.Done{}, err
	}
	return queueDone(req, "Resumed %s.", subsetWords(h)), nil
}

func purgeForm(req *web.Request) (*form.Form, error) {
	q, err := queueOf(req)
	if err != nil {
		return nil, err
	}
	n := waitingOf(q.Depth)
	return &form.Form{Title: "Purge " + q.Name, Danger: true, Button: "Discard " + format.Plural(n, "waiting task"),
		Back: "/queues/" + q.Name, Text: "Discards every waiting task in this queue, including tasks that arrive while the purge runs. " +
			"They stay visible until retention removes them. Running tasks and dead letters stay.",
		Facts: []form.Fact{{Name: "Scheduled", Value: format.Number(q.Depth.Scheduled)},
			{Name: "Ready", Value: format.Number(q.Depth.Ready)}, {Name: "Retrying", Value: format.Number(q.Depth.Retrying)}},
		Fields: []form.Field{{Name: "confirm", Label: "Type the queue's name to confirm", Kind: "text", Placeholder: q.Name,
			Required: true},
			form.Reason()}}, nil
}

func doPurge(req *web.Request) (web.Done, error) {
	name := req.PathValue("queue")
	if req.Value("confirm") != name {
		return web.Done{}, format.BadField("confirm", "does not match the name of the queue, %q", name)
	}
	n, err := req.Admin().WithReason(req.Value("reason")).Queues().Purge(req.Ctx, name)
	if err != nil {
		return web.Done{}, err
	}
	return queueDone(req, "Discarded %s.", format.Plural(n, "task")), nil
}

func deleteQueueForm(req *web.Request) (*form.Form, error) {
	q, err := queueOf(req)
	if err != nil {
		return nil, err
	}
	return &form.Form{Title: "Delete " + q.Name, Danger: true, Button: "Delete queue", Back: "/queues/" + q.Name,
		Text: "Deletes the queue and its settings. The queue must have no tasks. The next enqueue creates it again with " +
			"default settings.",
		Fields: []form.Field{form.Reason()}}, nil
}

func doDeleteQueue(req *web.Request) (web.Done, error) {
	name := req.PathValue("queue")
	if err := req.Admin().WithReason(req.Value("reason")).Queues().Delete(req.Ctx, name); err != nil {
		return web.Done{}, err
	}
	return web.Done{Message: "Deleted queue " + name + ".", Next: "/queues"}, nil
}

func closeBreakerForm(req *web.Request) (*form.Form, error) {
	q, err := queueOf(req)
	if err != nil {
		return nil, err
	}
	f := &form.Form{Title: "Close breaker", Button: "Close breaker", Back: "/queues/" + q.Name,
		Text:   "Its tasks start again immediately. If they keep failing, the breaker opens again.",
		Fields: []form.Field{{Name: "type", Kind: "hidden", Value: req.Query("type")}, form.Reason()}}
	for _, b := range q.Breakers {
		if b.Type == req.Query("type") {
			f.Title = "Close the breaker of " + b.Type
			f.Facts = []form.Fact{{Name: "Cause", Value: b.Reason}, {Name: "Last error", Value: b.Error}}
		}
	}
	return f, nil
}

func doCloseBreaker(req *web.Request) (web.Done, error) {
	typ := req.Hidden("type")
	if typ == "" {
		return web.Done{}, format.BadField("type", "is required")
	}
	if _, err := req.Admin().WithReason(req.Value("reason")).Queues().CloseBreaker(req.Ctx, req.PathValue("queue"), typ); err != nil {
		return web.Done{}, err
	}
	return queueDone(req, "Closed the breaker of %s.", typ), nil
}
