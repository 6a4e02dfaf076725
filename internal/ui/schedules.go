package ui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/live"
	"github.com/pawlq/pawl/pawltype"
)

var schedulePages = []page{
	{path: "/schedules", template: "schedules", nav: "/schedules", show: showSchedules},
	{path: "/schedules/{schedule}", template: "schedule", nav: "/schedules", show: showSchedule},
}

var scheduleActions = []action{
	{path: "/new-schedule", nav: "/schedules", form: newScheduleForm, do: doNewSchedule},
	{path: "/schedules/{schedule}/edit", nav: "/schedules", form: editScheduleForm, do: doEditSchedule},
	{path: "/schedules/{schedule}/pause", nav: "/schedules", form: scheduleForm("Pause", "No tasks are enqueued. When you resume, the history records the skipped ticks.", false), do: doPauseSchedule},
	{path: "/schedules/{schedule}/resume", nav: "/schedules", form: scheduleForm("Resume", "The schedule continues with its next tick.", false), do: doResumeSchedule},
	{path: "/schedules/{schedule}/trigger", nav: "/schedules", form: scheduleForm("Trigger", "Enqueues the task now, in addition to the regular ticks.", false), do: doTrigger},
	{path: "/schedules/{schedule}/delete", nav: "/schedules", form: scheduleForm("Delete", "Deletes the schedule and its history. Tasks that it has enqueued stay.", true), do: doDeleteSchedule},
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
	more
}

func showSchedules(v *visit) (*screen, error) {
	page, err := v.admin().Schedules().ListPage(v.ctx, pawltype.PageRequest{Limit: schedulesLimit, Cursor: v.query("cursor")})
	if err != nil {
		return nil, err
	}
	view := schedulesView{more: v.moreOf(page.NextCursor)}
	for _, s := range page.Items {
		view.Rows = append(view.Rows, scheduleRow{s, ruleText(s)})
	}
	return &screen{Title: "Schedules", Data: view, Watch: &live.Watch{Kinds: []admin.EventKind{"schedule.*"}}, Beat: quickRefresh}, nil
}

type scheduleView struct {
	scheduleRow
	Facts   []linkedFact
	Payload *format.Document
	Runs    []run
	Ticks   []*admin.Tick
	more
}

func (v *visit) schedule() (*admin.Schedule, error) {
	return v.admin().Schedules().Get(v.ctx, v.r.PathValue("schedule"))
}

func showSchedule(v *visit) (*screen, error) {
	s, err := v.schedule()
	if err != nil {
		return nil, err
	}
	ticks, err := v.admin().Schedules().HistoryPage(v.ctx, s.Name, pawltype.PageRequest{Limit: ticksLimit, Cursor: v.query("cursor")})
	if err != nil {
		return nil, err
	}
	view := scheduleView{scheduleRow: scheduleRow{s, ruleText(s)}, Facts: linked(scheduleFacts(s), map[string]string{"Queue": v.url("queues", s.Task.Queue), "Type": v.find("queue", s.Task.Queue, "type", s.Task.Type)}), Payload: format.DocumentOf(s.Task.Payload, s.Task.ContentType), Runs: runsOf(s),
		Ticks: ticks.Items, more: v.moreOf(ticks.NextCursor)}
	return &screen{Title: "Schedule " + s.Name, Data: view, Watch: &live.Watch{Queue: s.Task.Queue, Type: s.Task.Type}}, nil
}

func scheduleFacts(s *admin.Schedule) []form.Fact {
	facts := []form.Fact{{Name: "Type", Value: s.Task.Type}, {Name: "Queue", Value: s.Task.Queue}, {Name: "Missed ticks", Value: string(s.Missed)}, {Name: "Overlap", Value: string(s.Overlap)}}
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
		{Name: "cron", Label: "Cron", Kind: "text", Value: s.Cron, Placeholder: "0 3 * * *", Hint: "Five fields, or six with seconds first, or @daily. Leave empty to use an interval."},
		{Name: "every", Label: "Every", Kind: "text", Value: form.DurationText(s.Every), Placeholder: "15m", Hint: "An interval instead of cron."},
		{Name: "time_zone", Label: "Time zone", Kind: "text", Value: s.TimeZone, Placeholder: "UTC", Hint: "For example Europe/Vienna."},
	}
	task := templateFields("task.", &s.Task)
	task[0].Heading = "Task to enqueue"
	fields = append(fields, task...)
	return slices.Insert(fields, len(fields)-moreFields, append([]form.Field{form.Reason()}, tickFields(s)...)...)
}

// tickFields are the fields that most schedules leave at their defaults.
func tickFields(s *admin.Schedule) []form.Field {
	missed, overlap := []form.Option{{Value: "once", Label: "enqueue one task for all of them"}, {Value: "skip", Label: "skip them"}, {Value: "all", Label: "enqueue one task for each"}}, []form.Option{{Value: "allow", Label: "enqueue anyway"}, {Value: "skip", Label: "skip the tick"}}
	label := func(of []form.Option, value string) string {
		for _, o := range of {
			if o.Value == value {
				return o.Label
			}
		}
		return of[0].Label
	}
	return []form.Field{
		{Fold: "Missed ticks and overlap", FoldSummary: "missed: " + label(missed, string(s.Missed)) + "; overlap: " + label(overlap, string(s.Overlap)), Name: "missed", Label: "Missed ticks", Kind: "choice", Options: missed, Value: string(s.Missed)},
		{Name: "overlap", Label: "If the previous task still runs", Kind: "choice", Options: overlap, Value: string(s.Overlap)},
		{Name: "jitter", Label: "Jitter", Kind: "text", Value: form.DurationText(s.Jitter), Placeholder: "none", Hint: "Delays each tick by a random time of at most this."},
		{Name: "owner", Label: "Owner", Kind: "text", Value: s.Owner, Hint: "Where the schedule is defined, for example a file in a repository."},
	}
}

func newScheduleForm(*visit) (*form.Form, error) {
	fields := scheduleFields(&admin.Schedule{})
	fields = append([]form.Field{{Name: "name", Label: "Name", Kind: "text", Required: true, Placeholder: "nightly-report", Hint: "Letters, digits and . _ - :"}}, fields...)
	return &form.Form{Title: "New schedule", Wide: true, Button: "Create schedule", Back: "/schedules", Preview: "/schedule-preview", Text: "A schedule enqueues a task at fixed times or intervals.", Fields: fields}, nil
}

func editScheduleForm(v *visit) (*form.Form, error) {
	s, err := v.schedule()
	if err != nil {
		return nil, err
	}
	return &form.Form{Title: "Edit " + s.Name, Wide: true, Button: "Save", Back: "/schedules/" + s.Name, Preview: "/schedule-preview", Version: s.ETag,
		Text: "Task options that the form does not show, such as follow-up tasks, are kept.", Fields: scheduleFields(s)}, nil
}

// readSchedule reads a schedule from a form. Options that the form doesn't have are kept from before.
func (v *visit) readSchedule(name string, before *admin.ScheduledTask) (admin.ScheduleSpec, error) {
	r := v.reader()
	args, opts := readTemplate(r, "task.")
	unique := readUnique(r, "task.")
	s := admin.ScheduleSpec{Name: name, Cron: r.Text("cron"), Every: r.Duration("every"), TimeZone: r.Text("time_zone"), Jitter: r.Duration("jitter"),
		Missed: admin.Missed(r.Text("missed")), Overlap: admin.Overlap(r.Text("overlap")), Owner: r.Text("owner"), Options: opts}
	if before != nil {
		args.ContentType = before.ContentType
		s.Options = append(s.Options, restOptions(before)...)
		if unique != nil && before.Unique != nil {
			unique.States = before.Unique.States
		}
	}
	if unique != nil {
		s.Options = append(s.Options, pawl.Unique(*unique))
	}
	s.Task = args
	return s, r.Err
}

// restOptions returns a task's options that templateFields don't have.
func restOptions(t *admin.ScheduledTask) (opts []pawl.Option) {
	if t.Cost > 0 {
		opts = append(opts, pawl.Cost(t.Cost))
	}
	for _, f := range t.Then {
		opts = append(opts, pawl.Then(pawl.RawTask{Type: f.Type, Payload: f.Payload, ContentType: f.ContentType}, allOptions(&f)...))
	}
	return opts
}

// allOptions returns all options of a follow-up task.
func allOptions(t *admin.ScheduledTask) []pawl.Option {
	opts := restOptions(t)
	set := func(is bool, o pawl.Option) {
		if is {
			opts = append(opts, o)
		}
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

func doNewSchedule(v *visit) (done, error) {
	s, err := v.readSchedule(v.value("name"), nil)
	if err != nil {
		return done{}, err
	}
	change, err := v.admin().WithReason(v.value("reason")).Schedules().Create(v.ctx, s)
	if err != nil {
		return done{}, err
	}
	return done{Said: "Created. Next tick " + format.Ago(change.Schedule.NextRunAt, time.Now()).Text + ".", Next: "/schedules/" + s.Name}, nil
}

func (v *visit) scheduleDone(format string, args ...any) done {
	return done{Said: fmt.Sprintf(format, args...), Next: "/schedules/" + v.r.PathValue("schedule")}
}

func doEditSchedule(v *visit) (done, error) {
	version, err := v.version()
	if err != nil {
		return done{}, err
	}
	before, err := v.schedule()
	if err != nil {
		return done{}, err
	}
	s, err := v.readSchedule(before.Name, &before.Task)
	if err != nil {
		return done{}, err
	}
	change, err := v.admin().WithReason(v.value("reason")).Schedules().PutIfMatch(v.ctx, version, s)
	if err != nil {
		return done{}, err
	}
	return v.scheduleDone("Saved: %s.", change.Change), nil
}

func scheduleForm(verb, text string, danger bool) func(*visit) (*form.Form, error) {
	return func(v *visit) (*form.Form, error) {
		s, err := v.schedule()
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

func doPauseSchedule(v *visit) (done, error) {
	if _, err := v.admin().Schedules().Pause(v.ctx, v.r.PathValue("schedule"), v.value("reason")); err != nil {
		return done{}, err
	}
	return v.scheduleDone("Paused."), nil
}

func doResumeSchedule(v *visit) (done, error) {
	if _, err := v.admin().WithReason(v.value("reason")).Schedules().Resume(v.ctx, v.r.PathValue("schedule")); err != nil {
		return done{}, err
	}
	return v.scheduleDone("Resumed."), nil
}

func doTrigger(v *visit) (done, error) {
	ref, err := v.admin().WithReason(v.value("reason")).Schedules().Trigger(v.ctx, v.r.PathValue("schedule"))
	if err != nil {
		return done{}, err
	}
	if ref.ID == "" { // its task is on the way to another shard
		return v.scheduleDone("Triggered."), nil
	}
	return done{Said: "Triggered. This is the task.", Next: "/tasks/" + ref.ID}, nil
}

func doDeleteSchedule(v *visit) (done, error) {
	name := v.r.PathValue("schedule")
	if err := v.admin().WithReason(v.value("reason")).Schedules().Delete(v.ctx, name); err != nil {
		return done{}, err
	}
	return done{Said: "Deleted schedule " + name + ".", Next: "/schedules"}, nil
}
