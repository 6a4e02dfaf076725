package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	verifier "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/verb/verbtest"
	"github.com/pawlq/pawl/pawltype"
)

// receiver is a program that webhooks call: an in-memory server, with a path for each webhook.
type receiver struct {
	pipe *bufconn.Listener

	mu      sync.Mutex
	got     []notice
	secrets map[string][]string // by path; each must have signed
	answer  func(path string, n int) int
	asked   map[string]int // requests by path
	bad     []string
}

// notice is a notification that was accepted.
type notice struct {
	ID, Path string
	At       time.Time
	Body     struct {
		Type string
		Data struct {
			Namespace, Webhook, Queue, Fingerprint string
			Count                                  int64
			Depth                                  int64
			Tasks                                  []struct {
				TaskID string `json:"task_id"`
				Reason string
				Error  string
			}
			Schedules []struct {
				Schedule string
				Ticks    int
			}
			Breakers []struct{ Type string }
		}
	}
}

// newReceiver starts a receiver that accepts everything. It must be called within the bubble of the test.
func newReceiver(t *testing.T) *receiver {
	r := &receiver{pipe: bufconn.Listen(64 << 10), secrets: map[string][]string{}, asked: map[string]int{}}
	srv := &http.Server{Handler: r}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(r.pipe) })
	t.Cleanup(func() {
		_ = srv.Close()
		serving.Wait()
	})
	return r
}

func (r *receiver) dial(ctx context.Context, _, address string) (net.Conn, error) {
	if strings.HasPrefix(address, "nowhere") {
		return nil, errors.New("no such host")
	}
	return r.pipe.DialContext(ctx)
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.asked[q.URL.Path]
	r.asked[q.URL.Path]++
	if r.answer != nil {
		if code := r.answer(q.URL.Path, n); code != 0 {
			w.WriteHeader(code)
			return
		}
	}
	for _, secret := range r.secrets[q.URL.Path] {
		hook, bad := verifier.NewWebhook(secret)
		if bad == nil {
			bad = hook.Verify(body, q.Header)
		}
		err = errors.Join(err, bad)
	}
	got := notice{ID: q.Header.Get("webhook-id"), Path: q.URL.Path, At: time.Now()}
	if err = errors.Join(err, json.Unmarshal(body, &got.Body)); err != nil || len(r.secrets[q.URL.Path]) == 0 {
		r.bad = append(r.bad, fmt.Sprintf("%s: %v", body, err))
	}
	r.got = append(r.got, got)
	w.WriteHeader(http.StatusNoContent)
}

// answers sets the status of responses; 0: the default.
func (r *receiver) answers(fn func(path string, n int) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = fn
}

func (r *receiver) knows(path string, secrets ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets[path] = secrets
}

// received returns the accepted notifications of a kind for a path, each once, however often it was delivered, and the sum of their
// counts.
func (r *receiver) received(path, kind string) (notices []notice, count int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.got {
		if n.Path == path && n.Body.Type == kind && !slices.ContainsFunc(notices, func(o notice) bool { return o.ID == n.ID }) {
			notices = append(notices, n)
			count += n.Body.Data.Count
		}
	}
	return notices, count
}

func (r *receiver) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, bad := range r.bad {
		t.Errorf("a notice that can't be believed: %s", bad)
	}
}

// hook creates a webhook for a path of the receiver.
func (w *network) hook(path string, spec admin.WebhookSpec) *admin.NewWebhook {
	w.t.Helper()
	spec.URL = "http://receiver.test" + path
	if spec.Name == "" {
		spec.Name = strings.Trim(path, "/")
	}
	made, err := admin.New(w.anyone()).Webhooks().Create(w.t.Context(), spec)
	if err != nil || len(made.Unconfirmed) > 0 {
		w.t.Fatalf("webhook %s: %+v, %v", path, made, err)
	}
	w.hooks.knows(path, made.Secret)
	return made
}

// die creates n dead letters in a queue.
func (w *network) die(queue string, n int) {
	w.t.Helper()
	for range n {
		w.fail(queue, pawl.DeadLetter(errors.New("boom 42\nand more")))
	}
}

// fail makes a task of a queue end with an error.
func (w *network) fail(queue string, how error) {
	w.t.Helper()
	w.until("a task", func() error {
		_, err := w.anyone().Enqueue(w.t.Context(), pawl.RawTask{Type: "job"}, pawl.Queue(queue))
		return err
	})
	w.until("its end", func() error {
		claimed, err := claims.New(w.anyone()).Claim(w.t.Context(), claims.Request{Queues: pawl.Strict{queue}, Max: 1})
		if err != nil || len(claimed) != 1 {
			return fmt.Errorf("%d claims, %w", len(claimed), err)
		}
		_, err = claims.New(w.anyone()).Fail(w.t.Context(), claimed[0], how)
		return err
	})
}

// Every dead letter is reported, whichever leader dies between death and delivery.
func TestWebhooksSurviveElections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.hooks = newReceiver(t)
		dirs := w.grow()
		w.addShard()
		w.hook("/all", admin.WebhookSpec{})
		w.hook("/mail", admin.WebhookSpec{Queues: []string{"mail*"}, Events: []admin.WebhookEvent{"task.*"}})
		w.hook("/breakers", admin.WebhookSpec{Events: []admin.WebhookEvent{"breaker.*"}})

		w.die("mail-1", 3)
		w.die("sms", 2)
		first := w.leaderOf(1)
		w.crash(first) // what it has collected is in the others' rows, too
		w.die("mail-1", 4)
		w.start(first, dirs[first], "n1", "n2", "n3")
		w.until("three voters each", w.replicated(3))
		pass(time.Minute)
		w.die("mail-1", 5)
		pass(6 * time.Second)
		second := w.leaderOf(systemShard)
		w.crash(second) // perhaps with notifications on their way
		w.die("mail-2", 6)
		w.start(second, dirs[second], "n1", "n2", "n3")
		w.within(3*time.Minute, time.Second, "all is told", func() error {
			_, all := w.hooks.received("/all", "task.dead")
			if _, mail := w.hooks.received("/mail", "task.dead"); all < 20 || mail < 18 {
				return fmt.Errorf("of %d and %d dead letters", all, mail)
			}
			return nil
		})
		pass(20 * time.Second) // and nothing more

		for _, c := range []struct {
			path string
			want int64
		}{{"/all", 20}, {"/mail", 18}, {"/breakers", 0}} {
			notices, n := w.hooks.received(c.path, "task.dead")
			if n != c.want {
				t.Errorf("%s was told of %d dead letters by %d notices, want %d: %+v", c.path, n, len(notices), c.want, notices)
			}
			for _, n := range notices {
				if d := n.Body.Data; d.Namespace != "default" || d.Webhook != strings.Trim(c.path, "/") || len(d.Tasks) == 0 ||
					d.Tasks[0].Error != "boom 42" || d.Tasks[0].Reason != "not_retryable" || len(d.Fingerprint) != 16 {
					t.Errorf("%s was told %+v", c.path, n)
				}
			}
		}
		w.hooks.check(t)
		h, err := admin.New(w.anyone()).Webhooks().Get(t.Context(), "mail")
		if err != nil || h.Pending != 0 || h.Dropped != 0 || h.Delivered < 3 {
			t.Errorf("then it is %+v, %v", h, err)
		}
	})
}

// Everything but deaths is reported the same way: breakers, poisoned tasks, schedules that missed their time.
func TestWebhooksReportAllKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.hooks = newReceiver(t)
		dir := t.TempDir()
		w.start("n1", dir)
		w.hook("/all", admin.WebhookSpec{})
		w.hook("/mail", admin.WebhookSpec{Queues: []string{"mail"}})
		operator := admin.New(w.anyone())
		_, err := operator.Queues().Put(t.Context(), "mail", admin.QueueSettings{Breaker: &admin.Breaker{MinAttempts: 2, FailureRate: 100,
			Hold: time.Hour, MaxHold: time.Hour}})
		if err == nil {
			_, err = operator.Schedules().Put(t.Context(), admin.ScheduleSpec{Name: "tick", Every: time.Minute, Missed: admin.MissedSkip,
				Task: pawl.RawTask{Type: "tick"}, Options: []pawl.Option{pawl.Queue("ticks")}})
		}
		if err != nil {
			t.Fatal(err)
		}
		w.die("mail", 2)
		if _, err := admin.New(w.anyone()).Queues().CloseBreaker(t.Context(), "mail", ""); err != nil {
			t.Fatal(err)
		}
		w.fail("sms", pawl.Poison(errors.New("no JSON")))
		pass(10 * time.Second)
		w.crash("n1")
		pass(10 * time.Minute)
		w.start("n1", dir)
		pass(time.Minute)
		for _, c := range []struct {
			path, kind, queue string
			count             int64
		}{
			{"/all", "task.dead", "mail", 2}, {"/all", "breaker.opened", "mail", 1}, {"/all", "breaker.closed", "mail", 1},
			{"/all", "task.poisoned", "sms", 1}, {"/all", "schedule.missed", "ticks", 9}, {"/mail", "breaker.opened", "mail", 1},
			{"/mail", "task.poisoned", "", 0}, {"/mail", "schedule.missed", "", 0},
		} {
			notices, n := w.hooks.received(c.path, c.kind)
			if n != c.count || n > 0 && notices[0].Body.Data.Queue != c.queue {
				t.Errorf("%s was told of %d times %s, want %d: %+v", c.path, n, c.kind, c.count, notices)
			}
		}
		opened, _ := w.hooks.received("/all", "breaker.opened")
		missed, _ := w.hooks.received("/all", "schedule.missed")
		if len(opened) != 1 || len(opened[0].Body.Data.Breakers) != 1 || opened[0].Body.Data.Breakers[0].Type != "job" {
			t.Errorf("of the breaker: %+v", opened)
		}
		if len(missed) != 1 || len(missed[0].Body.Data.Schedules) != 1 || missed[0].Body.Data.Schedules[0].Schedule != "tick" {
			t.Errorf("of the schedule: %+v", missed)
		}
		w.hooks.check(t)
	})
}

// A receiver that is down for an hour gets everything once it is back, in few notifications, and a working one is not affected.
func TestReceiverDownForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.hooks = newReceiver(t)
		w.start("n1", t.TempDir()) // an hour of three nodes takes a minute
		w.hook("/down", admin.WebhookSpec{})
		w.hook("/up", admin.WebhookSpec{})
		w.hooks.answers(func(path string, _ int) int {
			if path == "/down" {
				return http.StatusBadGateway
			}
			return 0
		})
		for range 12 {
			w.die("mail", 2)
			w.die("sms", 1)
			w.sleep(270 * time.Second)
			pass(31 * time.Second) // in which shards check their clocks
		}
		if notices, n := w.hooks.received("/up", "task.dead"); n != 36 || len(notices) != 24 {
			t.Errorf("the one that is up was told of %d dead letters by %d notices", n, len(notices))
		}
		h, err := admin.New(w.anyone()).Webhooks().Get(t.Context(), "down")
		if err != nil || h.Pending == 0 || h.Failures < 10 || h.LastStatus != http.StatusBadGateway || !strings.Contains(h.LastError,
			"502 Bad Gateway") {
			t.Errorf("down for an hour: %+v, %v", h, err)
		}
		w.hooks.answers(nil)
		w.sleep(4 * time.Minute)
		pass(time.Minute)
		notices, n := w.hooks.received("/down", "task.dead")
		if n != 36 || len(notices) > 24 {
			t.Errorf("the one that was down was told of %d dead letters by %d notices", n, len(notices))
		}
		last, err := admin.New(w.anyone()).Webhooks().Deliveries(t.Context(), "down")
		if err != nil || len(last) == 0 || len(last) > 20 || last[0].Outcome != admin.WebhookDelivered ||
			!slices.ContainsFunc(last, func(d *admin.WebhookDelivery) bool { return d.Attempts > 1 }) {
			t.Errorf("its deliveries: %v", err)
			for _, d := range last {
				t.Logf("%+v", *d)
			}
		}
		w.hooks.check(t)
	})
}

// A receiver that hangs, or is gone, delays no other.
func TestWebhooksDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.hooks = newReceiver(t)
		w.start("n1", t.TempDir())
		w.hook("/ok", admin.WebhookSpec{})
		w.hook("/gone", admin.WebhookSpec{})
		if _, err := admin.New(w.anyone()).Webhooks().Create(t.Context(), admin.WebhookSpec{Name: "nowhere",
			URL: "http://nowhere.test/secret"}); err != nil {
			t.Fatal(err)
		}
		w.hooks.answers(func(path string, _ int) int {
			if path == "/gone" {
				return http.StatusGone
			}
			return 0
		})
		w.die("mail", 1)
		pass(6 * time.Second)
		if _, n := w.hooks.received("/ok", "task.dead"); n != 1 {
			t.Errorf("%d after 6 s", n)
		}
		operator := admin.New(w.anyone())
		gone, err := operator.Webhooks().Get(t.Context(), "gone")
		if err != nil || gone.DisabledAt.IsZero() || !strings.Contains(gone.DisabledReason, "410 Gone") {
			t.Errorf("the one that is gone: %+v, %v", gone, err)
		}
		for _, line := range []string{`{namespace="default",state="active"} 1`, `{namespace="default",state="failing"} 1`,
			`{namespace="default",state="paused"} 0`, `{namespace="default",state="disabled"} 1`} {
			if page := scrape(t, w.nodes["n1"]); !strings.Contains(page, "pawl_webhooks"+line) {
				t.Errorf("the metrics don't say %s", line)
			}
		}
		nowhere, err := operator.Webhooks().Get(t.Context(), "nowhere")
		if err != nil || nowhere.Failures == 0 || strings.Contains(nowhere.LastError, "secret") || nowhere.Pending != 1 {
			t.Errorf("the one that is nowhere: %+v, %v", nowhere, err)
		}
		w.hooks.answers(nil)
		if resumed, err := operator.Webhooks().Resume(t.Context(), "gone"); err != nil || resumed.DisabledReason != "" {
			t.Errorf("resumed: %+v, %v", resumed, err)
		}
		pass(time.Second)
		if _, n := w.hooks.received("/gone", "task.dead"); n != 1 {
			t.Errorf("the one that was gone was told of %d", n)
		}
		actions := ""
		for e, err := range operator.Audit().List(t.Context(), admin.AuditFilter{TargetKind: "webhook", Target: "gone"}) {
			if err != nil {
				t.Fatal(err)
			}
			actions += " " + e.Action
		}
		if actions != " webhook.resume webhook.disable webhook.add" {
			t.Errorf("the record has%s", actions)
		}
		w.hooks.check(t)
	})
}

// A queue over a threshold is reported once, and once when it is under it again, whoever leads.
func TestThresholds(t *testing.T) {
	bySameGoroutines(t, "TestWebhooksSurviveElections")
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.hooks = newReceiver(t)
		dirs := w.grow()
		w.hook("/deep", admin.WebhookSpec{Queues: []string{"mail"}, Events: []admin.WebhookEvent{"queue.*"}, DepthOver: 5})
		w.hook("/slow", admin.WebhookSpec{Events: []admin.WebhookEvent{admin.WebhookQueueOver}, WaitOver: time.Minute})
		told := func(path string, over, under int) {
			t.Helper()
			a, _ := w.hooks.received(path, "queue.over")
			b, _ := w.hooks.received(path, "queue.under")
			if len(a) != over || len(b) != under {
				t.Errorf("%s was told %d times of over and %d times of under, want %d and %d", path, len(a), len(b), over, under)
			}
		}
		fill := func(n int) {
			for range n {
				if _, err := w.anyone().Enqueue(t.Context(), pawl.RawTask{Type: "job"}, pawl.Queue("mail")); err != nil {
					t.Fatal(err)
				}
			}
		}
		drain := func(n int) {
			claimed, err := claims.New(w.anyone()).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"mail"}, Max: n, Lease: time.Hour})
			if err != nil || len(claimed) != n {
				t.Fatalf("%d claims, %v", len(claimed), err)
			}
		}
		fill(5)
		pass(15 * time.Second)
		told("/deep", 0, 0)
		fill(1)
		pass(15 * time.Second)
		told("/deep", 1, 0)
		leader := w.leaderOf(systemShard)
		w.crash(leader)
		pass(30 * time.Second)
		w.start(leader, dirs[leader], "n1", "n2", "n3")
		pass(15 * time.Second)
		told("/deep", 1, 0)
		told("/slow", 1, 0)
		drain(1)
		pass(15 * time.Second)
		told("/deep", 1, 0) // 5 is not under it yet
		drain(1)
		pass(15 * time.Second)
		told("/deep", 1, 1)
		fill(3)
		pass(15 * time.Second)
		told("/deep", 2, 1)
		drain(7)
		pass(15 * time.Second)
		told("/deep", 2, 1) // the last notification was less than a minute ago
		pass(time.Minute)
		told("/deep", 2, 2)
		told("/slow", 1, 0)
		w.hooks.check(t)
	})
}

// Notifications of a paused webhook are delivered when it is resumed; during an overlap both secrets sign; a removed webhook gets
// nothing more.
func TestPausedRotatedAndRemovedWebhooks(t *testing.T) {
	bySameGoroutines(t, "TestWebhooksSurviveElections")
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.hooks = newReceiver(t)
		w.form()
		operator := admin.New(w.nodes["n2"].client())
		old := w.hook("/a", admin.WebhookSpec{})
		if _, err := operator.WithReason("it moves").Webhooks().Pause(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		w.die("mail", 2)
		pass(30 * time.Second)
		if _, n := w.hooks.received("/a", "task.dead"); n != 0 {
			t.Errorf("paused, it was told of %d", n)
		}
		if d, err := operator.Webhooks().Test(t.Context(), "a"); err != nil || d.Outcome != admin.WebhookDelivered ||
			d.Status != http.StatusNoContent {
			t.Errorf("a test: %+v, %v", d, err)
		}
		fresh, err := admin.New(w.nodes["n3"].client()).Webhooks().RotateSecret(t.Context(), "a", admin.WebhookRotation{})
		if err != nil || fresh.Secret == old.Secret || fresh.OldUntil.IsZero() {
			t.Fatalf("rotated: %+v, %v", fresh, err)
		}
		w.hooks.knows("/a", fresh.Secret, old.Secret)
		if h, err := operator.Webhooks().Resume(t.Context(), "a"); err != nil || h.Paused {
			t.Errorf("resumed: %+v, %v", h, err)
		}
		pass(time.Second)
		if _, n := w.hooks.received("/a", "task.dead"); n != 2 {
			t.Errorf("resumed, it was told of %d", n)
		}
		w.die("mail", 1) // within the pause after the last one
		if _, err := operator.Webhooks().Update(t.Context(), "a", admin.WebhookChange{URL: "http://receiver.test/b",
			Queues: []string{"sms"}}); err != nil {
			t.Fatal(err)
		}
		w.hooks.knows("/b", fresh.Secret)
		w.die("sms", 1)
		w.die("mail", 1)
		pass(75 * time.Second) // until the pause is over, and some more
		if _, n := w.hooks.received("/b", "task.dead"); n != 1 {
			t.Errorf("with another address and queue it was told of %d", n)
		}
		if _, err := operator.Webhooks().Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		w.die("sms", 3)
		pass(20 * time.Second)
		if _, n := w.hooks.received("/b", "task.dead"); n != 1 {
			t.Errorf("removed, it was told of %d", n)
		}
		if _, err := operator.Webhooks().Get(t.Context(), "a"); !errors.Is(err, pawltype.ErrNotFound) {
			t.Errorf("removed, it is %v", err)
		}
		w.hooks.check(t)
		for name, s := range w.nodes {
			if problems, _, err := s.broker.Check(t.Context(), 1); err == nil && len(problems) > 0 {
				t.Errorf("%s: %v", name, problems)
			}
		}
	})
}

// A shard that hangs does not keep thresholds from the depths of the others.
func TestDepthsBesideAHangingShard(t *testing.T) {
	for hangs := range uint32(3) {
		synctest.Test(t, func(t *testing.T) {
			shards := verbtest.Answers{}
			verbtest.On(shards, router.ReadMeters, func(ctx context.Context, q router.MeterReading) ([]broker.Meter, error) {
				if q.Shard == hangs {
					<-ctx.Done()
				}
				return []broker.Meter{{Queue: "q", Ready: 100}}, ctx.Err()
			})
			w := watches{func() []uint32 { return []uint32{0, 1, 2} }, shards}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if all, missing := w.depths(ctx, "ns", nil, false); len(all) != 1 || all[0].Ready != 200 || !missing {
				t.Errorf("shard %d hangs: the depths are %+v, missing: %t", hangs, all, missing)
			}
		})
	}
}
