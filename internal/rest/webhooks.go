package rest

import (
	"math"
	"net/http"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

var webhookRoutes = []Route{
	{"GET", "/api/v1/webhooks", "WebhookService/ListWebhooks", listWebhooks},
	{"POST", "/api/v1/webhooks", "WebhookService/AddWebhook", addWebhook},
	{"GET", "/api/v1/webhooks/{name}", "WebhookService/GetWebhook", getWebhook},
	{"PATCH", "/api/v1/webhooks/{name}", "WebhookService/SetWebhook", setWebhook},
	{"DELETE", "/api/v1/webhooks/{name}", "WebhookService/RemoveWebhook", removeWebhook},
	{"POST", "/api/v1/webhooks/{name}/pause", "WebhookService/PauseWebhook", pauseWebhook},
	{"POST", "/api/v1/webhooks/{name}/resume", "WebhookService/ResumeWebhook", resumeWebhook},
	{"POST", "/api/v1/webhooks/{name}/test", "WebhookService/TestWebhook", testWebhook},
	{"POST", "/api/v1/webhooks/{name}/rotate", "WebhookService/RotateWebhookSecret", rotateWebhook},
	{"GET", "/api/v1/webhooks/{name}/deliveries", "WebhookService/ListWebhookDeliveries", listDeliveries},
}

// maxEvents bounds the words for kinds of a webhook: more than there are.
const maxEvents = 32

// testTime is how long the answer to a test may take beyond that of other calls.
const testTime = 15 * time.Second

func listWebhooks(x *exchange) error {
	limit, cursor, err := x.page()
	if err != nil {
		return err
	}
	got, err := x.API.Webhook.ListWebhooks(x.ctx, &pawlv1.ListWebhooksRequest{Limit: limit, Cursor: cursor})
	if err != nil {
		return err
	}
	listPage(x, got.GetItems(), got.GetNextCursor(), x.webhook)
	return nil
}

func getWebhook(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	got, err := x.API.Webhook.GetWebhook(x.ctx, &pawlv1.GetWebhookRequest{Name: x.r.PathValue("name")})
	return x.webhookAnswer(got.GetWebhook(), err)
}

func (x *exchange) webhookAnswer(h *pawlv1.Webhook, err error) error {
	if err != nil {
		return err
	}
	x.open('{')
	x.webhook(h)
	x.close('}')
	return nil
}

func addWebhook(x *exchange) error {
	req := &pawlv1.AddWebhookRequest{}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		switch name {
		case "name":
			req.Name, err = r.str(name)
		case "url":
			req.Url, err = r.str(name)
		case "events":
			req.Events, err = r.strs(name, maxEvents)
		case "queues":
			req.Queues, err = r.strs(name, task.MaxPatterns)
		case "depth_over":
			req.DepthOver, err = r.integer(name, math.MinInt64, math.MaxInt64) // its bounds are the cluster's
		case "wait_over":
			req.WaitOver, err = r.span(name)
		case "secret":
			req.Secret, err = r.str(name)
		default:
			return unknown("", name)
		}
		return err
	})
	if err != nil {
		return err
	}
	got, err := x.API.Webhook.AddWebhook(x.ctx, req)
	if err != nil {
		return err
	}
	x.status = http.StatusCreated
	x.newSecret(got.GetWebhook(), got.GetSecret(), got.GetUnconfirmedShards())
	return nil
}

// newSecret is an answer with a secret. Nothing between may keep it.
func (x *exchange) newSecret(h *pawlv1.Webhook, secret string, behind []uint32) {
	x.w.Header().Set("Cache-Control", "no-store")
	x.open('{')
	x.within("webhook", '{')
	x.webhook(h)
	x.close('}')
	x.str("secret", secret)
	x.unconfirmed(behind)
	x.close('}')
}

func (x *exchange) unconfirmed(shards []uint32) {
	if len(shards) > 0 {
		x.numbers("unconfirmed_shards", shards)
	}
}

func setWebhook(x *exchange) error {
	req := &pawlv1.SetWebhookRequest{Name: x.r.PathValue("name")}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		switch name {
		case "url":
			req.Url, err = r.str(name)
		case "events":
			req.Events, err = r.strs(name, maxEvents)
		case "queues":
			req.Queues, err = r.strs(name, task.MaxPatterns)
		case "depth_over":
			var n int64
			n, err = r.integer(name, math.MinInt64, math.MaxInt64)
			req.DepthOver = &n
		case "wait_over":
			req.WaitOver, err = r.span(name)
		default:
			return unknown("", name)
		}
		return err
	})
	if err != nil {
		return err
	}
	got, err := x.API.Webhook.SetWebhook(x.ctx, req)
	if err != nil {
		return err
	}
	x.open('{')
	x.within("webhook", '{')
	x.webhook(got.GetWebhook())
	x.close('}')
	x.unconfirmed(got.GetUnconfirmedShards())
	x.close('}')
	return nil
}

func removeWebhook(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	got, err := x.API.Webhook.RemoveWebhook(x.ctx, &pawlv1.RemoveWebhookRequest{Name: x.r.PathValue("name")})
	if err != nil {
		return err
	}
	x.open('{')
	x.unconfirmed(got.GetUnconfirmedShards())
	x.close('}')
	return nil
}

func pauseWebhook(x *exchange) error {
	reason, err := x.reason()
	if err != nil {
		return err
	}
	got, err := x.API.Webhook.PauseWebhook(x.ctx, &pawlv1.PauseWebhookRequest{Name: x.r.PathValue("name"), Reason: reason})
	return x.webhookAnswer(got.GetWebhook(), err)
}

func resumeWebhook(x *exchange) error {
	if err := x.nothing(); err != nil {
		return err
	}
	got, err := x.API.Webhook.ResumeWebhook(x.ctx, &pawlv1.ResumeWebhookRequest{Name: x.r.PathValue("name")})
	return x.webhookAnswer(got.GetWebhook(), err)
}

func testWebhook(x *exchange) error {
	if err := x.nothing(); err != nil {
		return err
	}
	x.patience(testTime)
	got, err := x.API.Webhook.TestWebhook(x.ctx, &pawlv1.TestWebhookRequest{Name: x.r.PathValue("name")})
	if err != nil {
		return err
	}
	x.open('{')
	x.delivery(got.GetDelivery())
	x.close('}')
	return nil
}

func rotateWebhook(x *exchange) error {
	req := &pawlv1.RotateWebhookSecretRequest{Name: x.r.PathValue("name")}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		switch name {
		case "secret":
			req.Secret, err = r.str(name)
		case "overlap":
			req.Overlap, err = r.span(name)
		default:
			return unknown("", name)
		}
		return err
	})
	if err != nil {
		return err
	}
	got, err := x.API.Webhook.RotateWebhookSecret(x.ctx, req)
	if err != nil {
		return err
	}
	x.newSecret(got.GetWebhook(), got.GetSecret(), nil)
	return nil
}

func listDeliveries(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	got, err := x.API.Webhook.ListWebhookDeliveries(x.ctx, &pawlv1.ListWebhookDeliveriesRequest{Name: x.r.PathValue("name")})
	if err != nil {
		return err
	}
	listPage(x, got.GetItems(), "", x.delivery)
	return nil
}

func (x *exchange) webhook(h *pawlv1.Webhook) {
	x.str("name", h.GetName())
	x.str("url", h.GetUrl())
	x.strs("events", h.GetEvents())
	x.strs("queues", h.GetQueues())
	x.optNum("depth_over", h.GetDepthOver())
	x.span("wait_over", h.GetWaitOver())
	x.opt("created_by", h.GetCreatedBy())
	x.time("created_at", h.GetCreatedAt())
	x.time("changed_at", h.GetChangedAt())
	x.time("rotated_at", h.GetRotatedAt())
	x.time("old_until", h.GetOldUntil())
	x.str("state", h.GetState())
	x.boolean("paused", h.GetPaused())
	x.opt("paused_reason", h.GetPausedReason())
	x.opt("paused_by", h.GetPausedBy())
	x.time("paused_at", h.GetPausedAt())
	x.opt("disabled_reason", h.GetDisabledReason())
	x.time("disabled_at", h.GetDisabledAt())
	x.num("pending", h.GetPending())
	x.time("pending_since", h.GetPendingSince())
	x.time("next_attempt_at", h.GetNextAttemptAt())
	x.num("failures", h.GetFailures())
	x.time("failing_since", h.GetFailingSince())
	x.num("delivered", h.GetDelivered())
	x.num("failed", h.GetFailed())
	x.num("dropped", h.GetDropped())
	x.time("delivered_at", h.GetDeliveredAt())
	x.optNum("last_status", int64(h.GetLastStatus()))
	x.opt("last_error", h.GetLastError())
	x.time("failed_at", h.GetFailedAt())
	x.time("dropped_at", h.GetDroppedAt())
}

func (x *exchange) delivery(d *pawlv1.WebhookDelivery) {
	x.str("id", d.GetId())
	x.str("event", d.GetEvent())
	x.opt("queue", d.GetQueue())
	x.optNum("count", d.GetCount())
	x.time("created_at", d.GetCreatedAt())
	x.time("at", d.GetAt())
	x.num("attempts", int64(d.GetAttempts()))
	x.str("outcome", d.GetOutcome())
	x.optNum("status", int64(d.GetStatus()))
	x.opt("error", d.GetError())
	x.span("took", d.GetTook())
}
