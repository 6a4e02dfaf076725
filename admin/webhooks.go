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

// WebhookEvent is what a webhook is told of.
type WebhookEvent string

// What a webhook may be told of. It may also choose all of a sort, as "task.*".
const (
	WebhookTaskDead       WebhookEvent = "task.dead"
	WebhookTaskPoisoned   WebhookEvent = "task.poisoned"
	WebhookBreakerOpened  WebhookEvent = "breaker.opened"
	WebhookBreakerClosed  WebhookEvent = "breaker.closed"
	WebhookScheduleMissed WebhookEvent = "schedule.missed"
	WebhookQueueOver      WebhookEvent = "queue.over"  // a threshold of the webhook
	WebhookQueueUnder     WebhookEvent = "queue.under" // it again
	WebhookTest           WebhookEvent = "webhook.test"
)

// WebhookSpec says what a webhook is to be. Its namespace is that of the client.
type WebhookSpec struct {
	Name   string         // letters, digits and . _ - :, up to 128; the only one in its namespace
	URL    string         // https; http only to networks that the servers allow
	Events []WebhookEvent // nil: all, but those of thresholds only with a threshold
	Queues []string       // patterns: names in which * stands for any characters; nil: all queues
	// DepthOver and WaitOver are thresholds: ready tasks, and how long the oldest of them has been ready. 0: none.
	DepthOver int64
	WaitOver  time.Duration
	Secret    string // whsec_ and 24 to 64 bytes in base64; "": the server makes one
}

// WebhookChange says what is to change of a webhook. Zero fields stay as they are.
type WebhookChange struct {
	URL       string
	Events    []WebhookEvent
	Queues    []string       // "*" is all
	DepthOver *int64         // 0: none
	WaitOver  *time.Duration // 0: none
}

// WebhookState is how a webhook is doing.
type WebhookState string

// What a webhook may be.
const (
	WebhookActive   WebhookState = "active"
	WebhookFailing  WebhookState = "failing"  // the last attempt failed
	WebhookPaused   WebhookState = "paused"   // by somebody
	WebhookDisabled WebhookState = "disabled" // its receiver said that it is gone: until somebody resumes it
)

// Webhook is all that is kept of a webhook, but for its secrets.
type Webhook struct {
	Name      string
	URL       string // without the role admin only its beginning: what follows may be a secret
	Events    []WebhookEvent
	Queues    []string
	DepthOver int64         // 0: none
	WaitOver  time.Duration // 0: none
	CreatedBy string
	CreatedAt time.Time
	ChangedAt time.Time
	RotatedAt time.Time // zero: never
	OldUntil  time.Time // until when the secret before the last rotation signs too

	State          WebhookState
	Paused         bool
	PausedReason   string
	PausedBy       string
	PausedAt       time.Time
	DisabledReason string // set: the receiver said that it is gone, and nothing is sent until the webhook is resumed
	DisabledAt     time.Time

	Pending       int64     // notices that are to be sent
	PendingSince  time.Time // when the oldest of them was made
	NextAttemptAt time.Time // after a failure, if another attempt will be made: never in the past
	Failures      int64     // attempts that failed since the last that succeeded
	FailingSince  time.Time // the first of them
	Delivered     int64     // notices
	Failed        int64     // attempts
	Dropped       int64     // notices that were not delivered, and never will be
	DeliveredAt   time.Time
	FailedAt      time.Time
	DroppedAt     time.Time
	LastStatus    int    // HTTP status of the last failure; 0: there was no answer
	LastError     string // of the last failure, with the beginning of what the receiver answered
}

// NewWebhook is a webhook that was made, or has another secret. The secret is shown this once.
type NewWebhook struct {
	Webhook
	Secret      string   // by which the receiver knows who sends
	Unconfirmed []uint32 // shards that have not said within a second that they know of it: they will
}

// WebhookOutcome is what came of a notice.
type WebhookOutcome string

// What may have come of a notice.
const (
	WebhookDelivered WebhookOutcome = "delivered"
	WebhookRetrying  WebhookOutcome = "retrying"
	WebhookHeld      WebhookOutcome = "held"   // it waits until the webhook is resumed
	WebhookFailed    WebhookOutcome = "failed" // of a test, which is not tried again
	WebhookDropped   WebhookOutcome = "dropped"
)

// WebhookDelivery is a notice that was sent, or was to be.
type WebhookDelivery struct {
	ID        string // the header webhook-id: the same at each attempt
	Event     WebhookEvent
	Queue     string
	Count     int64 // how many of what it tells of
	CreatedAt time.Time
	At        time.Time // of the last attempt
	Attempts  int
	Outcome   WebhookOutcome
	Status    int    // HTTP status of the last attempt; 0: there was no answer
	Error     string // why the last attempt failed
	Took      time.Duration
}

func eventWords(events []WebhookEvent) (words []string) {
	for _, e := range events {
		words = append(words, string(e))
	}
	return words
}

// Create makes a webhook. With a secret that is given it may be repeated.
func (a Webhooks) Create(ctx context.Context, w WebhookSpec) (*NewWebhook, error) {
	p, err := operate(ctx, a.calls, w.Secret != "", pawlv1.NewWebhookServiceClient(a.rpc).AddWebhook, &pawlv1.AddWebhookRequest{Name: w.Name, Url: w.URL, Events: eventWords(w.Events), Queues: w.Queues,
		DepthOver: w.DepthOver, WaitOver: convert.Duration(w.WaitOver), Secret: w.Secret})
	if err != nil {
		return nil, fmt.Errorf("add webhook %q: %w", w.Name, err)
	}
	return &NewWebhook{*webhookInfoOf(p.GetWebhook()), p.GetSecret(), p.GetUnconfirmedShards()}, nil
}

// Update changes a webhook. Unconfirmed are the shards that have not said within a second that they know of it: they will.
func (a Webhooks) Update(ctx context.Context, name string, to WebhookChange) (w *Webhook, unconfirmed []uint32, err error) {
	req := &pawlv1.SetWebhookRequest{Name: name, Url: to.URL, Events: eventWords(to.Events), Queues: to.Queues, DepthOver: to.DepthOver}
	if to.WaitOver != nil {
		req.WaitOver = durationpb.New(*to.WaitOver)
	}
	p, err := operate(ctx, a.calls, true, pawlv1.NewWebhookServiceClient(a.rpc).SetWebhook, req)
	if err != nil {
		return nil, nil, fmt.Errorf("set webhook %q: %w", name, err)
	}
	return webhookInfoOf(p.GetWebhook()), p.GetUnconfirmedShards(), nil
}

// Delete removes a webhook, with what was to be sent to it.
func (a Webhooks) Delete(ctx context.Context, name string) (unconfirmed []uint32, err error) {
	p, err := operate(ctx, a.calls, false, pawlv1.NewWebhookServiceClient(a.rpc).RemoveWebhook, &pawlv1.RemoveWebhookRequest{Name: name})
	if err != nil {
		return nil, fmt.Errorf("remove webhook %q: %w", name, err)
	}
	return p.GetUnconfirmedShards(), nil
}

// Pause sends nothing for now. What happens meanwhile is sent when the webhook is resumed.
func (a Webhooks) Pause(ctx context.Context, name, reason string) (*Webhook, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewWebhookServiceClient(a.rpc).PauseWebhook, &pawlv1.PauseWebhookRequest{Name: name, Reason: reason})
	if err != nil {
		return nil, fmt.Errorf("pause webhook %q: %w", name, err)
	}
	return webhookInfoOf(p.GetWebhook()), nil
}

// Resume ends a pause, and lets a webhook try again whose receiver said that it is gone.
func (a Webhooks) Resume(ctx context.Context, name string) (*Webhook, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewWebhookServiceClient(a.rpc).ResumeWebhook, &pawlv1.ResumeWebhookRequest{Name: name})
	if err != nil {
		return nil, fmt.Errorf("resume webhook %q: %w", name, err)
	}
	return webhookInfoOf(p.GetWebhook()), nil
}

// Test sends a notice of the kind webhook.test now, and tells what came of it. It is not tried again.
func (a Webhooks) Test(ctx context.Context, name string) (*WebhookDelivery, error) {
	p, err := operate(ctx, a.calls, false, pawlv1.NewWebhookServiceClient(a.rpc).TestWebhook, &pawlv1.TestWebhookRequest{Name: name})
	if err != nil {
		return nil, fmt.Errorf("test webhook %q: %w", name, err)
	}
	return webhookDeliveryOf(p.GetDelivery()), nil
}

// WebhookRotation says how a webhook gets another secret.
type WebhookRotation struct {
	Secret  string         // whsec_ and 24 to 64 bytes in base64; "": the server makes one
	Overlap *time.Duration // how long the secret before signs too; nil: 24 h; at most 30 days
}

// RotateSecret gives a webhook another secret; notices are signed with the one before too, for a while, so that the receiver can be told.
func (a Webhooks) RotateSecret(ctx context.Context, name string, r WebhookRotation) (*NewWebhook, error) {
	req := &pawlv1.RotateWebhookSecretRequest{Name: name, Secret: r.Secret}
	if r.Overlap != nil {
		req.Overlap = durationpb.New(*r.Overlap)
	}
	p, err := operate(ctx, a.calls, r.Secret != "", pawlv1.NewWebhookServiceClient(a.rpc).RotateWebhookSecret, req)
	if err != nil {
		return nil, fmt.Errorf("rotate webhook %q: %w", name, err)
	}
	return &NewWebhook{Webhook: *webhookInfoOf(p.GetWebhook()), Secret: p.GetSecret()}, nil
}

// Get gives one webhook, or ErrNotFound.
func (a Webhooks) Get(ctx context.Context, name string) (*Webhook, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewWebhookServiceClient(a.rpc).GetWebhook, &pawlv1.GetWebhookRequest{Name: name})
	if err != nil {
		return nil, fmt.Errorf("webhook %q: %w", name, err)
	}
	return webhookInfoOf(p.GetWebhook()), nil
}

// List goes over the webhooks of the client's namespace, by name.
func (a Webhooks) List(ctx context.Context) iter.Seq2[*Webhook, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*Webhook], error) {
		return a.ListPage(ctx, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage gives one page of the webhooks.
func (a Webhooks) ListPage(ctx context.Context, page pawltype.PageRequest) (pawltype.Page[*Webhook], error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewWebhookServiceClient(a.rpc).ListWebhooks, &pawlv1.ListWebhooksRequest{Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return pawltype.Page[*Webhook]{}, fmt.Errorf("list webhooks: %w", err)
	}
	return convert.Page(resp, webhookInfoOf), nil
}

// Deliveries tells what came of the last notices for a webhook, the newest first: about 20.
func (a Webhooks) Deliveries(ctx context.Context, name string) ([]*WebhookDelivery, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewWebhookServiceClient(a.rpc).ListWebhookDeliveries, &pawlv1.ListWebhookDeliveriesRequest{Name: name})
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
	w := &Webhook{Name: p.GetName(), URL: p.GetUrl(), Queues: p.GetQueues(), DepthOver: p.GetDepthOver(), WaitOver: p.GetWaitOver().AsDuration(),
		CreatedBy: p.GetCreatedBy(), CreatedAt: convert.Time(p.GetCreatedAt()), ChangedAt: convert.Time(p.GetChangedAt()), RotatedAt: convert.Time(p.GetRotatedAt()), OldUntil: convert.Time(p.GetOldUntil()),
		Paused: p.GetPaused(), PausedReason: p.GetPausedReason(), PausedBy: p.GetPausedBy(), PausedAt: convert.Time(p.GetPausedAt()), DisabledReason: p.GetDisabledReason(),
		DisabledAt: convert.Time(p.GetDisabledAt()), Pending: p.GetPending(), PendingSince: convert.Time(p.GetPendingSince()), NextAttemptAt: convert.Time(p.GetNextAttemptAt()),
		Failures: p.GetFailures(), Delivered: p.GetDelivered(), Failed: p.GetFailed(), Dropped: p.GetDropped(), DeliveredAt: convert.Time(p.GetDeliveredAt()),
		FailedAt: convert.Time(p.GetFailedAt()), DroppedAt: convert.Time(p.GetDroppedAt()), LastStatus: int(p.GetLastStatus()), LastError: p.GetLastError(),
		State: WebhookState(p.GetState()), FailingSince: convert.Time(p.GetFailingSince())}
	for _, e := range p.GetEvents() {
		w.Events = append(w.Events, WebhookEvent(e))
	}
	return w
}

func webhookDeliveryOf(p *pawlv1.WebhookDelivery) *WebhookDelivery {
	return &WebhookDelivery{ID: p.GetId(), Event: WebhookEvent(p.GetEvent()), Queue: p.GetQueue(), Count: p.GetCount(), CreatedAt: convert.Time(p.GetCreatedAt()), At: convert.Time(p.GetAt()),
		Attempts: int(p.GetAttempts()), Outcome: WebhookOutcome(p.GetOutcome()), Status: int(p.GetStatus()), Error: p.GetError(), Took: p.GetTook().AsDuration()}
}
