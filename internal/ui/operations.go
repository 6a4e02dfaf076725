package ui

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
	"github.com/pawlq/pawl/internal/ui/live"
	"github.com/pawlq/pawl/internal/ui/problem"
	"github.com/pawlq/pawl/pawltype"
)

var operationPages = []page{
	{path: "/operations", template: "operations", nav: "/operations", show: showOperations},
	{path: "/operations/{operation}", template: "operation", nav: "/operations", show: showOperation},
}

var operationActions = []action{
	{path: "/operations/new", nav: "/operations", form: newOperationForm, do: doNewOperation},
	{path: "/operations/{operation}/pause", nav: "/operations", form: operationForm("Pause", "The operation pauses after the current step.", false), do: doOperation("Paused.", admin.Operations.Pause)},
	{path: "/operations/{operation}/resume", nav: "/operations", form: operationForm("Resume", "The operation continues where it stopped.", false), do: doOperation("Resumed.", admin.Operations.Resume)},
	{path: "/operations/{operation}/abort", nav: "/operations", form: operationForm("Abort", "The operation ends after the current step. Tasks that it has already changed stay changed.", true), do: doOperation("Aborted.", admin.Operations.Abort)},
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
	{admin.ActionReplay, "Replay", "", "Tasks become ready again, with fresh attempts. They keep their ids, keys and attempt logs.", false, []pawltype.State{pawltype.StateRetrying, pawltype.StateDiscarded, pawltype.StateDead, pawltype.StatePoisoned, pawltype.StateCancelled}},
	{admin.ActionRunNow, "Run now", "", "Tasks become ready now instead of at their due time.", false, []pawltype.State{pawltype.StateScheduled, pawltype.StateRetrying}},
	{admin.ActionMove, "Move", "", "Tasks move to another queue, each with a new id.", false, waiting},
	{admin.ActionSetPriority, "Set priority", "of ", "Tasks are claimed by their new priority.", false, waiting},
	{admin.ActionCancel, "Cancel", "", "Tasks end as cancelled. Handlers that run them have their context cancelled.", true, append([]pawltype.State{pawltype.StateClaimed}, waiting...)},
	{admin.ActionDiscard, "Discard", "", "Tasks end as discarded. Dead letters are archived first.", true, append([]pawltype.State{pawltype.StateDead, pawltype.StatePoisoned}, waiting...)},
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
	return actionWord{}, problem.BadField("action", "%q is not an action", format.Clip(string(a), 40))
}

// progressRefresh is the refresh interval of a running operation's page: no event announces its progress.
const progressRefresh = 2 * time.Second

// operationsLimit is the page size of the list.
const operationsLimit = 50

type operationRow struct {
	*admin.Operation
	Filter  string
	Percent int64
	Bar     chart.Bar
}

func operationRowOf(o *admin.Operation) operationRow {
	row := operationRow{Operation: o, Filter: "every task"}
	if o.Filter != nil {
		row.Filter = filterWords(*o.Filter)
	}
	c := o.Counts
	if total := max(c.Total, c.Matched); total > 0 {
		row.Percent = c.Matched * 100 / total
	}
	row.Bar = chart.NewBar([]chart.Count{{Word: "done", N: c.Done}, {Word: "skipped", N: c.SkippedTasks()}, {Word: "failed", N: c.Failed}, {Word: "rest", N: max(c.Total-c.Matched, 0)}})
	return row
}

type operationsView struct {
	Rows []operationRow
	more
}

func showOperations(v *visit) (*screen, error) {
	page, err := v.admin().Operations().ListPage(v.ctx, pawltype.PageRequest{Limit: operationsLimit, Cursor: v.query("cursor")})
	if err != nil {
		return nil, err
	}
	view := operationsView{more: v.moreOf(page.NextCursor)}
	for _, o := range page.Items {
		view.Rows = append(view.Rows, operationRowOf(o))
	}
	return &screen{Title: "Operations", Data: view, Watch: &live.Watch{Kinds: []admin.EventKind{"operation.*"}}, Beat: quickRefresh}, nil
}

type operationView struct {
	operationRow
	Skipped []chart.Count
	Facts   []form.Fact
	Find    string // in the filter language
	Became  []outcomeLink
	Next    []bulkLink // actions available after it has ended
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
	{"waiting", []pawltype.State{pawltype.StateReady, pawltype.StateScheduled, pawltype.StateRetrying}}, {"running", []pawltype.State{pawltype.StateClaimed}}, {"succeeded", []pawltype.State{pawltype.StateSucceeded}},
	{"dead", []pawltype.State{pawltype.StateDead, pawltype.StatePoisoned}}, {"cancelled", []pawltype.State{pawltype.StateCancelled}}, {"discarded", []pawltype.State{pawltype.StateDiscarded}},
}

// changed returns a filter for the tasks in some states that an operation was the last to change.
func changed(o *admin.Operation, states ...pawltype.State) admin.Filter {
	f := admin.Filter{Operation: o.ID, States: states}
	if o.Filter != nil && o.Action != admin.ActionMove {
		f.Queue = o.Filter.Queue // redundant, but limits the search to one queue
	}
	return f
}

func (v *visit) became(o *admin.Operation) (links []outcomeLink) {
	for _, out := range outcomes {
		link := outcomeLink{Label: out.label, State: string(out.states[0]), URL: v.linksOf(changed(o, out.states...)).Find}
		for _, s := range out.states {
			link.N += o.CurrentStates.States[s]
		}
		links = append(links, link)
	}
	return links
}

// afterwards returns the actions available after an operation has ended: it can't be undone, but tasks that it ended can be replayed.
func (v *visit) afterwards(o *admin.Operation) (links []bulkLink) {
	if !o.State.Ended() {
		return nil
	}
	add := func(label string, action admin.Action, f admin.Filter) {
		links = append(links, bulkLink{Label: label, URL: v.url("operations", "new", "?action="+string(action)+"&q="+url.QueryEscape(filterText(f)))})
	}
	switch o.Action {
	case admin.ActionCancel, admin.ActionDiscard:
		if o.Counts.Done > 0 {
			add("Replay the tasks that it ended", admin.ActionReplay, changed(o, pawltype.StateCancelled, pawltype.StateDiscarded))
		}
	case admin.ActionReplay, admin.ActionRunNow:
		if o.Counts.Done > 0 {
			add("Replay the ones that died again", admin.ActionReplay, changed(o, pawltype.StateDead))
			add("Cancel the ones still waiting", admin.ActionCancel, changed(o, pawltype.StateReady, pawltype.StateScheduled, pawltype.StateRetrying))
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

func showOperation(v *visit) (*screen, error) {
	o, err := v.admin().Operations().GetWithStates(v.ctx, v.r.PathValue("operation"))
	if err != nil {
		return nil, err
	}
	view := operationView{operationRow: operationRowOf(o), Facts: operationFacts(o), Became: v.became(o), Next: v.afterwards(o)}
	if o.OperationSpec.Filter != nil {
		view.Find = filterText(*o.OperationSpec.Filter)
	}
	for _, reason := range slices.Sorted(maps.Keys(o.Counts.Skipped)) {
		view.Skipped = append(view.Skipped, chart.Count{Word: reason, N: o.Counts.Skipped[reason]})
	}
	s := &screen{Title: "Operation " + string(o.Action), Data: view, Watch: &live.Watch{Kinds: []admin.EventKind{"operation.*"}}}
	if !o.State.Ended() {
		s.Beat = progressRefresh
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
	if o.Face != "" {
		parts = append(parts, "by "+o.Face)
	}
	return strings.Join(parts, " · ")
}

// operationOf reads an operation's spec from the form or, before it is submitted, from the URL.
func (v *visit) operationOf() (admin.OperationSpec, error) {
	get := v.query
	if v.r.PostForm != nil {
		get = v.value
	}
	r := v.reader()
	o := admin.OperationSpec{Action: admin.Action(get("action")), ToQueue: get("to_queue"), Priority: pawltype.Priority(get("priority")), Reason: get("reason")}
	filter, _, err := parseFilter(get("q"), v.now)
	if err != nil {
		return o, err
	}
	o.Filter = &filter
	if v.r.PostForm != nil {
		o.Max, o.Rate, o.Canary = r.Whole("max"), r.PerSecond("rate"), r.Whole("canary")
	}
	return o, r.Err
}

// newOperationForm shows how many tasks, and which, an operation would apply to before it is started.
func newOperationForm(v *visit) (*form.Form, error) {
	o, opErr := v.operationOf()
	word, err := wordOf(o.Action)
	if err != nil {
		return nil, err
	}
	text := v.query("q")
	if v.r.PostForm != nil {
		text = v.value("q")
	}
	f := &form.Form{Title: word.label + " " + word.of + "tasks", Text: word.text, Danger: word.danger, Button: word.label, Back: "/tasks", Check: &form.Check{Label: "Update count"},
		Facts: []form.Fact{{Name: "Filter", Value: orAll(text)}}, Fields: operationFields(o, text)}
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
	p, err := v.admin().Operations().Preview(v.ctx, try)
	if err != nil {
		f.Refuse(err)
		return f, nil
	}
	countMatches(f, p, o, word)
	if everything(o) {
		n := strconv.FormatInt(p.Matched, 10)
		f.Fields = slices.Insert(f.Fields, 0, form.Field{Name: countedField, Kind: "hidden", Value: n},
			form.Field{Name: "confirm", Label: "Type the number of matching tasks to confirm", Kind: "number", Required: true, Placeholder: n, Hint: "There is no filter: this applies to every task."})
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
func (v *visit) confirmed(o admin.OperationSpec) error {
	counted := v.value(countedField)
	if !everything(o) || counted != "" && strings.ReplaceAll(v.value("confirm"), ",", "") == counted {
		return nil
	}
	return problem.BadField("confirm", "is not the number of matching tasks; this applies to every task")
}

func operationFields(o admin.OperationSpec, text string) []form.Field {
	fields := []form.Field{{Name: "action", Kind: "hidden", Value: string(o.Action)}, {Name: "q", Kind: "hidden", Value: text}}
	switch o.Action {
	case admin.ActionMove:
		fields = append(fields, form.Field{Name: "to_queue", Label: "To queue", Kind: "text", Required: true})
	case admin.ActionSetPriority:
		fields = append(fields, form.Field{Name: "priority", Label: "Priority", Kind: "choice", Options: form.Choices("", "high", "normal", "low"), Value: "normal"})
	}
	fields = append(fields, form.Field{Name: "rate", Label: "Max rate", Kind: "text", Placeholder: "no limit", Hint: form.RateHint})
	if o.Action != admin.ActionDiscard { // discarded tasks have no outcome to check
		fields = append(fields, form.Field{Name: "canary", Label: "Canary", Kind: "number", Placeholder: "none", Hint: "The operation pauses after this many tasks so that you can check the outcome."})
	}
	return append(fields,
		form.Field{Name: "max", Label: "Max tasks", Kind: "number", Placeholder: "all that match"},
		form.Reason())
}

func doNewOperation(v *visit) (done, error) {
	o, err := v.operationOf()
	if err != nil {
		return done{}, err
	}
	if v.value("check") != "" {
		return done{}, errCheck
	}
	if err := v.confirmed(o); err != nil {
		return done{}, err
	}
	started, err := v.admin().Operations().Start(v.ctx, o)
	if err != nil {
		return done{}, err
	}
	return done{Said: "Started.", Next: "/operations/" + started.ID}, nil
}

func operationForm(verb, text string, danger bool) func(*visit) (*form.Form, error) {
	return func(v *visit) (*form.Form, error) {
		o, err := v.admin().Operations().Get(v.ctx, v.r.PathValue("operation"))
		if err != nil {
			return nil, err
		}
		row := operationRowOf(o)
		return &form.Form{Title: verb + " this operation", Text: text, Button: verb, Danger: danger, Back: "/operations/" + o.ID,
			Facts:  []form.Fact{{Name: "Action", Value: string(o.Action)}, {Name: "Filter", Value: row.Filter}, {Name: "Done", Value: format.Number(o.Counts.Done)}, {Name: "Of", Value: format.Number(o.Counts.Total)}},
			Fields: []form.Field{form.Reason()}}, nil
	}
}

func doOperation(said string, call func(admin.Operations, context.Context, string, string) (*admin.Operation, error)) func(*visit) (done, error) {
	return func(v *visit) (done, error) {
		id := v.r.PathValue("operation")
		if _, err := call(v.admin().Operations(), v.ctx, id, v.value("reason")); err != nil {
			return done{}, err
		}
		return done{Said: said, Next: "/operations/" + id}, nil
	}
}
