package tasks

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

// An action on ticked tasks makes a call for each of them: there are at most as many as fit on a page. An action on all
// tasks that match a filter is an operation.
var selectedActions = []web.Action{{Path: "/tasks/selected", Nav: "/tasks", Form: selectedForm, Do: doSelected}}

const (
	// maxSelected is the maximum number of tasks that can be ticked: no page lists more.
	maxSelected = 100
	// selectedAtOnce is the number of concurrent calls.
	selectedAtOnce = 8
)

// verb is an action on ticked tasks.
type verb struct {
	action  admin.Action
	message string // past participle, for the message afterwards
	call    func(req *web.Request, tasks admin.Tasks, id string) error
}

var verbs = []verb{
	{admin.ActionReplay, "Replayed", func(req *web.Request, tasks admin.Tasks, id string) error {
		_, err := tasks.Retry(req.Ctx, id)
		return err
	}},
	{admin.ActionRunNow, "Made ready", func(req *web.Request, tasks admin.Tasks, id string) error {
		_, err := tasks.RunNow(req.Ctx, id)
		return err
	}},
	{admin.ActionSetPriority, "Set the priority of", func(req *web.Request, tasks admin.Tasks, id string) error {
		_, err := tasks.Update(req.Ctx, id,
			admin.TaskUpdate{Priority: pawltype.Priority(req.Value("priority"))})
		return err
	}},
	{admin.ActionCancel, "Cancelled", func(req *web.Request, tasks admin.Tasks, id string) error {
		_, err := tasks.Cancel(req.Ctx, id)
		return err
	}},
	{admin.ActionDiscard, "Discarded", func(req *web.Request, tasks admin.Tasks, id string) error {
		_, err := tasks.Discard(req.Ctx, id)
		return err
	}},
}

// BulkActionLinks returns the buttons for ticked tasks in some states, or in any if none are given. Label is the
// button's text and URL its action.
func BulkActionLinks(states []pawltype.State, of ...admin.Action) (links []BulkLink) {
	for _, a := range actions {
		if slices.Contains(of, a.action) && a.takes(states) {
			links = append(links, BulkLink{Label: a.label, URL: string(a.action), Danger: a.danger})
		}
	}
	return links
}

// tickedTask is a task with the state that the page showed, "" if it is not known. In the form it is ID:STATE.
type tickedTask struct {
	id    string
	state pawltype.State
}

// selection holds the ticked tasks and the action on them.
type selection struct {
	verb  verb
	word  actionWord
	tasks []tickedTask
	back  string // the page with the ticked tasks
}

func selectionOf(req *web.Request) (s selection, err error) {
	from := req.HTTP.URL.Query()
	if req.HTTP.PostForm != nil {
		from = req.HTTP.PostForm
	}
	if s.word, err = wordOf(admin.Action(from.Get("action"))); err != nil {
		return s, err
	}
	at := slices.IndexFunc(verbs, func(w verb) bool { return w.action == s.word.action })
	if at < 0 {
		return s, format.BadField("action", "%q works only as an operation, not on single tasks", s.word.action)
	}
	s.verb, s.back = verbs[at], web.LocalPath(from.Get("back"))
	for _, items := range from["ids"] {
		for _, text := range form.SplitList(items) {
			text, state, _ := strings.Cut(text, ":")
			id, err := uuid.Parse(text)
			if err != nil {
				return s, format.BadField("ids", "%q is not a task id", format.Clip(text, 40))
			}
			s.tasks = append(s.tasks, tickedTask{id.String(), pawltype.State(state)})
		}
	}
	slices.SortFunc(s.tasks, func(a, b tickedTask) int { return strings.Compare(a.id, b.id) })
	s.tasks = slices.CompactFunc(s.tasks, func(a, b tickedTask) bool { return a.id == b.id })
	if len(s.tasks) == 0 || len(s.tasks) > maxSelected {
		return s, format.BadField("ids", "%d tasks are selected; select 1 to %d", len(s.tasks), maxSelected)
	}
	return s, nil
}

func selectedForm(req *web.Request) (*form.Form, error) {
	s, err := selectionOf(req)
	if err != nil {
		return nil, err
	}
	what := format.Plural(len(s.tasks), "selected task")
	ids := make([]string, len(s.tasks))
	for i, t := range s.tasks {
		ids[i] = t.id + ":" + string(t.state)
	}
	f := &form.Form{Title: s.word.label + " " + s.word.of + what, Text: s.word.text, Danger: s.word.danger, Button: s.word.label + " " +
		s.word.of + what, Back: s.back, Action: req.URL("tasks", "selected"),
		Fields: []form.Field{{Name: "action", Kind: "hidden", Value: string(s.word.action)}, {Name: "ids", Kind: "hidden",
			Value: strings.Join(ids, ",")}, {Name: "back", Kind: "hidden", Value: s.back}}}
	if s.word.action == admin.ActionSetPriority {
		f.Fields = append(f.Fields, form.Field{Name: "priority", Label: "Priority", Kind: "choice",
			Options: form.Choices("", "high", "normal",
				"low"), Value: "normal"})
	} else {
		f.Fields = append(f.Fields, form.Reason())
	}
	return f, nil
}

func doSelected(req *web.Request) (web.Done, error) {
	s, err := selectionOf(req)
	if err != nil {
		return web.Done{}, err
	}
	operator := req.Admin().WithReason(req.Value("reason")).Tasks()
	errs := make([]error, len(s.tasks))
	var calls sync.WaitGroup
	turns := make(chan struct{}, selectedAtOnce)
	for i, t := range s.tasks {
		turns <- struct{}{}
		calls.Go(func() {
			errs[i] = s.verb.call(req, expecting(operator, t.state), t.id)
			<-turns
		})
	}
	calls.Wait()
	refused := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(refused) == len(s.tasks) {
		return web.Done{}, refused[0]
	}
	message := fmt.Sprintf("%s %s.", s.verb.message, format.Plural(len(s.tasks)-len(refused), "task"))
	if len(refused) > 0 {
		message += fmt.Sprintf(" %s refused: %s", format.Number(len(refused)), format.ProblemOf(refused[0]).Message)
	}
	return web.Done{Message: message, Next: s.back}, nil
}

// expecting returns the calls for a task that the page showed in a state, "" if it is not known. A retry and a discard are refused if the
// task has left that state: somebody may have replayed a dead letter. Waiting tasks become due by themselves, so each waiting state stands
// for all.
func expecting(tasks admin.Tasks, state pawltype.State) admin.Tasks {
	waiting := []pawltype.State{pawltype.StateScheduled, pawltype.StateReady, pawltype.StateRetrying}
	switch {
	case state == "":
		return tasks
	case slices.Contains(waiting, state):
		return tasks.WithStates(waiting...)
	}
	return tasks.WithStates(state)
}
