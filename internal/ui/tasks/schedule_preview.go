package tasks

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/web"
)

// run is a future run of a schedule.
type run struct {
	At    time.Time
	Local string // local time in the schedule's zone
	UTC   string // "": the zone is UTC
	Shift string // the change of the clocks since the previous run; "": none
}

// runsOf returns the next runs of a schedule.
func runsOf(s *admin.Schedule) (runs []run) {
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil { // the server knows the zone but this process doesn't; show UTC
		zone = time.UTC
	}
	if s.PlannedAt.IsZero() {
		return nil
	}
	before := 0 // offset from UTC at the previous run, in seconds
	for i, at := range append([]time.Time{s.PlannedAt}, s.Coming...) {
		local := at.In(zone)
		_, offset := local.Zone()
		r := run{At: at, Local: local.Format("Mon 2 Jan 2006 15:04:05 MST")}
		if !isUTC(zone) {
			r.UTC = at.UTC().Format("2 Jan 15:04:05")
		}
		if i > 0 && offset != before {
			r.Shift = fmt.Sprintf("clocks shift by %+d min", (offset-before)/60)
		}
		before = offset
		runs = append(runs, r)
	}
	return runs
}

// isUTC reports whether a zone is UTC by any of its names, rather than a zone that matches UTC only in winter.
func isUTC(zone *time.Location) bool { return slices.Contains(utcNames, zone.String()) }

var utcNames = []string{"UTC", "", "Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "UCT", "Universal", "Zulu", "GMT", "Etc/GMT"}

// previewView shows what a schedule being edited would do.
type previewView struct {
	Words   string // when it would be due, in words
	Runs    []run
	Refused string
}

// previewSchedule shows the next runs of the schedule in a form before the form is sent.
func previewSchedule(req *web.Request) error {
	r := form.NewReader(req.HTTP.URL.Query(), req.Now)
	s := admin.ScheduleSpec{Name: "preview", Cron: r.Text("cron"), Every: r.Duration("every"), TimeZone: r.Text("time_zone"),
		Task: pawl.RawTask{Type: "preview"}}
	var view previewView
	switch {
	case r.Err != nil:
		view.Refused = format.ProblemOf(format.EachError(r.Err)[0]).Message
	case s.Cron != "" || s.Every > 0:
		change, err := req.Admin().Schedules().Preview(req.Ctx, s)
		if err != nil {
			view.Refused = format.ProblemOf(err).Message
		} else {
			view.Runs, view.Words = runsOf(change.Schedule), change.Schedule.InWords
		}
	}
	return req.Render(http.StatusOK, "preview", "live", view)
}
