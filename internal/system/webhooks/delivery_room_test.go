package webhooks

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/webhook"
)

// hookIn adds a webhook in a namespace, which is created if necessary.
func hookIn(t *testing.T, c *control, ns, name string) {
	t.Helper()
	_, err := c.Namespaces.Add(bg, namespaces.Call{By: operator, Name: ns})
	must(t, err)
	_, err = c.Webhooks.Add(bg, Call{Hook: Webhook{Namespace: ns, Name: name, URL: "https://" + ns}, Secret: webhook.NewSecret(),
		By: operator})
	must(t, err)
}

// Pending notices for the webhooks of one namespace, whose receivers may never answer, leave room for those of another.
func TestNamespaceLeavesRoomForNotices(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		for n := range 11 {
			hookIn(t, c, "greedy", fmt.Sprint("h", n))
		}
		hookIn(t, c, "modest", "h0")
		must(t, w.leader.Update(bg, func(tx *store.Tx) error {
			for n := range 10 {
				name := fmt.Sprint("h", n)
				s, err := webhookStatus(tx, "greedy", name)
				if err != nil {
					return err
				}
				countPending(tx, &s, maxPending)
				setWebhookStatus(tx, "greedy", name, s)
			}
			return nil
		}))
		for ns, want := range map[string]Status{"greedy": {Dropped: 1}, "modest": {Pending: 1}} {
			n := deaths("mail", 1, 1)
			n.Namespace = ns
			must(t, c.Webhooks.TakeNotifications(bg, ns, []*task.Notification{n}))
			last := "h0"
			if ns == "greedy" {
				last = "h10"
			}
			if v, err := c.Webhooks.Get(bg, ns, last); err != nil || v.Pending != want.Pending || v.Dropped != want.Dropped {
				t.Errorf("%s/%s: %d notices are pending and %d were dropped (%v), want %d and %d", ns, last, v.Pending, v.Dropped, err,
					want.Pending, want.Dropped)
			}
		}
	})
}

// Tests of the webhooks of one namespace leave room for those of another.
func TestNamespaceLeavesRoomForTests(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		for _, ns := range []string{"greedy", "modest", "third"} {
			hookIn(t, c, ns, "h")
		}
		hang := make(chan struct{})
		p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks, Send: func(context.Context, webhook.Request) webhook.Outcome {
			<-hang
			return webhook.Outcome{Status: 200}
		}})
		var running sync.WaitGroup
		for _, ns := range []string{"greedy", "modest"} {
			for range maxTests / 2 {
				running.Go(func() {
					if _, err := p.Test(bg, operator, ns, "h"); err != nil {
						t.Errorf("testing a webhook in namespace %s: %v", ns, err)
					}
				})
			}
			synctest.Wait()
			_, err := p.Test(bg, operator, ns, "h")
			is(t, err, task.ErrUnavailable, `webhook "h": 4 tests are running in its namespace`)
		}
		_, err := p.Test(bg, operator, "third", "h")
		is(t, err, task.ErrUnavailable, `webhook "h": 8 tests are running, and`)
		close(hang)
		running.Wait()
		for _, ns := range []string{"greedy", "modest", "third"} {
			_, err := p.Test(bg, operator, ns, "h")
			must(t, err)
		}
	})
}

// A webhook has room for 1000 pending notices, a namespace for 10,000 and all together for 20,000.
func TestRoomForNotices(t *testing.T) {
	for _, c := range []struct {
		own, others, all int64 // pending: of the webhook, of others in its namespace, and of all
		room             bool
	}{
		{999, 0, 999, true}, {1000, 0, 1000, false}, {1001, 0, 1001, false},
		{0, 0, 19_999, true}, {0, 0, 20_000, false}, {0, 0, 20_001, false},
		{999, 9000, 9999, true}, {999, 9000, 15_000, true}, {999, 9001, 10_000, false}, {999, 9001, 15_000, false},
		{1, 10_001, 15_000, false},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			w.open(1)
			w.Put(system.PendingsKey, system.EncodeNumber(uint64(c.all)))
			w.Round(func(tx *store.Tx) {
				own := Status{Pending: c.own}
				setWebhookStatus(tx, "ns", "own", own)
				setWebhookStatus(tx, "ns", "others", Status{Pending: c.others - c.others/2})
				setWebhookStatus(tx, "ns", "zzz", Status{Pending: c.others / 2})
				setWebhookStatus(tx, "ns2", "others", Status{Pending: 9999})
				if room, err := roomForNotice(tx, "ns", &own); err != nil || room != c.room {
					t.Errorf("%+v: room %t, %v", c, room, err)
				}
			})
		})
	}
	inBubble(t, func(t *testing.T, w *world) {
		w.open(1)
		w.Put(system.PendingsKey, system.EncodeNumber(15_000))
		w.Put(statusKey("ns", "z"), system.EncodeRow(Status{Pending: 1}))
		w.Damage(statusKey("ns", "a"))
		if _, err := roomForNotice(w.State, "ns", &Status{}); err == nil {
			t.Error("the notices of a namespace are counted although a row can't be read")
		}
		w.writesNothing("a notice for which there may be no room", func() {
			if err := w.leader.Update(bg, func(tx *store.Tx) error {
				_, err := addNotice(tx, &Webhook{Namespace: "ns", Name: "h"}, *deaths("q", 1, 1))
				return err
			}); err == nil {
				t.Error("a notice was added although the room is not known")
			}
		})
	})
}

// Reports of other namespaces, or of before, are ignored. Those of another shard or another kind are not.
func TestReportsCountOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hook(t, c, Webhook{Name: "h"})
		for n, report := range []func(n *task.Notification){
			func(n *task.Notification) {},
			func(n *task.Notification) { n.Shard = 2 },
			func(n *task.Notification) { n.Seq = 6 },
			func(n *task.Notification) { n.Kind = task.NotifyPoisoned },
			func(n *task.Notification) { n.Queue = "r" },
		} {
			of := deaths("q", 1, 5)
			report(of)
			c.Webhooks.takes(t, of)
			w.writesNothing("a repeated report", func() { c.Webhooks.takes(t, of) })
			before := *of
			before.Seq--
			w.writesNothing("an earlier report", func() { c.Webhooks.takes(t, &before) })
			elsewhere := *of
			elsewhere.Seq, elsewhere.Namespace = 99, "other"
			w.writesNothing("a report of another namespace", func() { c.Webhooks.takes(t, &elsewhere) })
			total := int64(0)
			scanPending(w.State, "default", "h", func(k, v []byte) bool {
				waits, err := system.DecodeRow[notice](k, v)
				must(t, err)
				total += waits.Notification.Count
				return true
			})
			if total != int64(n+1) {
				t.Errorf("after report %d, the notices are of %d events, want %d", n+1, total, n+1)
			}
		}
		if s := w.status("h"); s.Pending != 3 {
			t.Errorf("%d notices are pending, want one for each kind and queue", s.Pending)
		}
	})
}
