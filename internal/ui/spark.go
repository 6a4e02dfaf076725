package ui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl"
)

// spark is a chart as small as a word: what ended, as an area, and below it where attempts failed.
type spark struct {
	Label  string
	Width  int    // in units: one for each step
	Area   string // a path
	Failed string // a path of one mark for each step; "": none failed
}

// sparkHeight is the units of a spark's area, sparkFoot those of the marks below it.
const (
	sparkHeight = 20
	sparkFoot   = 3
)

// sparkOf draws a series with as few bytes as it takes, as a page has many.
func sparkOf(s *pawl.QueueSeries) *spark {
	if s == nil || len(s.Out) == 0 {
		return nil
	}
	out := &spark{Width: len(s.Out), Area: areaOf(s.Out), Failed: marksOf(s.Failed)}
	out.Label = fmt.Sprintf("%s in, %s ended in %s", shortNumber(total(s.In)), shortNumber(total(s.Out)), spanText(s.Step*time.Duration(len(s.Out))))
	if n := total(s.Failed); n > 0 {
		out.Label += ", " + plural(n, "attempt") + " failed"
	}
	return out
}

// areaOf is the path of steps of these heights, on the ground.
func areaOf(n []int64) string {
	top := max(slices.Max(n), 1)
	var b strings.Builder
	fmt.Fprintf(&b, "M0 %d", sparkHeight)
	height, run := int64(0), 0
	flush := func() {
		if run > 0 {
			b.WriteByte('h')
			b.WriteString(strconv.Itoa(run))
			run = 0
		}
	}
	for _, v := range n {
		h := (v*sparkHeight + top - 1) / top // what is more than nothing can be seen
		if h != height {
			flush()
			b.WriteByte('v')
			b.WriteString(strconv.FormatInt(height-h, 10))
			height = h
		}
		run++
	}
	flush()
	fmt.Fprintf(&b, "V%dz", sparkHeight)
	return b.String()
}

// marksOf is the path of marks at the steps that have any.
func marksOf(n []int64) string {
	var b strings.Builder
	for i := 0; i < len(n); i++ {
		from := i
		for i < len(n) && n[i] > 0 {
			i++
		}
		if i > from {
			fmt.Fprintf(&b, "M%d %dh%dv%dh-%dz", from, sparkHeight, i-from, sparkFoot, i-from)
		}
	}
	return b.String()
}
