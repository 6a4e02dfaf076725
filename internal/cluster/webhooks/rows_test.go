package webhooks

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/cluster/system"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// cross checks the depth of queue q, as a dispatcher does.
func (w *Webhooks) cross(ready int64) error {
	hooks, err := system.View(bg, w.shard, func(r store.Reader) ([]Webhook, error) { return scanHooks(r, "default") })
	if err != nil {
		return err
	}
	return w.crossed(bg, "default", hooks, []Depth{{Queue: "q", Ready: ready}}, false)
}

// A row that can't be read fails every call that needs it, with its key, and none writes before it fails.
func TestRowsThatCantBeRead(t *testing.T) {
	calls := map[string]func(c *control) error{
		"attempt": func(c *control) error { _, err := c.Webhooks.nextAttempt(bg, "default", "h"); return err },
		"news": func(c *control) error {
			return c.Webhooks.TakeNotifications(bg, "default", []*task.Notification{deaths("q", 1, 100)})
		},
		"crossed": func(c *control) error { return c.Webhooks.cross(1000) },
	}
	for _, c := range []struct {
		table byte
		fails string
	}{
		{system.HookTable, "attempt, news, crossed"},
		{system.WebhookStatusTable, "attempt"},
		{system.SeenTable, "news"},
		{system.PendingTable, "attempt"},
		{system.OverTable, "crossed"},
	} {
		for _, name := range strings.Split(c.fails, ", ") {
			inBubble(t, func(t *testing.T, w *world) {
				of := w.openAt(system.PolicyLevel, 1)
				hook(t, of, Webhook{Name: "h", Events: []task.NotificationKind{task.NotifyDead, task.NotifyQueueOver}, DepthOver: 10})
				must(t, of.Webhooks.cross(100))
				of.Webhooks.takes(t, deaths("q", 1, 1))
				var key []byte
				must(t, w.leader.Update(bg, func(tx *store.Tx) error {
					tx.Scan([]byte{c.table}, []byte{c.table + 1}, func(k, _ []byte) bool { key = slices.Clone(k); return false })
					tx.Set(key, []byte{99})
					return nil
				}))
				before := w.State.Applied().Index
				err := calls[name](of)
				if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("row %q of the system shard", key)) {
					t.Errorf("%s with row %q damaged: %v, want an error with the row's key", name, key, err)
				}
				if w.State.Applied().Index != before {
					t.Errorf("%s with row %q damaged wrote to the system shard", name, key)
				}
			})
		}
	}
}
