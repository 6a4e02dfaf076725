package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/live"
	"github.com/pawlq/pawl/internal/ui/problem"
	"github.com/pawlq/pawl/pawltype"
)

var taskActions = []action{
	{path: "/tasks/{task}/retry", nav: "/tasks", form: taskForm("Retry", "The task becomes ready now. A task that had ended gets fresh attempts.", false), do: doTask("Retried.", admin.Tasks.Retry)},
	{path: "/tasks/{task}/run-now", nav: "/tasks", form: taskForm("Run now", "The task becomes ready now instead of at its due time.", false), do: doTask("The task is ready.", admin.Tasks.RunNow)},
	{path: "/tasks/{task}/cancel", nav: "/tasks", form: taskForm("Cancel", "The task ends. A handler that runs it has its context cancelled within a second.", true), do: doCancelTask},
	{path: "/tasks/{task}/discard", nav: "/tasks", form: taskForm("Discard", "The task ends as discarded. A dead letter is archived first.", true), do: doDiscardTask},
	{path: "/tasks/{task}/edit", nav: "/tasks", form: editTaskForm, do: doEditTask},
}

// rawAddresses serve the full text of what pages cut off, and the preview of a form that is being filled in.
var rawAddresses = []raw{
	{path: "/schedule-preview", serve: previewSchedule},
	{path: "/search/complete", serve: serveCompletion},
	{path: "/tasks/{task}/payload", serve: rawPart(func(t *pawltype.Task) []byte { return t.Payload })},
	{path: "/tasks/{task}/result", serve: rawPart(func(t *pawltype.Task) []byte { return t.Result })},
	{path: "/tasks/{task}/checkpoint", serve: rawPart(func(t *pawltype.Task) []byte { return t.Checkpoint })},
}

func rawPart(part func(*pawltype.Task) []byte) func(*visit) error {
	return func(v *visit) error {
		t, err := v.task()
		if err != nil {
			return err
		}
		h := v.w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; sandbox; frame-ancestors 'none'")
		h.Set("Cache-Control", "no-store")
		_, _ = v.w.Write(part(t)) // on failure the client is gone
		return nil
	}
}

func (v *visit) task() (*pawltype.Task, error) { return v.client.Task(v.ctx, v.r.PathValue("task")) }

type taskView struct {
	*pawltype.Task
	Why        *admin.Explanation
	WhyNot     string
	Payload    *format.Document
	Result     *format.Document
	Checkpoint *format.Document
	Attempts   []attemptRow
	Newer      string // URL of the attempts after those shown; "": none
	Older      string // URL of those before
	Cut        int    // number of those before
	Facts      []linkedFact
	Headers    []form.Fact
	Commands   []form.Fact
	Actions    actionBar
	Flow       *flow // nil: it has no neighbours
	// LastError is the failure of the newest attempt, until the task has run again; nil: none. Advice says what to do about it.
	LastError *attemptRow
	Advice    string
}

// Ended reports whether the task doesn't run again by itself.
func (t *taskView) Ended() bool { return !t.EndedAt.IsZero() }

// ShowWhy reports whether the page explains the task's state. If the task ended with an error, the error is the explanation.
func (t *taskView) ShowWhy() bool { return !t.Ended() || t.LastError == nil }

// can are the actions possible in a state.
type can struct{ Retry, RunNow, Cancel, Discard, Edit bool }

func canOf(s pawltype.State) can {
	switch s {
	case pawltype.StateScheduled:
		return can{RunNow: true, Cancel: true, Discard: true, Edit: true}
	case pawltype.StateReady:
		return can{Cancel: true, Discard: true, Edit: true}
	case pawltype.StateRetrying:
		return can{Retry: true, RunNow: true, Cancel: true, Discard: true, Edit: true}
	case pawltype.StateClaimed:
		return can{Cancel: true}
	case pawltype.StateDead, pawltype.StatePoisoned:
		return can{Retry: true, Discard: true}
	case pawltype.StateDiscarded, pawltype.StateCancelled:
		return can{Retry: true}
	}
	return can{}
}

// attemptRow is an attempt in the timeline.
type attemptRow struct {
	pawltype.Attempt
	Outcome string
	Took    time.Duration
	Stack   string
	Message string
	Cut     bool // the message was shortened
	Above   bool // the error is shown at the top of the page
}

// maxAttempts is how many attempts a page shows; maxStack limits what it shows of each stack.
const (
	maxAttempts = 10
	maxStack    = 2 << 10
	maxErrors   = 600
)

func showTask(v *visit) (*screen, error) {
	t, err := v.task()
	if err != nil {
		return nil, err
	}
	view := &taskView{Task: t, Actions: v.taskActions(t), Payload: format.DocumentOf(t.Payload, t.ContentType), Result: format.DocumentOf(t.Result, t.ResultContentType),
		Checkpoint: format.DocumentOf(t.Checkpoint, checkpointKind(t.Checkpoint)), Facts: linked(taskFacts(t), map[string]string{"Queue": v.url("queues", t.Queue), "Worker": v.find("worker", t.Worker)}), Commands: v.commands(t)}
	if err := v.attempts(view); err != nil {
		return nil, err
	}
	view.Headers = headerFacts(t.Headers)
	if view.Why, err = v.admin().Tasks().Explain(v.ctx, t.ID); err != nil {
		view.WhyNot = problem.Of(err).Message
	}
	view.Flow = v.flowOfTask(t)
	view.lastError(v.now)
	return &screen{Title: t.Type + " " + t.ID, Data: view, Watch: &live.Watch{Task: t.ID}}, nil
}

// lastError moves the failure of the newest attempt to the top of the page.
func (t *taskView) lastError(now time.Time) {
	n := len(t.AttemptLog)
	if n == 0 || t.AttemptLog[n-1].Error == nil || t.State == pawltype.StateSucceeded {
		return
	}
	t.LastError = &attemptRows(t.AttemptLog[n-1:], now)[0]
	for i := range t.Attempts {
		t.Attempts[i].Above = t.Attempts[i].Fence == t.LastError.Fence
	}
	if t.Ended() && t.Why != nil && len(t.Why.Reasons) > 0 {
		t.Advice = t.Why.Reasons[0].Change
	}
}

// taskActions returns the actions on a task. The main one is the one that makes it run.
func (v *visit) taskActions(t *pawltype.Task) (a actionBar) {
	to := func(label, verb string) button { return button{Label: label, URL: v.url("tasks", t.ID, verb)} }
	can := canOf(t.State)
	retry, now := to("Retry…", "retry"), to("Run now…", "run-now")
	switch {
	case can.RunNow:
		a.Main = &now
	case can.Retry:
		a.Main = &retry
	}
	if can.Edit {
		a.Beside = append(a.Beside, to("Edit…", "edit"))
	}
	if can.Cancel {
		a.Danger = append(a.Danger, to("Cancel…", "cancel"))
	}
	if can.Discard {
		a.Danger = append(a.Danger, to("Discard…", "discard"))
	}
	return a
}

// checkpointKind distinguishes JSON from other bytes: a checkpoint has no content type.
func checkpointKind(data []byte) string {
	if json.Valid(data) {
		return ""
	}
	return "application/octet-stream"
}

// attempts adds the newest attempts, or those up to the one that the URL names by its position in the log.
func (v *visit) attempts(view *taskView) error {
	all := len(view.AttemptLog)
	upTo := all
	if said := v.query("attempts"); said != "" {
		n, err := strconv.Atoi(said)
		if err != nil || n < 1 {
			return problem.BadField("attempts", "%q is not an attempt number", format.Clip(said, 20))
		}
		upTo = min(n, all)
	}
	view.Cut = max(upTo-maxAttempts, 0)
	view.Attempts = attemptRows(view.AttemptLog[view.Cut:upTo], v.now)
	if view.Cut > 0 {
		view.Older = v.base + v.here("attempts", strconv.Itoa(view.Cut))
	}
	if next := upTo + maxAttempts; upTo < all && next < all {
		view.Newer = v.base + v.here("attempts", strconv.Itoa(next))
	} else if upTo < all {
		view.Newer = v.base + v.here("attempts", "")
	}
	return nil
}

func attemptRows(log []pawltype.Attempt, now time.Time) (rows []attemptRow) {
	for i := len(log) - 1; i >= 0; i-- {
		a := log[i]
		row := attemptRow{Attempt: a, Outcome: string(a.Outcome)}
		if a.NextRunAt.Before(now) {
			row.NextRunAt = time.Time{} // the next attempt shows when it ran
		}
		if a.EndedAt.IsZero() {
			row.Outcome, row.Took = "running", now.Sub(a.StartedAt).Round(time.Second)
		} else {
			row.Took = a.EndedAt.Sub(a.StartedAt)
		}
		if a.Error != nil {
			row.Message, row.Stack = format.Clip(a.Error.Message, maxErrors), format.Clip(a.Error.Stack, maxStack)
			row.Cut = row.Message != a.Error.Message || row.Stack != a.Error.Stack
		}
		rows = append(rows, row)
	}
	return rows
}

func taskFacts(t *pawltype.Task) []form.Fact {
	facts := []form.Fact{{Name: "Queue", Value: t.Queue}}
	add := func(is bool, name, value string) {
		if is {
			facts = append(facts, form.Fact{Name: name, Value: value})
		}
	}
	add(t.Worker != "", "Worker", t.Worker)
	add(t.Failures > 0, "Failures", format.Number(t.Failures))
	add(t.Crashes > 0, "Leases lost", format.Number(t.Crashes))
	add(t.Releases > 0, "Releases", format.Number(t.Releases))
	add(t.Snoozes > 0, "Snoozes", format.Number(t.Snoozes))
	add(len(t.Tags) > 0, "Tags", strings.Join(t.Tags, ", "))
	add(t.IdempotencyKey != "", "Idempotency key", t.IdempotencyKey)
	add(t.Unique != nil, "Unique key", uniqueText(t.Unique))
	add(t.Timeout > 0, "Timeout", format.Duration(t.Timeout))
	add(t.Cost > 1, "Cost", format.Number(t.Cost))
	add(t.Fence > 0, "Fence", format.Number(t.Fence))
	return facts
}

func uniqueText(u *pawltype.UniqueOpts) string {
	if u == nil {
		return ""
	}
	if u.Key == "" {
		return "type and payload, " + string(u.OnConflict)
	}
	return u.Key + ", " + string(u.OnConflict)
}

func headerFacts(headers map[string]string) (facts []form.Fact) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		facts = append(facts, form.Fact{Name: name, Value: format.Clip(headers[name], 300)})
	}
	return facts
}

// maxCopied is the maximum length of a payload in a command line.
const maxCopied = 2 << 10

// commands are the command lines that show the task and enqueue a copy.
func (v *visit) commands(t *pawltype.Task) []form.Fact {
	c := v.caller()
	facts := []form.Fact{
		{Name: "Show (curl)", Value: c.curl + " " + format.ShellWord(c.url+"/api/v1/tasks/"+t.ID)},
		{Name: "Show (CLI)", Value: c.command("pawl task show " + t.ID)},
	}
	if isJSON := t.ContentType == "" || t.ContentType == "application/json"; isJSON && len(t.Payload) <= maxCopied {
		payload := json.RawMessage(t.Payload)
		if len(payload) == 0 {
			payload = json.RawMessage("null")
		}
		if call, err := c.enqueue(t.Type, t.Queue, payload); err == nil {
			facts = append(facts, form.Fact{Name: "Enqueue a copy (curl)", Value: call},
				form.Fact{Name: "Enqueue a copy (CLI)", Value: c.command("pawl enqueue " + format.ShellWord(t.Type) + " " + format.ShellWord(string(payload)) + " --queue " + format.ShellWord(t.Queue))})
		}
	}
	return facts
}

func taskForm(verb, text string, danger bool) func(*visit) (*form.Form, error) {
	return func(v *visit) (*form.Form, error) {
		t, err := v.task()
		if err != nil {
			return nil, err
		}
		return &form.Form{Title: verb + " this task", Text: text, Button: verb, Danger: danger, Back: "/tasks/" + t.ID,
			Facts: []form.Fact{{Name: "Type", Value: t.Type}, {Name: "Queue", Value: t.Queue}, {Name: "State", Value: string(t.State)}}, Fields: []form.Field{form.Reason()}}, nil
	}
}

func (v *visit) taskDone(said string) done {
	return done{Said: said, Next: "/tasks/" + v.r.PathValue("task")}
}

func doTask(said string, call func(admin.Tasks, context.Context, string) (*pawltype.Task, error)) func(*visit) (done, error) {
	return func(v *visit) (done, error) {
		if _, err := call(v.admin().WithReason(v.value("reason")).Tasks(), v.ctx, v.r.PathValue("task")); err != nil {
			return done{}, err
		}
		return v.taskDone(said), nil
	}
}

func doCancelTask(v *visit) (done, error) {
	if _, err := v.admin().Tasks().Cancel(v.ctx, v.r.PathValue("task"), v.value("reason")); err != nil {
		return done{}, err
	}
	return v.taskDone("Cancelled."), nil
}

func doDiscardTask(v *visit) (done, error) {
	t, err := v.admin().Tasks().Discard(v.ctx, v.r.PathValue("task"), v.value("reason"))
	if err != nil {
		return done{}, err
	}
	if t == nil || t.State == pawltype.StateDiscarded {
		return v.taskDone("Discarded."), nil
	}
	return done{Said: "Discarded.", Next: "/tasks"}, nil
}

func editTaskForm(v *visit) (*form.Form, error) {
	t, err := v.task()
	if err != nil {
		return nil, err
	}
	f := &form.Form{Title: "Edit this task", Text: "Only waiting tasks can be edited. Fields that you don't change keep their values.", Button: "Save", Back: "/tasks/" + t.ID, Version: t.ETag, Fields: []form.Field{
		{Name: "priority", Label: "Priority", Kind: "choice", Options: form.Choices("", "high", "normal", "low"), Value: string(t.Priority)},
		{Name: "max_attempts", Label: "Max attempts", Kind: "number", Value: strconv.Itoa(t.MaxAttempts)},
		{Name: "run_at", Label: "Due", Kind: "text", Value: dueText(t), Placeholder: "now", Hint: "A time such as 2026-01-31T12:00:00Z, or a delay such as 10m."},
	}}
	if isJSON := t.ContentType == "" || t.ContentType == "application/json"; isJSON && len(t.Payload) <= maxEdited {
		f.Fields = append(f.Fields, form.Field{Name: "payload", Label: "Payload", Kind: "json", Value: indented(t.Payload)})
	} else {
		f.Fields = append(f.Fields, form.Field{Name: "payload-note", Label: "Payload", Kind: "note", Value: whyNoPayload(t)})
	}
	return f, nil
}

// dueText returns when a scheduled or retrying task is due.
func dueText(t *pawltype.Task) string {
	if t.State != pawltype.StateScheduled && t.State != pawltype.StateRetrying {
		return ""
	}
	return t.RunAt.UTC().Format(time.RFC3339)
}

// whyNoPayload returns why a form has no field for the payload.
func whyNoPayload(t *pawltype.Task) string {
	why := "The payload has " + format.Size(int64(len(t.Payload))) + "; the editor takes at most " + format.Size(maxEdited) + "."
	if len(t.Payload) <= maxEdited {
		why = "The payload is " + t.ContentType + "; the editor takes only JSON."
	}
	return why + " Use pawl task edit or PATCH /api/v1/tasks/" + t.ID + " instead."
}

// maxEdited is the maximum length of a payload that can be edited in a page.
const maxEdited = 64 << 10

func indented(data []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, data, "", "  ") != nil {
		return string(data)
	}
	return b.String()
}

func doEditTask(v *visit) (done, error) {
	version, err := v.version()
	if err != nil {
		return done{}, err
	}
	t, err := v.task()
	if err != nil {
		return done{}, err
	}
	change, err := v.taskChange(t)
	if err != nil {
		return done{}, err
	}
	change.IfETag = version
	if t.ETag != version {
		return done{}, form.ErrStale // otherwise fields that others changed would look changed here
	}
	if change.RunAt.IsZero() && change.Priority == "" && change.MaxAttempts == 0 && change.Payload == nil {
		return v.taskDone("Nothing changed."), nil
	}
	if _, err := v.admin().Tasks().Update(v.ctx, t.ID, change); err != nil {
		return done{}, err
	}
	return v.taskDone("Saved."), nil
}

// taskChange returns the differences between the form and the task.
func (v *visit) taskChange(t *pawltype.Task) (change admin.TaskUpdate, err error) {
	r := v.reader()
	if text := r.Text("run_at"); text != dueText(t) {
		if change.RunAt = r.Time("run_at"); text == "" {
			change.RunAt = v.now
		}
	}
	if n := r.Count("max_attempts"); n != t.MaxAttempts {
		change.MaxAttempts = n
	}
	if p := pawltype.Priority(r.Text("priority")); p != t.Priority {
		change.Priority = p
	}
	if text := r.Text("payload"); text != "" && text != strings.TrimSpace(indented(t.Payload)) {
		if wrong := notJSON([]byte(text)); wrong != "" {
			r.Fail(problem.BadField("payload", "%s", wrong))
		}
		change.Payload = json.RawMessage(text)
	}
	return change, r.Err
}
