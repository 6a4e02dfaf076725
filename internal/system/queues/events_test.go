package queues

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/task"
)

var boss = task.Author{Name: "boss"}

func pause(h task.Hold) func(*task.QueueConfig) error {
	return func(c *task.QueueConfig) error { return c.Pause(h) }
}

func resume(h task.Hold) func(*task.QueueConfig) error {
	return func(c *task.QueueConfig) error { return c.Resume(h) }
}

// Each change of a queue is one event and one entry of the audit log, which say what happened, and, for a pause, why. A
// change that is refused or changes nothing is neither.
func TestEventsAndAuditOfAQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		first, err := c.Queues.Events(bg, events.Query{Filter: events.Filter{Namespace: "default"}})
		must(t, err)
		put := func(action task.Action, change func(*task.QueueConfig) error) {
			t.Helper()
			_, err := c.Queues.PutQueue(bg, auditlog.Action{By: boss, Action: action}, "default", "a", change)
			must(t, err)
		}
		put(task.QueuePut, setLength(5)) // a creation, whatever the caller calls it
		put(task.QueuePut, setLength(5)) // nothing changes
		put(task.QueuePut, setLength(6))
		put(task.QueuePaused, pause(task.Hold{Reason: "broken"}))
		put(task.QueuePut, setLength(7)) // while it is paused
		put(task.QueuePaused, pause(task.Hold{Type: "t"}))
		put(task.QueuePut, setLength(8)) // while it has a hold
		put(task.QueuePaused, pause(task.Hold{Key: "k", Reason: "slow"}))
		put(task.QueueResumed, resume(task.Hold{Type: "t"}))
		put(task.QueueResumed, resume(task.Hold{}))
		put(task.QueueResumed, resume(task.Hold{Key: "k"}))
		_, err = c.Queues.Spread(bg, boss, "default", "a", SpreadTarget{Parts: 2})
		must(t, err)
		_, err = c.Queues.Spread(bg, boss, "default", "a", SpreadTarget{Parts: 2}) // nothing changes
		must(t, err)
		must(t, c.Queues.DropQueue(bg, boss, "default", "a"))

		page, err := c.Queues.Events(bg, events.Query{Filter: events.Filter{Namespace: "default"}, After: first.Next})
		must(t, err)
		var got []string
		for _, e := range page.Events {
			got = append(got, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s %s", e.Kind, e.Queue, e.Type, e.Key, e.Reason)), " "))
			if age := time.Since(e.At); age.Abs() > time.Second {
				t.Errorf("event %+v is %v old", e, age)
			}
		}
		want := []string{"queue.created a", "queue.changed a", "queue.paused a broken", "queue.changed a",
			"queue.paused a t", "queue.changed a", "queue.paused a k slow", "queue.resumed a t", "queue.resumed a", "queue.resumed a k",
			"queue.changed a", "queue.deleted a"}
		if fmt.Sprint(got) != fmt.Sprint(want) || page.Reset {
			t.Errorf("events are\n%q, want\n%q", got, want)
		}
		audited := w.Audited("default")
		var actions []string
		for _, line := range audited {
			who, rest, _ := strings.Cut(line, " ")
			action, on, _ := strings.Cut(rest, " ")
			if actions = append(actions, action); who != "boss" || !strings.HasPrefix(on, "queue a: ") {
				t.Errorf("the audit log has %q", line)
			}
		}
		if got := fmt.Sprint(actions); got != "[queue.create queue.put queue.pause queue.put queue.pause queue.put queue.pause "+
			"queue.resume queue.resume queue.resume queue.spread queue.delete]" {
			t.Fatalf("the audit log has the actions %s", got)
		}
		for at, words := range map[int][]string{
			0: {`"max_length":5`, `"shards":"2"`}, 1: {`"max_length":5`, `→ {"max_length":6`}, 2: {`"paused_reason":"broken"`},
			4: {`"paused_types.t":"(no reason)"`}, 6: {`"paused_keys.k":"slow"`}, 10: {`{"shards":"2"} → {"shards":"2, 1"}`},
			11: {`"max_length":8`},
		} {
			for _, word := range words {
				if !strings.Contains(audited[at], word) {
					t.Errorf("entry %d of the audit log is %q, without %q", at, audited[at], word)
				}
			}
		}
	})
}

// Each event is reported once, and not again with the next round.
func TestEventsAreReportedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		query := events.Query{Filter: events.Filter{Namespace: "default"}, Wait: time.Hour}
		page, err := c.Queues.Events(bg, events.Query{Filter: query.Filter})
		must(t, err)
		for n := range int64(3) {
			_, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(n+1))
			must(t, err)
			query.After = page.Next
			if page, err = c.Queues.Events(bg, query); err != nil || len(page.Events) != 1 || page.Reset {
				t.Errorf("after change %d there are the events %+v, %v", n, page, err)
			}
		}
	})
}

// A reader of events learns that the term has ended, and then that the leader has changed.
func TestEventsAfterElection(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		canceled, cancel := context.WithCancel(bg)
		cancel()
		if _, err := c.Queues.Events(canceled, events.Query{Wait: time.Hour}); err == nil || strings.Contains(err.Error(), "leader") {
			t.Errorf("reading events in a call that is over: %v", err)
		}
		c.Queues.Dropped()
		_, err := c.Queues.Events(bg, events.Query{})
		is(t, err, task.ErrUnavailable, "its leader has just changed")
		w.newReplica().lead()
		if _, err := c.Queues.Events(bg, events.Query{}); err == nil || !strings.Contains(err.Error(), "not the leader") {
			t.Errorf("reading events where another node leads: %v", err)
		}
	})
}

// The entry of a deletion names who began it, even if the next leader ends it. A row from before authors were recorded names nobody.
func TestDeletionNamesItsAuthor(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		for _, name := range []string{"a", "b"} {
			_, err := c.Queues.Place(bg, "default", name)
			must(t, err)
		}
		w.cut(1, task.ErrUnavailable)
		is(t, c.Queues.DropQueue(bg, boss, "default", "a"), task.ErrUnavailable)
		is(t, c.Queues.DropQueue(bg, task.Author{Name: "other"}, "default", "a"), task.ErrUnavailable)
		b, err := c.Queues.Queue(bg, "default", "b")
		must(t, err)
		w.Put(queueKey("default", "b"), encodeQueue(b, true))
		w.cut(1, nil)
		w.open(1)
		if got := w.Audited("default"); len(got) != 1 || !strings.HasPrefix(got[0], "boss queue.delete queue a: {") {
			t.Errorf("the audit log has %q", got)
		}
	})
}

// A namespace has its own number of queues, which a deletion lowers, and which the next leader counts again.
func TestQueuesOfANamespace(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.most = 4
		c := w.open(1)
		for _, ns := range []string{"team", "other"} {
			_, err := c.Namespaces.Add(bg, namespaces.Call{Name: ns, Quotas: task.QuotaChange{task.QuotaQueues: 2}})
			must(t, err)
		}
		place := func(ns, name string) error {
			_, err := c.Queues.Place(bg, ns, name)
			return err
		}
		must(t, place("team", "a"))
		for n := range int64(3) { // a change is no new queue
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "team", "a", setLength(n+1))
			must(t, err)
		}
		must(t, place("team", "b"))
		for range 2 {
			before := w.State.Applied().Index
			err := place("team", "c")
			is(t, err, task.ErrInvalidArgument, `"c" would exceed the 2 that namespace "team" may have`)
			if e, _ := task.AsError(err); e == nil || e.Field != "queue" || e.Reason != "max_queues" {
				t.Errorf("the refusal is %+v", e)
			}
			if after := w.State.Applied().Index; after != before {
				t.Error("the refused call wrote to the store")
			}
			c = w.open(1)
		}
		must(t, place("other", "a"))
		must(t, c.Queues.DropQueue(bg, nobody, "team", "a"))
		must(t, place("team", "c"))
		must(t, place("other", "b"))
		is(t, place("default", "d"), task.ErrInvalidArgument, "limit of 4 queues")
		is(t, place("nobody", "d"), task.ErrNotFound, `"nobody"`)
	})
}

// Without data shards there is no place for a queue yet. Rows that can't be read are errors.
func TestNoShardForQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.newReplica().lead()
		c := w.leader.control
		is(t, placeErr(c, "a"), task.ErrUnavailable, `queue "a"`, "no data shard yet")
		w.settings(func(s *system.Settings) { *s = system.Settings{Replication: 3, Level: 1} })
		is(t, placeErr(c, "a"), task.ErrUnavailable, `queue "a"`, "no data shard yet")
		w.setShards(1)
		must(t, placeErr(c, "a"))
		for _, key := range [][]byte{system.SettingsKey, append([]byte{system.NamespaceTable}, "default"...), queueKey("default", "b")} {
			was := w.Get(key)
			w.Damage(key)
			c.Queues.recount()
			if err := placeErr(c, "c"); err == nil || !strings.Contains(err.Error(), "unknown form") {
				t.Errorf("row %q is damaged, and a queue was created: %v", key, err)
			}
			w.Round(func(tx *store.Tx) {
				if was == nil {
					tx.Delete(key)
					return
				}
				tx.Set(key, was)
			})
		}
		w.Damage(queueKey("default", "b"))
		if err := placeErr(c, "b"); err == nil || !strings.Contains(err.Error(), "unknown form") {
			t.Errorf("the queue's row is damaged: %v", err)
		}
		if err := c.Queues.DropQueue(bg, nobody, "default", "b"); err == nil || !strings.Contains(err.Error(), "unknown form") {
			t.Errorf("deleting a queue whose row is damaged: %v", err)
		}
		if list, err := c.Queues.Queues(bg, "default", Query{Limit: 9}); err == nil {
			t.Errorf("listing queues with a damaged row: %+v", list)
		}
		if list, err := c.Queues.Queues(bg, "default", Query{Limit: 9, Names: []string{"a", "b"}}); err == nil {
			t.Errorf("listing a queue with a damaged row: %+v", list)
		}
	})
}

// A list has the paused queues, also those of which a type or key is, and goes on behind a name, which need not exist.
func TestListQueues(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.most = 9
		c := w.open(1)
		for name, change := range map[string]func(*task.QueueConfig) error{
			"a": pause(task.Hold{}), "aa": unchanged, "b": pause(task.Hold{Type: "t"}), "c": unchanged, "d": pause(task.Hold{Key: "k"}),
		} {
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", name, change)
			must(t, err)
		}
		for _, q := range []struct {
			query Query
			want  string
		}{
			{Query{Limit: 9, Paused: true}, "[a b d]"}, {Query{Limit: 2, Paused: true}, "[a b]"},
			{Query{Limit: 9, Paused: true, After: "a"},
				"[b d]"},
			{Query{Limit: 9, After: "a"}, "[aa b c d]"}, {Query{Limit: 9, After: "ab"}, "[b c d]"}, {Query{Limit: 9, After: "d"}, "[]"},
			{Query{Limit: -1}, "[]"}, {Query{Limit: 0, Names: []string{"a"}}, "[]"}, {Query{Limit: 1, Names: []string{"d", "a", "x"}},
				"[d a]"},
		} {
			c.checkQueues(t, q.query, q.want)
		}
	})
}

// Whichever pause of a type or key ends, the event names that one.
func TestResumedNamesThePause(t *testing.T) {
	holds := []task.Hold{{Type: "a", Reason: "x"}, {Type: "b"}, {Key: "a"}, {Key: "b", Reason: "x"}}
	for i, h := range holds {
		was, left := slices.Clone(holds), slices.Delete(slices.Clone(holds), i, i+1)
		if got := resumed(was, left); got != h {
			t.Errorf("when the pause %+v has ended, the event names %+v", h, got)
		}
	}
}
