package ui

import (
	"math"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

// deployView shows what has changed since the last deploy.
type deployView struct {
	*admin.Marker
	*admin.Comparison // nil: too early to compare
	Rows              []changeRow
}

// changeRow is a figure before and after a deploy.
type changeRow struct {
	Name, Before, After, Change string
	Class                       string // "worse", "better"; "": unchanged or neutral
}

// deployOf compares figures before and after a deploy; nil if there was none.
func deployOf(m *admin.Marker, c *admin.Comparison) *deployView {
	if m == nil {
		return nil
	}
	d := &deployView{Marker: m, Comparison: c}
	if c == nil {
		return d
	}
	b, a := &c.Before, &c.After
	d.Rows = []changeRow{
		changeOf("Enqueued", b.Rates.In, a.Rates.In, format.Rate, false),
		changeOf("Ended", b.Rates.Out, a.Rates.Out, format.Rate, false),
		shareChange(b, a),
		runChange("Run, median", b, a, func(l admin.Latency) float64 { return l.P50.Seconds() }),
		runChange("Run, p95", b, a, func(l admin.Latency) float64 { return l.P95.Seconds() }),
	}
	return d
}

// deployTime is the maximum age of a deploy for a comparison: the API's limit, less some time for the call.
const deployTime = 24*time.Hour - time.Minute

// lastDeploy returns the last deploy that concerns a type, and a queue unless it is ""; nil if there was none recently.
func lastDeploy(req *web.Request, typ, queue string) (*admin.Marker, error) {
	page, err := req.Admin().Markers().ListPage(req.Ctx, admin.MarkerFilter{Kind: admin.MarkerDeploy, Type: typ, Queue: queue,
		Since: req.Now.Add(-deployTime), Until: req.Now},
		pawltype.PageRequest{Limit: 1})
	if err != nil || len(page.Items) == 0 || page.Items[0].At.Before(req.Now.Add(-deployTime)) {
		return nil, err
	}
	return page.Items[0], nil
}

// significantChange is the relative change from which a figure counts as better or worse: smaller ones may come from buckets and chance.
const significantChange = 0.25

// changeOf returns the change of a figure.
func changeOf(name string, before, after float64, text func(float64) string, moreIsWorse bool) changeRow {
	r := changeRow{Name: name, Before: text(before), After: text(after)}
	switch {
	case before == after:
		r.Change = "the same"
	case before == 0:
		r.Change = "new"
	default:
		r.Change = signed(100*(after-before)/before) + " %"
	}
	if moreIsWorse && math.Abs(after-before) > significantChange*before {
		r.Class = "better"
		if after > before {
			r.Class = "worse"
		}
	}
	return r
}

// shareChange returns the change of the share of failed attempts, in percentage points. It counts as better or worse if
// the difference exceeds two standard errors, which happens by chance in one case out of twenty.
func shareChange(before, after *admin.TypePeriod) changeRow {
	share := func(p *admin.TypePeriod) string {
		return format.FailureRate(&admin.Stats{Totals: p.Totals, FailureRate: p.FailureRate})
	}
	r := changeRow{Name: "Attempts that failed", Before: share(before), After: share(after)}
	switch points := 100 * (after.FailureRate - before.FailureRate); {
	case r.Before == "–" || r.After == "–":
		r.Change = "–"
	case math.Abs(points) < 0.05:
		r.Change = "the same"
	default:
		r.Change = signed(points) + " points"
		if math.Abs(points) > 2*100*standardError(before, after) {
			r.Class = "better"
			if points > 0 {
				r.Class = "worse"
			}
		}
	}
	return r
}

// standardError returns the standard error of the difference of the two shares, assuming that both are equal.
func standardError(before, after *admin.TypePeriod) float64 {
	ended := func(p *admin.TypePeriod) float64 {
		return float64(p.Totals.Succeeded + p.Totals.Failed + p.Totals.Crashed)
	}
	n, m := ended(before), ended(after)
	both := (before.FailureRate*n + after.FailureRate*m) / (n + m)
	return math.Sqrt(both * (1 - both) * (1/n + 1/m))
}

// runChange returns the change of a run time, if both periods have runs.
func runChange(name string, before, after *admin.TypePeriod, of func(admin.Latency) float64) changeRow {
	text := func(s float64) string { return format.Duration(time.Duration(s * float64(time.Second))) }
	r := changeOf(name, of(before.Run), of(after.Run), text, true)
	if before.Run.Count == 0 || after.Run.Count == 0 {
		r.Change, r.Class = "–", ""
	}
	if before.Run.Count == 0 {
		r.Before = "–"
	}
	if after.Run.Count == 0 {
		r.After = "–"
	}
	return r
}

func signed(f float64) string {
	if f < 0 {
		return "−" + format.Decimal(-f)
	}
	return "+" + format.Decimal(f)
}
