package ui

import (
	"github.com/pawlq/pawl/internal/ui/chart"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/live"
	"github.com/pawlq/pawl/pawltype"
)

var groupPages = []page{
	{path: "/groups", template: "groups", nav: "/groups", show: showGroups},
	{path: "/groups/{group}", template: "group", nav: "/groups", show: showGroup},
}

var groupActions = []action{
	{path: "/groups/{group}/cancel", nav: "/groups", form: groupForm("Cancel", "All unfinished members are cancelled, and the group's callbacks are not enqueued.", true), do: doCancelGroup},
	{path: "/groups/{group}/close", nav: "/groups", form: groupForm("Close", "No more members can be added. The group is complete when all its members have ended.", false), do: doCloseGroup},
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
	return groupRow{g, chart.NewBar([]chart.Count{{Word: "succeeded", N: c.Succeeded}, {Word: "pending", N: c.Pending}, {Word: "dead", N: c.Dead}, {Word: "poisoned", N: c.Poisoned},
		{Word: "discarded", N: c.Discarded}, {Word: "cancelled", N: c.Cancelled}, {Word: "failed", N: c.Refused}})}
}

type groupsView struct {
	Rows []groupRow
	more
}

func showGroups(v *visit) (*screen, error) {
	page, err := v.admin().Groups().ListPage(v.ctx, pawltype.PageRequest{Limit: groupsLimit, Cursor: v.query("cursor")})
	if err != nil {
		return nil, err
	}
	view := groupsView{more: v.moreOf(page.NextCursor)}
	for _, g := range page.Items {
		view.Rows = append(view.Rows, groupRowOf(g))
	}
	return &screen{Title: "Groups", Data: view, Watch: &live.Watch{Kinds: live.EndKinds}}, nil
}

type groupView struct {
	groupRow
	Members []*pawltype.GroupMember
	Rows    []chart.Count // members by state
	Points  []groupPoint
	Flow    *flow
	more
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
	return []chart.Count{{Word: memberPending, N: c.Pending}, {Word: "succeeded", N: c.Succeeded}, {Word: "dead", N: c.Dead}, {Word: "poisoned", N: c.Poisoned}, {Word: "discarded", N: c.Discarded}, {Word: "cancelled", N: c.Cancelled}, {Word: memberRefused, N: c.Refused}}
}

func showGroup(v *visit) (*screen, error) {
	g, err := v.client.Group(v.ctx, v.r.PathValue("group"))
	if err != nil {
		return nil, err
	}
	members, err := v.admin().Groups().MembersPage(v.ctx, g.ID, pawltype.PageRequest{Limit: membersLimit, Cursor: v.query("cursor")})
	if err != nil {
		return nil, err
	}
	view := groupView{groupRow: groupRowOf(g), Members: members.Items, Rows: memberCounts(g)[:6], Points: groupPoints(g), Flow: flowOfGroup(g, members.Items), more: v.moreOf(members.NextCursor)}
	title := "Group " + g.ID
	if g.Name != "" {
		title = "Group " + g.Name
	}
	return &screen{Title: title, Data: view, Watch: &live.Watch{Kinds: live.EndKinds}}, nil
}

func groupForm(verb, text string, danger bool) func(*visit) (*form.Form, error) {
	return func(v *visit) (*form.Form, error) {
		g, err := v.client.Group(v.ctx, v.r.PathValue("group"))
		if err != nil {
			return nil, err
		}
		f := &form.Form{Title: verb + " this group", Text: text, Button: verb, Danger: danger, Back: "/groups/" + g.ID,
			Facts: []form.Fact{{Name: "Name", Value: g.Name}, {Name: "Members", Value: format.Number(g.Counts.Members)}, {Name: "Unfinished", Value: format.Number(g.Counts.Pending)}}}
		if danger {
			f.Button = verb + " " + format.Plural(g.Counts.Pending, "member")
			f.Fields = []form.Field{form.Reason()}
		}
		return f, nil
	}
}

func doCancelGroup(v *visit) (done, error) {
	id := v.r.PathValue("group")
	if _, err := v.admin().Groups().Cancel(v.ctx, id, v.value("reason")); err != nil {
		return done{}, err
	}
	return done{Said: "Cancelled.", Next: "/groups/" + id}, nil
}

func doCloseGroup(v *visit) (done, error) {
	id := v.r.PathValue("group")
	if _, err := v.client.CloseGroup(v.ctx, id); err != nil {
		return done{}, err
	}
	return done{Said: "Closed.", Next: "/groups/" + id}, nil
}
