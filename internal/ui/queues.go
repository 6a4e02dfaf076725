package ui

import (
	"fmt"
	"net/url"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/chart"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/live"
	"github.com/pawlq/pawl/internal/ui/problem"
	"github.com/pawlq/pawl/pawltype"
)

var queuePages = []page{
	{path: "/queues", template: "queues", nav: "/queues", show: showQueues},
	{path: "/queues/{queue}", template: "queue", nav: "/queues", show: showQueue},
}

var queueActions = []action{
	{path: "/queues/{queue}/pause", nav: "/queues", form: pauseForm, do: doPause},
	{path: "/queues/{queue}/resume", nav: "/queues", form: resumeForm, do: doResume},
	{path: "/queues/{queue}/purge", nav: "/queues", form: purgeForm, do: doPurge},
	{path: "/queues/{queue}/delete", nav: "/queues", form: deleteQueueForm, do: doDeleteQueue},
	{path: "/queues/{queue}/close-breaker", nav: "/queues", form: closeBreakerForm, do: doCloseBreaker},
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

// Takers is how many workers take the queue's tasks; "": unknown.
func (r queueRow) Takers() string {
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
	Rows   []queueRow
	Having string // preserved by the search field
	Picks  []chip
	Hello  []form.Fact // commands, shown if there are none
	names
	more
}

// queuePicks are what operators look for among many queues.
var queuePicks = []struct {
	having admin.QueueTrait
	most   bool
	label  string
}{{"", false, "all"}, {"", true, "busiest"}, {admin.QueueDead, false, "with dead letters"}, {admin.QueuePoisoned, false, "with poison"},
	{admin.QueueNoWorker, false, "without workers"}, {admin.QueuePaused, false, "paused"}}

// queueFilter reads the filter of the list from the URL.
func (v *visit) queueFilter() admin.QueueFilter {
	return admin.QueueFilter{Pattern: v.pattern(), Having: admin.QueueTrait(v.query("having")), Most: v.query("order") == "most", Series: sparkTime}
}

func (v *visit) queuePicks(f admin.QueueFilter) (chips []chip) {
	for _, p := range queuePicks {
		order := ""
		if p.most {
			order = "most"
		}
		chips = append(chips, chip{Label: p.label, URL: v.base + v.here("having", string(p.having), "order", order, "cursor", ""), On: p.having == f.Having && p.most == (f.Most && f.Having == "")})
	}
	return chips
}

func showQueues(v *visit) (*screen, error) {
	f := v.queueFilter()
	view := &queuesView{names: v.names(), Having: string(f.Having), Picks: v.queuePicks(f)}
	s := &screen{Title: "Queues", Watch: &live.Watch{}}
	page, err := v.admin().Queues().ListPage(v.ctx, f, pawltype.PageRequest{Limit: queuesLimit, Cursor: v.query("cursor")})
	if err = view.refuse(err); err != nil {
		return nil, err
	}
	view.more = v.moreNames(page.NextCursor)
	for _, q := range page.Items {
		view.Rows = append(view.Rows, rowOf(q))
	}
	if len(view.Rows) == 0 && view.Refused == nil {
		view.Hello = v.hello()
	}
	s.Data = view
	return s, nil
}

// Filtered reports whether the list shows only some of the queues.
func (q *queuesView) Filtered() bool { return q.Like != "" || q.Having != "" || q.Later }

type queueView struct {
	queueRow
	Counts []chart.Count
	Why    *admin.QueueExplanation
	// WhyNot is why there is no Why.
	WhyNot   string
	Settings []factGroup
	Actions  actionBar
	Keys     []keyRow
	Stats    *admin.Stats
	Windows  []chip
	Chart    chart.Chart
	Drain    string      // time until the ready tasks are done
	Workers  []workerRow // the first few
	Scale    *admin.QueueScale
}

// keyRow holds a key's limits in words.
type keyRow struct{ Key, Rules string }

func showQueue(v *visit) (*screen, error) {
	q, err := v.admin().Queues().Get(v.ctx, v.r.PathValue("queue"))
	if err != nil {
		return nil, err
	}
	view := queueView{queueRow: rowOf(q), Counts: chart.DepthCounts(q.Depth), Actions: v.queueActions(q), Settings: settingsGroups(&q.Settings), Keys: keyRows(&q.Settings)}
	if view.Why, err = v.admin().Queues().Explain(v.ctx, q.Name); err != nil {
		view.WhyNot = problem.Of(err).Message
	}
	if err := v.queueStats(&view); err != nil {
		return nil, err
	}
	workers, err := v.admin().Workers().ListPage(v.ctx, admin.WorkerFilter{Queue: q.Name, Lost: new(false)}, pawltype.PageRequest{Limit: queueWorkers})
	if err != nil {
		return nil, err
	}
	for _, w := range workers.Items {
		view.Workers = append(view.Workers, workerRowOf(w))
	}
	return &screen{Title: "Queue " + q.Name, Data: view, Watch: &live.Watch{Queue: q.Name}}, nil
}

// Troubled reports whether something that may need fixing keeps tasks from running.
func (q queueView) Troubled() bool {
	return q.Paused || len(q.PausedSubsets)+len(q.Breakers) > 0 || q.Idle() || q.Why != nil && len(q.Why.UnservedTypes) > 0
}

// queueActions returns the actions on a queue.
func (v *visit) queueActions(q *admin.Queue) actionBar {
	to := func(label, verb string) button { return button{Label: label, URL: v.url("queues", q.Name, verb)} }
	enqueue := button{Label: "Enqueue…", URL: v.url("enqueue", "?queue="+url.QueryEscape(q.Name)), Needs: "produce", Page: true}
	a := actionBar{Main: &enqueue, Beside: []button{to("Pause…", "pause"), {Label: "Settings…", URL: v.url("queues", q.Name, "settings"), Needs: "operate", Page: true}},
		More:   []button{{Label: "Tasks", URL: v.find("queue", q.Name), Page: true}, {Label: "Dead letters", URL: v.url("dead", "?queue="+url.QueryEscape(q.Name)), Page: true}},
		Danger: []button{to("Purge…", "purge"), to("Delete…", "delete")}}
	if q.Paused {
		resume := to("Resume…", "resume")
		a.Main, a.Beside[0] = &resume, enqueue
		a.More = append(a.More, to("Pause a type or key…", "pause"))
	}
	return a
}

// queueStats adds recent statistics and what follows from them.
func (v *visit) queueStats(view *queueView) error {
	window, chips, err := v.window()
	if err != nil {
		return err
	}
	if view.Stats, err = v.admin().Queues().Stats(v.ctx, view.Name, window); err != nil {
		return err
	}
	view.Windows, view.Chart, view.Drain = chips, chart.Throughput("Tasks of the queue ended and enqueued", view.Stats), drainText(view.Queue)
	v.mark(&view.Chart, view.Name, "", ownMarkers(view.Queue)...)
	view.Scale, err = v.admin().Queues().Scale(v.ctx, view.Name, 0, 0)
	return err
}

// drainText returns when no task will be ready any more, at the rates of the last minute.
func drainText(q *admin.Queue) string {
	switch {
	case q.Depth.Ready == 0:
		return "now"
	case q.Rates == nil:
		return "unknown"
	case q.Rates.Out <= q.Rates.In:
		return "never at this rate"
	}
	return "about " + format.Coarse(time.Duration(float64(q.Depth.Ready)/(q.Rates.Out-q.Rates.In)*float64(time.Second)))
}

// queue returns the queue that a request is about.
func (v *visit) queue() (*admin.Queue, error) {
	return v.admin().Queues().Get(v.ctx, v.r.PathValue("queue"))
}

func (v *visit) queueDone(format string, args ...any) done {
	return done{Said: fmt.Sprintf(format, args...), Next: "/queues/" + v.r.PathValue("queue")}
}

func pauseForm(v *visit) (*form.Form, error) {
	q, err := v.queue()
	if err != nil {
		return nil, err
	}
	return &form.Form{Title: "Pause " + q.Name, Button: "Pause", Back: "/queues/" + q.Name,
		Text: "No new task starts. Tasks are still accepted, and running ones continue. You can pause only one type or one key.",
		Fields: []form.Field{
			{Name: "what", Label: "What", Kind: "choice", Options: []form.Option{{Value: "", Label: "the whole queue"}, {Value: "type", Label: "one type"}, {Value: "key", Label: "one key"}}, Value: v.query("what")},
			{Name: "name", Label: "Name of the type or key", Kind: "text", Value: v.query("name"), Hint: "Leave empty for the whole queue."},
			form.Reason(),
		}}, nil
}

// holdOf reads what to pause or resume.
func (v *visit) holdOf() (admin.PausedSubset, error) {
	h := admin.PausedSubset{Reason: v.value("reason")}
	name := v.value("name")
	switch what := v.value("what"); {
	case what == "" && name != "":
		return h, problem.BadField("name", "%q is given, but the whole queue is chosen", format.Clip(name, 60))
	case what != "" && name == "":
		return h, problem.BadField("name", "give the name of the %s", what)
	case what == "type":
		h.Type = name
	case what == "key":
		h.Key = name
	case what != "":
		return h, problem.BadField("what", "%q is neither a type nor a key", format.Clip(what, 60))
	}
	return h, nil
}

func doPause(v *visit) (done, error) {
	h, err := v.holdOf()
	if err != nil {
		return done{}, err
	}
	if _, err := v.admin().Queues().PauseSubset(v.ctx, v.r.PathValue("queue"), h); err != nil {
		return done{}, err
	}
	return v.queueDone("Paused %s.", holdWords(h)), nil
}

func holdWords(h admin.PausedSubset) string {
	switch {
	case h.Type != "":
		return "type " + h.Type
	case h.Key != "":
		return "key " + h.Key
	}
	return "the queue"
}

func resumeForm(v *visit) (*form.Form, error) {
	q, err := v.queue()
	if err != nil {
		return nil, err
	}
	f := &form.Form{Title: "Resume " + q.Name, Button: "Resume", Back: "/queues/" + q.Name, Fields: []form.Field{
		{Name: "what", Kind: "hidden", Value: v.query("what")}, {Name: "name", Kind: "hidden", Value: v.query("name")}, form.Reason(),
	}}
	switch what, name := v.query("what"), v.query("name"); {
	case what != "":
		f.Title = "Resume " + what + " " + name
	case q.PausedReason != "":
		f.Text = fmt.Sprintf("Paused %s: %s", format.Ago(q.PausedAt, v.now).Text, q.PausedReason)
	}
	if f.Text == "" {
		f.Text = fmt.Sprintf("%s can start.", format.Plural(q.Depth.Ready, "ready task"))
	}
	return f, nil
}

func doResume(v *visit) (done, error) {
	h, err := v.holdOf()
	if err != nil {
		return done{}, err
	}
	if _, err := v.admin().Queues().ResumeSubset(v.ctx, v.r.PathValue("queue"), h); err != nil {
		return done{}, err
	}
	return v.queueDone("Resumed %s.", holdWords(h)), nil
}

func purgeForm(v *visit) (*form.Form, error) {
	q, err := v.queue()
	if err != nil {
		return nil, err
	}
	n := waitingOf(q.Depth)
	return &form.Form{Title: "Purge " + q.Name, Danger: true, Button: "Discard " + format.Plural(n, "waiting task"), Back: "/queues/" + q.Name,
		Text:   "Discards every waiting task in this queue, including tasks that arrive while the purge runs. They stay visible until retention removes them. Running tasks and dead letters stay.",
		Facts:  []form.Fact{{Name: "Scheduled", Value: format.Number(q.Depth.Scheduled)}, {Name: "Ready", Value: format.Number(q.Depth.Ready)}, {Name: "Retrying", Value: format.Number(q.Depth.Retrying)}},
		Fields: []form.Field{{Name: "confirm", Label: "Type the queue's name to confirm", Kind: "text", Placeholder: q.Name, Required: true}, form.Reason()}}, nil
}

func doPurge(v *visit) (done, error) {
	name := v.r.PathValue("queue")
	if v.value("confirm") != name {
		return done{}, problem.BadField("confirm", "does not match the name of the queue, %q", name)
	}
	n, err := v.admin().Queues().Purge(v.ctx, name, v.value("reason"))
	if err != nil {
		return done{}, err
	}
	return v.queueDone("Discarded %s.", format.Plural(n, "task")), nil
}

func deleteQueueForm(v *visit) (*form.Form, error) {
	q, err := v.queue()
	if err != nil {
		return nil, err
	}
	return &form.Form{Title: "Delete " + q.Name, Danger: true, Button: "Delete queue", Back: "/queues/" + q.Name,
		Text: "Deletes the queue and its settings. The queue must have no tasks. The next enqueue creates it again with default settings.", Fields: []form.Field{form.Reason()}}, nil
}

func doDeleteQueue(v *visit) (done, error) {
	name := v.r.PathValue("queue")
	if err := v.admin().WithReason(v.value("reason")).Queues().Delete(v.ctx, name); err != nil {
		return done{}, err
	}
	return done{Said: "Deleted queue " + name + ".", Next: "/queues"}, nil
}

func closeBreakerForm(v *visit) (*form.Form, error) {
	q, err := v.queue()
	if err != nil {
		return nil, err
	}
	f := &form.Form{Title: "Close breaker", Button: "Close breaker", Back: "/queues/" + q.Name, Text: "Its tasks start again immediately. If they keep failing, the breaker opens again.",
		Fields: []form.Field{{Name: "type", Kind: "hidden", Value: v.query("type")}, form.Reason()}}
	for _, b := range q.Breakers {
		if b.Type == v.query("type") {
			f.Title = "Close the breaker of " + b.Type
			f.Facts = []form.Fact{{Name: "Cause", Value: b.Reason}, {Name: "Last error", Value: b.Error}}
		}
	}
	return f, nil
}

func doCloseBreaker(v *visit) (done, error) {
	typ := v.value("type")
	if typ == "" {
		return done{}, problem.BadField("type", "is required")
	}
	if _, err := v.admin().Queues().CloseBreaker(v.ctx, v.r.PathValue("queue"), typ, v.value("reason")); err != nil {
		return done{}, err
	}
	return v.queueDone("Closed the breaker of %s.", typ), nil
}
