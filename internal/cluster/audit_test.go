package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

var lena = task.Author{Name: "lena", Interface: task.InterfaceREST}

// noted returns what operators did according to the audit log, oldest first, and checks that its chain is intact.
func (s *systemReplica) noted() (all []string) {
	s.T.Helper()
	page, err := s.control.Audit.Audit(s.T.Context(), audit.Query{Namespace: "default"}, nil, 1000)
	if err != nil {
		s.T.Fatal(err)
	}
	for _, e := range slices.Backward(page.Entries) {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.By.Name, e.Action, e.Target.Name)))
	}
	if problems, err := s.control.Audit.Check(s.T.Context()); err != nil || len(problems) > 0 {
		s.T.Errorf("checking the audit log: %q, %v", problems, err)
	}
	return all
}

// The deletion of a queue is recorded once the queue is gone, under the name of the caller who deleted it, whichever leader completes it.
func TestAuditOfQueues(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.open(1)
		s := w.leader
		put := func(by task.Author, length int64) {
			t.Helper()
			_, err := s.control.Queues.PutQueue(ctx, auditlog.Action{By: by, Action: task.QueuePut}, "default", "mail",
				func(c *task.QueueConfig) error {
					c.Settings.MaxLength = length
					return nil
				})
			if err != nil {
				t.Fatal(err)
			}
		}
		put(nobody, 1)
		put(lena, 2)
		put(lena, 2)
		w.cut(1, errors.New("no answer"))
		other := w.newReplica()
		if err := s.control.Queues.DropQueue(ctx, lena, "default", "mail"); err == nil {
			t.Error("DropQueue succeeded although a shard did not answer")
		}
		if got, want := s.noted(), []string{"lena queue.put mail"}; !slices.Equal(got, want) {
			t.Errorf("the audit log has %q, want %q", got, want)
		}
		w.cut(1, nil)
		other.lead()
		pass(time.Minute) // the new leader completes the deletion
		if got, want := other.noted(), []string{"lena queue.put mail", "lena queue.delete mail"}; !slices.Equal(got, want) {
			t.Errorf("the audit log has %q, want %q", got, want)
		}
	})
}

// Entries are removed after 90 days, but not by a leader that has just been elected: its clock may be wrong.
func TestOldAuditEntriesAreRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		at := store.TimeOf(time.Now().Add(-audit.DefaultKeep - time.Hour))
		tx := w.State.Begin(at, 1)
		log, err := audit.Open(tx, 0)
		must(t, err)
		_, err = log.Append(audit.Entry{By: lena, Action: task.QueuePut})
		must(t, err)
		must(t, w.State.Apply(store.Position{Index: 1, Term: 1, Time: at}, tx.Seal(nil)))
		tx.Close()
		w.open(1)
		pass(auditlog.AuditGrace - time.Minute)
		if got := w.leader.noted(); len(got) != 1 {
			t.Errorf("just after the election the audit log has %q, want the one entry", got)
		}
		pass(2 * queues.RetireEvery)
		if got := w.leader.noted(); len(got) > 0 {
			t.Errorf("after 90 days the audit log still has %q", got)
		}
	})
}

// How long entries are kept is a setting of the cluster, and changing it is recorded. A node that does not know it yet removes nothing.
func TestAuditRetention(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		is(t, c.Placement.SetAuditRetention(bg, lena, time.Hour), task.ErrInvalidArgument,
			"retention: 1h0m0s is not between 24h0m0s (1 day) and 87600h0m0s (10 years)")
		copied := NewCopy(nil)
		if got := copied.AuditKeep(); got != audit.MaxKeep {
			t.Errorf("AuditKeep of an empty copy = %v, want the maximum", got)
		}
		for _, d := range []time.Duration{audit.DefaultKeep, 48 * time.Hour, 48 * time.Hour} { // the first is the default
			must(t, c.Placement.SetAuditRetention(bg, lena, d))
		}
		if got, want := w.leader.noted(), []string{"lena cluster.audit_retention"}; !slices.Equal(got, want) {
			t.Errorf("the audit log has %q, want %q", got, want)
		}
		d, err := c.Copies.Changes(bg, 0, Report{Node: 1}, 0)
		must(t, err)
		if copied.Apply(d); copied.AuditKeep() != 48*time.Hour {
			t.Errorf("AuditKeep of the updated copy = %v, want 48h", copied.AuditKeep())
		}
		pass(auditlog.AuditGrace + 2*queues.RetireEvery)
		if got := w.leader.noted(); len(got) != 1 {
			t.Errorf("immediately after the change the audit log has %q, want one entry", got)
		}
		w.Sleep(46 * time.Hour)
		pass(2 * queues.RetireEvery)
		if got := w.leader.noted(); len(got) != 1 {
			t.Errorf("before 2 days have passed the audit log has %q, want one entry", got)
		}
		w.Sleep(time.Hour)
		pass(2 * queues.RetireEvery)
		if got := w.leader.noted(); len(got) > 0 {
			t.Errorf("after 2 days the audit log still has %q", got)
		}
	})
}

// Raising the level is recorded, once. A repeat writes nothing.
func TestRaiseIsRecorded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.open(1)
		s := w.leader
		if _, err := s.control.Placement.Hello(ctx, Presence{Number: 1, Version: "new", MinLevel: 1, MaxLevel: 2}); err != nil {
			t.Fatal(err)
		}
		before := w.State.Applied().Index
		for range 2 {
			if level, err := s.control.Placement.RaiseLevel(ctx, lena); err != nil || level != 2 {
				t.Fatalf("RaiseLevel = %d, %v", level, err)
			}
		}
		if n := w.State.Applied().Index - before; n != 1 {
			t.Errorf("two calls wrote %d times, want once", n)
		}
		if got, want := s.noted(), []string{"lena cluster.raise_level"}; !slices.Equal(got, want) {
			t.Errorf("the audit log has %q, want %q", got, want)
		}
	})
}
