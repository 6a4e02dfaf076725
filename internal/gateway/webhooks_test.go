package gateway

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system/webhooks"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb/verbtest"
	"github.com/pawlq/pawl/internal/webhook"
)

// fakeWebhooks stores one webhook, and reports shard 2 as lagging.
type fakeWebhooks struct {
	hook   webhooks.View
	calls  []webhooks.Call
	faults *faults // of single calls; nil: none
}

func (f *fakeWebhooks) Check(field, ns, url string) error {
	return webhook.CheckURL(field, ns, url, nil)
}

func (f *fakeWebhooks) did(c webhooks.Call) (webhooks.Done, error) {
	f.calls = append(f.calls, c)
	if f.hook.Name != c.Hook.Name {
		return webhooks.Done{}, task.NotFound("webhook", c.Hook.Name)
	}
	return webhooks.Done{Hook: f.hook, Unconfirmed: []uint32{2}}, nil
}

// answer registers the fake's answers in a table.
func (h *fakeWebhooks) answer(to verbtest.Answers) {
	verbtest.On(to, webhooks.Add, h.AddWebhook)
	verbtest.On(to, webhooks.Set, h.SetWebhook)
	verbtest.On(to, webhooks.Remove, h.RemoveWebhook)
	verbtest.On(to, webhooks.Rotate, h.RotateWebhook)
	verbtest.On(to, webhooks.Pause, h.PauseWebhook)
	verbtest.On(to, webhooks.Resume, h.ResumeWebhook)
	verbtest.On(to, webhooks.List, h.Webhooks)
	verbtest.On(to, webhooks.Get, h.Webhook)
	verbtest.On(to, webhooks.Deliveries, h.Deliveries)
	verbtest.On(to, webhooks.Test, h.TestWebhook)
}

func (f *fakeWebhooks) AddWebhook(_ context.Context, c webhooks.Call) (webhooks.Done, error) {
	f.hook.Webhook = c.Hook
	f.hook.CreatedAt, f.hook.ChangedAt, f.hook.CreatedBy = 1_000_000, 1_000_000, c.By.Name
	return f.did(c)
}

func (f *fakeWebhooks) SetWebhook(_ context.Context, c webhooks.Call) (webhooks.Done, error) {
	return f.did(c)
}

func (f *fakeWebhooks) RemoveWebhook(_ context.Context, c webhooks.Call) (webhooks.Done, error) {
	return f.did(c)
}

func (f *fakeWebhooks) RotateWebhook(_ context.Context, c webhooks.Call) (webhooks.View, error) {
	f.hook.RotatedAt, f.hook.OldUntil = 2_000_000, store.Time(2_000_000).Add(c.Overlap)
	done, err := f.did(c)
	return done.Hook, err
}

func (f *fakeWebhooks) PauseWebhook(_ context.Context, c webhooks.Call) (webhooks.View, error) {
	f.hook.Paused, f.hook.PausedReason, f.hook.PausedBy, f.hook.PausedAt = true, c.By.Reason, c.By.Name, 3_000_000
	done, err := f.did(c)
	return done.Hook, err
}

// ResumeWebhook sets every field of the webhook.
func (f *fakeWebhooks) ResumeWebhook(_ context.Context, c webhooks.Call) (webhooks.Done, error) {
	f.hook.Status = webhooks.Status{Pending: 2, Delivered: 5, Failed: 4, Dropped: 1, Failures: 3, FailsSince: 4_500_000,
		RestUntil: 9_000_000, DeliveredAt: 4_000_000, FailedAt: 5_000_000, DroppedAt: 6_000_000, LastStatus: 500, LastError: "no"}
	f.hook.NextAttempt = 9_000_000 // in the past
	f.hook.PendingSince, f.hook.DisabledReason, f.hook.DisabledAt = 7_000_000, "gone", 8_000_000
	return f.did(c)
}

func (f *fakeWebhooks) TestWebhook(context.Context, webhooks.Name) (webhooks.Delivery, error) {
	return webhooks.Delivery{ID: "msg_1", Kind: task.NotifyTest, CreatedAt: 1_000_000, At: 1_000_000, Attempts: 1,
		Outcome: webhooks.FailedFor, Status: 500, Error: "no", Took: time.Second}, f.faults.ask()
}

func (f *fakeWebhooks) Webhooks(context.Context, string) ([]webhooks.View, error) {
	return []webhooks.View{f.hook, {Webhook: webhooks.Webhook{Name: "z", URL: "https://z.example/x", Events: []task.NotificationKind{
		task.NotifyDead}, Queues: []string{"*"}, CreatedAt: 1, ChangedAt: 1}}}, nil
}

func (f *fakeWebhooks) Webhook(_ context.Context, q webhooks.Name) (webhooks.View, error) {
	if q.Name != f.hook.Name {
		return webhooks.View{}, task.NotFound("webhook", q.Name)
	}
	return f.hook, nil
}

func (f *fakeWebhooks) Deliveries(context.Context, webhooks.Name) ([]webhooks.Delivery, error) {
	return []webhooks.Delivery{{ID: "msg_2", Kind: task.NotifyDead, Queue: "mail", Count: 3, CreatedAt: 1_000_000,
		At: 2_000_000, Attempts: 2, Outcome: webhooks.Delivered, Status: 204, Took: time.Millisecond}}, nil
}

// The calls on webhooks over REST, each with its response checked against openapi.json.
func TestWebhooksOverREST(t *testing.T) {
	k, fake := newTokenSet(), &fakeWebhooks{}
	k.add("boss", auth.Rights{Namespace: "team", Roles: auth.Admin})
	k.add("ops", auth.Rights{Namespace: "team", Roles: auth.Operate})
	k.add("eye", auth.Rights{Namespace: "team", Roles: auth.Observe})
	k.add("lead", auth.Rights{Namespace: "team", Roles: auth.Admin, Queues: []string{"mail*"}})
	f := newFake()
	fake.answer(f.table())
	f.auth = k.auth
	cfg := f.config()
	cfg.Webhooks = fake
	g := New(cfg)
	t.Cleanup(func() { g.Shutdown(context.Background()) })
	given := webhook.NewSecret()
	for _, c := range []struct{ who, method, path, body, want string }{
		{"boss", "POST", "/api/v1/webhooks", `{"name":"oncall","url":"https://example.com/x?token=hidden","events":["queue.*",` +
			`"task.dead"],"queues":["mail*"],"depth_over":5,"wait_over":"1m30s"}`,
			`201 {"webhook":{"name":"oncall","url":"https://example.com/x?token=hidden","events":["task.dead","queue.over",` +
				`"queue.under"],"queues":["mail*"],"depth_over":5,"wait_over":"1m30s","created_by":"boss",` +
				`"created_at":"1970-01-01T00:00:01Z","changed_at":"1970-01-01T00:00:01Z","state":"active","paused":false,"pending":0,` +
				`"failures":0,"delivered":0,"failed":0,"dropped":0},"secret":"…","unconfirmed_shards":[2]}`},
		{"boss", "POST", "/api/v1/webhooks", `{"name":"oncall","url":"http://example.com/x"}`,
			`400 url: it is http, and only https is allowed`},
		{"boss", "POST", "/api/v1/webhooks", `{"name":"","url":"https://example.com/x"}`, `400 name: is required`},
		{"boss", "POST", "/api/v1/webhooks", `{"name":"` + strings.Repeat("a", 129) + `","url":"https://example.com/x"}`, `at most 128`},
		{"boss", "POST", "/api/v1/webhooks", `{"name":"a","url":"https://example.com/x","events":["task.made"]}`,
			`400 events: \"task.made\" is not one of`},
		{"boss", "POST", "/api/v1/webhooks", `{"name":"a","url":"https://example.com/x","secret":"whsec_c2hvcnQ="}`,
			`400 secret: it has 5 bytes, 24 to 64 are allowed`},
		{"boss", "POST", "/api/v1/webhooks", `{"name":"a","url":"https://example.com/x","namespace":"b"}`, `400 namespace: `},
		{"ops", "POST", "/api/v1/webhooks", `{"name":"a","url":"https://example.com/x"}`, `403 `},
		{"lead", "GET", "/api/v1/webhooks", "", `403 token \"lead\" is limited to the queues mail*, and this call concerns ` +
			`more than queues`},
		{"boss", "GET", "/api/v1/webhooks/oncall", "", `"url":"https://example.com/x?token=hidden"`},
		{"ops", "GET", "/api/v1/webhooks/oncall", "", `200 {"name":"oncall","url":"https://example.com/…",`},
		{"eye", "GET", "/api/v1/webhooks?limit=1", "", `200 {"items":[{"name":"oncall","url":"https://example.com/…",`},
		{"eye", "GET", "/api/v1/webhooks?limit=1", "", `"next_cursor":"AXlvbmNhbGw"`},
		{"eye", "GET", "/api/v1/webhooks?cursor=AXlvbmNhbGw", "", `200 {"items":[{"name":"z",`},
		{"eye", "GET", "/api/v1/webhooks/none", "", `404 webhook \"none\": not found`},
		{"boss", "PATCH", "/api/v1/webhooks/oncall", `{"url":"https://example.com/y","depth_over":0,"wait_over":"0s","events":["task.*"],` +
			`"queues":["*"]}`, `200 {"webhook":{`},
		{"boss", "PATCH", "/api/v1/webhooks/oncall", `{"url":"https://10.0.0.1/"}`,
			`400 url: 10.0.0.1 is not an address of the public internet`},
		{"boss", "PATCH", "/api/v1/webhooks/oncall", `{"secret":"x"}`, `400 secret: `},
		{"ops", "POST", "/api/v1/webhooks/oncall/pause", `{"reason":"it moves"}`,
			`"state":"paused","paused":true,"paused_reason":"it moves","paused_by":"ops","paused_at":"1970-01-01T00:00:03Z"`},
		{"ops", "POST", "/api/v1/webhooks/oncall/resume", ``,
			`"disabled_reason":"gone","disabled_at":"1970-01-01T00:00:08Z","pending":2,"pending_since":"1970-01-01T00:00:07Z",` +
				`"failures":3,"failing_since":"1970-01-01T00:00:04.5Z","delivered":5,"failed":4,"dropped":1,` +
				`"delivered_at":"1970-01-01T00:00:04Z","last_status":500,"last_error":"no","failed_at":"1970-01-01T00:00:05Z",` +
				`"dropped_at":"1970-01-01T00:00:06Z"},"unconfirmed_shards":[2]}`},
		{"eye", "POST", "/api/v1/webhooks/oncall/test", ``, `403 `},
		{"ops", "POST", "/api/v1/webhooks/oncall/test", ``,
			`200 {"id":"msg_1","event":"webhook.test","created_at":"1970-01-01T00:00:01Z","at":"1970-01-01T00:00:01Z","attempts":1,` +
				`"outcome":"failed","status":500,"error":"no","took":"1s"}`},
		{"boss", "POST", "/api/v1/webhooks/oncall/rotate", `{"overlap":"2h","secret":"` + given + `"}`,
			`"rotated_at":"1970-01-01T00:00:02Z","old_until":"1970-01-01T02:00:02Z"`},
		{"boss", "POST", "/api/v1/webhooks/oncall/rotate", `{"overlap":"721h"}`, `400 overlap: 721h0m0s is not between`},
		{"eye", "GET", "/api/v1/webhooks/oncall/deliveries", "",
			`200 {"items":[{"id":"msg_2","event":"task.dead","queue":"mail","count":3,"created_at":"1970-01-01T00:00:01Z",` +
				`"at":"1970-01-01T00:00:02Z","attempts":2,"outcome":"delivered","status":204,"took":"1ms"}],"next_cursor":""}`},
		{"boss", "DELETE", "/api/v1/webhooks/oncall", "", `200 {"unconfirmed_shards":[2]}`},
		{"boss", "DELETE", "/api/v1/webhooks/none", "", `404 webhook \"none\": not found`},
	} {
		r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
		r.Header.Set("Authorization", "Bearer "+k.secret[c.who])
		if c.body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		w := serveChecked(t, g.Handler(), r, []byte(c.body))
		got := fmt.Sprintf("%d %s", w.Code, w.Body)
		if _, detail, refused := strings.Cut(w.Body.String(), `"detail":"`); refused {
			got = fmt.Sprintf("%d %s", w.Code, detail)
		}
		if head, rest, ok := strings.Cut(got, `"secret":"`); ok {
			secret, tail, _ := strings.Cut(rest, `"`)
			if webhook.CheckSecret("secret", secret) != nil || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s: secret %q is invalid or may be cached: %v", c.path, secret, w.Header())
			}
			got = head + `"secret":"…"` + tail
		}
		if !strings.Contains(got, c.want) || strings.HasPrefix(c.want, "2") && !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s %s %s: got\n%s, want\n%s", c.who, c.method, c.path, c.body, got, c.want)
		}
		if c.who != "boss" && strings.Contains(got, "hidden") {
			t.Errorf("%s got a possible secret: %s", c.who, got)
		}
	}
}

// gRPC requests reach the system shard unchanged.
func TestWebhooksOverGRPC(t *testing.T) {
	k, fake := newTokenSet(), &fakeWebhooks{}
	k.add("boss", auth.Everything)
	f := newFake()
	fake.answer(f.table())
	f.auth = k.auth
	cfg := f.config()
	cfg.Webhooks = fake
	g := New(cfg)
	conn := dialGateway(t, g)
	t.Cleanup(func() { g.Shutdown(context.Background()) })
	ctx, c := with(t.Context(), k.secret["boss"], ""), pawlv1.NewWebhookServiceClient(conn)
	made, err := c.AddWebhook(ctx, &pawlv1.AddWebhookRequest{Name: "a", Url: "https://example.com/", DepthOver: 3,
		WaitOver: durationpb.New(time.Minute)})
	if err != nil || made.GetSecret() == "" || len(made.GetUnconfirmedShards()) != 1 {
		t.Fatalf("AddWebhook = %v, %v", made, err)
	}
	depth := int64(7)
	if _, err := c.SetWebhook(ctx, &pawlv1.SetWebhookRequest{Name: "a", DepthOver: &depth, Events: []string{"queue.*"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RotateWebhookSecret(ctx, &pawlv1.RotateWebhookSecretRequest{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	add, set, turn := fake.calls[0], fake.calls[1], fake.calls[2]
	if add.Hook.DepthOver != 3 || add.Hook.WaitOver != time.Minute || add.Hook.Namespace != "default" || add.By.Name != "*/boss" ||
		add.Secret != made.GetSecret() {
		t.Errorf("AddWebhook call = %+v", add)
	}
	if *set.Change.DepthOver != 7 || set.Change.WaitOver != nil || len(set.Change.Events) != 2 || set.Change.URL != "" {
		t.Errorf("SetWebhook change = %+v", set.Change)
	}
	if turn.Overlap != auth.DefaultOverlap || turn.Secret == add.Secret || turn.Secret == "" {
		t.Errorf("RotateWebhook call = %+v", turn)
	}
}
