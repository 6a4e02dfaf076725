package gateway

import (
	"net/http"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

var webhookRoutes = []route{
	{"GET", "/api/v1/webhooks", restListWebhooks},
	{"POST", "/api/v1/webhooks", restAddWebhook},
	{"GET", "/api/v1/webhooks/{name}", restGetWebhook},
	{"PATCH", "/api/v1/webhooks/{name}", restSetWebhook},
	{"DELETE", "/api/v1/webhooks/{name}", restRemoveWebhook},
	{"POST", "/api/v1/webhooks/{name}/pause", restPauseWebhook},
	{"POST", "/api/v1/webhooks/{name}/resume", restResumeWebhook},
	{"POST", "/api/v1/webhooks/{name}/test", restTestWebhook},
	{"POST", "/api/v1/webhooks/{name}/rotate", restRotateWebhook},
	{"GET", "/api/v1/webhooks/{name}/deliveries", restListDeliveries},
}

// testTime is how long the answer to a test may take beyond that of other calls.
const testTime = 15 * time.Second

func (x *exchange) heralds() heralds { return heralds{Gateway: x.Gateway} }

func restListWebhooks(x *exchange) error {
	limit, cursor, err := x.page()
	if err != nil {
		return err
	}
	got, err := x.heralds().ListWebhooks(x.ctx, &pawlv1.ListWebhooksRequest{Limit: limit, Cursor: cursor})
	if err != nil {
		return err
	}
	listPage(x, got.GetItems(), got.GetNextCursor(), x.webhook)
	return nil
}

func restGetWebhook(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	got, err := x.heralds().GetWebhook(x.ctx, &pawlv1.GetWebhookRequest{Name: x.r.PathValue("name")})
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

func restAddWebhook(x *exchange) error {
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
			req.DepthOver, err = r.integer(name, 0, 1<<53)
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
	got, err := x.heralds().AddWebhook(x.ctx, req)
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

func restSetWebhook(x *exchange) error {
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
			n, err = r.integer(name, 0, 1<<53)
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
	got, err := x.heralds().SetWebhook(x.ctx, req)
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

func restRemoveWebhook(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	got, err := x.heralds().RemoveWebhook(x.ctx, &pawlv1.RemoveWebhookRequest{Name: x.r.PathValue("name")})
	if err != nil {
		return err
	}
	x.open('{')
	x.unconfirmed(got.GetUnconfirmedShards())
	x.close('}')
	return nil
}

func restPauseWebhook(x *exchange) error {
	reason, err := x.reason()
	if err != nil {
		return err
	}
	got, err := x.heralds().PauseWebhook(x.ctx, &pawlv1.PauseWebhookRequest{Name: x.r.PathValue("name"), Reason: reason})
	return x.webhookAnswer(got.GetWebhook(), err)
}

func restResumeWebhook(x *exchange) error {
	if err := x.nothing(); err != nil {
		return err
	}
	got, err := x.heralds().ResumeWebhook(x.ctx, &pawlv1.ResumeWebhookRequest{Name: x.r.PathValue("name")})
	return x.webhookAnswer(got.GetWebhook(), err)
}

func restTestWebhook(x *exchange) error {
	if err := x.nothing(); err != nil {
		return err
	}
	x.patience(testTime)
	got, err := x.heralds().TestWebhook(x.ctx, &pawlv1.TestWebhookRequest{Name: x.r.PathValue("name")})
	if err != nil {
		return err
	}
	x.open('{')
	x.delivery(got.GetDelivery())
	x.close('}')
	return nil
}

func restRotateWebhook(x *exchange) error {
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
	got, err := x.heralds().RotateWebhookSecret(x.ctx, req)
	if err != nil {
		return err
	}
	x.newSecret(got.GetWebhook(), got.GetSecret(), nil)
	return nil
}

func restListDeliveries(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	got, err := x.heralds().ListWebhookDeliveries(x.ctx, &pawlv1.ListWebhookDeliveriesRequest{Name: x.r.PathValue("name")})
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
