package tasks

import (
	"fmt"
	"strings"

	"github.com/pawlq/pawl/internal/ui/chart"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/pawltype"
)

// flow is a drawing: nodes in columns from left to right, each to the right of what it waits for, with edges between them.
type flow struct {
	Width, Height int
	Nodes         []*flowNode
	Edges         []*flowEdge
	Omitted       []string // what it leaves out
}

// flowNode is a task, a group, or several tasks.
type flowNode struct {
	Role   string // relation to the one that the page shows
	Kind   string // part of its URL; "": it has no page
	ID     string
	Name   string
	Queue  string
	State  string
	Counts chart.Bar // of a group's members
	Here   bool
	X, Y   int
	col    int
}

// flowEdge leads from an earlier node to a later one.
type flowEdge struct {
	Label    string
	Waits    bool // it has not happened yet
	Path     string
	Head     string // path of the arrowhead
	X, Y     int    // position of the label
	from, to *flowNode
}

// Dimensions of a drawing, in pixels.
const (
	flowNodeWidth  = 200
	flowNodeHeight = 52
	flowGapX       = 88
	flowGapY       = 14
	flowEdgeOf     = 6 // margin
)

func (f *flow) add(col int, n *flowNode) *flowNode {
	n.col = col
	f.Nodes = append(f.Nodes, n)
	return n
}

func (f *flow) join(from, to *flowNode, label string, waits bool) {
	f.Edges = append(f.Edges, &flowEdge{Label: label, Waits: waits, from: from, to: to})
}

func (f *flow) omit(n int, noun string) {
	if n > 0 {
		f.Omitted = append(f.Omitted, format.Plural(n, "more "+noun))
	}
}

// layout positions all nodes and edges; columns are centerd.
func (f *flow) layout() {
	columns := map[int][]*flowNode{}
	first, last, most := 0, 0, 0
	for i, n := range f.Nodes {
		if i == 0 {
			first, last = n.col, n.col
		}
		first, last = min(first, n.col), max(last, n.col)
		columns[n.col] = append(columns[n.col], n)
		most = max(most, len(columns[n.col]))
	}
	rows := func(n int) int { return n*(flowNodeHeight+flowGapY) - flowGapY }
	f.Width = (last-first+1)*(flowNodeWidth+flowGapX) - flowGapX + 2*flowEdgeOf
	f.Height = rows(most) + 2*flowEdgeOf
	for col, nodes := range columns {
		y := flowEdgeOf + (rows(most)-rows(len(nodes)))/2
		for _, n := range nodes {
			n.X, n.Y = flowEdgeOf+(col-first)*(flowNodeWidth+flowGapX), y
			y += flowNodeHeight + flowGapY
		}
	}
	for _, e := range f.Edges {
		e.layout()
	}
}

func (e *flowEdge) layout() {
	const tip = 7
	x, y := e.from.X+flowNodeWidth, e.from.Y+flowNodeHeight/2
	toX, toY := e.to.X-2, e.to.Y+flowNodeHeight/2
	half := x + (toX-tip-x)/2
	e.Path = fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x, y, half, y, half, toY, toX-tip, toY)
	e.Head = fmt.Sprintf("M%d %dl-%d-4v8z", toX, toY, tip)
	e.X, e.Y = half, (y+toY)/2-5
	if e.from.col != e.to.col-1 || y != toY { // near the target, clear of other nodes' edges
		e.X, e.Y = toX-flowGapX/3, toY-5
	}
}

// waits reports whether a node is yet to come.
func (n *flowNode) waits() bool {
	return n.State == string(pawltype.FollowerWaiting) || n.State == string(pawltype.FollowerSent)
}

// Word is the state in words.
func (n *flowNode) Word() string { return strings.ReplaceAll(n.State, "_", " ") }

// Label describes the node completely, for screen readers.
func (n *flowNode) Label() string {
	label := n.Role + ": " + n.Name
	if n.State != "" {
		label += ", " + n.Word()
	}
	if n.Kind == "tasks" && n.Queue != "" {
		label += ", queue " + n.Queue
	} else if n.Queue != "" {
		label += ", " + n.Queue
	}
	return label
}

// Detail is the line below the name.
func (n *flowNode) Detail() string {
	switch {
	case n.State == "":
		return format.Clip(n.Queue, flowDetail)
	case n.Queue == "":
		return n.Word()
	}
	return format.Clip(n.Word()+" · "+n.Queue, flowDetail)
}

// Title is the name, as far as the node has room for it.
func (n *flowNode) Title() string { return format.Clip(n.Name, flowName) }

// flowName and flowDetail are how many characters of usual width fit into a node; wider ones are clipped at its edge.
const (
	flowName   = 22
	flowDetail = 29
)

// Shape is the path of a state's symbol in a 12×12 box, for those who can't tell the colors apart.
func (n *flowNode) Shape() string {
	if shape, ok := flowShapes[n.State]; ok {
		return shape
	}
	return flowShapes["waiting"]
}

var flowShapes = map[string]string{
	"succeeded": "M1.5 6.5 4.5 10 10.5 2", "complete": "M1.5 6.5 4.5 10 10.5 2",
	"dead": "M2 2l8 8M10 2l-8 8", "refused": "M2 2l8 8M10 2l-8 8",
	"poisoned": "M6 1.5 11 10.5H1zM6 5v2.5",
	"claimed":  "M3 1.5 10 6 3 10.5z", "running": "M3 1.5 10 6 3 10.5z",
	"ready": "M6 1.5a4.5 4.5 0 1 0 .01 0z", "enqueued": "M6 1.5a4.5 4.5 0 1 0 .01 0z",
	"scheduled": "M6 1.5a4.5 4.5 0 1 0 .01 0zM6 3.5V6l2 1.5",
	"retrying":  "M10 6a4 4 0 1 1-1.2-2.8M9.5 1v2.5H7",
	"cancelled": "M6 1.5a4.5 4.5 0 1 0 .01 0zM3 9l6-6",
	"discarded": "M2 6h8", "dropped": "M2 6h8",
	"waiting": "M2 6h.01M6 6h.01M10 6h.01",
	"":        "M6 2v8M2 6h8", "unknown": "M4 4a2 2 0 1 1 2.5 2L6 7M6 10h.01",
}
