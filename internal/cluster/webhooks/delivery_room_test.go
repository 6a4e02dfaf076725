package webhooks

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/pawlq/pawl/internal/cluster/namespaces"
	"github.com/pawlq/pawl/internal/cluster/system"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/webhook"
)

// hookIn adds a webhook in a namespace, which is created if necessary.
func hookIn(t *testing.T, c *control, ns, name string) {
	t.Helper()
	_, err := c.Namespaces.Add(bg, namespaces.Call{By: operator, Name: ns})
	must(t, err)
	_, err = c.Webhooks.Add(bg, Call{Hook: Webhook{Namespace: ns, Name: name, URL: "https://" + ns}, Secret: webhook.NewSecret(), By: operator})
	must(t, err)
}

// Pending notices for the webhooks of one namespace, whose receivers may never answer, leave room for those of another.
func TestPostOfANamespaceLeavesRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.openAt(system.PolicyLevel, 1)
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
				t.Errorf("%s/%s: %d notices are pending and %d were dropped (%v), want %d and %d", ns, last, v.Pending, v.Dropped, err, want.Pending, want.Dropped)
			}
		}
	})
}

// Tests of the webhooks of one namespace leave room for those of another.
func TestWebhookTestsOfANamespaceLeaveRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.openAt(system.PolicyLevel, 1)
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
