package ui_test

import (
	"github.com/pawlq/pawl/internal/version"

	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/internal/auth/bearer"
	"github.com/pawlq/pawl/internal/node"
	"github.com/pawlq/pawl/pawltype"
)

// world is a node that serves pages.
type world struct {
	url    string // "http://127.0.0.1:1234"
	client *pawl.Client
	token  string // with all rights. Empty if none is required
}

// startWorld starts an in-memory node that ends with the test.
func startWorld(t testing.TB, base string) *world {
	t.Helper()
	return startNode(t, node.Config{BasePath: base}, "")
}

// startGuarded starts a node that requires tokens. Its client has all rights.
func startGuarded(t testing.TB) *world {
	t.Helper()
	token := bearer.New()
	return startNode(t, node.Config{Tokens: node.TokensAlways, AdminToken: func() string { return token }}, token)
}

func startNode(t testing.TB, cfg node.Config, token string) *world {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	cfg.InMemory, cfg.Listener, cfg.Version, cfg.Fatal = true, l, version.Version, func(err error) { t.Errorf("node failed: %v", err) }
	n, err := node.Start(t.Context(), cfg)
	must(t, err)
	client, err := pawl.Dial(l.Addr().String(), pawl.DialOptions{Token: token})
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(client.Close(), n.Stop(ctx)); err != nil {
			t.Errorf("stopping the node: %v", err)
		}
	})
	return &world{url: "http://" + l.Addr().String(), client: client, token: token}
}

// enqueue enqueues n tasks.
func (w *world) enqueue(t testing.TB, n int, item func(i int) pawl.Item) {
	t.Helper()
	items := make([]pawl.Item, n)
	for i := range items {
		items[i] = item(i)
	}
	done, err := w.client.EnqueueBatch(t.Context(), items)
	must(t, err)
	for _, d := range done {
		must(t, d.Err)
	}
}

func job(typ, payload string, opts ...pawl.Option) pawl.Item {
	return pawl.Item{Args: pawl.RawTask{Type: typ, Payload: []byte(payload)}, Options: opts}
}

// seed creates the state of a shop in the middle of its day: several queues, thousands of tasks in all states, failing
// types, schedules, groups and operations.
func (w *world) seed(t testing.TB) {
	t.Helper()
	ctx, operator := t.Context(), admin.New(w.client).WithActor("alice").WithReason("the shop opens")
	for name, s := range map[string]admin.QueueSettings{
		"mail": {Retry: pawltype.RetryPolicy{Initial: 20 * time.Minute}, MaxAttempts: 4, QueueLimits: admin.QueueLimits{
			Rate: admin.RateLimit{Limit: 500, Period: time.Second}}},
		"media": {QueueLimits: admin.QueueLimits{MaxRunning: 12}, PerKey: admin.QueueLimits{MaxRunning: 2},
			Keys: map[string]admin.KeyLimits{
				"tenant-7": {QueueLimits: admin.QueueLimits{MaxRunning: 1}, Weight: 3}}},
		"billing": {Breaker: &admin.Breaker{MinAttempts: 5, Window: time.Minute, Hold: time.Hour}, Weights: &admin.PriorityWeights{High: 6,
			Normal: 3, Low: 1}},
	} {
		_, err := operator.Queues().Put(ctx, name, s)
		must(t, err)
	}
	w.enqueue(t, 900, func(i int) pawl.Item {
		return job("mail.welcome", fmt.Sprintf(`{"to":"customer-%d@example.com","locale":"de","template":{"id":"welcome-7","variant":"b"}}`,
			i),
			pawl.Queue("mail"), pawl.Tags("onboarding"))
	})
	w.enqueue(t, 120, func(i int) pawl.Item {
		return job("mail.digest", fmt.Sprintf(`{"user":%d}`, i), pawl.Queue("mail"), pawl.MaxAttempts(1),
			pawl.Key(fmt.Sprintf("tenant-%d", i%9)))
	})
	w.enqueue(t, 60, func(i int) pawl.Item {
		return job("invoice.create", fmt.Sprintf(`{"order":%d,"total":"%d.90"}`, 4711+i, i), pawl.Queue("billing"), pawl.Priority("high"))
	})
	w.enqueue(t, 6, func(i int) pawl.Item {
		return job("invoice.import", fmt.Sprintf(`{"row":%d}`, i), pawl.Queue("billing"))
	})
	w.enqueue(t, 40, func(i int) pawl.Item {
		return job("card.charge", fmt.Sprintf(`{"payment":"pay_%d"}`, i), pawl.Queue("billing"),
			pawl.IdempotencyKey(fmt.Sprintf("pay-%d", i)))
	})
	w.work(t)
	w.enqueue(t, 1400, func(i int) pawl.Item {
		return job("video.encode", fmt.Sprintf(`{"video":"v%d","preset":"1080p"}`, i), pawl.Queue("media"),
			pawl.Key(fmt.Sprintf("tenant-%d", i%12)))
	})
	w.enqueue(t, 250, func(i int) pawl.Item {
		return job("newsletter.send", fmt.Sprintf(`{"issue":12,"to":%d}`, i), pawl.Queue("mail"), pawl.In(time.Duration(i+1)*time.Minute),
			pawl.Priority("low"))
	})
	w.enqueue(t, 35, func(i int) pawl.Item { return job("report.build", fmt.Sprintf(`{"day":%d}`, i), pawl.Queue("reports")) })
	w.claimSome(t)
	w.rest(t, operator)
}

// work runs everything ready in mail and billing, with handlers that sometimes fail.
func (w *world) work(t testing.TB) {
	t.Helper()
	for {
		claimed, err := claims.New(w.client).Claim(t.Context(), claims.Request{Queues: pawl.Weighted{"mail": 1, "billing": 1}, Max: 100,
			Worker: "web-3.fra/4711"})
		must(t, err)
		if len(claimed) == 0 {
			return
		}
		ends := make([]claims.Settlement, len(claimed))
		for i, c := range claimed {
			ends[i] = claims.Settlement{Claim: c, Err: outcome(c)}
		}
		_, err = claims.New(w.client).SettleAll(t.Context(), ends)
		must(t, err)
	}
}

// outcome returns the outcome of a task's handler, by its type.
func outcome(c *pawl.Claim) error {
	last := c.ID[len(c.ID)-1]
	switch {
	case c.Type == "mail.welcome" && last == '7':
		return fmt.Errorf("smtp: connection to mx%d.example.com refused", len(c.ID)%3)
	case c.Type == "mail.digest" && last < '8':
		return fmt.Errorf("template %q has no variable %q", "digest-3", "first_name")
	case c.Type == "mail.digest":
		return fmt.Errorf("render timed out after %dms", 3000+int(last))
	case c.Type == "invoice.import":
		return pawl.Poison(errors.New("row 3: \"total\" is not a number"))
	case c.Type == "card.charge":
		return errors.New("gateway answered 502 Bad Gateway")
	}
	return nil
}

// claimSome makes a worker hold a few long tasks with progress.
func (w *world) claimSome(t testing.TB) {
	t.Helper()
	claimed, err := claims.New(w.client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"media"}, Max: 9, Lease: time.Hour,
		Worker: "encoder-1.fra/812"})
	must(t, err)
	for i, c := range claimed {
		_, err := claims.New(w.client).Extend(t.Context(), c, claims.Extension{Lease: time.Hour, Progress: &pawltype.Progress{
			Percent: float64(7 + 9*i), Message: fmt.Sprintf("pass 1, frame %d of 21,600", i*2100+980)},
			Checkpoint: fmt.Appendf(nil, `{"frame":%d}`, i*2100)})
		must(t, err)
	}
}

// rest creates schedules, groups, operations and pauses.
func (w *world) rest(t testing.TB, operator admin.Client) {
	t.Helper()
	ctx := t.Context()
	for _, s := range []admin.ScheduleSpec{
		{Name: "nightly-report", Cron: "0 3 * * *", TimeZone: "Europe/Vienna", Owner: "deploy/schedules.yaml",
			Task: pawl.RawTask{Type: "report.build", Payload: []byte(`{"kind":"daily"}`)}, Options: []pawl.Option{pawl.Queue("reports")}},
		{Name: "digest-hourly", Cron: "@hourly", Jitter: 2 * time.Minute, Task: pawl.RawTask{Type: "mail.digest"},
			Options: []pawl.Option{pawl.Queue("mail"), pawl.Header("tenant", "all")}},
		{Name: "card-retry", Every: 15 * time.Minute, Overlap: admin.OverlapSkip, Task: pawl.RawTask{Type: "card.sweep"},
			Options: []pawl.Option{pawl.Queue("billing")}},
	} {
		_, err := operator.Schedules().Create(ctx, s)
		must(t, err)
	}
	_, err := operator.Schedules().Trigger(ctx, "nightly-report")
	must(t, err)
	_, err = operator.WithReason("the bank is down").Schedules().Pause(ctx, "card-retry")
	must(t, err)
	w.groups(t)
	for _, m := range []admin.MarkerSpec{
		{Kind: admin.MarkerNote, Title: "prices imported by hand", At: time.Now().Add(-41 * time.Minute)},
		{Kind: admin.MarkerIncident, Title: "database failover", At: time.Now().Add(-33 * time.Minute),
			EndedAt: time.Now().Add(-27 * time.Minute)},
		{Kind: admin.MarkerDeploy, Title: "web 1.4.2", Version: "1.4.2", URL: "https://ci.example.com/runs/42",
			At: time.Now().Add(-3 * time.Minute)},
		{Kind: admin.MarkerIncident, Title: "mail provider is down", Queues: []string{"mail*"}, At: time.Now().Add(-2 * time.Minute)},
	} {
		_, err := operator.Markers().Add(ctx, m)
		must(t, err)
	}
	_, err = operator.Webhooks().Create(ctx, admin.WebhookSpec{Name: "pager", URL: "https://pager.example.com/v1/pawl",
		Events: []admin.WebhookEvent{admin.WebhookTaskDead, admin.WebhookBreakerOpened}, Queues: []string{"billing*", "mail"}})
	must(t, err)
	for _, spec := range []admin.TokenSpec{{Name: "shop", Roles: []admin.Role{admin.RoleProduce}, Queues: []string{"mail", "billing*"}},
		{Name: "oncall", Roles: []admin.Role{admin.RoleOperate}, Queues: []string{"*"}, AllNamespaces: true, Life: admin.NeverExpires},
		{Name: "encoder", Roles: []admin.Role{admin.RoleConsume, admin.RoleObserve}, Queues: []string{"media"}, Life: 3 * 24 * time.Hour}} {
		_, err := operator.Access().CreateToken(ctx, spec)
		must(t, err)
	}
	_, err = operator.WithReason("the warehouse is being moved").Queues().Pause(ctx, "reports")
	must(t, err)
	_, err = operator.WithReason("asked us to stop").Queues().PauseSubset(ctx, "media", admin.Subset{Key: "tenant-4"})
	must(t, err)
	o, err := operator.WithReason("the renderer is fixed").Operations().Start(ctx, admin.OperationSpec{Action: admin.ActionReplay,
		Filter: &admin.Filter{Queue: "mail",
			States: []pawltype.State{pawltype.StateDead}, Error: "render timed out"}, Rate: 1, Canary: 1})
	must(t, err)
	_, err = operator.Operations().Wait(ctx, o.ID, nil)
	must(t, err)
	o, err = operator.WithReason("they have a premiere").Operations().Start(ctx, admin.OperationSpec{Action: admin.ActionSetPriority,
		Priority: pawltype.High, Filter: &admin.Filter{Queue: "media", Key: "tenant-7"}})
	must(t, err)
	_, err = operator.Operations().Wait(ctx, o.ID, nil)
	must(t, err)
}

func (w *world) groups(t testing.TB) {
	t.Helper()
	var chapters []pawl.Item
	for i := range 14 {
		chapters = append(chapters, job("chapter.render", fmt.Sprintf(`{"chapter":%d}`, i), pawl.Queue("books")))
	}
	bind := job("book.bind", `{"book":7}`, pawl.Queue("books"))
	g, err := w.client.EnqueueGroup(t.Context(), pawl.GroupSpec{Name: "book 7, second edition", Tasks: chapters, OnSuccess: &bind})
	must(t, err)
	claimed, err := claims.New(w.client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"books"}, Max: 9, Worker: "render-2.fra/99"})
	must(t, err)
	for i, c := range claimed {
		if i == 3 {
			_, err = claims.New(w.client).Fail(t.Context(), c, pawl.DeadLetter(errors.New("chapter 3: font \"Garamond\" is not installed")))
		} else {
			c.SetRawResult("application/json", fmt.Appendf(nil, `{"pages":%d}`, 20+i))
			err = claims.New(w.client).Ack(t.Context(), c)
		}
		must(t, err)
	}
	_, err = w.client.EnqueueGroup(t.Context(), pawl.GroupSpec{Name: "import of May", Open: true,
		Tasks: []pawl.Item{job("row.import", `{"row":1}`, pawl.Queue("books"))}})
	must(t, err)
	_ = g
}
