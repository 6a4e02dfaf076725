package chart

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/format"
)

// Chart shows counts over time: panels of stacked bars with common steps. Horizontal positions are percentages of the
// width and vertical ones are pixels, so that text and edges are not stretched. Charts need no script: every step lists
// its values in its title, and a table has all of them.
type Chart struct {
	Label  string // a description with the main figures, for screen readers
	Height int
	Names  []Text    // panel names
	Scale  []Text    // labels of the horizontal lines
	Lines  []float64 // horizontal
	Zeros  []float64 // base lines of the bars, which rise or hang from them
	Steps  []Step
	Ticks  []Tick
	Cuts   []Cut
	Legend []Legend
	Start  time.Time
	Empty  bool
	Marks  *Marks // nil: none

	step time.Duration
}

// Text is a text at a vertical position.
type Text struct {
	Y    float64
	Text string
}

// Tick labels a time below the chart.
type Tick struct {
	X    string // percent
	At   string // RFC 3339
	Text string
}

// Cut labels a bar that is higher than its panel with its value.
type Cut struct {
	X, Anchor, Text string
	Y               float64

	n    int64
	last int // last step that the label covers
}

// Step is one step of the chart.
type Step struct {
	X, Width string // percent
	Begins   time.Time
	At       string // start time, in RFC 3339
	Title    string
	Pieces   []Piece
	Running  bool // not complete yet
	Values   []int64

	marks int // number of markers that touch it
}

// Clock returns the start of the step in UTC; on pages with scripts it is shown in the browser's zone.
func (s Step) Clock() string { return format.Clock(s.Begins, time.Now()) }

// Piece is a segment of a bar, with the CSS class of its state.
type Piece struct {
	State string
	Y, H  float64
	Cut   []float64 // heights of the gap in a truncated bar, at its left and right edge; nil: not truncated
}

// Legend explains a color, with the total count.
type Legend struct {
	State, Word string
	N           int64
}

// Series is a count over time.
type Series struct {
	State, Word string
	N           []int64
}

// Panel is a part of a chart with its own bars. A hanging panel shares the base line and the scale of the one before it.
type Panel struct {
	Name   string
	Height float64
	Hangs  bool
	Of     []Series
}

const (
	PanelHeight    = 66 // height of the bars, in pixels
	lowPanelHeight = 34
	panelName      = 16 // for its name, which is above it, or below a hanging panel
	panelGap       = 8
	tickRoom       = 20
	leastPiece     = 1.5 // so that any value above zero is visible
)

// New draws panels. Every series has a count for each step. The last step is still running and drawn paler.
func New(label string, start time.Time, step time.Duration, panels ...Panel) Chart {
	panels, start, step = merge(panels, start, step)
	c := Chart{Start: start, step: step, Empty: true}
	c.begin(panels)
	for i := 0; i < len(panels); i++ {
		pair := panels[i : i+1]
		if i+1 < len(panels) && panels[i+1].Hangs {
			pair = panels[i : i+2]
			i++
		}
		c.draw(pair)
	}
	c.ticks()
	c.finish(label)
	return c
}

// begin creates the steps and the legend.
func (c *Chart) begin(panels []Panel) {
	steps := 0
	for _, p := range panels {
		for _, s := range p.Of {
			steps = max(steps, len(s.N))
			if !slices.ContainsFunc(c.Legend, func(l Legend) bool { return l.Word == s.Word }) {
				c.Legend = append(c.Legend, Legend{s.State, s.Word, total(s.N)})
			}
		}
	}
	now := time.Now()
	for i := range steps {
		begins := c.Start.Add(time.Duration(i) * c.step)
		s := Step{X: percent(float64(i) / float64(steps)), Width: percent(1 / float64(steps)), Begins: begins,
			At: begins.UTC().Format(time.RFC3339), Title: format.Clock(begins, now), Running: i == steps-1,
			Values: make([]int64, len(c.Legend))}
		if s.Running {
			s.Title += ", so far"
		}
		for of, l := range c.Legend {
			for _, p := range panels {
				if at := slices.IndexFunc(p.Of, func(s Series) bool { return s.Word == l.Word }); at >= 0 {
					s.Values[of] = valueAt(p.Of[at].N, i)
					break
				}
			}
			s.Title += "\n" + l.Word + ": " + format.Number(s.Values[of])
		}
		c.Steps = append(c.Steps, s)
	}
}

// draw adds a panel, or two that share a base line: one rises from it, the other hangs.
func (c *Chart) draw(pair []Panel) {
	var sums []int64
	for _, p := range pair {
		for i := range c.Steps {
			sums = append(sums, p.sum(i))
		}
	}
	scale := scaleOf(sums)
	c.Empty = c.Empty && total(sums) == 0
	y := float64(c.Height)
	if y > 0 {
		y += panelGap
	}
	if pair[0].Name != "" {
		c.Names = append(c.Names, Text{y + panelName - 5, pair[0].Name})
		y += panelName
	}
	zero := y + pair[0].Height
	c.Zeros, c.Scale = append(c.Zeros, zero), append(c.Scale, Text{zero, "0"})
	for i, p := range pair {
		c.bars(p, zero, scale)
		c.lines(p, zero, scale)
		if i == 1 {
			c.Names = append(c.Names, Text{zero + p.Height + panelName - 4, p.Name})
			y += p.Height + panelName
		}
	}
	c.Height = int(y + pair[0].Height)
}

// lines adds labeled lines at the full height of a panel and, if there is room, at half of it.
func (c *Chart) lines(p Panel, zero float64, scale int64) {
	parts := []int64{scale}
	if scale%2 == 0 && p.Height > lowPanelHeight {
		parts = []int64{scale, scale / 2}
	}
	for _, n := range parts {
		y := p.height(zero, float64(n), scale)
		c.Lines, c.Scale = append(c.Lines, y), append(c.Scale, Text{y, format.ShortNumber(n)})
	}
}

// height returns the vertical position of a count.
func (p *Panel) height(zero, n float64, scale int64) float64 {
	h := n / float64(scale) * p.Height
	if p.Hangs {
		return zero + h
	}
	return zero - h
}

func (p *Panel) sum(i int) (sum int64) {
	for _, s := range p.Of {
		sum += valueAt(s.N, i)
	}
	return sum
}

// bars adds the bars of a panel. A bar that is too high is truncated at the edge and labeled with its value.
func (c *Chart) bars(p Panel, zero float64, scale int64) {
	edge := p.height(zero, float64(scale), scale)
	for i := range c.Steps {
		at, sum := zero, p.sum(i)
		for _, s := range p.Of {
			n := valueAt(s.N, i)
			if n == 0 || at == edge {
				continue
			}
			h := min(max(float64(n)/float64(scale)*p.Height, leastPiece), math.Abs(edge-at))
			if p.Hangs {
				c.Steps[i].Pieces = append(c.Steps[i].Pieces, Piece{State: s.State, Y: at, H: h})
				at += h
			} else {
				at -= h
				c.Steps[i].Pieces = append(c.Steps[i].Pieces, Piece{State: s.State, Y: at, H: h})
			}
		}
		if sum > scale {
			c.cut(i, edge, p.Hangs, sum)
		}
	}
}

// cut marks a bar as truncated. Of several adjacent ones only the highest is labeled, since labels would overlap.
func (c *Chart) cut(i int, edge float64, hangs bool, n int64) {
	pieces := c.Steps[i].Pieces
	inner, y := 8.0, edge+9
	if hangs {
		inner, y = -8, edge-2
	}
	pieces[len(pieces)-1].Cut = []float64{edge + inner + 2, edge + inner - 2}
	text := Cut{Anchor: "start", Text: format.ShortNumber(n), Y: y, X: percent(float64(i+1) / float64(len(c.Steps))), n: n, last: i}
	if i > len(c.Steps)*3/4 {
		text.Anchor, text.X = "end", c.Steps[i].X
	}
	near := len(c.Steps)/8 + 1
	for j := range c.Cuts {
		if old := &c.Cuts[j]; old.Y == y && i-old.last < near {
			if n > old.n {
				old.Text, old.n = text.Text, n
			}
			if i == old.last+1 && text.Anchor == "start" { // to the right of them all
				old.X, old.last = text.X, i
			}
			return
		}
	}
	c.Cuts = append(c.Cuts, text)
}

// finish makes room for the ticks, and sets the description.
func (c *Chart) finish(label string) {
	c.Height += tickRoom
	words := make([]string, len(c.Legend))
	for i, l := range c.Legend {
		words[i] = l.Word + " " + format.Number(l.N)
	}
	c.Label = label
	if len(words) > 0 {
		c.Label += ": " + strings.Join(words, ", ")
	}
}

// Latest returns the steps, last first.
func (c Chart) Latest() []Step {
	steps := slices.Clone(c.Steps)
	slices.Reverse(steps)
	return steps
}

// Unit is the unit of a bar: per minute.
func (c Chart) Unit() string { return stepWords(c.step) }

// TickY is the vertical position of the tick labels.
func (c Chart) TickY() int { return c.Height - 5 }

// Bottom is the vertical position of the edge above them.
func (c Chart) Bottom() int { return c.Height - tickRoom }

// percent formats a fraction of the width.
func percent(part float64) string {
	return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(part*100, 'f', 3, 64), "0"), ".") + "%"
}

func valueAt(list []int64, i int) int64 {
	if i < len(list) {
		return list[i]
	}
	return 0
}

func total(list []int64) (sum int64) {
	for _, n := range list {
		sum += n
	}
	return sum
}

// Throughput shows enqueued tasks, with ended ones hanging below, and failures on a scale of their own.
func Throughput(label string, s *admin.Stats) Chart {
	of := func(pick func(admin.EventCounts) int64) []int64 {
		out := make([]int64, len(s.Series))
		for i, e := range s.Series {
			out[i] = pick(e)
		}
		return out
	}
	enqueued := Series{"enqueued", "enqueued", of(func(e admin.EventCounts) int64 { return e.Enqueued + e.Replayed })}
	succeeded := Series{"succeeded", "succeeded", of(func(e admin.EventCounts) int64 { return e.Succeeded })}
	failed := Series{"attempts", "failed attempts", of(func(e admin.EventCounts) int64 { return e.Failed + e.Crashed })}
	dead := Series{"dead", "dead", of(func(e admin.EventCounts) int64 { return e.Dead })}
	poisoned := Series{"poisoned", "poisoned", of(func(e admin.EventCounts) int64 { return e.Poisoned })}
	dropped := Series{"discarded", "discarded, cancelled", of(func(e admin.EventCounts) int64 { return e.Discarded + e.Cancelled })}
	panels := []Panel{{Name: "Enqueued", Height: PanelHeight, Of: []Series{enqueued}}, {Name: "Ended", Height: PanelHeight, Hangs: true,
		Of: []Series{succeeded}}}
	wrong := Panel{Name: "Failed, on its own scale", Height: lowPanelHeight}
	for _, s := range []Series{dropped, dead, poisoned} {
		if total(s.N) > 0 {
			panels[1].Of = append(panels[1].Of, s)
		}
	}
	for _, s := range []Series{failed, dead, poisoned} {
		if total(s.N) > 0 {
			wrong.Of = append(wrong.Of, s)
		}
	}
	if len(wrong.Of) > 0 {
		panels = append(panels, wrong)
	}
	return New(label, s.Start, s.Step, panels...)
}

// stepWords returns the unit of a bar: per minute, per 10 s.
func stepWords(step time.Duration) string {
	for _, unit := range []struct {
		span      time.Duration
		one, many string
	}{{time.Hour, "hour", "h"}, {time.Minute, "minute", "min"}, {time.Second, "second", "s"}} {
		if many := int64(step / unit.span); many == 1 {
			return "per " + unit.one
		} else if many > 1 {
			return fmt.Sprintf("per %d %s", many, unit.many)
		}
	}
	return ""
}
