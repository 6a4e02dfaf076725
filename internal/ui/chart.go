package ui

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
)

// chart shows counts over time: panels of stacked bars with common steps. Horizontal positions are percentages of the width and vertical ones are
// pixels, so that text and edges are not stretched. Charts need no script: every step lists its values in its title, and a table has all of them.
type chart struct {
	Label  string // a description with the main figures, for screen readers
	Height int
	Names  []chartText // panel names
	Scale  []chartText // labels of the horizontal lines
	Lines  []float64   // horizontal
	Zeros  []float64   // base lines of the bars, which rise or hang from them
	Steps  []chartStep
	Ticks  []chartTick
	Cuts   []chartCut
	Legend []legend
	Start  time.Time
	Empty  bool
	Marks  *chartMarks // nil: none

	step time.Duration
}

// chartText is a text at a vertical position.
type chartText struct {
	Y    float64
	Text string
}

// chartTick labels a time below the chart.
type chartTick struct {
	X    string // percent
	At   string // RFC 3339
	Text string
}

// chartCut labels a bar that is higher than its panel with its value.
type chartCut struct {
	X, Anchor, Text string
	Y               float64

	n    int64
	last int // last step that the label covers
}

// chartStep is one step of the chart.
type chartStep struct {
	X, Width string // percent
	Begins   time.Time
	At       string // start time, in RFC 3339
	Title    string
	Pieces   []chartPiece
	Running  bool // not complete yet
	Values   []int64

	marks int // number of markers that touch it
}

// Clock returns the start of the step in UTC; on pages with scripts it is shown in the browser's zone.
func (s chartStep) Clock() string { return clockText(s.Begins, time.Now()) }

// chartPiece is a segment of a bar, with the CSS class of its state.
type chartPiece struct {
	State string
	Y, H  float64
	Cut   []float64 // heights of the gap in a truncated bar, at its left and right edge; nil: not truncated
}

// legend explains a colour, with the total count.
type legend struct {
	State, Word string
	N           int64
}

// series is a count over time.
type series struct {
	State, Word string
	N           []int64
}

// panel is a part of a chart with its own bars. A hanging panel shares the base line and the scale of the one before it.
type panel struct {
	Name  string
	Room  float64
	Hangs bool
	Of    []series
}

const (
	panelRoom  = 66 // height of the bars, in pixels
	lowRoom    = 34
	panelName  = 16 // for its name, which is above it, or below a hanging panel
	panelGap   = 8
	tickRoom   = 20
	leastPiece = 1.5 // so that any value above zero is visible
)

// chartOf draws panels. Every series has a count for each step. The last step is still running and drawn paler.
func chartOf(label string, start time.Time, step time.Duration, panels ...panel) chart {
	panels, start, step = merge(panels, start, step)
	c := chart{Start: start, step: step, Empty: true}
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
func (c *chart) begin(panels []panel) {
	steps := 0
	for _, p := range panels {
		for _, s := range p.Of {
			steps = max(steps, len(s.N))
			if !slices.ContainsFunc(c.Legend, func(l legend) bool { return l.Word == s.Word }) {
				c.Legend = append(c.Legend, legend{s.State, s.Word, total(s.N)})
			}
		}
	}
	now := time.Now()
	for i := range steps {
		begins := c.Start.Add(time.Duration(i) * c.step)
		s := chartStep{X: percent(float64(i) / float64(steps)), Width: percent(1 / float64(steps)), Begins: begins, At: begins.UTC().Format(time.RFC3339), Title: clockText(begins, now),
			Running: i == steps-1, Values: make([]int64, len(c.Legend))}
		if s.Running {
			s.Title += ", so far"
		}
		for of, l := range c.Legend {
			for _, p := range panels {
				if at := slices.IndexFunc(p.Of, func(s series) bool { return s.Word == l.Word }); at >= 0 {
					s.Values[of] = valueAt(p.Of[at].N, i)
					break
				}
			}
			s.Title += "\n" + l.Word + ": " + number(s.Values[of])
		}
		c.Steps = append(c.Steps, s)
	}
}

// draw adds a panel, or two that share a base line: one rises from it, the other hangs.
func (c *chart) draw(pair []panel) {
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
		c.Names = append(c.Names, chartText{y + panelName - 5, pair[0].Name})
		y += panelName
	}
	zero := y + pair[0].Room
	c.Zeros, c.Scale = append(c.Zeros, zero), append(c.Scale, chartText{zero, "0"})
	for i, p := range pair {
		c.bars(p, zero, scale)
		c.lines(p, zero, scale)
		if i == 1 {
			c.Names = append(c.Names, chartText{zero + p.Room + panelName - 4, p.Name})
			y += p.Room + panelName
		}
	}
	c.Height = int(y + pair[0].Room)
}

// lines adds labelled lines at the full height of a panel and, if there is room, at half of it.
func (c *chart) lines(p panel, zero float64, scale int64) {
	parts := []int64{scale}
	if scale%2 == 0 && p.Room > lowRoom {
		parts = []int64{scale, scale / 2}
	}
	for _, n := range parts {
		y := p.height(zero, float64(n), scale)
		c.Lines, c.Scale = append(c.Lines, y), append(c.Scale, chartText{y, shortNumber(n)})
	}
}

// height returns the vertical position of a count.
func (p *panel) height(zero, n float64, scale int64) float64 {
	h := n / float64(scale) * p.Room
	if p.Hangs {
		return zero + h
	}
	return zero - h
}

func (p *panel) sum(i int) (sum int64) {
	for _, s := range p.Of {
		sum += valueAt(s.N, i)
	}
	return sum
}

// bars adds the bars of a panel. A bar that is too high is truncated at the edge and labelled with its value.
func (c *chart) bars(p panel, zero float64, scale int64) {
	edge := p.height(zero, float64(scale), scale)
	for i := range c.Steps {
		at, sum := zero, p.sum(i)
		for _, s := range p.Of {
			n := valueAt(s.N, i)
			if n == 0 || at == edge {
				continue
			}
			h := min(max(float64(n)/float64(scale)*p.Room, leastPiece), math.Abs(edge-at))
			if p.Hangs {
				c.Steps[i].Pieces = append(c.Steps[i].Pieces, chartPiece{State: s.State, Y: at, H: h})
				at += h
			} else {
				at -= h
				c.Steps[i].Pieces = append(c.Steps[i].Pieces, chartPiece{State: s.State, Y: at, H: h})
			}
		}
		if sum > scale {
			c.cut(i, edge, p.Hangs, sum)
		}
	}
}

// cut marks a bar as truncated. Of several adjacent ones only the highest is labelled, since labels would overlap.
func (c *chart) cut(i int, edge float64, hangs bool, n int64) {
	pieces := c.Steps[i].Pieces
	inner, y := 8.0, edge+9
	if hangs {
		inner, y = -8, edge-2
	}
	pieces[len(pieces)-1].Cut = []float64{edge + inner + 2, edge + inner - 2}
	text := chartCut{Anchor: "start", Text: shortNumber(n), Y: y, X: percent(float64(i+1) / float64(len(c.Steps))), n: n, last: i}
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
func (c *chart) finish(label string) {
	c.Height += tickRoom
	words := make([]string, len(c.Legend))
	for i, l := range c.Legend {
		words[i] = l.Word + " " + number(l.N)
	}
	c.Label = label
	if len(words) > 0 {
		c.Label += ": " + strings.Join(words, ", ")
	}
}

// Latest returns the steps, last first.
func (c chart) Latest() []chartStep {
	steps := slices.Clone(c.Steps)
	slices.Reverse(steps)
	return steps
}

// Unit is the unit of a bar: per minute.
func (c chart) Unit() string { return stepWords(c.step) }

// TickY is the vertical position of the tick labels.
func (c chart) TickY() int { return c.Height - 5 }

// Bottom is the vertical position of the edge above them.
func (c chart) Bottom() int { return c.Height - tickRoom }

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

// throughput shows enqueued tasks, with ended ones hanging below, and failures on a scale of their own.
func throughput(label string, s *admin.Stats) chart {
	of := func(pick func(admin.EventCounts) int64) []int64 {
		out := make([]int64, len(s.Series))
		for i, e := range s.Series {
			out[i] = pick(e)
		}
		return out
	}
	enqueued := series{"enqueued", "enqueued", of(func(e admin.EventCounts) int64 { return e.Enqueued + e.Replayed })}
	succeeded := series{"succeeded", "succeeded", of(func(e admin.EventCounts) int64 { return e.Succeeded })}
	failed := series{"attempts", "failed attempts", of(func(e admin.EventCounts) int64 { return e.Failed + e.Crashed })}
	dead := series{"dead", "dead", of(func(e admin.EventCounts) int64 { return e.Dead })}
	poisoned := series{"poisoned", "poisoned", of(func(e admin.EventCounts) int64 { return e.Poisoned })}
	dropped := series{"discarded", "discarded, cancelled", of(func(e admin.EventCounts) int64 { return e.Discarded + e.Cancelled })}
	panels := []panel{{Name: "Enqueued", Room: panelRoom, Of: []series{enqueued}}, {Name: "Ended", Room: panelRoom, Hangs: true, Of: []series{succeeded}}}
	wrong := panel{Name: "Failed, on its own scale", Room: lowRoom}
	for _, s := range []series{dropped, dead, poisoned} {
		if total(s.N) > 0 {
			panels[1].Of = append(panels[1].Of, s)
		}
	}
	for _, s := range []series{failed, dead, poisoned} {
		if total(s.N) > 0 {
			wrong.Of = append(wrong.Of, s)
		}
	}
	if len(wrong.Of) > 0 {
		panels = append(panels, wrong)
	}
	return chartOf(label, s.Start, s.Step, panels...)
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

// decimal formats a number with at most one decimal place.
func decimal(f float64) string {
	if f >= 100 {
		return number(int64(f + 0.5))
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0")
}
