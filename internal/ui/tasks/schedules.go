package tasks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

var schedulePages = []web.Page{
	{Path: "/schedules", Template: "schedules", Nav: "/schedules", Show: showSchedules},
	{Path: "/schedules/{schedule}", Template: "schedule", Nav: "/schedules", Show: showSchedule},
}

var scheduleActions = []web.Action{
	{Path: "/new-schedule", Nav: "/schedules", Form: newScheduleForm, Do: doNewSchedule},
	{Path: "/schedules/{schedule}/edit", Nav: "/schedules", Form: editScheduleForm, Do: doEditSchedule},
	{Path: "/schedules/{schedule}/pause", Nav: "/schedules", Form: scheduleForm("Pause",
		"No tasks are enqueued. When you resume, the history records the skipped ticks.", false), Do: doPauseSchedule},
	{Path: "/schedules/{schedule}/resume", Nav: "/schedules", Form: scheduleForm("Resume", "The schedule continues with its next tick.",
		false), Do: doResumeSchedule},
	{Path: "/schedules/{schedule}/trigger", Nav: "/schedules", Form: scheduleForm("Trigger",
		"Enqueues the task now, in addition to the regular ticks.", false), Do: doTrigger},
	{Path: "/schedules/{schedule}/delete", Nav: "/schedules", Form: scheduleForm("Delete",
		"Deletes the schedule and its history. Tasks that it has enqueued stay.", true), Do: doDeleteSchedule},
}

// schedulesLimit and ticksLimit are the page sizes of the lists.
const (
	schedulesLimit = 40
	ticksLimit     = 50
)

type scheduleRow struct {
	*admin.Schedule
	Rule string
}

// Words describes a cron expression in words; "" for an interval, which needs none.
func (s scheduleRow) Words() string {
	if s.Cron == "" {
		return ""
	}
	return s.InWords
}

// ruleText describes when a schedule is due.
func ruleText(s *admin.Schedule) string {
	rule := s.Cron
	if s.Every > 0 {
		rule = "every " + format.Duration(s.Every)
	}
	if s.TimeZone != "" {
		rule += " " + s.TimeZone
	}
	return rule
}

type schedulesView struct {
	Rows []scheduleRow
	web.More
}

func showSchedules(req *web.Request) (*web.Screen, error) {
	page, err := req.Admin().Schedules().ListPage(req.Ctx, pawltype.PageRequest{Limit: schedulesLimit, Cursor: req.Query("cursor")})
	if err != nil {
		return nil, err
	}
	req.Lacks(page.Missing)
	view := schedulesView{More: req.More(page.NextCursor)}
	for _, s := range page.Items {
		view.Rows = append(view.Rows, scheduleRow{s, ruleText(s)})
	}
	return &web.Screen{Title: "Schedules", Data: view, Watch: &web.Watch{Kinds: []admin.EventKind{"schedule.*"}},
			Refresh: web.QuickRefresh},
		nil
}

type scheduleView struct {
	scheduleRow
	Facts   []web.LinkedFact
	Payload *format.Document
	Runs    []run
	Ticks   []*admin.Tick
	web.More
}

// Actions returns the actions on a schedule.
func (s scheduleView) Actions() web.ActionBar {
	edit := web.Ask("Edit…", "schedules", s.Name, "edit").Needing("operate").AsPage() // the form is long
	trigger, resume := web.Ask("Trigger…", "schedules", s.Name, "trigger"), web.Ask("Resume…", "schedules", s.Name, "resume")
	a := web.ActionBar{Main: &trigger, Beside: []web.Button{web.Ask("Pause…", "schedules", s.Name, "pause"), edit},
		Danger: []web.Button{web.Ask("Delete…", "schedules", s.Name, "delete")}}
	if s.Pause != nil {
		a.Main, a.Beside[0] = &resume, trigger
	}
	return a
}

func scheduleOf(req *web.Request) (*admin.Schedule, error) {
	return req.Admin().Schedules().Get(req.Ctx, req.PathValue("schedule"))
}

func showSchedule(req *web.Request) (*web.Screen, error) {
	s, err := scheduleOf(req)
	if err != nil {
		return nil, err
	}
	ticks, err := req.Admin().Schedules().HistoryPage(req.Ctx, s.Name, pawltype.PageRequest{Limit: ticksLimit, Cursor: req.Query("cursor")})
	if err != nil {
		return nil, err
	}
	view := scheduleView{scheduleRow: scheduleRow{s, ruleText(s)}, Facts: web.WithLinks(scheduleFacts(s),
		map[string]string{"Queue": req.URL("queues", s.Task.Queue), "Type": req.Find("queue", s.Task.Queue, "type", s.Task.Type)}),
		Payload: format.DocumentOf(s.Task.Payload, s.Task.ContentType), Runs: runsOf(s), Ticks: ticks.Items,
		More: req.More(ticks.NextCursor)}
	return &web.Screen{Title: "Schedule " + s.Name, Data: view, Watch: &web.Watch{Queue: s.Task.Queue, Type: s.Task.Type}}, nil
}

func scheduleFacts(s *admin.Schedule) []form.Fact {
	facts := []form.Fact{{Name: "Type", Value: s.Task.Type}, {Name: "Queue", Value: s.Task.Queue}, {Name: "Missed ticks",
		Value: string(s.Missed)}, {Name: "Overlap", Value: string(s.Overlap)}}
	add := func(is bool, name, value string) {
		if is {
			facts = append(facts, form.Fact{Name: name, Value: value})
		}
	}
	add(s.Jitter > 0, "Jitter", "up to "+format.Duration(s.Jitter))
	add(s.Owner != "", "Owner", s.Owner)
	add(s.Task.Priority != "", "Priority", string(s.Task.Priority))
	add(s.Task.Key != "", "Key", s.Task.Key)
	add(len(s.Task.Tags) > 0, "Tags", strings.Join(s.Task.Tags, ", "))
	add(s.Task.MaxAttempts > 0, "Attempts", format.Number(s.Task.MaxAttempts))
	add(s.Task.Timeout > 0, "Timeout", format.Duration(s.Task.Timeout))
	add(s.Task.ExpiresIn > 0, "Expires in", format.Duration(s.Task.ExpiresIn))
	add(len(s.Task.Then) > 0, "Then", format.Plural(len(s.Task.Then), "follower"))
	return facts
}

// scheduleFields are the fields of the form for a schedule.
func scheduleFields(s *admin.Schedule) []form.Field {
	fields := []form.Field{
		{Name: "cron", Label: "Cron", Kind: "text", Value: s.Cron, Placeholder: "0 3 * * *",
			Hint: "Five fields, or six with seconds first, or @daily. Leave empty to use an interval."},
		{Name: "every", Label: "Every", Kind: "text", Value: form.DurationText(s.Every), Placeholder: "15m",
			Hint: "An interval instead of cron."},
		{Name: "time_zone", Label: "Time zone", Kind: "text", Value: s.TimeZone, Placeholder: "UTC", Hint: "For example Europe/Vienna."},
	}
	task := templateFields("task.", &s.Task)
	task[0].Heading = "Task to enqueue"
	fields = append(fields, task...)
	return slices.Insert(fields, len(fields)-moreFields, append([]form.Field{form.Reason()}, tickFields(s)...)...)
}

// tickFields are the fields that most schedules leave at their defaults.
func tickFields(s *admin.Schedule) []form.Field {
	missed, overlap := []form.Option{{Value: "once", Label: "enqueue one task for all of them"}, {Value: "skip", Label: "skip them"},
		{Value: "all", Label: "enqueue one task for each"}}, []form.Option{{Value: "allow", Label: "enqueue anyway"},
		{Value: "skip", Label: "skip the tick"}}
	label := func(of []form.Option, value string) string {
		for _, o := range of {
			if o.Value == value {
				return o.Label
			}
		}
		return of[0].Label
	}
	return []form.Field{
		{Fold: "Missed ticks and overlap", FoldSummary: "missed: " + label(missed, string(s.Missed)) + "; overlap: " + label(overlap,
			string(s.Overlap)), Name: "missed", Label: "Missed ticks", Kind: "choice", Options: missed, Value: string(s.Missed)},
		{Name: "overlap", Label: "If the previous task still runs", Kind: "choice", Options: overlap, Value: string(s.Overlap)},
		{Name: "jitter", Label: "Jitter", Kind: "text", Value: form.DurationText(s.Jitter), Placeholder: "none",
			Hint: "Delays each tick by a random time of at most this."},
		{Name: "owner", Label: "Owner", Kind: "text", Value: s.Owner,
			Hint: "Where the schedule is defined, for example a file in a repository."},
	}
}

func newScheduleForm(*web.Request) (*form.Form, error) {
	fields := scheduleFields(&admin.Schedule{})
	fields = append([]form.Field{{Name: "name", Label: "Name", Kind: "text", Required: true, Placeholder: "nightly-report",
		Hint: "Letters, digits and . _ - :"}}, fields...)
	return &form.Form{Title: "New schedule", Wide: true, Button: "Create schedule", Back: "/schedules", Preview: "/schedule-preview",
		Text: "A schedule enqueues a task at fixed times or intervals.", Fields: fields}, nil
}

func editScheduleForm(req *web.Request) (*form.Form, error) {
	s, err := scheduleOf(req)
	if err != nil {
		return nil, err
	}
	return editScheduleFormOf(s), nil
}

func editScheduleFormOf(s *admin.Schedule) *form.Form {
	return &form.Form{Title: "Edit " + s.Name, Wide: true, Button: "Save", Back: "/schedules/" + s.Name, Preview: "/schedule-preview",
		Version: s.ETag, Text: "Task options that the form does not show, such as follow-up tasks, are kept.", Fields: scheduleFields(s)}
}

// readSchedule changes a schedule to the fields of a form, which showed it. The rest, such as follow-up tasks, stays.
func readSchedule(r *form.Reader, s admin.Schedule) (admin.ScheduleSpec, error) {
	form.Set(r, &s.Cron, r.Text, "cron")
	form.Set(r, &s.Every, r.Duration, "every")
	form.Set(r, &s.TimeZone, r.Text, "time_zone")
	form.Set(r, &s.Jitter, r.Duration, "jitter")
	form.Set(r, &s.Missed, func(name string) admin.Missed { return admin.Missed(r.Text(name)) }, "missed")
	form.Set(r, &s.Overlap, func(name string) admin.Overlap { return admin.Overlap(r.Text(name)) }, "overlap")
	form.Set(r, &s.Owner, r.Text, "owner")
	t := readTemplate(r, "task.", s.Task)
	return admin.ScheduleSpec{Name: s.Name, Cron: s.Cron, Every: s.Every, TimeZone: s.TimeZone, Jitter: s.Jitter, Missed: s.Missed,
		Overlap: s.Overlap, Owner: s.Owner, Task: argsOf(&t), Options: allOptions(&t)}, r.Err
}

// argsOf returns a task without its options.
func argsOf(t *admin.ScheduledTask) pawl.RawTask {
	return pawl.RawTask{Type: t.Type, Payload: t.Payload, ContentType: t.ContentType}
}

// allOptions returns all options of a task.
func allOptions(t *admin.ScheduledTask) (opts []pawl.Option) {
	set := func(is bool, o pawl.Option) {
		if is {
			opts = append(opts, o)
		}
	}
	for _, f := range t.Then {
		opts = append(opts, pawl.Then(argsOf(&f), allOptions(&f)...))
	}
	if t.Retry != nil {
		opts = append(opts, pawl.Retry(*t.Retry))
	}
	if t.Retention != nil {
		opts = append(opts, pawl.Retention(*t.Retention))
	}
	if t.Unique != nil {
		opts = append(opts, pawl.Unique(*t.Unique))
	}
	for name, value := range t.Headers {
		opts = append(opts, pawl.Header(name, value))
	}
	set(t.Cost > 0, pawl.Cost(t.Cost))
	set(t.Queue != "", pawl.Queue(t.Queue))
	set(t.Priority != "", pawl.Priority(t.Priority))
	set(t.Key != "", pawl.Key(t.Key))
	set(t.MaxAttempts > 0, pawl.MaxAttempts(t.MaxAttempts))
	set(t.Timeout > 0, pawl.Timeout(t.Timeout))
	set(t.ExpiresIn > 0, pawl.ExpiresIn(t.ExpiresIn))
	set(len(t.Tags) > 0, pawl.Tags(t.Tags...))
	set(t.In > 0, pawl.In(t.In))
	set(!t.At.IsZero(), pawl.At(t.At))
	set(t.IdempotencyKey != "", pawl.IdempotencyKey(t.IdempotencyKey))
	set(t.IdempotencyTTL > 0, pawl.IdempotencyTTL(t.IdempotencyTTL))
	return opts
}

func doNewSchedule(req *web.Request) (web.Done, error) {
	s, err := readSchedule(req.Reader(), admin.Schedule{Name: req.Value("name")})
	if err != nil {
		return web.Done{}, err
	}
	change, err := req.Admin().WithReason(req.Value("reason")).Schedules().Create(req.Ctx, s)
	if err != nil {
		return web.Done{}, err
	}
	return web.Done{Message: "Created. Next tick " + format.Ago(change.Schedule.NextRunAt, time.Now()).Text + ".",
		Next: "/schedules/" + s.Name}, nil
}

func scheduleDone(req *web.Request, format string, args ...any) web.Done {
	return web.Done{Message: fmt.Sprintf(format, args...), Next: "/schedules/" + req.PathValue("schedule")}
}

func doEditSchedule(req *web.Request) (web.Done, error) {
	version, err := req.Version()
	if err != nil {
		return web.Done{}, err
	}
	before, err := scheduleOf(req)
	if err != nil {
		return web.Done{}, err
	}
	s, err := readSchedule(req.Edits(editScheduleFormOf(before)), *before)
	if err != nil {
		return web.Done{}, err
	}
	change, err := req.Admin().WithReason(req.Value("reason")).Schedules().PutIfMatch(req.Ctx, version, s)
	if err != nil {
		return web.Done{}, err
	}
	return scheduleDone(req, "Saved: %s.", change.Change), nil
}

func scheduleForm(verb, text string, danger bool) func(*web.Request) (*form.Form, error) {
	return func(req *web.Request) (*form.Form, error) {
		s, err := scheduleOf(req)
		if err != nil {
			return nil, err
		}
		return &form.Form{Title: verb + " " + s.Name, Text: text, Button: verb, Danger: danger, Back: "/schedules/" + s.Name,
			Facts: scheduleAsked(s), Fields: []form.Field{form.Reason()}}, nil
	}
}

// scheduleAsked returns the facts shown in the form of an action on a schedule.
func scheduleAsked(s *admin.Schedule) []form.Fact {
	facts := []form.Fact{{Name: "When", Value: ruleText(s)}}
	if words := (scheduleRow{Schedule: s}).Words(); words != "" {
		facts = append(facts, form.Fact{Name: "In words", Value: words})
	}
	return append(facts, form.Fact{Name: "Type", Value: s.Task.Type}, form.Fact{Name: "Queue", Value: s.Task.Queue})
}

func doPauseSchedule(req *web.Request) (web.Done, error) {
	if _, err := req.Admin().WithReason(req.Value("reason")).Schedules().Pause(req.Ctx, req.PathValue("schedule")); err != nil {
		return web.Done{}, err
	}
	return scheduleDone(req, "Paused."), nil
}

func doResumeSchedule(req *web.Request) (web.Done, error) {
	if _, err := req.Admin().WithReason(req.Value("reason")).Schedules().Resume(req.Ctx, req.PathValue("schedule")); err != nil {
		return web.Done{}, err
	}
	return scheduleDone(req, "Resumed."), nil
}

func doTrigger(req *web.Request) (web.Done, error) {
	ref, err := req.Admin().WithReason(req.Value("reason")).Schedules().Trigger(req.Ctx, req.PathValue("schedule"))
	if err != nil {
		return web.Done{}, err
	}
	if ref.ID == "" { // its task is on the way to another shard
		return scheduleDone(req, "Triggered."), nil
	}
	return web.Done{Message: "Triggered. This is the task.", Next: "/tasks/" + ref.ID}, nil
}

func doDeleteSchedule(req *web.Request) (web.Done, error) {
	name := req.PathValue("schedule")
	if err := req.Admin().WithReason(req.Value("reason")).Schedules().Delete(req.Ctx, name); err != nil {
		return web.Done{}, err
	}
	return web.Done{Message: "Deleted schedule " + name + ".", Next: "/schedules"}, nil
}
