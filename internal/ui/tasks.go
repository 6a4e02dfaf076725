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
	"github.com/pawlq/pawl/pawltype"
)

var taskPages = []page{
	{path: "/tasks", template: "tasks", nav: "/tasks", show: showTasks},
	{path: "/tasks/{task}", template: "task", nav: "/tasks", show: showTask},
}

// tasksLimit is how many tasks a page of the list has.
const tasksLimit = 50

// searchTime is how long a page looks for tasks where few match, before it shows what it has found. Tests change it.
var searchTime = time.Second

type tasksView struct {
	Text     string
	Saved    viewsView
	Terms    []termChip
	States   []chip
	Tasks    []*pawltype.Task
	Bulk     []bulkLink
	Ticked   []bulkLink // for those that are ticked
	Back     string
	Refused  *problem // what is wrong with the filter
	Filtered bool
	Searched *pawltype.Searched // how far a search came that has not come to its end
	NoQueue  string             // the queue that the filter names, if there is none of that name
	PartOfID bool               // the filter looks like a part of a task's id
	Hello    []fact             // commands, where there are none
	more
}

// chip is a link that changes the filter.
type chip struct {
	Label, URL string
	On         bool
}

// termChip is a condition, and the list without it.
type termChip struct{ Field, Value, Without string }

// bulkLink leads to an operation over all that match.
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
		view.Ticked = tickLinks(filter.States, admin.ActionReplay, admin.ActionRunNow, admin.ActionSetPriority, admin.ActionCancel, admin.ActionDiscard)
		err = v.findTasks(&view, filter)
	}
	if err == nil && len(view.Tasks) == 0 && view.Searched == nil {
		err = v.whyNone(&view, filter)
	}
	if err != nil {
		if !errors.Is(err, pawltype.ErrInvalidArgument) {
			return nil, err
		}
		p := problemOf(err)
		view.Refused = &p
	}
	return &screen{Title: "Tasks", Data: view, Watch: &watch{Queue: filter.Queue, Type: filter.Type}}, nil
}

// findTasks reads a page of tasks. Where few match, the API gives short pages, and this reads on for a moment.
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

// shownID is what a list shows of an id, or the beginning of one.
var shownID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f-]*|….*)?$`)

// whyNone says what may be wrong with a filter that no task matches.
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

// stateChips switch each state on and off.
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

// bulkLinks lead to operations, which are for all tasks that match and not only for those on the page: as far as these can be in
// such states.
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
