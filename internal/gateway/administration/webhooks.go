package administration

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/system/webhooks"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/webhook"
)

// Webhooks sends to webhooks from this node.
type Webhooks interface {
	// Check rejects a URL by its form.
	Check(field, ns, url string) error
}

// WebhookService implements WebhookService.
type WebhookService struct {
	pawlv1.UnimplementedWebhookServiceServer
	Sender Webhooks // nil: webhooks are not served here
	Verbs  verb.Runner
	Log    *slog.Logger
}

func (g *WebhookService) webhooks() (Webhooks, error) {
	if g.Sender == nil {
		return nil, &task.Error{Code: task.CodePermissionDenied, Message: "webhooks are not served here"}
	}
	return g.Sender, nil
}

// hookCall decodes what requests that change a webhook have in common.
func (g *WebhookService) hookCall(ctx context.Context, name, reason string) (c webhooks.Call, err error) {
	if err := webhooks.CheckName(name); err != nil {
		return c, err
	}
	c.Hook.Namespace, c.Hook.Name = callinfo.Namespace(ctx), name
	c.By, err = callinfo.Author(ctx, reason)
	return c, err
}

// ListWebhooks returns a page of the namespace's webhooks.
func (g *WebhookService) ListWebhooks(ctx context.Context, r *pawlv1.ListWebhooksRequest) (*pawlv1.ListWebhooksResponse, error) {
	n, after, err := apiproto.PageOf(r, apiproto.WebhookCursor)
	if err != nil {
		return nil, err
	}
	all, err := webhooks.List.Call(ctx, g.Verbs, callinfo.Namespace(ctx))
	if err != nil {
		return nil, err
	}
	items, next := pageAfter(all, string(after), n, func(h webhooks.View) string { return h.Name })
	out := &pawlv1.ListWebhooksResponse{Items: make([]*pawlv1.Webhook, len(items)), NextCursor: apiproto.NextCursor(apiproto.WebhookCursor,
		next)}
	for i := range items {
		out.Items[i] = webhookProto(ctx, &items[i])
	}
	return out, nil
}

// GetWebhook returns one webhook.
func (g *WebhookService) GetWebhook(ctx context.Context, r *pawlv1.GetWebhookRequest) (*pawlv1.GetWebhookResponse, error) {
	if err := webhooks.CheckName(r.GetName()); err != nil {
		return nil, err
	}
	h, err := webhooks.Get.Call(ctx, g.Verbs, webhooks.Name{Namespace: callinfo.Namespace(ctx), Name: r.GetName()})
	if err != nil {
		return nil, err
	}
	return &pawlv1.GetWebhookResponse{Webhook: webhookProto(ctx, &h)}, nil
}

// hookSecret returns the secret in a request, or a new one.
func hookSecret(given string) (string, error) {
	if given == "" {
		return webhook.NewSecret(), nil
	}
	return given, webhook.CheckSecret("secret", given)
}

// AddWebhook creates a webhook.
func (g *WebhookService) AddWebhook(ctx context.Context, r *pawlv1.AddWebhookRequest) (*pawlv1.AddWebhookResponse, error) {
	c, err := g.hookCall(ctx, r.GetName(), "")
	if err != nil {
		return nil, err
	}
	h := &c.Hook
	h.URL, h.Queues, h.DepthOver = r.GetUrl(), r.GetQueues(), r.GetDepthOver()
	hooks, err := g.webhooks()
	if err != nil {
		return nil, err
	}
	if err := hooks.Check("url", h.Namespace, h.URL); err != nil {
		return nil, err
	}
	if h.Events, err = task.ParseNotificationKinds("events", r.GetEvents()); err != nil {
		return nil, err
	}
	if h.WaitOver, err = apiproto.SpanOf("wait_over", r.GetWaitOver()); err != nil {
		return nil, err
	}
	if c.Secret, err = hookSecret(r.GetSecret()); err != nil {
		return nil, err
	}
	if len(h.Queues) > task.MaxPatterns {
		return nil, task.Invalid("queues", "%d patterns, 1 to %d are allowed", len(h.Queues), task.MaxPatterns)
	}
	done, err := webhooks.Add.Call(ctx, g.Verbs, c)
	if err != nil {
		return nil, err
	}
	g.Log.Info("webhook added", "webhook", h.Name, "namespace", h.Namespace, "to", webhook.Redacted(h.URL), "unconfirmed_shards",
		done.Unconfirmed, "by", c.By)
	return &pawlv1.AddWebhookResponse{Webhook: webhookProto(ctx, &done.Hook), Secret: c.Secret, UnconfirmedShards: done.Unconfirmed}, nil
}

// SetWebhook changes a webhook.
func (g *WebhookService) SetWebhook(ctx context.Context, r *pawlv1.SetWebhookRequest) (*pawlv1.SetWebhookResponse, error) {
	c, err := g.hookCall(ctx, r.GetName(), "")
	if err != nil {
		return nil, err
	}
	if r.GetUrl() != "" {
		hooks, err := g.webhooks()
		if err != nil {
			return nil, err
		}
		if err := hooks.Check("url", c.Hook.Namespace, r.GetUrl()); err != nil {
			return nil, err
		}
	}
	to := &c.Change
	to.URL, to.Queues, to.DepthOver = r.GetUrl(), r.GetQueues(), r.DepthOver
	if to.Events, err = task.ParseNotificationKinds("events", r.GetEvents()); err != nil {
		return nil, err
	}
	if r.GetWaitOver() != nil {
		wait, err := apiproto.SpanOf("wait_over", r.GetWaitOver())
		if err != nil {
			return nil, err
		}
		to.WaitOver = &wait
	}
	if len(to.Queues) > task.MaxPatterns {
		return nil, task.Invalid("queues", "%d patterns, 1 to %d are allowed", len(to.Queues), task.MaxPatterns)
	}
	done, err := webhooks.Set.Call(ctx, g.Verbs, c)
	if err != nil {
		return nil, err
	}
	g.Log.Info("webhook changed", "webhook", c.Hook.Name, "namespace", c.Hook.Namespace, "unconfirmed_shards", done.Unconfirmed, "by", c.By)
	return &pawlv1.SetWebhookResponse{Webhook: webhookProto(ctx, &done.Hook), UnconfirmedShards: done.Unconfirmed}, nil
}

// RemoveWebhook removes a webhook.
func (g *WebhookService) RemoveWebhook(ctx context.Context, r *pawlv1.RemoveWebhookRequest) (*pawlv1.RemoveWebhookResponse, error) {
	c, err := g.hookCall(ctx, r.GetName(), "")
	if err != nil {
		return nil, err
	}
	done, err := webhooks.Remove.Call(ctx, g.Verbs, c)
	if err != nil {
		return nil, err
	}
	g.Log.Info("webhook removed", "webhook", c.Hook.Name, "namespace", c.Hook.Namespace, "by", c.By)
	return &pawlv1.RemoveWebhookResponse{UnconfirmedShards: done.Unconfirmed}, nil
}

// PauseWebhook stops deliveries.
func (g *WebhookService) PauseWebhook(ctx context.Context, r *pawlv1.PauseWebhookRequest) (*pawlv1.PauseWebhookResponse, error) {
	c, err := g.hookCall(ctx, r.GetName(), r.GetReason())
	if err != nil {
		return nil, err
	}
	h, err := webhooks.Pause.Call(ctx, g.Verbs, c)
	if err != nil {
		return nil, err
	}
	g.Log.Info("webhook paused", "webhook", c.Hook.Name, "namespace", c.Hook.Namespace, "by", c.By)
	return &pawlv1.PauseWebhookResponse{Webhook: webhookProto(ctx, &h)}, nil
}

// ResumeWebhook resumes deliveries.
func (g *WebhookService) ResumeWebhook(ctx context.Context, r *pawlv1.ResumeWebhookRequest) (*pawlv1.ResumeWebhookResponse, error) {
	c, err := g.hookCall(ctx, r.GetName(), "")
	if err != nil {
		return nil, err
	}
	done, err := webhooks.Resume.Call(ctx, g.Verbs, c)
	if err != nil {
		return nil, err
	}
	g.Log.Info("webhook resumed", "webhook", c.Hook.Name, "namespace", c.Hook.Namespace, "by", c.By)
	return &pawlv1.ResumeWebhookResponse{Webhook: webhookProto(ctx, &done.Hook), UnconfirmedShards: done.Unconfirmed}, nil
}

// TestWebhook sends a notification now.
func (g *WebhookService) TestWebhook(ctx context.Context, r *pawlv1.TestWebhookRequest) (*pawlv1.TestWebhookResponse, error) {
	c, err := g.hookCall(ctx, r.GetName(), "")
	if err != nil {
		return nil, err
	}
	if _, err := g.webhooks(); err != nil {
		return nil, err
	}
	// it waits for the receiver
	d, err := webhooks.Test.Call(ctx, g.Verbs, webhooks.Name{Namespace: c.Hook.Namespace, Name: c.Hook.Name, By: c.By})
	if err != nil {
		return nil, err
	}
	return &pawlv1.TestWebhookResponse{Delivery: deliveryProto(&d)}, nil
}

// RotateWebhookSecret replaces the secret of a webhook.
func (g *WebhookService) RotateWebhookSecret(ctx context.Context,
	r *pawlv1.RotateWebhookSecretRequest) (*pawlv1.RotateWebhookSecretResponse, error) {
	c, err := g.hookCall(ctx, r.GetName(), "")
	if err != nil {
		return nil, err
	}
	if c.Secret, err = hookSecret(r.GetSecret()); err != nil {
		return nil, err
	}
	if c.Overlap, err = overlapOf(r.GetOverlap()); err != nil {
		return nil, err
	}
	h, err := webhooks.Rotate.Call(ctx, g.Verbs, c)
	if err != nil {
		return nil, err
	}
	g.Log.Info("webhook rotated", "webhook", c.Hook.Name, "namespace", c.Hook.Namespace, "by", c.By)
	return &pawlv1.RotateWebhookSecretResponse{Webhook: webhookProto(ctx, &h), Secret: c.Secret}, nil
}

// ListWebhookDeliveries returns the outcomes of the last notifications.
func (g *WebhookService) ListWebhookDeliveries(ctx context.Context,
	r *pawlv1.ListWebhookDeliveriesRequest) (*pawlv1.ListWebhookDeliveriesResponse, error) {
	if err := webhooks.CheckName(r.GetName()); err != nil {
		return nil, err
	}
	all, err := webhooks.Deliveries.Call(ctx, g.Verbs, webhooks.Name{Namespace: callinfo.Namespace(ctx), Name: r.GetName()})
	if err != nil {
		return nil, err
	}
	out := &pawlv1.ListWebhookDeliveriesResponse{Items: make([]*pawlv1.WebhookDelivery, len(all))}
	for i := range all {
		out.Items[i] = deliveryProto(&all[i])
	}
	return out, nil
}

// webhookProto converts a webhook for the caller: only the role that may change it sees the whole URL.
func webhookProto(ctx context.Context, h *webhooks.View) *pawlv1.Webhook {
	url := h.URL
	if !callinfo.Of(ctx).Principal.Roles.HasAny(auth.Admin) {
		url = webhook.Redacted(url)
	}
	p := &pawlv1.Webhook{Name: h.Name, Url: url, Queues: h.Queues, DepthOver: h.DepthOver, WaitOver: spanOrNil(h.WaitOver),
		CreatedBy: h.CreatedBy, CreatedAt: apiproto.TimeProto(h.CreatedAt), ChangedAt: apiproto.TimeProto(h.ChangedAt),
		RotatedAt: apiproto.TimeProto(h.RotatedAt), OldUntil: apiproto.TimeProto(h.OldUntil), Paused: h.Paused,
		PausedReason: h.PausedReason, PausedBy: h.PausedBy, PausedAt: apiproto.TimeProto(h.PausedAt), DisabledReason: h.DisabledReason,
		DisabledAt: apiproto.TimeProto(h.DisabledAt), Pending: h.Pending, PendingSince: apiproto.TimeProto(h.PendingSince),
		NextAttemptAt: ahead(h.NextAttempt.Time()), State: string(h.State()), FailingSince: apiproto.TimeProto(h.FailsSince),
		Failures: int64(h.Failures), Delivered: h.Delivered, Failed: h.Failed, Dropped: h.Dropped,
		DeliveredAt: apiproto.TimeProto(h.DeliveredAt), LastStatus: int32(h.LastStatus), LastError: h.LastError,
		FailedAt: apiproto.TimeProto(h.FailedAt), DroppedAt: apiproto.TimeProto(h.DroppedAt)} // #nosec G115 -- of HTTP
	for _, k := range h.Events {
		p.Events = append(p.Events, string(k))
	}
	return p
}

// ahead omits a time in the past.
func ahead(t time.Time) *timestamppb.Timestamp {
	if !t.After(time.Now()) {
		return nil
	}
	return timestamppb.New(t)
}

// spanOrNil omits a duration of 0.
func spanOrNil(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func deliveryProto(d *webhooks.Delivery) *pawlv1.WebhookDelivery {
	return &pawlv1.WebhookDelivery{Id: d.ID, Event: string(d.Kind), Queue: d.Queue, Count: d.Count,
		CreatedAt: apiproto.TimeProto(d.CreatedAt), At: apiproto.TimeProto(d.At), Attempts: int32(d.Attempts), Outcome: string(d.Outcome),
		Status: int32(d.Status), Error: d.Error, Took: durationpb.New(d.Took)} // #nosec G115 -- a few
}
