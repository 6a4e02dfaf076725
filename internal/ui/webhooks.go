package ui

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/pawltype"
)

var webhookPages = []page{
	{path: "/webhooks", template: "webhooks", nav: "/webhooks", show: showWebhooks},
	{path: "/webhooks/{webhook}", template: "webhook", nav: "/webhooks", show: showWebhook},
}

var webhookActions = []action{
	{path: "/new-webhook", nav: "/webhooks", form: newWebhookForm, do: doNewWebhook},
	{path: "/webhooks/{webhook}/edit", nav: "/webhooks", form: editWebhookForm, do: doEditWebhook},
	{path: "/webhooks/{webhook}/test", nav: "/webhooks", form: webhookForm("Test", "Send test", "Pawl sends one webhook.test notification now.", false), do: doTestWebhook},
	{path: "/webhooks/{webhook}/pause", nav: "/webhooks", form: webhookForm("Pause", "Pause", "Nothing is sent until you resume. Notifications queue up and are sent then.", false, form.Reason()), do: doPauseWebhook},
	{path: "/webhooks/{webhook}/resume", nav: "/webhooks", form: webhookForm("Resume", "Resume", "Pending notifications are sent now.", false, form.Reason()), do: doResumeWebhook},
	{path: "/webhooks/{webhook}/rotate", nav: "/webhooks", form: webhookForm("Rotate the secret of", "Create new secret", "Pawl creates a new secret and shows it once. For a while, notifications are signed with the old secret too.", false,
		form.Field{Name: "overlap", Label: "Keep signing with the old one for", Kind: "text", Placeholder: "24h", Hint: "At most 30 days. 0s stops immediately."}, form.Reason()), do: doRotateWebhook},
	{path: "/webhooks/{webhook}/remove", nav: "/webhooks", form: webhookForm("Remove", "Remove webhook", "Pending notifications are dropped.", true, form.Reason()), do: doRemoveWebhook},
}

// webhooksLimit is the page size of the list.
const webhooksLimit = 50

// webhookRow is a webhook in a list.
type webhookRow struct {
	*admin.Webhook
	Why   string // reason for the state
	Kinds string
	Good  string // queues for which it is used
}

func webhookRowOf(w *admin.Webhook) webhookRow {
	row := webhookRow{Webhook: w, Kinds: "all", Good: orAny(w.Queues)}
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
	more
}

func showWebhooks(v *visit) (*screen, error) {
	page, err := v.admin().Webhooks().ListPage(v.ctx, pawltype.PageRequest{Limit: webhooksLimit, Cursor: v.query("cursor")})
	if err != nil {
		return nil, err
	}
	view := webhooksView{more: v.moreOf(page.NextCursor)}
	for _, w := range page.Items {
		view.Rows = append(view.Rows, webhookRowOf(w))
	}
	return &screen{Title: "Webhooks", Data: view}, nil
}

type webhookView struct {
	webhookRow
	Facts []form.Fact
	Sent  []*admin.WebhookDelivery
}

func (v *visit) webhook() (*admin.Webhook, error) {
	return v.admin().Webhooks().Get(v.ctx, v.r.PathValue("webhook"))
}

func showWebhook(v *visit) (*screen, error) {
	w, err := v.webhook()
	if err != nil {
		return nil, err
	}
	sent, err := v.admin().Webhooks().Deliveries(v.ctx, w.Name)
	if err != nil {
		return nil, err
	}
	return &screen{Title: "Webhook " + w.Name, Data: webhookView{webhookRow: webhookRowOf(w), Facts: webhookFacts(w), Sent: sent}}, nil
}

func webhookFacts(w *admin.Webhook) []form.Fact {
	row := webhookRowOf(w)
	facts := []form.Fact{{Name: "URL", Value: w.URL}, {Name: "Events", Value: row.Kinds}, {Name: "Queues", Value: row.Good}}
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
	{Value: string(admin.WebhookTaskDead), Hint: "a task became a dead letter"}, {Value: string(admin.WebhookTaskPoisoned), Hint: "a task's payload can't be read"},
	{Value: string(admin.WebhookBreakerOpened), Hint: "a circuit breaker opened"}, {Value: string(admin.WebhookBreakerClosed), Hint: "a circuit breaker closed"},
	{Value: string(admin.WebhookScheduleMissed), Hint: "a schedule missed its time"},
	{Value: string(admin.WebhookQueueOver), Hint: "a queue exceeds one of its thresholds"}, {Value: string(admin.WebhookQueueUnder), Hint: "the queue is below it again"},
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
		{Name: "url", Label: "URL", Kind: "text", Required: true, Value: w.URL, Placeholder: "https://ops.example.com/pawl", Hint: "A public HTTPS address. Servers started with --webhook-allow-network may call others."},
		{Name: "events", Label: "Events", Kind: "ticks", Checkboxes: ticks, Hint: "With none selected, all events are sent."},
		{Name: "queues", Label: "Queues", Kind: "text", Value: strings.Join(w.Queues, ", "), Placeholder: "all", Hint: "Comma-separated names. * matches any characters: mail*, reports"},
		form.Reason(),
		{Fold: "Queue thresholds", FoldSummary: says, Name: "depth_over", Label: "Ready tasks over", Kind: "number", Value: depth, Placeholder: "no threshold"},
		{Name: "wait_over", Label: "Oldest wait over", Kind: "text", Value: form.DurationText(w.WaitOver), Placeholder: "no threshold", Hint: "For example 10m."},
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

func newWebhookForm(*visit) (*form.Form, error) {
	fields := append([]form.Field{{Name: "name", Label: "Name", Kind: "text", Required: true, Placeholder: "oncall", Hint: "Letters, digits and . _ - :"}}, webhookFields(&admin.Webhook{})...)
	return &form.Form{Title: "New webhook", Button: "Create webhook", Back: "/webhooks", Text: "Pawl sends signed requests to this URL when something goes wrong. The signing secret is shown once.", Fields: fields}, nil
}

// webhookEvents returns the ticked events.
func (v *visit) webhookEvents() (events []admin.WebhookEvent) {
	for _, e := range v.r.PostForm["events"] {
		events = append(events, admin.WebhookEvent(e))
	}
	return events
}

func doNewWebhook(v *visit) (done, error) {
	r := v.reader()
	spec := admin.WebhookSpec{Name: r.Name("name"), URL: r.Required("url"), Events: v.webhookEvents(), Queues: r.Patterns("queues"), DepthOver: r.Whole("depth_over"), WaitOver: r.Duration("wait_over")}
	if r.Err != nil {
		return done{}, r.Err
	}
	made, err := v.admin().WithReason(r.Text("reason")).Webhooks().Create(v.ctx, spec)
	if err != nil {
		return done{}, err
	}
	return signingSecret("Webhook "+made.Name, made), nil
}

// signingSecret shows the secret of a webhook that was created or rotated.
func signingSecret(title string, w *admin.NewWebhook) done {
	once := &secret{Title: title, Text: "Give this secret to the receiver, which uses it to verify signatures. It is not shown again.", Secret: w.Secret, Next: "/webhooks/" + w.Name}
	if !w.OldUntil.IsZero() {
		once.Facts = append(once.Facts, form.Fact{Name: "Old secret signs until", Value: w.OldUntil.UTC().Format("2006-01-02 15:04 MST")})
	}
	return done{Once: once}
}

func editWebhookForm(v *visit) (*form.Form, error) {
	w, err := v.webhook()
	if err != nil {
		return nil, err
	}
	f := &form.Form{Title: "Edit " + w.Name, Button: "Save", Back: "/webhooks/" + w.Name, Text: "Pending notifications are sent to the new URL.", Fields: webhookFields(w)}
	f.Version = f.ContentVersion()
	return f, nil
}

func doEditWebhook(v *visit) (done, error) {
	f, err := v.unchanged(editWebhookForm)
	if err != nil {
		return done{}, err
	}
	change, err := v.webhookChange(f)
	if err != nil {
		return done{}, err
	}
	if _, _, err := v.admin().WithReason(v.value("reason")).Webhooks().Update(v.ctx, v.r.PathValue("webhook"), change); err != nil {
		return done{}, err
	}
	return v.webhookDone("Saved."), nil
}

// webhookChange returns the fields of the form that were changed.
func (v *visit) webhookChange(f *form.Form) (change admin.WebhookChange, err error) {
	r := v.reader()
	url, queues, depth, wait := r.Required("url"), r.Patterns("queues"), r.Whole("depth_over"), r.Duration("wait_over")
	if f.Touched(v.r.PostForm, "url") {
		change.URL = url
	}
	if f.Touched(v.r.PostForm, "queues") {
		if change.Queues = queues; len(queues) == 0 {
			change.Queues = []string{"*"}
		}
	}
	if f.Touched(v.r.PostForm, "events") {
		change.Events = v.webhookEvents()
		for _, t := range webhookCheckboxes {
			if over := strings.HasPrefix(t.Value, "queue."); len(v.r.PostForm["events"]) == 0 && (!over || depth > 0 || wait > 0) { // nil would leave the events unchanged
				change.Events = append(change.Events, admin.WebhookEvent(t.Value))
			}
		}
	}
	if f.Touched(v.r.PostForm, "depth_over") {
		change.DepthOver = &depth
	}
	if f.Touched(v.r.PostForm, "wait_over") {
		change.WaitOver = &wait
	}
	return change, r.Err
}

func (v *visit) webhookDone(said string) done {
	return done{Said: said, Next: "/webhooks/" + v.r.PathValue("webhook")}
}

func webhookForm(verb, button, text string, danger bool, fields ...form.Field) func(*visit) (*form.Form, error) {
	return func(v *visit) (*form.Form, error) {
		w, err := v.webhook()
		if err != nil {
			return nil, err
		}
		return &form.Form{Title: verb + " " + w.Name, Text: text, Button: button, Danger: danger, Back: "/webhooks/" + w.Name,
			Facts: []form.Fact{{Name: "URL", Value: format.Clip(w.URL, 200)}, {Name: "Pending", Value: format.Plural(w.Pending, "notification")}}, Fields: slices.Clone(fields)}, nil
	}
}

func doTestWebhook(v *visit) (done, error) {
	d, err := v.admin().Webhooks().Test(v.ctx, v.r.PathValue("webhook"))
	if err != nil {
		return done{}, err
	}
	if d.Outcome == admin.WebhookDelivered {
		return v.webhookDone(fmt.Sprintf("Delivered: the receiver answered %d after %s.", d.Status, format.Duration(d.Took))), nil
	}
	return v.webhookDone("Not delivered: " + d.Error), nil
}

func doPauseWebhook(v *visit) (done, error) {
	if _, err := v.admin().Webhooks().Pause(v.ctx, v.r.PathValue("webhook"), v.value("reason")); err != nil {
		return done{}, err
	}
	return v.webhookDone("Paused."), nil
}

func doResumeWebhook(v *visit) (done, error) {
	if _, err := v.admin().WithReason(v.value("reason")).Webhooks().Resume(v.ctx, v.r.PathValue("webhook")); err != nil {
		return done{}, err
	}
	return v.webhookDone("Resumed."), nil
}

func doRotateWebhook(v *visit) (done, error) {
	r := v.reader()
	var how admin.WebhookRotation
	if r.Text("overlap") != "" {
		overlap := r.Duration("overlap")
		how.Overlap = &overlap
	}
	if r.Err != nil {
		return done{}, r.Err
	}
	made, err := v.admin().WithReason(r.Text("reason")).Webhooks().RotateSecret(v.ctx, v.r.PathValue("webhook"), how)
	if err != nil {
		return done{}, err
	}
	return signingSecret("New secret of "+made.Name, made), nil
}

func doRemoveWebhook(v *visit) (done, error) {
	name := v.r.PathValue("webhook")
	if _, err := v.admin().WithReason(v.value("reason")).Webhooks().Delete(v.ctx, name); err != nil {
		return done{}, err
	}
	return done{Said: "Removed webhook " + name + ".", Next: "/webhooks"}, nil
}
