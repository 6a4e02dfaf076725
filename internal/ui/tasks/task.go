package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

var taskActions = []web.Action{
	{Path: "/tasks/{task}/retry", Nav: "/tasks", Form: taskForm("Retry", "The task becomes ready now. A task that had ended gets "+
		"fresh attempts.", false), Do: doTask("Retried.", admin.Tasks.Retry)},
	{Path: "/tasks/{task}/run-now", Nav: "/tasks", Form: taskForm("Run now", "The task becomes ready now instead of at its due time.",
		false),
		Do: doTask("The task is ready.", admin.Tasks.RunNow)},
	{Path: "/tasks/{task}/cancel", Nav: "/tasks", Form: taskForm("Cancel",
		"The task ends. A handler that runs it has its context cancelled "+
			"within a second.", true), Do: doCancelTask},
	{Path: "/tasks/{task}/discard", Nav: "/tasks", Form: taskForm("Discard", "The task ends as discarded. A dead letter is archived first.",
		true), Do: doDiscardTask},
	{Path: "/tasks/{task}/edit", Nav: "/tasks", Form: editTaskForm, Do: doEditTask},
}

// rawAddresses serve the full text of what pages cut off, and the preview of a form that is being filled in.
var rawAddresses = []web.Raw{
	{Path: "/schedule-preview", Serve: previewSchedule},
	{Path: "/search/complete", Serve: serveCompletion},
	{Path: "/tasks/{task}/payload", Serve: rawPart(func(t *pawltype.Task) []byte { return t.Payload })},
	{Path: "/tasks/{task}/result", Serve: rawPart(func(t *pawltype.Task) []byte { return t.Result })},
	{Path: "/tasks/{task}/checkpoint", Serve: rawPart(func(t *pawltype.Task) []byte { return t.Checkpoint })},
}

func rawPart(part func(*pawltype.Task) []byte) func(*web.Request) error {
	return func(req *web.Request) error {
		t, err := taskOf(req)
		if err != nil {
			return err
		}
		h := req.Writer.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; sandbox; frame-ancestors 'none'")
		h.Set("Cache-Control", "no-store")
		_, _ = req.Writer.Write(part(t)) // on failure the client is gone
		return nil
	}
}

func taskOf(req *web.Request) (*pawltype.Task, error) {
	return req.Client.Task(req.Ctx, req.PathValue("task"))
}

type taskView struct {
	*pawltype.Task
	Why        *admin.Explanation
	WhyError   string
	Payload    *format.Document
	Result     *format.Document
	Checkpoint *format.Document
	Attempts   attemptsView
	Facts      []web.LinkedFact
	Headers    []form.Fact
	Commands   []form.Fact
	Actions    web.ActionBar
	Flow       *flow // nil: it has no neighbours
	// LastError is the failure of the newest attempt, until the task has run again; nil: none. Advice says what to do about it.
	LastError *attemptRow
	Advice    string
}

// attemptsView is a part of a task's attempt log.
type attemptsView struct {
	Rows  []attemptRow
	Newer string // URL of the attempts after those shown; "": none
	Older string // URL of those before
	Cut   int    // number of those before
	// Before is what operators did before the first attempt.
	Before []step
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
	// After is what operators did since it began, before the next one, newest first.
	After []step
}

// maxAttempts is how many attempts a page shows; maxStack limits what it shows of each stack.
const (
	maxAttempts = 10
	maxStack    = 2 << 10
	maxErrors   = 600
)

func showTask(req *web.Request) (*web.Screen, error) {
	t, err := taskOf(req)
	if err != nil {
		return nil, err
	}
	view := &taskView{Task: t, Actions: actionsOnTask(req, t), Payload: format.DocumentOf(t.Payload, t.ContentType),
		Result: format.DocumentOf(t.Result, t.ResultContentType), Checkpoint: format.DocumentOf(t.Checkpoint, checkpointKind(t.Checkpoint)),
		Facts: web.WithLinks(taskFacts(t), map[string]string{"Queue": req.URL("queues", t.Queue),
			"Worker": req.Find("worker", t.Worker)}),
		Commands: taskCommands(req, t)}
	if view.Attempts, err = attemptsOf(req, t.AttemptLog); err != nil {
		return nil, err
	}
	steps, all := stepsOf(req, t)
	view.Attempts.addSteps(steps, all, t.AttemptLog)
	view.Headers = headerFacts(t.Headers)
	if view.Why, err = req.Admin().Tasks().Explain(req.Ctx, t.ID); err != nil {
		view.WhyError = format.ProblemOf(err).Message
	}
	view.Flow = flowOfTask(req, t)
	view.lastError(req.Now)
	return &web.Screen{Title: t.Type + " " + t.ID, Data: view, Watch: &web.Watch{Task: t.ID}}, nil
}

// lastError moves the failure of the newest attempt to the top of the page.
func (t *taskView) lastError(now time.Time) {
	n := len(t.AttemptLog)
	if n == 0 || t.AttemptLog[n-1].Error == nil || t.State == pawltype.StateSucceeded {
		return
	}
	t.LastError = &attemptRows(t.AttemptLog[n-1:], now)[0]
	for i, row := range t.Attempts.Rows {
		t.Attempts.Rows[i].Above = row.Fence == t.LastError.Fence
	}
	if t.Ended() && t.Why != nil && len(t.Why.Reasons) > 0 {
		t.Advice = t.Why.Reasons[0].Change
	}
}

// actionsOnTask returns the actions on a task. The main one is the one that makes it run.
func actionsOnTask(req *web.Request, t *pawltype.Task) (a web.ActionBar) {
	to := func(label, verb string) web.Button {
		return web.Button{Label: label, URL: req.URL("tasks", t.ID, verb)}
	}
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

// attemptsOf returns the newest attempts, or those up to the one that the URL names by its position in the log.
func attemptsOf(req *web.Request, log []pawltype.Attempt) (view attemptsView, err error) {
	all := len(log)
	upTo := all
	if text := req.Query("attempts"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return view, format.BadField("attempts", "%q is not an attempt number", format.Clip(text, 20))
		}
		upTo = min(n, all)
	}
	view.Cut = max(upTo-maxAttempts, 0)
	view.Rows = attemptRows(log[view.Cut:upTo], req.Now)
	if view.Cut > 0 {
		view.Older = req.Here("attempts", strconv.Itoa(view.Cut))
	}
	if next := upTo + maxAttempts; upTo < all && next < all {
		view.Newer = req.Here("attempts", strconv.Itoa(next))
	} else if upTo < all {
		view.Newer = req.Here("attempts", "")
	}
	return view, nil
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
			message := strings.TrimPrefix(a.Error.Message, a.Error.Type+": ") // the page shows the type beside it
			row.Message, row.Stack = format.Clip(message, maxErrors), format.Clip(a.Error.Stack, maxStack)
			row.Cut = row.Message != message || row.Stack != a.Error.Stack
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

// taskCommands are the command lines that show the task and enqueue a copy.
func taskCommands(req *web.Request, t *pawltype.Task) []form.Fact {
	c := req.Caller()
	facts := []form.Fact{
		{Name: "Show (curl)", Value: c.Curl + " " + humanize.ShellWord(c.URL+"/api/v1/tasks/"+t.ID)},
		{Name: "Show (CLI)", Value: c.Command("task show", []string{t.ID})},
	}
	if isJSON(t.ContentType) && len(t.Payload) <= maxCopied {
		payload := json.RawMessage(t.Payload)
		if len(payload) == 0 {
			payload = json.RawMessage("null")
		}
		if call, err := c.Enqueue(t.Type, t.Queue, payload); err == nil {
			facts = append(facts, form.Fact{Name: "Enqueue a copy (curl)", Value: call},
				form.Fact{Name: "Enqueue a copy (CLI)", Value: c.Command("enqueue", []string{t.Type, string(payload)}, "--queue="+t.Queue)})
		}
	}
	return facts
}

func taskForm(verb, text string, danger bool) func(*web.Request) (*form.Form, error) {
	return func(req *web.Request) (*form.Form, error) {
		t, err := taskOf(req)
		if err != nil {
			return nil, err
		}
		return &form.Form{Title: verb + " this task", Text: text, Button: verb, Danger: danger, Back: "/tasks/" + t.ID,
			Facts:  []form.Fact{{Name: "Type", Value: t.Type}, {Name: "Queue", Value: t.Queue}, {Name: "State", Value: string(t.State)}},
			Fields: []form.Field{{Name: "state", Kind: "hidden", Value: cmp.Or(req.Value("state"), string(t.State))}, form.Reason()}}, nil
	}
}

func taskDone(req *web.Request, message string) web.Done {
	return web.Done{Message: message, Next: "/tasks/" + req.PathValue("task")}
}

// tasksAsShown returns the calls for a task in the state that its form showed.
func tasksAsShown(req *web.Request) admin.Tasks {
	return expecting(req.Admin().WithReason(req.Value("reason")).Tasks(), pawltype.State(req.Value("state")))
}

func doTask(message string, call func(admin.Tasks, context.Context, string) (*pawltype.Task, error)) func(*web.Request) (web.Done, error) {
	return func(req *web.Request) (web.Done, error) {
		if _, err := call(tasksAsShown(req), req.Ctx, req.PathValue("task")); err != nil {
			return web.Done{}, err
		}
		return taskDone(req, message), nil
	}
}

func doCancelTask(req *web.Request) (web.Done, error) {
	if _, err := req.Admin().WithReason(req.Value("reason")).Tasks().Cancel(req.Ctx, req.PathValue("task")); err != nil {
		return web.Done{}, err
	}
	return taskDone(req, "Cancelled."), nil
}

func doDiscardTask(req *web.Request) (web.Done, error) {
	t, err := tasksAsShown(req).Discard(req.Ctx, req.PathValue("task"))
	if err != nil {
		return web.Done{}, err
	}
	if t == nil || t.State == pawltype.StateDiscarded {
		return taskDone(req, "Discarded."), nil
	}
	return web.Done{Message: "Discarded.", Next: "/tasks"}, nil
}

func editTaskForm(req *web.Request) (*form.Form, error) {
	t, err := taskOf(req)
	if err != nil {
		return nil, err
	}
	return editTaskFormOf(t), nil
}

func editTaskFormOf(t *pawltype.Task) *form.Form {
	f := &form.Form{Title: "Edit this task", Text: "Only waiting tasks can be edited. Fields that you don't change keep their values.",
		Button: "Save", Back: "/tasks/" + t.ID, Version: t.ETag, Fields: []form.Field{
			{Name: "priority", Label: "Priority", Kind: "choice", Options: form.Choices("", "high", "normal", "low"),
				Value: string(t.Priority)},
			{Name: "max_attempts", Label: "Max attempts", Kind: "number", Value: strconv.Itoa(t.MaxAttempts)},
			{Name: "run_at", Label: "Due", Kind: "text", Value: dueText(t), Placeholder: "now",
				Hint: "A time such as 2026-01-31T12:00:00Z, or a delay such as 10m."},
		}}
	if isJSON(t.ContentType) && len(t.Payload) <= maxEdited {
		f.Fields = append(f.Fields, form.Field{Name: "payload", Label: "Payload", Kind: "json", Value: indented(t.Payload)})
	} else {
		f.Fields = append(f.Fields, form.Field{Name: "payload-note", Label: "Payload", Kind: "note", Value: whyNoPayload(t)})
	}
	f.Fields = append(f.Fields, form.Reason())
	return f
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
	if long, ok := format.Indent(data); ok {
		return string(long)
	}
	return string(data)
}

func doEditTask(req *web.Request) (web.Done, error) {
	version, err := req.Version()
	if err != nil {
		return web.Done{}, err
	}
	t, err := taskOf(req)
	if err != nil {
		return web.Done{}, err
	}
	change, err := readTaskChange(req, t)
	if err != nil {
		return web.Done{}, err
	}
	change.IfETag = version
	if t.ETag != version {
		return web.Done{}, form.ErrStale // otherwise fields that others changed would look changed here
	}
	if change.RunAt.IsZero() && change.Priority == "" && change.MaxAttempts == 0 && change.Payload == nil {
		return taskDone(req, "Nothing changed."), nil
	}
	if _, err := req.Admin().WithReason(req.Value("reason")).Tasks().Update(req.Ctx, t.ID, change); err != nil {
		return web.Done{}, err
	}
	return taskDone(req, "Saved."), nil
}

// readTaskChange returns the differences between the form and the task.
func readTaskChange(req *web.Request, t *pawltype.Task) (change admin.TaskUpdate, err error) {
	r := req.Edits(editTaskFormOf(t))
	if r.Touched("run_at") {
		if change.RunAt = r.Time("run_at"); r.Text("run_at") == "" {
			change.RunAt = req.Now
		}
	}
	if r.Touched("max_attempts") && r.Required("max_attempts") != "" {
		if change.MaxAttempts = r.Count("max_attempts"); change.MaxAttempts == 0 {
			r.Fail(format.BadField("max_attempts", "%q is not a whole number of 1 or more", r.Text("max_attempts")))
		}
	}
	if r.Touched("priority") {
		change.Priority = pawltype.Priority(r.Text("priority"))
	}
	if r.Touched("payload") && r.Required("payload") != "" {
		change.Payload = json.RawMessage(readPayload(r, "payload"))
	}
	return change, r.Err
}
