package chart

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/ui/format"
)

// Spark is a chart the size of a word: succeeded tasks as an area, enqueued ones as a line, and below them marks where attempts went wrong.
type Spark struct {
	Label  string
	Width  int    // in units, one per step
	Area   string // an SVG path; "": none succeeded
	Came   string // an SVG path; "": none were enqueued
	Failed string // an SVG path with one mark per step; "": none went wrong
}

// sparkHeight is the height of a spark's area, sparkFoot that of the marks below it, in units.
const (
	sparkHeight = 20
	sparkFoot   = 3
)

// NewSpark draws a series in as few bytes as possible, as a page has many.
func NewSpark(s *admin.QueueSeries) *Spark {
	if s == nil || len(s.Out) == 0 {
		return nil
	}
	came, succeeded, wrong := humanize.Series(s.In), humanize.Series(s.Succeeded), make([]int64, len(humanize.Series(s.Out)))
	copy(wrong, humanize.Series(s.Failed))
	top := int64(1)
	for i := range wrong {
		top = max(top, valueAt(succeeded, i), valueAt(came, i))
	}
	out := &Spark{Width: len(wrong), Failed: marksOf(wrong), Label: sparkLabel(s)}
	if total(succeeded) > 0 {
		out.Area = stepsOf(succeeded, top) + fmt.Sprintf("V%dz", sparkHeight)
	}
	if total(came) > 0 {
		out.Came = stepsOf(came, top)
	}
	return out
}

// Trend is a chart the size of a word, with the count of every hour.
type Trend struct {
	Label    string
	Width    int
	Area     string // an SVG path; "": nothing
	LastHour int64
}

// NewTrend draws hourly counts. The last one covers the last 60 minutes.
func NewTrend(hours []int64) Trend {
	t := Trend{Width: len(hours)}
	top, all := int64(1), total(hours)
	for _, n := range hours {
		top, t.LastHour = max(top, n), n
	}
	t.Label = fmt.Sprintf("%s in the last hour, %s in %d hours", format.Number(t.LastHour), format.Number(all), len(hours))
	if all > 0 {
		t.Area = stepsOf(hours, top) + fmt.Sprintf("V%dz", sparkHeight)
	}
	return t
}

// sparkLabel describes a spark in words.
func sparkLabel(s *admin.QueueSeries) string {
	parts := []string{format.ShortNumber(total(s.In)) + " enqueued", format.ShortNumber(total(s.Succeeded)) + " succeeded"}
	if n := total(s.Failed); n > 0 {
		parts = append(parts, format.Plural(n, "attempt")+" failed")
	}
	if n := total(s.Poisoned); n > 0 {
		parts = append(parts, format.ShortNumber(n)+" poisoned")
	}
	if n := total(s.Out) - total(s.Succeeded) - total(s.Poisoned); n > 0 {
		parts = append(parts, format.ShortNumber(n)+" ended another way")
	}
	return strings.Join(parts, ", ") + " in " + format.Duration(s.Step*time.Duration(len(s.Out)))
}

// stepsOf returns the path of a step chart from the base line; top is the value at full height.
func stepsOf(n []int64, top int64) string {
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
		h := (v*sparkHeight + top - 1) / top // any value above zero is visible
		if h != height {
			flush()
			b.WriteByte('v')
			b.WriteString(strconv.FormatInt(height-h, 10))
			height = h
		}
		run++
	}
	flush()
	return b.String()
}

// marksOf returns the path of marks at the steps with non-zero values.
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
