package ui

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

var webhookPages = []web.Page{
	{Path: "/webhooks", Template: "webhooks", Nav: "/webhooks", Show: showWebhooks},
	{Path: "/webhooks/{webhook}", Template: "webhook", Nav: "/webhooks", Show: showWebhook},
}

var webhookActions = []web.Action{
	{Path: "/new-webhook", Nav: "/webhooks", Form: newWebhookForm, Do: doNewWebhook, Outlasting: true},
	{Path: "/webhooks/{webhook}/edit", Nav: "/webhooks", Form: editWebhookForm, Do: doEditWebhook, Outlasting: true},
	{Path: "/webhooks/{webhook}/test", Nav: "/webhooks", Form: webhookForm("Test", "Send test",
		"Pawl sends one webhook.test notification now.", false), Do: doTestWebhook},
	{Path: "/webhooks/{webhook}/pause", Nav: "/webhooks", Form: webhookForm("Pause", "Pause",
		"Nothing is sent until you resume. Notifications queue up and are sent then.", false, form.Reason()), Do: doPauseWebhook},
	{Path: "/webhooks/{webhook}/resume", Nav: "/webhooks", Form: webhookForm("Resume", "Resume", "Pending notifications are sent now.",
		false, form.Reason()), Do: doResumeWebhook},
	{Path: "/webhooks/{webhook}/rotate", Nav: "/webhooks", Form: webhookForm("Rotate the secret of", "Create new secret",
		"Pawl creates a new secret and shows it once. For a while, notifications are signed with the old secret too.", false,
		form.Field{Name: "overlap", Label: "Keep signing with the old one for", Kind: "text", Placeholder: "24h",
			Hint: "At most 30 days. 0s stops immediately."}, form.Reason()), Do: doRotateWebhook, Outlasting: true},
	{Path: "/webhooks/{webhook}/remove", Nav: "/webhooks", Form: webhookForm("Remove", "Remove webhook",
		"Pending notifications are dropped.", true, form.Reason()), Do: doRemoveWebhook},
}

// webhooksLimit is the page size of the list.
const webhooksLimit = 50

// webhookRow is a webhook in a list.
type webhookRow struct {
	*admin.Webhook
	Why           string // reason for the state
	Kinds         string
	QueuePatterns string // queues for which it is used
}

func webhookRowOf(w *admin.Webhook) webhookRow {
	row := webhookRow{Webhook: w, Kinds: "all", QueuePatterns: orAny(w.Queues)}
	if len(w.Events) > 0 {
		kinds := make([]string, len(w.Events))
		for i, e := range w.Events {
			kinds[i] = string(e)
		}
		row.Kinds = strings.Join(kinds, ", ")
	}
	switch w.State {
	case admin.WebhookDisabled:
		row.Why = w.DisabledReason
	case admin.WebhookPaused:
		row.Why = w.PausedReason
	case admin.WebhookFailing:
		row.Why = w.LastError
	}
	return row
}

type webhooksView struct {
	Rows []webhookRow
	web.More
}

func showWebhooks(req *web.Request) (*web.Screen, error) {
	page, err := req.Admin().Webhooks().ListPage(req.Ctx, pawltype.PageRequest{Limit: webhooksLimit, Cursor: req.Query("cursor")})
	if err != nil {
		return nil, err
	}
	view := webhooksView{More: req.More(page.NextCursor)}
	for _, w := range page.Items {
		view.Rows = append(view.Rows, webhookRowOf(w))
	}
	return &web.Screen{Title: "Webhooks", Data: view}, nil
}

type webhookView struct {
	webhookRow
	Facts []form.Fact
	Sent  []*admin.WebhookDelivery
}

// Actions returns the actions on a webhook.
func (w webhookView) Actions() web.ActionBar {
	test, resume := web.Ask("Test…", "webhooks", w.Name, "test"), web.Ask("Resume…", "webhooks", w.Name, "resume")
	a := web.ActionBar{Main: &test, Beside: []web.Button{web.Ask("Pause…", "webhooks", w.Name, "pause"),
		web.Ask("Edit…", "webhooks", w.Name,
			"edit").Needing("admin")},
		More:   []web.Button{web.Ask("Rotate secret…", "webhooks", w.Name, "rotate").Needing("admin")},
		Danger: []web.Button{web.Ask("Remove…", "webhooks", w.Name, "remove").Needing("admin")}}
	if w.Paused || w.DisabledReason != "" {
		a.Main, a.Beside[0] = &resume, test
	}
	return a
}

func webhookOf(req *web.Request) (*admin.Webhook, error) {
	return req.Admin().Webhooks().Get(req.Ctx, req.PathValue("webhook"))
}

func showWebhook(req *web.Request) (*web.Screen, error) {
	w, err := webhookOf(req)
	if err != nil {
		return nil, err
	}
	sent, err := req.Admin().Webhooks().Deliveries(req.Ctx, w.Name)
	if err != nil {
		return nil, err
	}
	return &web.Screen{Title: "Webhook " + w.Name, Data: webhookView{webhookRow: webhookRowOf(w), Facts: webhookFacts(w), Sent: sent}}, nil
}

func webhookFacts(w *admin.Webhook) []form.Fact {
	row := webhookRowOf(w)
	facts := []form.Fact{{Name: "URL", Value: w.URL}, {Name: "Events", Value: row.Kinds}, {Name: "Queues", Value: row.QueuePatterns}}
	add := func(is bool, name, value string) {
		if is {
			facts = append(facts, form.Fact{Name: name, Value: value})
		}
	}
	add(w.DepthOver > 0, "Ready tasks over", format.Number(w.DepthOver))
	add(w.WaitOver > 0, "Oldest wait over", format.Duration(w.WaitOver))
	add(w.CreatedBy != "", "Created by", w.CreatedBy)
	add(w.LastStatus > 0, "Last error status", format.Number(w.LastStatus))
	return facts
}

// webhookCheckboxes are the events that a webhook can receive.
var webhookCheckboxes = []form.Checkbox{
	{Value: string(admin.WebhookTaskDead), Hint: "a task became a dead letter"}, {Value: string(admin.WebhookTaskPoisoned),
		Hint: "a task's payload can't be read"},
	{Value: string(admin.WebhookBreakerOpened), Hint: "a circuit breaker opened"}, {Value: string(admin.WebhookBreakerClosed),
		Hint: "a circuit breaker closed"},
	{Value: string(admin.WebhookScheduleMissed), Hint: "a schedule missed its time"},
	{Value: string(admin.WebhookQueueOver), Hint: "a queue exceeds one of its thresholds"}, {Value: string(admin.WebhookQueueUnder),
		Hint: "the queue is below it again"},
}

func webhookFields(w *admin.Webhook) []form.Field {
	ticks := slices.Clone(webhookCheckboxes)
	for i := range ticks {
		ticks[i].Checked = slices.ContainsFunc(w.Events, func(e admin.WebhookEvent) bool {
			sort, all := strings.CutSuffix(string(e), "*")
			return string(e) == ticks[i].Value || all && strings.HasPrefix(ticks[i].Value, sort)
		})
	}
	depth := ""
	if w.DepthOver > 0 {
		depth = fmt.Sprint(w.DepthOver)
	}
	says := thresholdText(w)
	return []form.Field{
		{Name: "url", Label: "URL", Kind: "text", Required: true, Value: w.URL, Placeholder: "https://ops.example.com/pawl",
			Hint: "A public HTTPS address. Servers started with --webhook-allow-network for this namespace may call others."},
		{Name: "events", Label: "Events", Kind: "ticks", Checkboxes: ticks, Hint: "With none selected, all events are sent."},
		{Name: "queues", Label: "Queues", Kind: "text", Value: strings.Join(w.Queues, ", "), Placeholder: "all",
			Hint: "Comma-separated names. * matches any characters: mail*, reports"},
		form.Reason(),
		{Fold: "Queue thresholds", FoldSummary: says, Name: "depth_over", Label: "Ready tasks over", Kind: "number", Value: depth,
			Placeholder: "no threshold"},
		{Name: "wait_over", Label: "Oldest wait over", Kind: "text", Value: form.DurationText(w.WaitOver), Placeholder: "no threshold",
			Hint: "For example 10m."},
	}
}

// thresholdText summarizes a webhook's thresholds.
func thresholdText(w *admin.Webhook) string {
	var all []string
	if w.DepthOver > 0 {
		all = append(all, "more than "+format.Plural(w.DepthOver, "ready task"))
	}
	if w.WaitOver > 0 {
		all = append(all, "a wait of more than "+format.Duration(w.WaitOver))
	}
	if len(all) == 0 {
		return "none: queue.over and queue.under are not sent"
	}
	return strings.Join(all, ", or ")
}

func newWebhookForm(*web.Request) (*form.Form, error) {
	fields := append([]form.Field{{Name: "name", Label: "Name", Kind: "text", Required: true, Placeholder: "oncall",
		Hint: "Letters, digits and . _ - :"}}, webhookFields(&admin.Webhook{})...)
	return &form.Form{Title: "New webhook", Button: "Create webhook", Back: "/webhooks",
		Text: "Pawl sends signed requests to this URL when something goes wrong. The signing secret is shown once.", Fields: fields}, nil
}

// tickedEvents returns the ticked events.
func tickedEvents(req *web.Request) (events []admin.WebhookEvent) {
	for _, e := range req.HTTP.PostForm["events"] {
		events = append(events, admin.WebhookEvent(e))
	}
	return events
}

func doNewWebhook(req *web.Request) (web.Done, error) {
	r := req.Reader()
	spec := admin.WebhookSpec{Name: r.Name("name"), URL: r.Required("url"), Events: tickedEvents(req), Queues: r.Patterns("queues"),
		DepthOver: r.Whole("depth_over"), WaitOver: r.Duration("wait_over")}
	if r.Err != nil {
		return web.Done{}, r.Err
	}
	made, err := req.Admin().WithReason(r.Text("reason")).Webhooks().Create(req.Ctx, spec)
	if err != nil {
		return web.Done{}, err
	}
	return signingSecret("Webhook "+made.Name, made), nil
}

// signingSecret shows the secret of a webhook that was created or rotated.
func signingSecret(title string, w *admin.NewWebhook) web.Done {
	once := &web.Secret{Title: title, Text: "Give this secret to the receiver, which uses it to verify signatures. It is not shown again.",
		Secret: w.Secret, Next: "/webhooks/" + w.Name}
	if !w.OldUntil.IsZero() {
		once.Facts = append(once.Facts, form.Fact{Name: "Old secret signs until", Value: w.OldUntil.UTC().Format("2006-01-02 15:04 MST")})
	}
	return web.Done{Secret: once}
}

func editWebhookForm(req *web.Request) (*form.Form, error) {
	w, err := webhookOf(req)
	if err != nil {
		return nil, err
	}
	f := &form.Form{Title: "Edit " + w.Name, Button: "Save", Back: "/webhooks/" + w.Name,
		Text: "Pending notifications are sent to the new URL.", Fields: webhookFields(w)}
	f.Version = f.ContentVersion()
	return f, nil
}

func doEditWebhook(req *web.Request) (web.Done, error) {
	f, err := req.Unchanged(editWebhookForm)
	if err != nil {
		return web.Done{}, err
	}
	change, err := readWebhookChange(req, f)
	if err != nil {
		return web.Done{}, err
	}
	if _, err := req.Admin().WithReason(req.Value("reason")).Webhooks().Update(req.Ctx, req.PathValue("webhook"), change); err != nil {
		return web.Done{}, err
	}
	return webhookDone(req, "Saved."), nil
}

// readWebhookChange returns the fields of the form that were changed.
func readWebhookChange(req *web.Request, f *form.Form) (change admin.WebhookChange, err error) {
	r := req.Reader()
	url, queues, depth, wait := r.Required("url"), r.Patterns("queues"), r.Whole("depth_over"), r.Duration("wait_over")
	if f.Touched(req.HTTP.PostForm, "url") {
		change.URL = url
	}
	if f.Touched(req.HTTP.PostForm, "queues") {
		if change.Queues = queues; len(queues) == 0 {
			change.Queues = []string{"*"}
		}
	}
	if f.Touched(req.HTTP.PostForm, "events") {
		change.Events = tickedEvents(req)
		for _, t := range webhookCheckboxes {
			// nil would leave the events unchanged
			if over := strings.HasPrefix(t.Value, "queue."); len(req.HTTP.PostForm["events"]) == 0 && (!over || depth > 0 || wait > 0) {
				change.Events = append(change.Events, admin.WebhookEvent(t.Value))
			}
		}
	}
	if f.Touched(req.HTTP.PostForm, "depth_over") {
		change.DepthOver = &depth
	}
	if f.Touched(req.HTTP.PostForm, "wait_over") {
		change.WaitOver = &wait
	}
	return change, r.Err
}

func webhookDone(req *web.Request, message string) web.Done {
	return web.Done{Message: message, Next: "/webhooks/" + req.PathValue("webhook")}
}

func webhookForm(verb, button, text string, danger bool, fields ...form.Field) func(*web.Request) (*form.Form, error) {
	return func(req *web.Request) (*form.Form, error) {
		w, err := webhookOf(req)
		if err != nil {
			return nil, err
		}
		return &form.Form{Title: verb + " " + w.Name, Text: text, Button: button, Danger: danger, Back: "/webhooks/" + w.Name,
			Facts: []form.Fact{{Name: "URL", Value: format.Clip(w.URL, 200)},
				{Name: "Pending", Value: format.Plural(w.Pending, "notification")}},
			Fields: slices.Clone(fields)}, nil
	}
}

func doTestWebhook(req *web.Request) (web.Done, error) {
	d, err := req.Admin().Webhooks().Test(req.Ctx, req.PathValue("webhook"))
	if err != nil {
		return web.Done{}, err
	}
	if d.Outcome == admin.WebhookDelivered {
		return webhookDone(req, fmt.Sprintf("Delivered: the receiver answered %d after %s.", d.Status, format.Duration(d.Took))), nil
	}
	return webhookDone(req, "Not delivered: "+d.Error), nil
}

func doPauseWebhook(req *web.Request) (web.Done, error) {
	if _, err := req.Admin().WithReason(req.Value("reason")).Webhooks().Pause(req.Ctx, req.PathValue("webhook")); err != nil {
		return web.Done{}, err
	}
	return webhookDone(req, "Paused."), nil
}

func doResumeWebhook(req *web.Request) (web.Done, error) {
	if _, err := req.Admin().WithReason(req.Value("reason")).Webhooks().Resume(req.Ctx, req.PathValue("webhook")); err != nil {
		return web.Done{}, err
	}
	return webhookDone(req, "Resumed."), nil
}

func doRotateWebhook(req *web.Request) (web.Done, error) {
	r := req.Reader()
	var how admin.WebhookRotation
	if r.Text("overlap") != "" {
		overlap := r.Duration("overlap")
		how.Overlap = &overlap
	}
	if r.Err != nil {
		return web.Done{}, r.Err
	}
	made, err := req.Admin().WithReason(r.Text("reason")).Webhooks().RotateSecret(req.Ctx, req.PathValue("webhook"), how)
	if err != nil {
		return web.Done{}, err
	}
	return signingSecret("New secret of "+made.Name, made), nil
}

func doRemoveWebhook(req *web.Request) (web.Done, error) {
	name := req.PathValue("webhook")
	if _, err := req.Admin().WithReason(req.Value("reason")).Webhooks().Delete(req.Ctx, name); err != nil {
		return web.Done{}, err
	}
	return web.Done{Message: "Removed webhook " + name + ".", Next: "/webhooks"}, nil
}
