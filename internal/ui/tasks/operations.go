package tasks

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/chart"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

var operationPages = []web.Page{
	{Path: "/operations", Template: "operations", Nav: "/operations", Show: showOperations},
	{Path: "/operations/{operation}", Template: "operation", Nav: "/operations", Show: showOperation},
}

var operationActions = []web.Action{
	{Path: "/operations/new", Nav: "/operations", Form: newOperationForm, Do: doNewOperation},
	{Path: "/operations/{operation}/pause", Nav: "/operations", Form: operationForm("Pause",
		"The operation pauses after the steps under way.", false), Do: doOperation("Paused.", admin.Operations.Pause)},
	{Path: "/operations/{operation}/resume", Nav: "/operations", Form: operationForm("Resume", "The operation continues where it stopped.",
		false), Do: doOperation("Resumed.", admin.Operations.Resume)},
	{Path: "/operations/{operation}/abort", Nav: "/operations", Form: operationForm("Abort",
		"The operation ends after the steps under way. Tasks that it has already changed stay changed.", true), Do: doOperation("Aborted.",
		admin.Operations.Abort)},
}

// actionWord describes how an action of operations is offered.
type actionWord struct {
	action admin.Action
	label  string
	of     string // between the label and the count
	text   string
	danger bool
	states []pawltype.State // states of the tasks to which it applies
}

// waiting are the states of tasks that have not been claimed, or will be again.
var waiting = []pawltype.State{pawltype.StateScheduled, pawltype.StateReady, pawltype.StateRetrying}

// actions are in the order of their use on call.
var actions = []actionWord{
	{admin.ActionReplay, "Replay", "", "Tasks become ready again, with fresh attempts. They keep their ids, keys and attempt logs.", false,
		[]pawltype.State{pawltype.StateRetrying, pawltype.StateDiscarded, pawltype.StateDead, pawltype.StatePoisoned,
			pawltype.StateCancelled}},
	{admin.ActionRunNow, "Run now", "", "Tasks become ready now instead of at their due time.", false,
		[]pawltype.State{pawltype.StateScheduled, pawltype.StateRetrying}},
	{admin.ActionMove, "Move", "", "Tasks move to another queue, each with a new id.", false, waiting},
	{admin.ActionSetPriority, "Set priority", "of ", "Tasks are claimed by their new priority.", false, waiting},
	{admin.ActionCancel, "Cancel", "", "Tasks end as cancelled. Handlers that run them have their context cancelled.", true,
		append([]pawltype.State{pawltype.StateClaimed}, waiting...)},
	{admin.ActionDiscard, "Discard", "", "Tasks end as discarded. Dead letters are archived first.", true,
		append([]pawltype.State{pawltype.StateDead, pawltype.StatePoisoned}, waiting...)},
}

// takes reports whether an action applies to tasks in every one of the given states. It does if none are given.
func (w actionWord) takes(states []pawltype.State) bool {
	return !slices.ContainsFunc(states, func(s pawltype.State) bool { return !slices.Contains(w.states, s) })
}

func wordOf(a admin.Action) (actionWord, error) {
	for _, w := range actions {
		if w.action == a {
			return w, nil
		}
	}
	return actionWord{}, format.BadField("action", "%q is not an action", format.Clip(string(a), 40))
}

// progressRefresh is the refresh interval of a running operation's page: no event announces its progress.
const progressRefresh = 2 * time.Second

// OperationsLimit is the page size of the list.
const OperationsLimit = 50

// OperationRow is an operation in a list.
type OperationRow struct {
	*admin.Operation
	Filter  string
	Percent int64
	Bar     chart.Bar
}

// OperationRowOf returns the row of an operation.
func OperationRowOf(o *admin.Operation) OperationRow {
	row := OperationRow{Operation: o, Filter: "every task"}
	if o.Filter != nil {
		row.Filter = filterWords(*o.Filter)
	}
	c := o.Counts
	if total := max(c.Total, c.Matched); total > 0 {
		row.Percent = c.Matched * 100 / total
	}
	row.Bar = chart.NewBar([]chart.Count{{Word: "done", N: c.Done}, {Word: "skipped", N: c.SkippedTasks()}, {Word: "failed", N: c.Failed},
		{Word: "rest", N: max(c.Total-c.Matched, 0)}})
	return row
}

type operationsView struct {
	Rows []OperationRow
	web.More
}

func showOperations(req *web.Request) (*web.Screen, error) {
	page, err := req.Admin().Operations().ListPage(req.Ctx, pawltype.PageRequest{Limit: OperationsLimit, Cursor: req.Query("cursor")})
	if err != nil {
		return nil, err
	}
	view := operationsView{More: req.More(page.NextCursor)}
	for _, o := range page.Items {
		view.Rows = append(view.Rows, OperationRowOf(o))
	}
	return &web.Screen{Title: "Operations", Data: view, Watch: &web.Watch{Kinds: []admin.EventKind{"operation.*"}},
		Refresh: web.QuickRefresh}, nil
}

type operationView struct {
	OperationRow
	Skipped  []chart.Count
	Facts    []form.Fact
	Find     string // in the filter language
	Outcomes []outcomeLink
	Next     []BulkLink // actions available after it has ended
}

// Actions returns the actions on an operation.
func (o operationView) Actions() (a web.ActionBar) {
	switch resume := web.Ask("Resume…", "operations", o.ID, "resume"); o.State {
	case admin.OperationRunning:
		a.Beside = []web.Button{web.Ask("Pause…", "operations", o.ID, "pause")}
	case admin.OperationPaused:
		a.Main = &resume
	}
	if !o.State.Ended() {
		a.Danger = []web.Button{web.Ask("Abort…", "operations", o.ID, "abort")}
	}
	return a
}

// outcomeLink links to the tasks that an operation has changed and that are now in some states.
type outcomeLink struct {
	Label, State, URL string
	N                 int64 // a lower bound if the count was cut short
}

// outcomes groups the states that changed tasks can be in.
var outcomes = []struct {
	label  string
	states []pawltype.State
}{
	{"waiting", []pawltype.State{pawltype.StateReady, pawltype.StateScheduled, pawltype.StateRetrying}},
	{"running", []pawltype.State{pawltype.StateClaimed}}, {"succeeded", []pawltype.State{pawltype.StateSucceeded}},
	{"dead", []pawltype.State{pawltype.StateDead, pawltype.StatePoisoned}}, {"cancelled", []pawltype.State{pawltype.StateCancelled}},
	{"discarded", []pawltype.State{pawltype.StateDiscarded}},
}

// changed returns a filter for the tasks in some states that an operation was the last to change.
func changed(o *admin.Operation, states ...pawltype.State) admin.Filter {
	f := admin.Filter{Operation: o.ID, States: states}
	if o.Filter != nil && o.Action != admin.ActionMove {
		f.Queue = o.Filter.Queue // redundant, but limits the search to one queue
	}
	return f
}

func outcomeLinks(req *web.Request, o *admin.Operation) (links []outcomeLink) {
	for _, out := range outcomes {
		link := outcomeLink{Label: out.label, State: string(out.states[0]), URL: BulkLinksOf(req, changed(o, out.states...)).Find}
		for _, s := range out.states {
			link.N += o.CurrentStates.States[s]
		}
		links = append(links, link)
	}
	return links
}

// followUps returns the actions available after an operation has ended: it can't be undone, but tasks that it ended can be replayed.
func followUps(req *web.Request, o *admin.Operation) (links []BulkLink) {
	if !o.State.Ended() {
		return nil
	}
	add := func(label string, action admin.Action, f admin.Filter) {
		links = append(links, BulkLink{Label: label, URL: req.URL("operations", "new", "?action="+string(action)+"&q="+
			url.QueryEscape(filterText(f)))})
	}
	switch o.Action {
	case admin.ActionCancel, admin.ActionDiscard:
		if o.Counts.Done > 0 {
			add("Replay the tasks that it ended", admin.ActionReplay, changed(o, pawltype.StateCancelled, pawltype.StateDiscarded))
		}
	case admin.ActionReplay, admin.ActionRunNow:
		if o.Counts.Done > 0 {
			add("Replay the ones that died again", admin.ActionReplay, changed(o, pawltype.StateDead))
			add("Cancel the ones still waiting", admin.ActionCancel, changed(o, pawltype.StateReady, pawltype.StateScheduled,
				pawltype.StateRetrying))
		}
	case admin.ActionSetPriority:
		if o.Counts.Done > 0 {
			add("Set the priority again", admin.ActionSetPriority, changed(o))
		}
	}
	if o.Filter != nil && (o.Counts.Failed > 0 || o.State != admin.OperationDone) {
		add("Run the same operation again", o.Action, *o.Filter)
	}
	return links
}

func showOperation(req *web.Request) (*web.Screen, error) {
	o, err := req.Admin().Operations().GetWithStates(req.Ctx, req.PathValue("operation"))
	if err != nil {
		return nil, err
	}
	view := operationView{OperationRow: OperationRowOf(o), Facts: operationFacts(o), Outcomes: outcomeLinks(req, o),
		Next: followUps(req, o)}
	if o.OperationSpec.Filter != nil {
		view.Find = filterText(*o.OperationSpec.Filter)
	}
	for _, reason := range slices.Sorted(maps.Keys(o.Counts.Skipped)) {
		view.Skipped = append(view.Skipped, chart.Count{Word: reason, N: o.Counts.Skipped[reason]})
	}
	s := &web.Screen{Title: "Operation " + string(o.Action), Data: view, Watch: &web.Watch{Kinds: []admin.EventKind{"operation.*"}}}
	if !o.State.Ended() {
		s.Refresh = progressRefresh
	}
	return s, nil
}

func operationFacts(o *admin.Operation) []form.Fact {
	facts := []form.Fact{{Name: "Started by", Value: byWhom(o.Author)}}
	add := func(is bool, name, value string) {
		if is {
			facts = append(facts, form.Fact{Name: name, Value: value})
		}
	}
	add(o.Reason != "", "Reason", o.Reason)
	add(o.ToQueue != "", "To queue", o.ToQueue)
	add(o.Priority != "", "Priority", string(o.Priority))
	add(o.Max > 0, "At most", format.Plural(o.Max, "task"))
	add(o.Rate > 0, "Rate", format.Rate(o.Rate))
	add(o.Canary > 0, "Canary", "pauses after "+format.Plural(o.Canary, "task"))
	add(o.StoppedBy != nil, "Stopped by", byWhom(o.StoppedBy))
	add(o.ResumedBy != nil, "Resumed by", byWhom(o.ResumedBy))
	return facts
}

func byWhom(o *admin.Actor) string {
	if o == nil {
		return "nobody"
	}
	var parts []string
	for _, s := range []string{o.Actor, o.Address} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if o.Interface != "" {
		parts = append(parts, "over "+o.Interface)
	}
	return strings.Join(parts, " · ")
}

// operationOf reads an operation's spec from the form or, before it is submitted, from the URL.
func operationOf(req *web.Request) (admin.OperationSpec, error) {
	get, hidden := req.Query, req.Query
	if req.HTTP.PostForm != nil {
		get, hidden = req.Value, req.Hidden
	}
	r := req.Reader()
	o := admin.OperationSpec{Action: admin.Action(get("action")), ToQueue: get("to_queue"), Priority: pawltype.Priority(get("priority"))}
	filter, _, err := parseFilter(hidden("q"), req.Now)
	if err != nil {
		return o, err
	}
	if o.Filter = &filter; filter.String() == "" { // the form says how many tasks that are
		o.Filter = admin.AllTasks()
	}
	if req.HTTP.PostForm != nil {
		o.Max, o.Rate, o.Canary = r.Whole("max"), r.PerSecond("rate"), r.Whole("canary")
	}
	return o, r.Err
}

// newOperationForm shows how many tasks, and which, an operation would apply to before it is started.
func newOperationForm(req *web.Request) (*form.Form, error) {
	o, opErr := operationOf(req)
	word, err := wordOf(o.Action)
	if err != nil {
		return nil, err
	}
	text := req.Query("q")
	if req.HTTP.PostForm != nil {
		text = req.Hidden("q")
	}
	if o.Filter != nil { // ages begin now: the operation applies to what the form counts
		text = filterText(*o.Filter)
	}
	f := &form.Form{Title: word.label + " " + word.of + "tasks", Text: word.text, Danger: word.danger, Button: word.label, Back: "/tasks",
		Check: &form.Check{Label: "Update count"}, Facts: []form.Fact{{Name: "Filter", Value: orAll(text)}},
		Fields: operationFields(o, text)}
	if o.Filter == nil {
		f.Refuse(opErr)
		return f, nil
	}
	try := o // without fields that could not be parsed
	if try.Action == admin.ActionMove && try.ToQueue == "" {
		try.ToQueue = "default" // the queue does not affect the count
	}
	if try.Action == admin.ActionSetPriority && try.Priority == "" {
		try.Priority = pawltype.Normal
	}
	p, err := req.Admin().Operations().Preview(req.Ctx, try)
	if err != nil {
		f.Refuse(err)
		return f, nil
	}
	countMatches(f, p, o, word)
	if everything(o) {
		n := strconv.FormatInt(p.Matched, 10)
		f.Fields = slices.Insert(f.Fields, 0, form.Field{Name: countedField, Kind: "hidden", Value: n},
			form.Field{Name: "confirm", Label: "Type the number of matching tasks to confirm", Kind: "number",
				Required: true, Placeholder: n, Hint: "There is no filter: this applies to every task."})
	}
	if opErr != nil {
		f.Refuse(opErr)
	}
	return f, nil
}

// countMatches shows in the button how many tasks the operation applies to, exactly or at least.
func countMatches(f *form.Form, p *admin.OperationPreview, o admin.OperationSpec, word actionWord) {
	n, least := p.Matched, ""
	if p.IsLowerBound {
		least = "at least "
	}
	f.Facts = append(f.Facts, form.Fact{Name: "Matching now", Value: least + format.Number(n)})
	f.Sample = p.Sample[:min(len(p.Sample), 5)]
	if n == 0 && p.IsLowerBound {
		f.Button = word.label + " " + word.of + "tasks"
		f.Text = "No matching task was found in the time allowed for a count, but there may be some. " + word.text
		return
	}
	if o.Max > 0 && o.Max <= n {
		n, least = o.Max, ""
	}
	f.Button = word.label + " " + word.of + least + format.Plural(n, "task")
	if n == 0 {
		f.Text = "No matching task is in a state that this applies to. " + word.text
	}
}

func orAll(text string) string {
	if text == "" {
		return "every task"
	}
	return text
}

// countedField carries the count that the form showed.
const countedField = "counted"

// everything reports whether an operation ends or moves every task.
func everything(o admin.OperationSpec) bool {
	ends := o.Action == admin.ActionCancel || o.Action == admin.ActionDiscard || o.Action == admin.ActionMove
	return ends && o.Filter != nil && filterText(*o.Filter) == ""
}

// confirmed refuses an operation on everything unless the count shown in its form was typed.
func confirmed(req *web.Request, o admin.OperationSpec) error {
	counted := req.Value(countedField)
	if !everything(o) || counted != "" && strings.ReplaceAll(req.Value("confirm"), ",", "") == counted {
		return nil
	}
	return format.BadField("confirm", "is not the number of matching tasks; this applies to every task")
}

func operationFields(o admin.OperationSpec, text string) []form.Field {
	fields := []form.Field{{Name: "action", Kind: "hidden", Value: string(o.Action)}, {Name: "q", Kind: "hidden", Value: text}}
	switch o.Action {
	case admin.ActionMove:
		fields = append(fields, form.Field{Name: "to_queue", Label: "To queue", Kind: "text", Required: true})
	case admin.ActionSetPriority:
		fields = append(fields, form.Field{Name: "priority", Label: "Priority", Kind: "choice", Options: form.Choices("", "high", "normal",
			"low"), Value: "normal"})
	}
	fields = append(fields, form.Field{Name: "rate", Label: "Max rate", Kind: "text", Placeholder: "no limit", Hint: form.RateHint})
	if o.Action != admin.ActionDiscard { // discarded tasks have no outcome to check
		fields = append(fields, form.Field{Name: "canary", Label: "Canary", Kind: "number", Placeholder: "none",
			Hint: "The operation pauses after this many tasks so that you can check the outcome."})
	}
	return append(fields,
		form.Field{Name: "max", Label: "Max tasks", Kind: "number", Placeholder: "all that match"},
		form.Reason())
}

func doNewOperation(req *web.Request) (web.Done, error) {
	o, err := operationOf(req)
	if err != nil {
		return web.Done{}, err
	}
	if req.Value("check") != "" {
		return web.Done{}, web.ErrShowAgain
	}
	if err := confirmed(req, o); err != nil {
		return web.Done{}, err
	}
	started, err := req.Admin().WithReason(req.Value("reason")).Operations().Start(req.Ctx, o)
	if err != nil {
		return web.Done{}, err
	}
	return web.Done{Message: "Started.", Next: "/operations/" + started.ID}, nil
}

func operationForm(verb, text string, danger bool) func(*web.Request) (*form.Form, error) {
	return func(req *web.Request) (*form.Form, error) {
		o, err := req.Admin().Operations().Get(req.Ctx, req.PathValue("operation"))
		if err != nil {
			return nil, err
		}
		row := OperationRowOf(o)
		return &form.Form{Title: verb + " this operation", Text: text, Button: verb, Danger: danger, Back: "/operations/" + o.ID,
			Facts: []form.Fact{{Name: "Action", Value: string(o.Action)}, {Name: "Filter", Value: row.Filter},
				{Name: "Done", Value: format.Number(o.Counts.Done)}, {Name: "Of", Value: format.Number(o.Counts.Total)}},
			Fields: []form.Field{form.Reason()}}, nil
	}
}

func doOperation(message string,
	call func(admin.Operations, context.Context, string) (*admin.Operation, error)) func(*web.Request) (web.Done, error) {
	return func(req *web.Request) (web.Done, error) {
		id := req.PathValue("operation")
		if _, err := call(req.Admin().WithReason(req.Value("reason")).Operations(), req.Ctx, id); err != nil {
			return web.Done{}, err
		}
		return web.Done{Message: message, Next: "/operations/" + id}, nil
	}
}

// BulkLinks are links to what can be done with all that match a filter.
type BulkLinks struct{ Find, Replay, Discard string }

// BulkLinksOf returns the links for the tasks that a filter selects.
func BulkLinksOf(req *web.Request, f admin.Filter) BulkLinks {
	text := url.QueryEscape(filterText(f))
	return BulkLinks{Find: req.URL("tasks", "?q="+text), Replay: req.URL("operations", "new", "?action=replay&q="+text),
		Discard: req.URL("operations", "new", "?action=discard&q="+text)}
}
