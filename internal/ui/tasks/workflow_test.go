package tasks

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pawlq/pawl/pawltype"
)

func TestFlowOfGroup(t *testing.T) {
	g := &pawltype.Group{ID: "g", State: pawltype.GroupRunning, Counts: pawltype.GroupCounts{Members: 1000, Pending: 700, Succeeded: 296,
		Dead: 3, Refused: 1},
		OnComplete: &pawltype.Follower{Type: "report", Queue: "q", State: pawltype.FollowerWaiting},
		OnDeath: &pawltype.Follower{Type: "alarm",
			Queue: "q", State: pawltype.FollowerCreated, TaskID: "t9"}}
	members := []*pawltype.GroupMember{{TaskID: "t0", Type: "a", Queue: "q", State: pawltype.StateSucceeded}, {Type: "a", Queue: "q",
		Refused: "queue_full"}, {TaskID: "t2", Type: "a", Queue: "q"}}
	for range 40 {
		members = append(members, &pawltype.GroupMember{TaskID: "t", Type: "a", Queue: "q", State: pawltype.StateDead})
	}
	f := flowOfGroup(g, members)
	var said []string
	for _, n := range f.Nodes {
		said = append(said, n.Label())
	}
	want := "this group: Group, running, 1,000 members|member: a, succeeded, queue q|member: a, refused, q|member: a, pending, queue " +
		"q|member: a, dead, queue q|member: a, dead, queue q|member: a, dead, queue q|member: +994 more, 699 pending, 295 succeeded|on " +
		"completion: report, waiting, q|on first death: alarm, enqueued, queue q"
	if got := strings.Join(said, "|"); got != want {
		t.Errorf("the nodes are\n%s, want\n%s", got, want)
	}
	if len(f.Edges) != 9 || !f.Edges[2].Waits || f.Edges[0].Waits || f.Edges[8].Label != "first death" || f.Edges[8].Waits ||
		!f.Edges[7].Waits {
		t.Errorf("the edges are %+v", f.Edges)
	}
	checkFlow(t, f)
	alone := flowOfGroup(&pawltype.Group{ID: "g", State: pawltype.GroupComplete, Counts: pawltype.GroupCounts{Members: 2, Succeeded: 2}},
		members[:0])
	if len(alone.Nodes) != 2 || alone.Nodes[1].Detail() != "2 succeeded" {
		t.Errorf("a later page of members has the nodes %+v, want two", alone.Nodes)
	}
	checkFlow(t, alone)
}

// checkFlow checks that nodes are inside the drawing and don't overlap, and that edges point to the right.
func checkFlow(t *testing.T, f *flow) {
	t.Helper()
	at := map[string]bool{}
	for _, n := range f.Nodes {
		if n.X < 0 || n.Y < 0 || n.X+flowNodeWidth > f.Width || n.Y+flowNodeHeight > f.Height {
			t.Errorf("%s at %d, %d is outside the drawing of %d by %d", n.Name, n.X, n.Y, f.Width, f.Height)
		}
		place := fmt.Sprint(n.X, n.Y)
		if at[place] {
			t.Errorf("two nodes are at %s", place)
		}
		at[place] = true
		if n.Shape() == "" || len([]rune(n.Title())) > flowName || len([]rune(n.Detail())) > flowDetail {
			t.Errorf("%+v has no shape, or more text than fits", n)
		}
	}
	for _, e := range f.Edges {
		if e.from.X+flowNodeWidth >= e.to.X {
			t.Errorf("an edge points from %s back to %s", e.from.Name, e.to.Name)
		}
	}
}

// TestEveryStateHasAShape: states have different shapes, so that they can be told apart without colors.
func TestEveryStateHasAShape(t *testing.T) {
	seen := map[string]string{}
	for _, s := range allStates {
		shape, ok := flowShapes[string(s)]
		if other := seen[shape]; !ok || other != "" {
			t.Errorf("state %s has no shape of its own, but that of %q", s, other)
		}
		seen[shape] = string(s)
	}
}
