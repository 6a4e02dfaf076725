package chart

import (
	"fmt"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/format"
)

// Shares charts the share of attempts that failed: a bar for each step in which attempts ended.
type Shares struct {
	Label string
	Bars  []ShareBar
	Top   string // the value at the upper edge
	Start time.Time
	Empty bool // none failed
	None  bool // no attempt ended
}

// ShareBar is the bar of a step.
type ShareBar struct {
	X, Width, Y, Height string
	Class               string // "f-dead", or "quiet" if attempts ended and none failed
	At, Title           string
}

// shareTops are the possible values at the upper edge.
var shareTops = []float64{0.01, 0.05, 0.1, 0.25, 0.5, 1}

// NewShares draws the share of attempts that failed in each step.
func NewShares(s *admin.Stats) Shares {
	c := Shares{Label: "Attempts that failed: " + format.FailureRate(s), Start: s.Start, Empty: true, None: true}
	most := 0.0
	for _, e := range s.Series {
		most = max(most, shareOf(e))
	}
	top := 1.0
	for i := len(shareTops) - 1; i >= 0 && shareTops[i] >= most; i-- {
		top = shareTops[i]
	}
	c.Top = format.Decimal(100*top) + " %"
	width, now := 1/float64(max(len(s.Series), 1)), time.Now()
	for i, e := range s.Series {
		bad, ended := e.Failed+e.Crashed, e.Failed+e.Crashed+e.Succeeded
		if ended == 0 {
			continue
		}
		begins := s.Start.Add(time.Duration(i) * s.Step)
		b := ShareBar{X: percent(float64(i) * width), Width: percent(width * 0.9), Class: "quiet", At: begins.UTC().Format(time.RFC3339),
			Title: fmt.Sprintf("%s\n%s of %s failed, %s %%", format.Clock(begins, now), format.Number(bad), format.Plural(ended, "attempt"),
				format.Decimal(100*shareOf(e)))}
		height := 0.03
		if c.None = false; bad > 0 {
			b.Class, c.Empty, height = "f-dead", false, max(shareOf(e)/top, 0.04)
		}
		b.Y, b.Height = percent(1-height), percent(height)
		c.Bars = append(c.Bars, b)
	}
	return c
}

// shareOf returns the share of attempts that failed; 0 if none ended.
func shareOf(e admin.EventCounts) float64 {
	bad := e.Failed + e.Crashed
	if bad == 0 {
		return 0
	}
	return float64(bad) / float64(bad+e.Succeeded)
}
