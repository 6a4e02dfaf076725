package conformance

import (
	"context"
	"net/url"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pawlq/pawl/admin"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system/webhooks"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/webhook"
)

// webhooksAPI is what an API can do with webhooks.
type webhooksAPI interface {
	AddHook(ctx context.Context, h hookSpec) (newHook, error)
	SetHook(ctx context.Context, name string, to hookChange) (hookInfo, error)
	// RotateHook with a nil overlap uses the server's default.
	RotateHook(ctx context.Context, name, secret string, overlap *span) (newHook, error)
	PauseHook(ctx context.Context, name, reason string) (hookInfo, error)
	ResumeHook(ctx context.Context, name string) (hookInfo, error)
	RemoveHook(ctx context.Context, name string) error
	TestHook(ctx context.Context, name string) (posted, error)
	Hook(ctx context.Context, name string) (hookInfo, error)
	Hooks(ctx context.Context, p part) (list []hookInfo, next string, err error)
	// Posted returns the outcomes of the latest deliveries.
	Posted(ctx context.Context, name string) ([]posted, error)
}

func (w *world) hooks() webhooksAPI { return w.api.(webhooksAPI) }

// hookSpec is a webhook to create. Zero fields are omitted.
type hookSpec struct {
	Name      string   `json:"name"`
	URL       string   `json:"url"`
	Events    []string `json:"events,omitempty"`
	Queues    []string `json:"queues,omitempty"`
	DepthOver int64    `json:"depth_over,omitempty"`
	WaitOver  span     `json:"wait_over,omitempty"`
	Secret    string   `json:"secret,omitempty"`
}

// hookChange is a change of a webhook. Zero and nil fields are unchanged.
type hookChange struct {
	URL       string   `json:"url,omitempty"`
	Events    []string `json:"events,omitempty"`
	Queues    []string `json:"queues,omitempty"`
	DepthOver *int64   `json:"depth_over,omitempty"`
	WaitOver  *span    `json:"wait_over,omitempty"`
}

// hookInfo is everything that the API shows of a webhook.
type hookInfo struct {
	Name           string    `json:"name"`
	URL            string    `json:"url"`
	Events         []string  `json:"events"`
	Queues         []string  `json:"queues"`
	DepthOver      int64     `json:"depth_over"`
	WaitOver       span      `json:"wait_over"`
	CreatedBy      string    `json:"created_by"`
	CreatedAt      time.Time `json:"created_at"`
	ChangedAt      time.Time `json:"changed_at"`
	RotatedAt      time.Time `json:"rotated_at"`
	OldUntil       time.Time `json:"old_until"`
	State          string    `json:"state"`
	Paused         bool      `json:"paused"`
	PausedReason   string    `json:"paused_reason"`
	PausedBy       string    `json:"paused_by"`
	PausedAt       time.Time `json:"paused_at"`
	DisabledReason string    `json:"disabled_reason"`
	DisabledAt     time.Time `json:"disabled_at"`
	Pending        int64     `json:"pending"`
	PendingSince   time.Time `json:"pending_since"`
	NextAttemptAt  time.Time `json:"next_attempt_at"`
	Failures       int64     `json:"failures"`
	FailingSince   time.Time `json:"failing_since"`
	Delivered      int64     `json:"delivered"`
	Failed         int64     `json:"failed"`
	Dropped        int64     `json:"dropped"`
	DeliveredAt    time.Time `json:"delivered_at"`
	LastStatus     int       `json:"last_status"`
	LastError      string    `json:"last_error"`
	FailedAt       time.Time `json:"failed_at"`
	DroppedAt      time.Time `json:"dropped_at"`
}

// newHook is a webhook that was created, or whose secret was rotated.
type newHook struct {
	Hook        hookInfo `json:"webhook"`
	Secret      string   `json:"secret"`
	Unconfirmed []uint32 `json:"unconfirmed_shards"`
}

// posted is a delivery, sent or pending.
type posted struct {
	ID        string    `json:"id"`
	Event     string    `json:"event"`
	Queue     string    `json:"queue"`
	Count     int64     `json:"count"`
	CreatedAt time.Time `json:"created_at"`
	At        time.Time `json:"at"`
	Attempts  int       `json:"attempts"`
	Outcome   string    `json:"outcome"`
	Status    int       `json:"status"`
	Error     string    `json:"error"`
	Took      span      `json:"took"`
}

// REST

func hookPath(name, verb string) string { return "/webhooks/" + url.PathEscape(name) + verb }

func (d *rest) AddHook(ctx context.Context, h hookSpec) (made newHook, err error) {
	return made, d.call(ctx, "POST", "/webhooks", h, &made)
}

func (d *rest) SetHook(ctx context.Context, name string, to hookChange) (hookInfo, error) {
	var a newHook
	err := d.call(ctx, "PATCH", hookPath(name, ""), to, &a)
	return a.Hook, err
}

func (d *rest) RotateHook(ctx context.Context, name, secret string, overlap *span) (made newHook, err error) {
	body := fields{}.with(secret != "", "secret", secret).with(overlap != nil, "overlap", overlap)
	return made, d.call(ctx, "POST", hookPath(name, "/rotate"), body, &made)
}

func (d *rest) PauseHook(ctx context.Context, name, reason string) (h hookInfo, err error) {
	return h, d.call(ctx, "POST", hookPath(name, "/pause"), fields{"reason": reason}, &h)
}

func (d *rest) ResumeHook(ctx context.Context, name string) (hookInfo, error) {
	var a newHook
	err := d.query(ctx, "POST", hookPath(name, "/resume"), nil, &a)
	return a.Hook, err
}

func (d *rest) RemoveHook(ctx context.Context, name string) error {
	return d.query(ctx, "DELETE", hookPath(name, ""), nil, &newHook{})
}

func (d *rest) TestHook(ctx context.Context, name string) (p posted, err error) {
	return p, d.query(ctx, "POST", hookPath(name, "/test"), nil, &p)
}

func (d *rest) Hook(ctx context.Context, name string) (h hookInfo, err error) {
	return h, d.query(ctx, "GET", hookPath(name, ""), nil, &h)
}

func (d *rest) Hooks(ctx context.Context, p part) ([]hookInfo, string, error) {
	var a struct {
		Items []hookInfo `json:"items"`
		Next  string     `json:"next_cursor"`
	}
	err := d.query(ctx, "GET", "/webhooks", filter{}.query(p), &a)
	return a.Items, a.Next, err
}

func (d *rest) Posted(ctx context.Context, name string) ([]posted, error) {
	var a struct {
		Items []posted `json:"items"`
		Next  string   `json:"next_cursor"`
	}
	err := d.query(ctx, "GET", hookPath(name, "/deliveries"), nil, &a)
	return a.Items, err
}

// gRPC

func (d *rpc) AddHook(ctx context.Context, h hookSpec) (newHook, error) {
	p, err := ask(ctx, d.webhook.AddWebhook, &pawlv1.AddWebhookRequest{Name: h.Name, Url: h.URL, Events: h.Events, Queues: h.Queues,
		DepthOver: h.DepthOver, WaitOver: spanProto(h.WaitOver), Secret: text(h.Secret)})
	return newHook{hookProto(p.GetWebhook()), p.GetSecret(), p.GetUnconfirmedShards()}, err
}

func (d *rpc) SetHook(ctx context.Context, name string, to hookChange) (hookInfo, error) {
	p, err := ask(ctx, d.webhook.SetWebhook, &pawlv1.SetWebhookRequest{Name: name, Url: text(to.URL), Events: to.Events, Queues: to.Queues,
		DepthOver: to.DepthOver, WaitOver: spanOrNone(to.WaitOver)})
	return hookProto(p.GetWebhook()), err
}

func (d *rpc) RotateHook(ctx context.Context, name, secret string, overlap *span) (newHook, error) {
	p, err := ask(ctx, d.webhook.RotateWebhookSecret, &pawlv1.RotateWebhookSecretRequest{Name: name, Secret: text(secret),
		Overlap: spanOrNone(overlap)})
	return newHook{Hook: hookProto(p.GetWebhook()), Secret: p.GetSecret()}, err
}

func (d *rpc) PauseHook(ctx context.Context, name, reason string) (hookInfo, error) {
	p, err := ask(ctx, d.webhook.PauseWebhook, &pawlv1.PauseWebhookRequest{Name: name, Reason: reason})
	return hookProto(p.GetWebhook()), err
}

func (d *rpc) ResumeHook(ctx context.Context, name string) (hookInfo, error) {
	p, err := ask(ctx, d.webhook.ResumeWebhook, &pawlv1.ResumeWebhookRequest{Name: name})
	return hookProto(p.GetWebhook()), err
}

func (d *rpc) RemoveHook(ctx context.Context, name string) error {
	_, err := ask(ctx, d.webhook.RemoveWebhook, &pawlv1.RemoveWebhookRequest{Name: name})
	return err
}

func (d *rpc) TestHook(ctx context.Context, name string) (posted, error) {
	p, err := ask(ctx, d.webhook.TestWebhook, &pawlv1.TestWebhookRequest{Name: name})
	return postedProto(p.GetDelivery()), err
}

func (d *rpc) Hook(ctx context.Context, name string) (hookInfo, error) {
	p, err := ask(ctx, d.webhook.GetWebhook, &pawlv1.GetWebhookRequest{Name: name})
	return hookProto(p.GetWebhook()), err
}

func (d *rpc) Hooks(ctx context.Context, p part) (list []hookInfo, next string, err error) {
	a, err := ask(ctx, d.webhook.ListWebhooks, &pawlv1.ListWebhooksRequest{Limit: int32(p.Limit), Cursor: p.Cursor})
	for _, h := range a.GetItems() {
		list = append(list, hookProto(h))
	}
	return list, a.GetNextCursor(), err
}

func (d *rpc) Posted(ctx context.Context, name string) (list []posted, err error) {
	a, err := ask(ctx, d.webhook.ListWebhookDeliveries, &pawlv1.ListWebhookDeliveriesRequest{Name: name})
	for _, p := range a.GetItems() {
		list = append(list, postedProto(p))
	}
	return list, err
}

// spanOrNone also sends a duration of 0.
func spanOrNone(s *span) *durationpb.Duration {
	if s == nil {
		return nil
	}
	return durationpb.New(s.std())
}

func hookProto(p *pawlv1.Webhook) hookInfo {
	return hookInfo{p.GetName(), p.GetUrl(), p.GetEvents(), p.GetQueues(), p.GetDepthOver(), span(p.GetWaitOver().AsDuration()),
		p.GetCreatedBy(), timeOf(p.GetCreatedAt()), timeOf(p.GetChangedAt()), timeOf(p.GetRotatedAt()), timeOf(p.GetOldUntil()),
		p.GetState(), p.GetPaused(), p.GetPausedReason(), p.GetPausedBy(), timeOf(p.GetPausedAt()), p.GetDisabledReason(),
		timeOf(p.GetDisabledAt()), p.GetPending(), timeOf(p.GetPendingSince()), timeOf(p.GetNextAttemptAt()), p.GetFailures(),
		timeOf(p.GetFailingSince()), p.GetDelivered(), p.GetFailed(), p.GetDropped(), timeOf(p.GetDeliveredAt()), int(p.GetLastStatus()),
		p.GetLastError(), timeOf(p.GetFailedAt()), timeOf(p.GetDroppedAt())}
}

func postedProto(p *pawlv1.WebhookDelivery) posted {
	return posted{p.GetId(), p.GetEvent(), p.GetQueue(), p.GetCount(), timeOf(p.GetCreatedAt()), timeOf(p.GetAt()), int(p.GetAttempts()),
		p.GetOutcome(), int(p.GetStatus()), p.GetError(), span(p.GetTook().AsDuration())}
}

// The SDK

func (d *sdk) AddHook(ctx context.Context, h hookSpec) (newHook, error) {
	return newHookSDK(d.admin().Webhooks().Create(ctx, admin.WebhookSpec{Name: h.Name, URL: h.URL, Events: eventsSDK(h.Events),
		Queues: h.Queues, DepthOver: h.DepthOver, WaitOver: h.WaitOver.std(), Secret: h.Secret}))
}

func (d *sdk) SetHook(ctx context.Context, name string, to hookChange) (hookInfo, error) {
	return updatedHookSDK(d.admin().Webhooks().Update(ctx, name, admin.WebhookChange{URL: to.URL, Events: eventsSDK(to.Events),
		Queues: to.Queues, DepthOver: to.DepthOver, WaitOver: (*time.Duration)(to.WaitOver)}))
}

func (d *sdk) RotateHook(ctx context.Context, name, secret string, overlap *span) (newHook, error) {
	return newHookSDK(d.admin().Webhooks().RotateSecret(ctx, name, admin.WebhookRotation{Secret: secret,
		Overlap: (*time.Duration)(overlap)}))
}

func (d *sdk) PauseHook(ctx context.Context, name, reason string) (hookInfo, error) {
	return hookSDK(d.admin().WithReason(reason).Webhooks().Pause(ctx, name))
}

func (d *sdk) ResumeHook(ctx context.Context, name string) (hookInfo, error) {
	return updatedHookSDK(d.admin().Webhooks().Resume(ctx, name))
}

func updatedHookSDK(h *admin.UpdatedWebhook, err error) (hookInfo, error) {
	if err != nil {
		return hookSDK(nil, err)
	}
	return hookSDK(&h.Webhook, nil)
}

func (d *sdk) RemoveHook(ctx context.Context, name string) error {
	_, err := d.admin().Webhooks().Delete(ctx, name)
	return refusedBySDK(err)
}

func (d *sdk) TestHook(ctx context.Context, name string) (posted, error) {
	p, err := d.admin().Webhooks().Test(ctx, name)
	if err != nil {
		return posted{}, refusedBySDK(err)
	}
	return postedSDK(p), nil
}

func (d *sdk) Hook(ctx context.Context, name string) (hookInfo, error) {
	return hookSDK(d.admin().Webhooks().Get(ctx, name))
}

func (d *sdk) Hooks(ctx context.Context, p part) (list []hookInfo, next string, err error) {
	got, err := d.admin().Webhooks().ListPage(ctx, p.sdk())
	for _, h := range got.Items {
		shown, _ := hookSDK(h, nil)
		list = append(list, shown)
	}
	return list, got.NextCursor, refusedBySDK(err)
}

func (d *sdk) Posted(ctx context.Context, name string) (list []posted, err error) {
	got, err := d.admin().Webhooks().Deliveries(ctx, name)
	for _, p := range got {
		list = append(list, postedSDK(p))
	}
	return list, refusedBySDK(err)
}

func eventsSDK(words []string) (events []admin.WebhookEvent) {
	for _, e := range words {
		events = append(events, admin.WebhookEvent(e))
	}
	return events
}

func newHookSDK(h *admin.NewWebhook, err error) (newHook, error) {
	if err != nil {
		return newHook{}, refusedBySDK(err)
	}
	shown, _ := hookSDK(&h.Webhook, nil)
	return newHook{shown, h.Secret, h.Unconfirmed}, nil
}

func hookSDK(h *admin.Webhook, err error) (hookInfo, error) {
	if err != nil {
		return hookInfo{}, refusedBySDK(err)
	}
	var events []string
	for _, e := range h.Events {
		events = append(events, string(e))
	}
	return hookInfo{h.Name, h.URL, events, h.Queues, h.DepthOver, span(h.WaitOver), h.CreatedBy, h.CreatedAt, h.ChangedAt, h.RotatedAt,
		h.OldUntil, string(h.State), h.Paused, h.PausedReason, h.PausedBy, h.PausedAt, h.DisabledReason, h.DisabledAt,
		h.Pending, h.PendingSince, h.NextAttemptAt, h.Failures, h.FailingSince, h.Delivered, h.Failed, h.Dropped, h.DeliveredAt,
		h.LastStatus, h.LastError, h.FailedAt, h.DroppedAt}, nil
}

func postedSDK(p *admin.WebhookDelivery) posted {
	return posted{p.ID, string(p.Event), p.Queue, p.Count, p.CreatedAt, p.At, p.Attempts, string(p.Outcome), p.Status,
		p.Error, span(p.Took)}
}

// Direct calls, as the gateway makes them

func (d *direct) call(name string) webhooks.Call {
	return webhooks.Call{Hook: webhooks.Webhook{Namespace: namespace, Name: name}, By: directly}
}

func (d *direct) AddHook(ctx context.Context, h hookSpec) (newHook, error) {
	c := d.call(h.Name)
	c.Hook.URL, c.Hook.Queues, c.Hook.DepthOver, c.Hook.WaitOver = h.URL, h.Queues, h.DepthOver, h.WaitOver.std()
	events, err := task.ParseNotificationKinds("events", h.Events)
	if err != nil {
		return newHook{}, refused(err)
	}
	c.Hook.Events, c.Secret = events, secretOr(h.Secret)
	done, err := d.hooks.AddWebhook(ctx, c)
	return newHook{hookDirect(done.Hook), c.Secret, done.Unconfirmed}, refused(err)
}

func (d *direct) SetHook(ctx context.Context, name string, to hookChange) (hookInfo, error) {
	c := d.call(name)
	events, err := task.ParseNotificationKinds("events", to.Events)
	if err != nil {
		return hookInfo{}, refused(err)
	}
	c.Change = webhooks.Change{URL: to.URL, Events: events, Queues: to.Queues, DepthOver: to.DepthOver,
		WaitOver: (*time.Duration)(to.WaitOver)}
	done, err := d.hooks.SetWebhook(ctx, c)
	return hookDirect(done.Hook), refused(err)
}

func (d *direct) RotateHook(ctx context.Context, name, secret string, overlap *span) (newHook, error) {
	c := d.call(name)
	c.Secret, c.Overlap = secretOr(secret), 24*time.Hour
	if overlap != nil {
		c.Overlap = overlap.std()
	}
	done, err := d.hooks.RotateWebhook(ctx, c)
	return newHook{Hook: hookDirect(done.Hook), Secret: c.Secret}, refused(err)
}

func (d *direct) PauseHook(ctx context.Context, name, reason string) (hookInfo, error) {
	c := d.call(name)
	c.By.Reason = reason
	done, err := d.hooks.PauseWebhook(ctx, c)
	return hookDirect(done.Hook), refused(err)
}

func (d *direct) ResumeHook(ctx context.Context, name string) (hookInfo, error) {
	done, err := d.hooks.ResumeWebhook(ctx, d.call(name))
	return hookDirect(done.Hook), refused(err)
}

func (d *direct) RemoveHook(ctx context.Context, name string) error {
	_, err := d.hooks.RemoveWebhook(ctx, d.call(name))
	return refused(err)
}

func (d *direct) TestHook(ctx context.Context, name string) (posted, error) {
	p, err := d.hooks.TestWebhook(ctx, directly, namespace, name)
	return postedDirect(p), refused(err)
}

func (d *direct) Hook(ctx context.Context, name string) (hookInfo, error) {
	h, err := d.hooks.Get(ctx, namespace, name)
	return hookDirect(h), refused(err)
}

// Hooks has no pages: the gateway makes them.
func (d *direct) Hooks(ctx context.Context, _ part) (list []hookInfo, next string, err error) {
	all, err := d.hooks.List(ctx, namespace)
	for _, h := range all {
		list = append(list, hookDirect(h))
	}
	return list, "", refused(err)
}

func (d *direct) Posted(ctx context.Context, name string) (list []posted, err error) {
	all, err := d.hooks.Deliveries(ctx, namespace, name)
	for _, p := range all {
		list = append(list, postedDirect(p))
	}
	return list, refused(err)
}

func secretOr(given string) string {
	if given == "" {
		return webhook.NewSecret()
	}
	return given
}

func timeDirect(t store.Time) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return t.Time().UTC()
}

func hookDirect(h webhooks.View) hookInfo {
	var events []string
	for _, e := range h.Events {
		events = append(events, string(e))
	}
	return hookInfo{h.Name, h.URL, events, h.Queues, h.DepthOver, span(h.WaitOver), h.CreatedBy, timeDirect(h.CreatedAt),
		timeDirect(h.ChangedAt), timeDirect(h.RotatedAt), timeDirect(h.OldUntil), string(h.State()), h.Paused, h.PausedReason, h.PausedBy,
		timeDirect(h.PausedAt), h.DisabledReason, timeDirect(h.DisabledAt), h.Pending, timeDirect(h.PendingSince),
		timeDirect(h.NextAttempt), int64(h.Failures), timeDirect(h.FailsSince), h.Delivered, h.Failed, h.Dropped, timeDirect(h.DeliveredAt),
		h.LastStatus, h.LastError, timeDirect(h.FailedAt), timeDirect(h.DroppedAt)}
}

func postedDirect(p webhooks.Delivery) posted {
	return posted{p.ID, string(p.Kind), p.Queue, p.Count, timeDirect(p.CreatedAt), timeDirect(p.At), p.Attempts,
		string(p.Outcome), p.Status, p.Error, span(p.Took)}
}

// Each in turn

func (d *roundRobin) hookKeeper() webhooksAPI { return d.next().(webhooksAPI) }

func (d *roundRobin) AddHook(ctx context.Context, h hookSpec) (newHook, error) {
	return d.hookKeeper().AddHook(ctx, h)
}
func (d *roundRobin) SetHook(ctx context.Context, name string, to hookChange) (hookInfo, error) {
	return d.hookKeeper().SetHook(ctx, name, to)
}
func (d *roundRobin) RotateHook(ctx context.Context, name, secret string, overlap *span) (newHook, error) {
	return d.hookKeeper().RotateHook(ctx, name, secret, overlap)
}
func (d *roundRobin) PauseHook(ctx context.Context, name, reason string) (hookInfo, error) {
	return d.hookKeeper().PauseHook(ctx, name, reason)
}
func (d *roundRobin) ResumeHook(ctx context.Context, name string) (hookInfo, error) {
	return d.hookKeeper().ResumeHook(ctx, name)
}
func (d *roundRobin) RemoveHook(ctx context.Context, name string) error {
	return d.hookKeeper().RemoveHook(ctx, name)
}
func (d *roundRobin) TestHook(ctx context.Context, name string) (posted, error) {
	return d.hookKeeper().TestHook(ctx, name)
}
func (d *roundRobin) Hook(ctx context.Context, name string) (hookInfo, error) {
	return d.hookKeeper().Hook(ctx, name)
}
func (d *roundRobin) Hooks(ctx context.Context, p part) ([]hookInfo, string, error) {
	return d.hookKeeper().Hooks(ctx, p)
}
func (d *roundRobin) Posted(ctx context.Context, name string) ([]posted, error) {
	return d.hookKeeper().Posted(ctx, name)
}
