package ui

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/live"
	"github.com/pawlq/pawl/internal/ui/problem"
	"github.com/pawlq/pawl/pawltype"
)

var taskPages = []page{
	{path: "/tasks", template: "tasks", nav: "/tasks", show: showTasks},
	{path: "/tasks/{task}", template: "task", nav: "/tasks", show: showTask},
}

// tasksLimit is the page size of the list.
const tasksLimit = 50

// searchTime is how long a page searches for tasks when few match, before it shows those found. Tests change it.
var searchTime = time.Second

type tasksView struct {
	Text     string
	Saved    viewsView
	Terms    []termChip
	States   []chip
	Tasks    []*pawltype.Task
	Bulk     []bulkLink
	Ticked   []bulkLink // for the ticked ones
	Back     string
	Refused  *problem.Problem // what is wrong with the filter
	Filtered bool
	Searched *pawltype.Searched // how far an unfinished search has come
	NoQueue  string             // the queue in the filter, if it doesn't exist
	PartOfID bool               // the filter looks like part of a task id
	Hello    []form.Fact        // commands, shown if there are no tasks
	more
}

// chip is a link that changes the filter.
type chip struct {
	Label, URL string
	On         bool
}

// termChip is a condition with a link to the list without it.
type termChip struct{ Field, Value, Without string }

// bulkLink links to an operation on all tasks that match.
type bulkLink struct {
	Label, URL string
	Danger     bool
}

func showTasks(v *visit) (*screen, error) {
	text := strings.TrimSpace(v.query("q"))
	if id, err := uuid.Parse(text); err == nil && len(text) == 36 {
		v.redirect("/tasks/" + id.String())
		return nil, nil
	}
	view := tasksView{Text: text, Saved: v.viewsOf(text), Filtered: text != "", Back: v.backTo()}
	filter, terms, err := parseFilter(text, v.now)
	if err == nil {
		view.Terms, view.States, view.Bulk = v.termChips(terms), v.stateChips(terms), v.bulkLinks(text, filter.States)
		view.Ticked = bulkActionLinks(filter.States, admin.ActionReplay, admin.ActionRunNow, admin.ActionSetPriority, admin.ActionCancel, admin.ActionDiscard)
		err = v.findTasks(&view, filter)
	}
	if err == nil && len(view.Tasks) == 0 && view.Searched == nil {
		err = v.whyNone(&view, filter)
	}
	if err != nil {
		if !errors.Is(err, pawltype.ErrInvalidArgument) {
			return nil, err
		}
		p := problem.Of(err)
		view.Refused = &p
	}
	return &screen{Title: "Tasks", Data: view, Watch: &live.Watch{Queue: filter.Queue, Type: filter.Type}}, nil
}

// findTasks reads a page of tasks. If few match, the API returns short pages, and findTasks reads on for searchTime.
func (v *visit) findTasks(view *tasksView, filter admin.Filter) error {
	cursor, start, rows := v.query("cursor"), time.Now(), int64(0)
	for {
		page, err := v.admin().Tasks().ListPage(v.ctx, filter, pawltype.PageRequest{Limit: tasksLimit - len(view.Tasks), Cursor: cursor})
		if err != nil {
			return err
		}
		view.Tasks = append(view.Tasks, page.Items...)
		cursor = page.NextCursor
		if cursor == "" || len(view.Tasks) >= tasksLimit {
			view.Searched = nil
			break
		}
		if page.Searched != nil {
			rows += page.Searched.Rows
			view.Searched = &pawltype.Searched{Rows: rows, Until: page.Searched.Until}
		}
		if time.Since(start) > searchTime {
			break
		}
	}
	view.more = v.moreOf(cursor)
	return nil
}

// shownID matches the id of a task as lists show it, or the start of one.
var shownID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f-]*|….*)?$`)

// whyNone looks for a mistake in a filter that no task matches.
func (v *visit) whyNone(view *tasksView, filter admin.Filter) error {
	view.Hello = v.hello()
	view.PartOfID = shownID.MatchString(filter.Text)
	if filter.Queue == "" {
		return nil
	}
	_, err := v.admin().Queues().Get(v.ctx, filter.Queue)
	if errors.Is(err, pawltype.ErrNotFound) {
		view.NoQueue = filter.Queue
		return nil
	}
	return err
}

func (v *visit) tasksURL(terms []term) string {
	if len(terms) == 0 {
		return v.url("tasks")
	}
	return v.url("tasks", "?q="+url.QueryEscape(termsText(terms)))
}

func (v *visit) termChips(terms []term) (chips []termChip) {
	for _, t := range terms {
		if t.Field != "state" {
			chips = append(chips, termChip{t.Field, t.Value, v.tasksURL(with(terms, t.Field, ""))})
		}
	}
	return chips
}

// stateChips toggle the states.
func (v *visit) stateChips(terms []term) []chip {
	var on []string
	for _, t := range terms {
		if t.Field == "state" {
			on = strings.Split(t.Value, ",")
		}
	}
	chips := []chip{{Label: "any", URL: v.tasksURL(with(terms, "state", "")), On: len(on) == 0}}
	for _, s := range allStates {
		var next []string
		word, is := string(s), slices.Contains(on, string(s))
		for _, other := range allStates {
			if slices.Contains(on, string(other)) != (other == s) {
				next = append(next, string(other))
			}
		}
		chips = append(chips, chip{Label: word, URL: v.tasksURL(with(terms, "state", strings.Join(next, ","))), On: is})
	}
	return chips
}

// bulkLinks link to the operations that are possible in the given states. They apply to all tasks that match, not only to those on the page.
func (v *visit) bulkLinks(text string, states []pawltype.State) (links []bulkLink) {
	for _, a := range actions {
		if !a.takes(states) {
			continue
		}
		links = append(links, bulkLink{Label: a.label, Danger: a.danger,
			URL: v.url("operations", "new", "?action="+string(a.action)+"&q="+url.QueryEscape(text))})
	}
	return links
}
