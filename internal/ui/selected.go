package ui

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/problem"
	"github.com/pawlq/pawl/pawltype"
)

// An action on ticked tasks makes a call for each of them: there are at most as many as fit on a page. An action on all tasks that match a filter is
// an operation.
var selectedActions = []action{{path: "/tasks/selected", nav: "/tasks", form: selectedForm, do: doSelected}}

const (
	// maxSelected is the maximum number of tasks that can be ticked: no page lists more.
	maxSelected = 100
	// selectedAtOnce is the number of concurrent calls.
	selectedAtOnce = 8
)

// verb is an action on ticked tasks.
type verb struct {
	action admin.Action
	said   string // past participle, for the message afterwards
	call   func(v *visit, id string) error
}

var verbs = []verb{
	{admin.ActionReplay, "Replayed", func(v *visit, id string) error {
		_, err := v.admin().WithReason(v.value("reason")).Tasks().Retry(v.ctx, id)
		return err
	}},
	{admin.ActionRunNow, "Made ready", func(v *visit, id string) error {
		_, err := v.admin().WithReason(v.value("reason")).Tasks().RunNow(v.ctx, id)
		return err
	}},
	{admin.ActionSetPriority, "Set the priority of", func(v *visit, id string) error {
		_, err := v.admin().Tasks().Update(v.ctx, id, admin.TaskUpdate{Priority: pawltype.Priority(v.value("priority"))})
		return err
	}},
	{admin.ActionCancel, "Cancelled", func(v *visit, id string) error {
		_, err := v.admin().Tasks().Cancel(v.ctx, id, v.value("reason"))
		return err
	}},
	{admin.ActionDiscard, "Discarded", func(v *visit, id string) error {
		_, err := v.admin().Tasks().Discard(v.ctx, id, v.value("reason"))
		return err
	}},
}

// bulkActionLinks returns the buttons for ticked tasks in some states, or in any if none are given. Label is the button's text and URL its action.
func bulkActionLinks(states []pawltype.State, of ...admin.Action) (links []bulkLink) {
	for _, a := range actions {
		if slices.Contains(of, a.action) && a.takes(states) {
			links = append(links, bulkLink{Label: a.label, URL: string(a.action), Danger: a.danger})
		}
	}
	return links
}

// selection holds the ticked tasks and the action on them.
type selection struct {
	verb verb
	word actionWord
	ids  []string
	back string // the page with the ticked tasks
}

func (v *visit) selection() (s selection, err error) {
	from := v.r.URL.Query()
	if v.r.PostForm != nil {
		from = v.r.PostForm
	}
	if s.word, err = wordOf(admin.Action(from.Get("action"))); err != nil {
		return s, err
	}
	at := slices.IndexFunc(verbs, func(w verb) bool { return w.action == s.word.action })
	if at < 0 {
		return s, problem.BadField("action", "%q works only as an operation, not on single tasks", s.word.action)
	}
	s.verb, s.back = verbs[at], ownPath(from.Get("back"))
	for _, some := range from["ids"] {
		for _, text := range form.SplitList(some) {
			id, err := uuid.Parse(text)
			if err != nil {
				return s, problem.BadField("ids", "%q is not a task id", format.Clip(text, 40))
			}
			s.ids = append(s.ids, id.String())
		}
	}
	slices.Sort(s.ids)
	if s.ids = slices.Compact(s.ids); len(s.ids) == 0 || len(s.ids) > maxSelected {
		return s, problem.BadField("ids", "%d tasks are selected; select 1 to %d", len(s.ids), maxSelected)
	}
	return s, nil
}

func selectedForm(v *visit) (*form.Form, error) {
	s, err := v.selection()
	if err != nil {
		return nil, err
	}
	what := format.Plural(len(s.ids), "selected task")
	f := &form.Form{Title: s.word.label + " " + s.word.of + what, Text: s.word.text, Danger: s.word.danger, Button: s.word.label + " " + s.word.of + what, Back: s.back, Action: v.base + "/tasks/selected",
		Fields: []form.Field{{Name: "action", Kind: "hidden", Value: string(s.word.action)}, {Name: "ids", Kind: "hidden", Value: strings.Join(s.ids, ",")}, {Name: "back", Kind: "hidden", Value: s.back}}}
	if s.word.action == admin.ActionSetPriority {
		f.Fields = append(f.Fields, form.Field{Name: "priority", Label: "Priority", Kind: "choice", Options: form.Choices("", "high", "normal", "low"), Value: "normal"})
	} else {
		f.Fields = append(f.Fields, form.Reason())
	}
	return f, nil
}

func doSelected(v *visit) (done, error) {
	s, err := v.selection()
	if err != nil {
		return done{}, err
	}
	errs := make([]error, len(s.ids))
	var calls sync.WaitGroup
	turns := make(chan struct{}, selectedAtOnce)
	for i, id := range s.ids {
		turns <- struct{}{}
		calls.Go(func() {
			errs[i] = s.verb.call(v, id)
			<-turns
		})
	}
	calls.Wait()
	refused := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(refused) == len(s.ids) {
		return done{}, refused[0]
	}
	said := fmt.Sprintf("%s %s.", s.verb.said, format.Plural(len(s.ids)-len(refused), "task"))
	if len(refused) > 0 {
		said += fmt.Sprintf(" %s refused: %s", format.Number(len(refused)), problem.Of(refused[0]).Message)
	}
	return done{Said: said, Next: s.back}, nil
}

// backTo returns the URL of the page, for actions on its ticked tasks.
func (v *visit) backTo() string {
	path := v.here()
	if len(path) > maxFilterText {
		return (&url.URL{Path: v.r.URL.Path}).String()
	}
	return path
}
