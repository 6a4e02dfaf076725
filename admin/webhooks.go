package admin

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/protobuf/types/known/durationpb"

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

// WebhookSpec describes a webhook to create, in the client's namespace.
type WebhookSpec struct {
	Name   string         // letters, digits and . _ - :, up to 128; unique in its namespace
	URL    string         // https; http only to networks that the server allows
	Events []WebhookEvent // nil: all, but queue.over and queue.under only with a threshold
	Queues []string       // patterns, in which * matches any characters; nil: all queues
	// DepthOver and WaitOver are thresholds for the number of ready tasks, and for how long the oldest has been ready. 0: none.
	DepthOver int64
	WaitOver  time.Duration
	Secret    string // whsec_ and 24 to 64 bytes in base64; "": the server makes one
}

// WebhookChange says what Update changes in a webhook. Zero fields are left unchanged.
type WebhookChange struct {
	URL       string
	Events    []WebhookEvent
	Queues    []string       // "*": all
	DepthOver *int64         // 0: none
	WaitOver  *time.Duration // 0: none
}

// WebhookState is the state of a webhook.
type WebhookState string

// The states of webhooks.
const (
	WebhookActive   WebhookState = "active"
	WebhookFailing  WebhookState = "failing"  // the last attempt failed
	WebhookPaused   WebhookState = "paused"   // by an operator
	WebhookDisabled WebhookState = "disabled" // its receiver answered that it is gone; disabled until an operator resumes it
)

// Webhook is everything that is stored about a webhook except its secrets.
type Webhook struct {
	Name      string
	URL       string // without the role admin, only its beginning, because the rest may contain a secret
	Events    []WebhookEvent
	Queues    []string
	DepthOver int64         // 0: none
	WaitOver  time.Duration // 0: none
	CreatedBy string
	CreatedAt time.Time
	ChangedAt time.Time
	RotatedAt time.Time // zero: never
	OldUntil  time.Time // until then, notices are also signed with the secret from before the last rotation

	State          WebhookState
	Paused         bool
	PausedReason   string
	PausedBy       string
	PausedAt       time.Time
	DisabledReason string // set if the receiver answered that it is gone; nothing is sent until the webhook is resumed
	DisabledAt     time.Time

	Pending       int64     // notices waiting to be sent
	PendingSince  time.Time // when the oldest of them was created
	NextAttemptAt time.Time // set after a failure if there will be another attempt; never in the past
	Failures      int64     // failed attempts since the last success
	FailingSince  time.Time // the first of them
	Delivered     int64     // notices
	Failed        int64     // attempts
	Dropped       int64     // notices that were given up
	DeliveredAt   time.Time
	FailedAt      time.Time
	DroppedAt     time.Time
	LastStatus    int    // HTTP status of the last failure; 0: no response
	LastError     string // of the last failure, with the beginning of the receiver's response
}

// NewWebhook is a webhook that was just created or given a new secret. This is the only time its secret is shown.
type NewWebhook struct {
	Webhook
	Secret      string   // signs the notices, so that the receiver can verify the sender
	Unconfirmed []uint32 // shards that did not acknowledge it within a second; they will catch up
}

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

// WebhookDelivery describes a notice and its delivery.
type WebhookDelivery struct {
	ID        string // the webhook-id header; the same for every attempt
	Event     WebhookEvent
	Queue     string
	Count     int64 // how many occurrences it reports
	CreatedAt time.Time
	At        time.Time // of the last attempt
	Attempts  int
	Outcome   WebhookOutcome
	Status    int    // HTTP status of the last attempt; 0: no response
	Error     string // why the last attempt failed
	Took      time.Duration
}

func eventWords(events []WebhookEvent) (words []string) {
	for _, e := range events {
		words = append(words, string(e))
	}
	return words
}

// Create creates a webhook. It is safe to retry if the secret is given.
func (a Webhooks) Create(ctx context.Context, w WebhookSpec) (*NewWebhook, error) {
	p, err := operate(ctx, a.calls, w.Secret != "", pawlv1.NewWebhookServiceClient(a.rpc).AddWebhook, &pawlv1.AddWebhookRequest{Name: w.Name,
		Url: w.URL, Events: eventWords(w.Events), Queues: w.Queues, DepthOver: w.DepthOver, WaitOver: convert.Duration(w.WaitOver),
		Secret: convert.Text(w.Secret)})
	if err != nil {
		return nil, fmt.Errorf("add webhook %q: %w", w.Name, err)
	}
	return &NewWebhook{*webhookInfoOf(p.GetWebhook()), p.GetSecret(), p.GetUnconfirmedShards()}, nil
}

// Update changes a webhook. unconfirmed lists the shards that did not acknowledge it within a second; they will catch up.
func (a Webhooks) Update(ctx context.Context, name string, to WebhookChange) (w *Webhook, unconfirmed []uint32, err error) {
	req := &pawlv1.SetWebhookRequest{Name: name, Url: convert.Text(to.URL), Events: eventWords(to.Events), Queues: to.Queues,
		DepthOver: to.DepthOver}
	if to.WaitOver != nil {
		req.WaitOver = durationpb.New(*to.WaitOver)
	}
	p, err := operate(ctx, a.calls, true, pawlv1.NewWebhookServiceClient(a.rpc).SetWebhook, req)
	if err != nil {
		return nil, nil, fmt.Errorf("set webhook %q: %w", name, err)
	}
	return webhookInfoOf(p.GetWebhook()), p.GetUnconfirmedShards(), nil
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
func (a Webhooks) Pause(ctx context.Context, name, reason string) (*Webhook, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewWebhookServiceClient(a.rpc).PauseWebhook, &pawlv1.PauseWebhookRequest{
		Name: name, Reason: reason})
	if err != nil {
		return nil, fmt.Errorf("pause webhook %q: %w", name, err)
	}
	return webhookInfoOf(p.GetWebhook()), nil
}

// Resume ends a pause, and re-enables a webhook that was disabled because its receiver answered that it is gone.
// unconfirmed is that of Update.
func (a Webhooks) Resume(ctx context.Context, name string) (w *Webhook, unconfirmed []uint32, err error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewWebhookServiceClient(a.rpc).ResumeWebhook, &pawlv1.ResumeWebhookRequest{Name: name})
	if err != nil {
		return nil, nil, fmt.Errorf("resume webhook %q: %w", name, err)
	}
	return webhookInfoOf(p.GetWebhook()), p.GetUnconfirmedShards(), nil
}

// Test sends a webhook.test notice now and returns the outcome. It is not retried.
func (a Webhooks) Test(ctx context.Context, name string) (*WebhookDelivery, error) {
	p, err := operate(ctx, a.calls, false, pawlv1.NewWebhookServiceClient(a.rpc).TestWebhook, &pawlv1.TestWebhookRequest{Name: name})
	if err != nil {
		return nil, fmt.Errorf("test webhook %q: %w", name, err)
	}
	return webhookDeliveryOf(p.GetDelivery()), nil
}

// WebhookRotation describes how a webhook's secret is replaced.
type WebhookRotation struct {
	Secret  string         // whsec_ and 24 to 64 bytes in base64; "": the server makes one
	Overlap *time.Duration // how long notices are also signed with the old secret; nil: 24 h; at most 30 days
}

// RotateSecret replaces a webhook's secret. For a while, notices are signed with both secrets, so that the receiver can switch.
func (a Webhooks) RotateSecret(ctx context.Context, name string, r WebhookRotation) (*NewWebhook, error) {
	req := &pawlv1.RotateWebhookSecretRequest{Name: name, Secret: convert.Text(r.Secret)}
	if r.Overlap != nil {
		req.Overlap = durationpb.New(*r.Overlap)
	}
	p, err := operate(ctx, a.calls, r.Secret != "", pawlv1.NewWebhookServiceClient(a.rpc).RotateWebhookSecret, req)
	if err != nil {
		return nil, fmt.Errorf("rotate webhook %q: %w", name, err)
	}
	return &NewWebhook{Webhook: *webhookInfoOf(p.GetWebhook()), Secret: p.GetSecret()}, nil
}

// Get returns a webhook, or ErrNotFound if there is none.
func (a Webhooks) Get(ctx context.Context, name string) (*Webhook, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewWebhookServiceClient(a.rpc).GetWebhook, &pawlv1.GetWebhookRequest{Name: name})
	if err != nil {
		return nil, fmt.Errorf("webhook %q: %w", name, err)
	}
	return webhookInfoOf(p.GetWebhook()), nil
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
	if err != nil {
		return pawltype.Page[*Webhook]{}, fmt.Errorf("list webhooks: %w", err)
	}
	return convert.Page(resp, webhookInfoOf), nil
}

// Deliveries returns the last 20 or so deliveries of a webhook, newest first.
func (a Webhooks) Deliveries(ctx context.Context, name string) ([]*WebhookDelivery, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewWebhookServiceClient(a.rpc).ListWebhookDeliveries,
		&pawlv1.ListWebhookDeliveriesRequest{Name: name})
	if err != nil {
		return nil, fmt.Errorf("deliveries of webhook %q: %w", name, err)
	}
	out := make([]*WebhookDelivery, len(p.GetItems()))
	for i, d := range p.GetItems() {
		out[i] = webhookDeliveryOf(d)
	}
	return out, nil
}

func webhookInfoOf(p *pawlv1.Webhook) *Webhook {
	w := &Webhook{Name: p.GetName(), URL: p.GetUrl(), Queues: p.GetQueues(), DepthOver: p.GetDepthOver(),
		WaitOver: p.GetWaitOver().AsDuration(), CreatedBy: p.GetCreatedBy(), CreatedAt: convert.Time(p.GetCreatedAt()),
		ChangedAt: convert.Time(p.GetChangedAt()), RotatedAt: convert.Time(p.GetRotatedAt()), OldUntil: convert.Time(p.GetOldUntil()),
		Paused: p.GetPaused(), PausedReason: p.GetPausedReason(), PausedBy: p.GetPausedBy(), PausedAt: convert.Time(p.GetPausedAt()),
		DisabledReason: p.GetDisabledReason(), DisabledAt: convert.Time(p.GetDisabledAt()), Pending: p.GetPending(),
		PendingSince: convert.Time(p.GetPendingSince()), NextAttemptAt: convert.Time(p.GetNextAttemptAt()), Failures: p.GetFailures(),
		Delivered: p.GetDelivered(), Failed: p.GetFailed(), Dropped: p.GetDropped(), DeliveredAt: convert.Time(p.GetDeliveredAt()),
		FailedAt: convert.Time(p.GetFailedAt()), DroppedAt: convert.Time(p.GetDroppedAt()), LastStatus: int(p.GetLastStatus()),
		LastError: p.GetLastError(), State: WebhookState(p.GetState()), FailingSince: convert.Time(p.GetFailingSince())}
	for _, e := range p.GetEvents() {
		w.Events = append(w.Events, WebhookEvent(e))
	}
	return w
}

func webhookDeliveryOf(p *pawlv1.WebhookDelivery) *WebhookDelivery {
	return &WebhookDelivery{ID: p.GetId(), Event: WebhookEvent(p.GetEvent()), Queue: p.GetQueue(), Count: p.GetCount(),
		CreatedAt: convert.Time(p.GetCreatedAt()), At: convert.Time(p.GetAt()), Attempts: int(p.GetAttempts()),
		Outcome: WebhookOutcome(p.GetOutcome()), Status: int(p.GetStatus()), Error: p.GetError(), Took: p.GetTook().AsDuration()}
}
