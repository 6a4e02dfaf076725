package tasks

import (
	"github.com/pawlq/pawl/internal/ui/chart"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

var groupPages = []web.Page{
	{Path: "/groups", Template: "groups", Nav: "/groups", Show: showGroups},
	{Path: "/groups/{group}", Template: "group", Nav: "/groups", Show: showGroup},
}

var groupActions = []web.Action{
	{Path: "/groups/{group}/cancel", Nav: "/groups", Form: groupForm("Cancel",
		"All unfinished members are cancelled, and the group's callbacks are not enqueued.", true), Do: doCancelGroup},
	{Path: "/groups/{group}/close", Nav: "/groups", Form: groupForm("Close",
		"No more members can be added. The group is complete when all "+
			"its members have ended.", false), Do: doCloseGroup},
}

// groupsLimit and membersLimit are the page sizes of the lists.
const (
	groupsLimit  = 50
	membersLimit = 50
)

type groupRow struct {
	*pawltype.Group
	Bar chart.Bar
}

func groupRowOf(g *pawltype.Group) groupRow {
	c := g.Counts
	return groupRow{g, chart.NewBar([]chart.Count{{Word: "succeeded", N: c.Succeeded}, {Word: "pending", N: c.Pending},
		{Word: "dead", N: c.Dead}, {Word: "poisoned", N: c.Poisoned}, {Word: "discarded", N: c.Discarded},
		{Word: "cancelled", N: c.Cancelled}, {Word: "failed", N: c.Refused}})}
}

type groupsView struct {
	Rows []groupRow
	web.More
}

func showGroups(req *web.Request) (*web.Screen, error) {
	page, err := req.Admin().Groups().ListPage(req.Ctx, pawltype.PageRequest{Limit: groupsLimit, Cursor: req.Query("cursor")})
	if err != nil {
		return nil, err
	}
	req.Lacks(page.Missing)
	view := groupsView{More: req.More(page.NextCursor)}
	for _, g := range page.Items {
		view.Rows = append(view.Rows, groupRowOf(g))
	}
	return &web.Screen{Title: "Groups", Data: view, Watch: &web.Watch{Kinds: web.EndKinds}}, nil
}

type groupView struct {
	groupRow
	Members []*pawltype.GroupMember
	Rows    []chart.Count // members by state
	Points  []groupPoint
	Flow    *flow
	web.More
}

// Actions returns the actions on a group.
func (g groupView) Actions() (a web.ActionBar) {
	if g.Open {
		a.Beside = []web.Button{web.Ask("Close…", "groups", g.ID, "close").Needing("produce")}
	}
	if g.State == "running" {
		a.Danger = []web.Button{web.Ask("Cancel…", "groups", g.ID, "cancel")}
	}
	return a
}

// groupPoint is a point in a group's life with the task that the group enqueues then.
type groupPoint struct {
	When string
	*pawltype.Follower
}

// Points in a group's life, in words.
const (
	whenComplete  = "on completion"
	whenSucceeded = "on success"
	whenDead      = "on first death"
)

// groupPoints returns the points at which a group enqueues a task.
func groupPoints(g *pawltype.Group) (points []groupPoint) {
	for _, p := range []groupPoint{{whenComplete, g.OnComplete}, {whenSucceeded, g.OnSuccess}, {whenDead, g.OnDeath}} {
		if p.Follower != nil {
			points = append(points, p)
		}
	}
	return points
}

// memberCounts counts a group's members by state.
func memberCounts(g *pawltype.Group) []chart.Count {
	c := g.Counts
	return []chart.Count{{Word: memberPending, N: c.Pending}, {Word: "succeeded", N: c.Succeeded}, {Word: "dead", N: c.Dead},
		{Word: "poisoned", N: c.Poisoned}, {Word: "discarded", N: c.Discarded}, {Word: "cancelled", N: c.Cancelled},
		{Word: memberRefused, N: c.Refused}}
}

func showGroup(req *web.Request) (*web.Screen, error) {
	g, err := req.Client.Group(req.Ctx, req.PathValue("group"))
	if err != nil {
		return nil, err
	}
	members, err := req.Client.GroupMembersPage(req.Ctx, g.ID, pawltype.PageRequest{Limit: membersLimit, Cursor: req.Query("cursor")})
	if err != nil {
		return nil, err
	}
	view := groupView{groupRow: groupRowOf(g), Members: members.Items, Rows: memberCounts(g)[:6], Points: groupPoints(g),
		Flow: flowOfGroup(g, members.Items), More: req.More(members.NextCursor)}
	title := "Group " + g.ID
	if g.Name != "" {
		title = "Group " + g.Name
	}
	return &web.Screen{Title: title, Data: view, Watch: &web.Watch{Kinds: web.EndKinds}}, nil
}

func groupForm(verb, text string, danger bool) func(*web.Request) (*form.Form, error) {
	return func(req *web.Request) (*form.Form, error) {
		g, err := req.Client.Group(req.Ctx, req.PathValue("group"))
		if err != nil {
			return nil, err
		}
		f := &form.Form{Title: verb + " this group", Text: text, Button: verb, Danger: danger, Back: "/groups/" + g.ID,
			Facts: []form.Fact{{Name: "Name", Value: g.Name}, {Name: "Members", Value: format.Number(g.Counts.Members)},
				{Name: "Unfinished", Value: format.Number(g.Counts.Pending)}}}
		if danger {
			f.Button = verb + " " + format.Plural(g.Counts.Pending, "member")
			f.Fields = []form.Field{form.Reason()}
		}
		return f, nil
	}
}

func doCancelGroup(req *web.Request) (web.Done, error) {
	id := req.PathValue("group")
	if _, err := req.Admin().WithReason(req.Value("reason")).Groups().Cancel(req.Ctx, id); err != nil {
		return web.Done{}, err
	}
	return web.Done{Message: "Cancelled.", Next: "/groups/" + id}, nil
}

func doCloseGroup(req *web.Request) (web.Done, error) {
	id := req.PathValue("group")
	if _, err := req.Client.CloseGroup(req.Ctx, id); err != nil {
		return web.Done{}, err
	}
	return web.Done{Message: "Closed.", Next: "/groups/" + id}, nil
}
