package ui

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
)

// run is a tick to come.
type run struct {
	At    time.Time
	Local string // by the clocks of the schedule's time zone
	UTC   string // "": that is the zone
	Shift string // how clocks have changed since the run before; "": they have not
}

// runsOf are the next ticks of a schedule.
func runsOf(s *admin.Schedule) (runs []run) {
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil { // the server knew it; this page shows UTC then
		zone = time.UTC
	}
	if s.PlannedAt.IsZero() {
		return nil
	}
	before := 0 // seconds between the zone and UTC at the run before
	for i, at := range append([]time.Time{s.PlannedAt}, s.Coming...) {
		local := at.In(zone)
		_, offset := local.Zone()
		r := run{At: at, Local: local.Format("Mon 2 Jan 2006 15:04:05 MST")}
		if !isUTC(zone) {
			r.UTC = at.UTC().Format("2 Jan 15:04:05")
		}
		if i > 0 && offset != before {
			r.Shift = fmt.Sprintf("clocks change by %+d min", (offset-before)/60)
		}
		before = offset
		runs = append(runs, r)
	}
	return runs
}

// isUTC tells of UTC by any of its names, and not of a zone that keeps its time in winter only.
func isUTC(zone *time.Location) bool { return slices.Contains(utcNames, zone.String()) }

var utcNames = []string{"UTC", "", "Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "UCT", "Universal", "Zulu", "GMT", "Etc/GMT"}

// previewView is what a schedule that is being written would do.
type previewView struct {
	Words   string // when it would be due
	Runs    []run
	Refused string
}

// previewSchedule shows the next ticks of what stands in a form, before it is sent.
func previewSchedule(v *visit) error {
	r := &reader{v: v, from: v.r.URL.Query()}
	s := admin.ScheduleSpec{Name: "preview", Cron: r.text("cron"), Every: r.span("every"), TimeZone: r.text("time_zone"), Task: pawl.RawTask{Type: "preview"}}
	var view previewView
	switch {
	case r.err != nil:
		view.Refused = problemOf(eachError(r.err)[0]).Message
	case s.Cron != "" || s.Every > 0:
		change, err := v.admin().Schedules().Preview(v.ctx, s)
		if err != nil {
			view.Refused = problemOf(err).Message
		} else {
			view.Runs, view.Words = runsOf(change.Schedule), change.Schedule.InWords
		}
	}
	return v.render(http.StatusOK, "preview", "live", view)
}
