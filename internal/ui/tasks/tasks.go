package tasks

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
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

var taskPages = []web.Page{
	{Path: "/tasks", Template: "tasks", Nav: "/tasks", Show: showTasks},
	{Path: "/tasks/{task}", Template: "task", Nav: "/tasks", Show: showTask},
}

// tasksLimit is the page size of the list.
const tasksLimit = 50

type tasksView struct {
	Text           string
	Saved          viewsView
	Terms          []termChip
	States         []web.Chip
	Tasks          []*pawltype.Task
	Bulk           []BulkLink
	Ticked         []BulkLink // for the ticked ones
	Back           string
	Refused        *format.Problem // what is wrong with the filter
	Filtered       bool
	Searched       *pawltype.Searched // how far an unfinished search has come
	NoQueue        string             // the queue in the filter, if it doesn't exist
	PartOfID       bool               // the filter looks like part of a task id
	GettingStarted []form.Fact        // commands, shown if there are no tasks
	web.More
}

// termChip is a condition with a link to the list without it.
type termChip struct{ Field, Value, Without string }

// BulkLink links to an operation on all tasks that match.
type BulkLink struct {
	Label, URL string
	Danger     bool
}

func showTasks(req *web.Request) (*web.Screen, error) {
	text := strings.TrimSpace(req.Query("q"))
	if id, err := uuid.Parse(text); err == nil && len(text) == 36 {
		req.Redirect("/tasks/" + id.String())
		return nil, nil
	}
	view := tasksView{Text: text, Saved: viewsOf(req, text), Filtered: text != "", Back: req.ReturnPath()}
	filter, terms, err := parseFilter(text, req.Now)
	if err == nil {
		view.Terms, view.States, view.Bulk = termChips(req, terms), stateChips(req, terms), operationLinks(req, text, filter.States)
		view.Ticked = BulkActionLinks(filter.States, admin.ActionReplay, admin.ActionRunNow, admin.ActionSetPriority, admin.ActionCancel,
			admin.ActionDiscard)
		err = view.find(req, filter)
	}
	if err == nil && len(view.Tasks) == 0 && view.Searched == nil {
		err = view.explainNone(req, filter)
	}
	if err != nil {
		if !errors.Is(err, pawltype.ErrInvalidArgument) {
			return nil, err
		}
		p := format.ProblemOf(err)
		view.Refused = &p
	}
	return &web.Screen{Title: "Tasks", Data: view, Watch: &web.Watch{Queue: filter.Queue, Type: filter.Type}}, nil
}

// find reads a page of tasks. If few match, the API returns short pages, and findTasks reads on for searchTime.
func (view *tasksView) find(req *web.Request, filter admin.Filter) error {
	cursor, start, rows := req.Query("cursor"), time.Now(), int64(0)
	for {
		page, err := req.Admin().Tasks().ListPage(req.Ctx, filter, pawltype.PageRequest{Limit: tasksLimit - len(view.Tasks),
			Cursor: cursor})
		if err != nil {
			return err
		}
		view.Tasks = append(view.Tasks, page.Items...)
		req.Lacks(page.Missing)
		cursor = page.NextCursor
		if cursor == "" || len(view.Tasks) >= tasksLimit {
			view.Searched = nil
			break
		}
		if page.Searched != nil {
			rows += page.Searched.Rows
			view.Searched = &pawltype.Searched{Rows: rows, Until: page.Searched.Until}
		}
		if time.Since(start) > web.SearchTime {
			break
		}
	}
	view.More = req.More(cursor)
	return nil
}

// shownID matches the id of a task as lists show it, or the start of one.
var shownID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f-]*|….*)?$`)

// explainNone looks for a mistake in a filter that no task matches.
func (view *tasksView) explainNone(req *web.Request, filter admin.Filter) error {
	view.GettingStarted = req.GettingStarted()
	view.PartOfID = shownID.MatchString(filter.Text)
	if filter.Queue == "" {
		return nil
	}
	_, err := req.Admin().Queues().Get(req.Ctx, filter.Queue)
	if errors.Is(err, pawltype.ErrNotFound) {
		view.NoQueue = filter.Queue
		return nil
	}
	return err
}

func tasksURL(req *web.Request, terms []term) string {
	if len(terms) == 0 {
		return req.URL("tasks")
	}
	return req.URL("tasks", "?q="+url.QueryEscape(termsText(terms)))
}

func termChips(req *web.Request, terms []term) (chips []termChip) {
	for _, t := range terms {
		if t.Field != "state" {
			chips = append(chips, termChip{t.Field, t.Value, tasksURL(req, with(terms, t.Field, ""))})
		}
	}
	return chips
}

// stateChips toggle the states.
func stateChips(req *web.Request, terms []term) []web.Chip {
	var on []string
	for _, t := range terms {
		if t.Field == "state" {
			on = strings.Split(t.Value, ",")
		}
	}
	chips := []web.Chip{{Label: "any", URL: tasksURL(req, with(terms, "state", "")), On: len(on) == 0}}
	for _, s := range allStates {
		var next []string
		word, is := string(s), slices.Contains(on, string(s))
		for _, other := range allStates {
			if slices.Contains(on, string(other)) != (other == s) {
				next = append(next, string(other))
			}
		}
		chips = append(chips, web.Chip{Label: word, URL: tasksURL(req, with(terms, "state", strings.Join(next, ","))), On: is})
	}
	return chips
}

// operationLinks link to the operations that are possible in the given states. They apply to all tasks that match, not
// only to those on the page.
func operationLinks(req *web.Request, text string, states []pawltype.State) (links []BulkLink) {
	for _, a := range actions {
		if !a.takes(states) {
			continue
		}
		links = append(links, BulkLink{Label: a.label, Danger: a.danger,
			URL: req.URL("operations", "new", "?action="+string(a.action)+"&q="+url.QueryEscape(text))})
	}
	return links
}
