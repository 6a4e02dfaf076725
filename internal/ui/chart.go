package ui

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// chart shows counts over time: a bar for each step, of pieces that stand on each other, and a line. It is drawn in units of its own and
// stretched to its place; numbers stand beside it as text.
type chart struct {
	Label  string
	Width  int // in units; a step has chartStep
	Bars   []chartBar
	Line   string // points of a polyline; "": none
	Top    string // what the upper edge stands for
	Start  time.Time
	Legend []legend
	Empty  bool
}

// chartBar is what one step shows.
type chartBar struct {
	X       int
	At      string // when it begins, by RFC 3339
	Title   string
	Pieces  []chartPiece
	Running bool // it is not over, so it will be higher
}

// chartPiece is a part of a bar, with the class of its state.
type chartPiece struct {
	State string
	Y, H  float64
}

// legend says what a colour stands for, and how many there were.
type legend struct {
	State, Word string
	N           int64
}

// series is one count over time.
type series struct {
	State, Word string
	N           []int64
}

// chartStep and chartHeight are the units of a chart.
const (
	chartStep   = 10
	chartHeight = 100
)

// chartOf draws stacked series, and a line if it has a name. All have a count for each step, the last of which is the one that runs: it is
// paler, and no line falls to it, as it would look as if less and less happened.
func chartOf(label string, start time.Time, step time.Duration, stacked []series, line series) chart {
	steps := len(line.N)
	for _, s := range stacked {
		steps = max(steps, len(s.N))
	}
	c := chart{Label: label, Width: max(steps, 1) * chartStep, Start: start}
	top := c.add(stacked, line, steps)
	c.Empty = top == 0
	scale := niceTop(top)
	c.Top = stepWords(scale, step)
	var points []string
	now := time.Now()
	for i := range steps {
		begins := start.Add(time.Duration(i) * step)
		b := chartBar{X: i * chartStep, Title: clockText(begins, now), At: begins.UTC().Format(time.RFC3339), Running: i == steps-1}
		if b.Running {
			b.Title += ", so far"
		}
		y := float64(chartHeight)
		for _, s := range stacked {
			n := at(s.N, i)
			if n > 0 {
				h := math.Max(float64(n)/float64(scale)*chartHeight, 0.8)
				y -= h
				b.Pieces = append(b.Pieces, chartPiece{s.State, y, h})
			}
			b.Title += fmt.Sprintf("\n%s: %s", s.Word, number(n))
		}
		if line.Word != "" {
			n := at(line.N, i)
			b.Title += fmt.Sprintf("\n%s: %s", line.Word, number(n))
			if b.Running && i > 0 && n < at(line.N, i-1) {
				c.Bars = append(c.Bars, b)
				break
			}
			points = append(points, fmt.Sprintf("%d,%.1f", i*chartStep+chartStep/2, chartHeight-float64(n)/float64(scale)*chartHeight))
		}
		c.Bars = append(c.Bars, b)
	}
	c.Line = strings.Join(points, " ")
	return c
}

// add makes the legend, and gives the height of the highest step.
func (c *chart) add(stacked []series, line series, steps int) (top int64) {
	for _, s := range stacked {
		c.Legend = append(c.Legend, legend{s.State, s.Word, total(s.N)})
	}
	if line.Word != "" {
		c.Legend = append(c.Legend, legend{line.State, line.Word, total(line.N)})
	}
	for i := range steps {
		var sum int64
		for _, s := range stacked {
			sum += at(s.N, i)
		}
		top = max(top, sum, at(line.N, i))
	}
	return top
}

func at(list []int64, i int) int64 {
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

// niceTop is the next number of 1, 2 or 5 and zeros.
func niceTop(n int64) int64 {
	for unit := int64(1); unit < math.MaxInt64/10; unit *= 10 {
		for _, f := range []int64{1, 2, 5} {
			if f*unit >= n {
				return f * unit
			}
		}
	}
	return n
}

// stepWords is a count of a step with its unit: 100/min, 50/10 s.
func stepWords(n int64, step time.Duration) string {
	if step <= 0 {
		return number(n)
	}
	for _, unit := range []struct {
		span time.Duration
		word string
	}{{time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}} {
		if many := int64(step / unit.span); many == 1 {
			return number(n) + "/" + unit.word
		} else if many > 1 {
			return fmt.Sprintf("%s/%d %s", number(n), many, unit.word)
		}
	}
	return number(n)
}

// decimal is a number with at most one digit behind the point.
func decimal(f float64) string {
	if f >= 100 {
		return number(int64(f + 0.5))
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0")
}
