package webhooks

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/task"
)

// Each shard gets what it lacks, twenty namespaces at a time, and what it has confirmed only once.
func TestShardsGetMissingSubscriptions(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		var calls []string
		var fails error
		c.Webhooks.copyWatches = func(ctx context.Context, shard uint32, watches map[string]task.Watch) error {
			until, _ := ctx.Deadline()
			if shard == 1 {
				calls = append(calls, fmt.Sprint(len(watches), " in ", time.Until(until)))
			}
			if shard == 1 && fails != nil {
				return fails
			}
			return nil
		}
		ns := "" // all
		tell := func(what string, unconfirmed string, want ...string) {
			t.Helper()
			calls = nil
			some, err := c.Webhooks.TellShards(bg, ns)
			if must(t, err); fmt.Sprint(some) != unconfirmed || fmt.Sprint(calls) != fmt.Sprint(want) {
				t.Errorf("%s: calls %v, unconfirmed %v; want %v, %s", what, calls, some, want, unconfirmed)
			}
		}
		tell("without webhooks", "[]")
		hook(t, c, Webhook{Name: "h"})
		tell("one", "[]", "1 in 1s")
		tell("nothing new", "[]")
		for n := range 40 {
			hookIn(t, c, fmt.Sprintf("n%02d", n), "h")
		}
		fails = errors.New("no leader")
		tell("a shard that fails", "[1]", "20 in 1s")
		ns = "n07"
		tell("a shard that fails, of one namespace", "[1]", "1 in 1s")
		ns = "default"
		tell("a namespace that it has", "[]")
		fails, ns = nil, ""
		tell("many", "[]", "20 in 1s", "20 in 1s")
		must(t, c.Webhooks.Remove(bg, Call{Hook: Webhook{Namespace: "n07", Name: "h"}, By: operator}))
		hookIn(t, c, "n40", "h")
		tell("two of them", "[]", "2 in 1s")
		c.Webhooks.confirm(1, map[string]task.Watch{"n07": {Version: 1}}) // an answer that is late
		tell("what is confirmed remains so", "[]")
		w.Round(func(tx *store.Tx) { Forget(tx, "n07") })
		if rowsOf(w.State, []byte{system.WatchTable}) != 41 {
			t.Errorf("%d versions are left, want 41", rowsOf(w.State, []byte{system.WatchTable}))
		}
		next := w.newReplica()
		next.lead()
		calls = nil
		if some, err := c.Webhooks.TellShards(bg, ""); err == nil || some != nil || calls != nil {
			t.Errorf("a node that does not lead: calls %v, %v, %v", calls, some, err)
		}
		c = next.control
		some, err := c.Webhooks.TellShards(bg, "")
		if must(t, err); len(some) != 0 || len(w.watches[1]) != 41 || len(w.watches[2]) != 41 {
			t.Errorf("the next leader told the shards of %d and %d namespaces, want all 41", len(w.watches[1]), len(w.watches[2]))
		}
	})
}

// A shard that hangs is named alone, however many hang with it.
func TestShardsThatHangAreNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(50)
		c.Webhooks.copyWatches = func(ctx context.Context, shard uint32, _ map[string]task.Watch) error {
			if shard < 50 {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		hook(t, c, Webhook{Name: "h"})
		began := time.Now()
		if some, err := c.Webhooks.TellShards(bg, "default"); err != nil || len(some) != 49 || some[48] != 49 ||
			time.Since(began) != tellTime {
			t.Errorf("after %s unconfirmed are %v, %v, want 1 to 49 after %s", time.Since(began), some, err, tellTime)
		}
	})
}

// The shards are told which kinds webhooks want from them: none of a threshold, and nothing for one that is disabled.
func TestSubscriptionsOfShards(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hook(t, c, Webhook{Name: "a", Events: ofDeaths, Queues: []string{"q"}})
		hook(t, c, Webhook{Name: "b", Events: ofThresholds, DepthOver: 1})
		hook(t, c, Webhook{Name: "c", Events: append([]task.NotificationKind{task.NotifyPoisoned}, ofThresholds...), DepthOver: 1})
		hook(t, c, Webhook{Name: "d", Events: ofDeaths})
		hookIn(t, c, "other", "e")
		must(t, c.Webhooks.Remove(bg, Call{Hook: Webhook{Namespace: "other", Name: "e"}, By: operator}))
		w.Round(func(tx *store.Tx) {
			h, err := getHook(tx, "default", "d")
			must(t, err)
			h.DisabledReason = "gone"
			tx.Set(hookKey("default", "d"), system.EncodeRow(h))
		})
		all, err := readWatches(w.State)
		must(t, err)
		if got := fmt.Sprint(all["default"].Rules); got != "[{[task.dead] [q]} {[task.poisoned] [*]}]" || len(all) != 2 {
			t.Errorf("the rules are %s of %d namespaces", got, len(all))
		}
		w.Put(append([]byte{system.NamespaceTable}, "other"...), system.EncodeRow(namespaces.Namespace{Name: "other", Since: 7}))
		if all, err := readWatches(w.State); err != nil || all["other"].Since != 7 {
			t.Errorf("with the version since which a namespace exists, the watches are %+v, %v", all, err)
		}
		if of := all["other"]; of.Rules != nil || of.Version == 0 || of.Version <= all["default"].Version {
			t.Errorf("a namespace without webhooks has %+v", of)
		}
	})
}
