package admin

import (
	"context"
	"fmt"
	"iter"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// WebhookEvent is a kind of event that a webhook can receive.
type WebhookEvent string

// Events for webhooks. A pattern such as "task.*" selects a whole group.
const (
	WebhookTaskDead       WebhookEvent = "task.dead"
	WebhookTaskPoisoned   WebhookEvent = "task.poisoned"
	WebhookBreakerOpened  WebhookEvent = "breaker.opened"
	WebhookBreakerClosed  WebhookEvent = "breaker.closed"
	WebhookScheduleMissed WebhookEvent = "schedule.missed"
	WebhookQueueOver      WebhookEvent = "queue.over"  // the queue exceeded a threshold of the webhook
	WebhookQueueUnder     WebhookEvent = "queue.under" // the queue is below its thresholds again
	WebhookTest           WebhookEvent = "webhook.test"
)

// WebhookState is the state of a webhook.
type WebhookState string

// The states of webhooks.
const (
	WebhookActive   WebhookState = "active"
	WebhookFailing  WebhookState = "failing"  // the last attempt failed
	WebhookPaused   WebhookState = "paused"   // by an operator
	WebhookDisabled WebhookState = "disabled" // its receiver answered that it is gone; disabled until an operator resumes it
)

// WebhookOutcome is the outcome of a delivery.
type WebhookOutcome string

// Outcomes of a delivery.
const (
	WebhookDelivered WebhookOutcome = "delivered"
	WebhookRetrying  WebhookOutcome = "retrying"
	WebhookHeld      WebhookOutcome = "held"   // waits until the webhook is resumed
	WebhookFailed    WebhookOutcome = "failed" // tests only: they are not retried
	WebhookDropped   WebhookOutcome = "dropped"
)

// Create creates a webhook. It is safe to retry if the secret is given.
func (a Webhooks) Create(ctx context.Context, w WebhookSpec) (*NewWebhook, error) {
	p, err := operate(ctx, a.calls, w.Secret != "", pawlv1.NewWebhookServiceClient(a.rpc).AddWebhook, w.message())
	return answer(newWebhookOf, p, err, "add webhook %q", w.Name)
}

// Update changes a webhook.
func (a Webhooks) Update(ctx context.Context, name string, to WebhookChange) (*UpdatedWebhook, error) {
	req := to.message()
	req.Name = name
	p, err := operate(ctx, a.calls, true, pawlv1.NewWebhookServiceClient(a.rpc).SetWebhook, req)
	return answer(updatedWebhookOf, p, err, "set webhook %q", name)
}

// Delete removes a webhook and the notices waiting for it.
func (a Webhooks) Delete(ctx context.Context, name string) (unconfirmed []uint32, err error) {
	p, err := operate(ctx, a.calls, false, pawlv1.NewWebhookServiceClient(a.rpc).RemoveWebhook, &pawlv1.RemoveWebhookRequest{Name: name})
	if err != nil {
		return nil, fmt.Errorf("remove webhook %q: %w", name, err)
	}
	return p.GetUnconfirmedShards(), nil
}

// Pause stops deliveries. Events that occur meanwhile are delivered once the webhook is resumed.
func (a Webhooks) Pause(ctx context.Context, name string) (*Webhook, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewWebhookServiceClient(a.rpc).PauseWebhook, &pawlv1.PauseWebhookRequest{Name: name})
	return answer(webhookOf, p.GetWebhook(), err, "pause webhook %q", name)
}

// Resume ends a pause, and re-enables a webhook that was disabled because its receiver answered that it is gone.
func (a Webhooks) Resume(ctx context.Context, name string) (*UpdatedWebhook, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewWebhookServiceClient(a.rpc).ResumeWebhook, &pawlv1.ResumeWebhookRequest{Name: name})
	return answer(updatedWebhookOf, p, err, "resume webhook %q", name)
}

// Test sends a webhook.test notice now and returns the outcome. It is not retried.
func (a Webhooks) Test(ctx context.Context, name string) (*WebhookDelivery, error) {
	p, err := operate(ctx, a.calls, false, pawlv1.NewWebhookServiceClient(a.rpc).TestWebhook, &pawlv1.TestWebhookRequest{Name: name})
	return answer(webhookDeliveryOf, p.GetDelivery(), err, "test webhook %q", name)
}

// RotateSecret replaces a webhook's secret. For a while, notices are signed with both secrets, so that the receiver can switch.
func (a Webhooks) RotateSecret(ctx context.Context, name string, r WebhookRotation) (*NewWebhook, error) {
	req := r.message()
	req.Name = name
	p, err := operate(ctx, a.calls, r.Secret != "", pawlv1.NewWebhookServiceClient(a.rpc).RotateWebhookSecret, req)
	if err != nil {
		return nil, fmt.Errorf("rotate webhook %q: %w", name, err)
	}
	return &NewWebhook{Webhook: webhookOf(p.GetWebhook()), Secret: p.GetSecret()}, nil
}

// Get returns a webhook, or ErrNotFound if there is none.
func (a Webhooks) Get(ctx context.Context, name string) (*Webhook, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewWebhookServiceClient(a.rpc).GetWebhook, &pawlv1.GetWebhookRequest{Name: name})
	return answer(webhookOf, p.GetWebhook(), err, "webhook %q", name)
}

// List iterates over the webhooks of the client's namespace, by name.
func (a Webhooks) List(ctx context.Context) iter.Seq2[*Webhook, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*Webhook], error) {
		return a.ListPage(ctx, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage returns one page of webhooks.
func (a Webhooks) ListPage(ctx context.Context, page pawltype.PageRequest) (pawltype.Page[*Webhook], error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewWebhookServiceClient(a.rpc).ListWebhooks, &pawlv1.ListWebhooksRequest{
		Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	return pageOf(webhookOf, resp, err, "list webhooks")
}

// Deliveries returns the last 20 or so deliveries of a webhook, newest first.
func (a Webhooks) Deliveries(ctx context.Context, name string) ([]*WebhookDelivery, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewWebhookServiceClient(a.rpc).ListWebhookDeliveries,
		&pawlv1.ListWebhookDeliveriesRequest{Name: name})
	if err != nil {
		return nil, fmt.Errorf("deliveries of webhook %q: %w", name, err)
	}
	return each(p.GetItems(), func(p *pawlv1.WebhookDelivery) *WebhookDelivery { return new(webhookDeliveryOf(p)) }), nil
}
