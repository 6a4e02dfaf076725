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
	X      int
	Title  string
	Pieces []chartPiece
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

// chartOf draws stacked series, and a line if it has a name. All have a count for each step.
func chartOf(label string, start time.Time, step time.Duration, stacked []series, line series) chart {
	steps := len(line.N)
	for _, s := range stacked {
		steps = max(steps, len(s.N))
	}
	c := chart{Label: label, Width: max(steps, 1) * chartStep, Start: start}
	top := c.add(stacked, line, steps)
	c.Empty = top == 0
	scale := niceTop(top)
	c.Top = rateWords(scale, step)
	var points []string
	for i := range steps {
		b := chartBar{X: i * chartStep, Title: start.Add(time.Duration(i) * step).UTC().Format("15:04:05 MST")}
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

// rateWords is a count of a step as what it is a second or a minute.
func rateWords(n int64, step time.Duration) string {
	if step <= 0 {
		return number(n)
	}
	if s := float64(n) / step.Seconds(); s >= 1 {
		return decimal(s) + "/s"
	}
	return decimal(float64(n)/step.Minutes()) + "/min"
}

// decimal is a number with at most one digit behind the point.
func decimal(f float64) string {
	if f >= 100 {
		return number(int64(f + 0.5))
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0")
}
