package ui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
)

// spark is a chart as small as a word: what succeeded, as an area, what came, as a line, and below them where attempts went wrong.
type spark struct {
	Label  string
	Width  int    // in units: one for each step
	Area   string // a path; "": nothing succeeded
	Came   string // a path; "": nothing came
	Failed string // a path of one mark for each step; "": none went wrong
}

// sparkHeight is the units of a spark's area, sparkFoot those of the marks below it.
const (
	sparkHeight = 20
	sparkFoot   = 3
)

// sparkOf draws a series with as few bytes as it takes, as a page has many.
func sparkOf(s *admin.QueueSeries) *spark {
	if s == nil || len(s.Out) == 0 {
		return nil
	}
	came, succeeded, failed, poisoned := humanize.Series(s.In), humanize.Series(s.Succeeded), humanize.Series(s.Failed), humanize.Series(s.Poisoned)
	wrong := make([]int64, len(humanize.Series(s.Out)))
	top := int64(1)
	for i := range wrong {
		wrong[i] = valueAt(failed, i) + valueAt(poisoned, i) // an attempt that found poison is not among those that failed
		top = max(top, valueAt(succeeded, i), valueAt(came, i))
	}
	out := &spark{Width: len(wrong), Failed: marksOf(wrong), Label: sparkLabel(s)}
	if total(succeeded) > 0 {
		out.Area = stepsOf(succeeded, top) + fmt.Sprintf("V%dz", sparkHeight)
	}
	if total(came) > 0 {
		out.Came = stepsOf(came, top)
	}
	return out
}

// trend is a chart as small as a word, of how many came in each hour.
type trend struct {
	Label    string
	Width    int
	Area     string // a path; "": none came
	LastHour int64
}

// trendOf draws hours, the last of which is the last 60 minutes.
func trendOf(hours []int64) trend {
	t := trend{Width: len(hours)}
	top, all := int64(1), total(hours)
	for _, n := range hours {
		top, t.LastHour = max(top, n), n
	}
	t.Label = fmt.Sprintf("%s in the last hour, %s in %d hours", number(t.LastHour), number(all), len(hours))
	if all > 0 {
		t.Area = stepsOf(hours, top) + fmt.Sprintf("V%dz", sparkHeight)
	}
	return t
}

// sparkLabel is what a spark shows, in words.
func sparkLabel(s *admin.QueueSeries) string {
	said := []string{shortNumber(total(s.In)) + " enqueued", shortNumber(total(s.Succeeded)) + " succeeded"}
	if n := total(s.Failed); n > 0 {
		said = append(said, plural(n, "attempt")+" failed")
	}
	if n := total(s.Poisoned); n > 0 {
		said = append(said, shortNumber(n)+" poisoned")
	}
	if n := total(s.Out) - total(s.Succeeded) - total(s.Poisoned); n > 0 {
		said = append(said, shortNumber(n)+" ended another way")
	}
	return strings.Join(said, ", ") + " in " + spanText(s.Step*time.Duration(len(s.Out)))
}

// stepsOf is the path of steps of these heights, from the ground; top is as high as can be.
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
