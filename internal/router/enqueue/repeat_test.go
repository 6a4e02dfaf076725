package enqueue_test

import (
	"context"
	"errors"
	"testing"

	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// A call whose answer was lost is repeated if that does no harm; of another, the caller learns that its outcome is unknown.
func TestLostAnswers(t *testing.T) {
	ctx, ns := context.Background(), routertest.Namespace
	pause := func(c *task.QueueConfig) error { c.Paused = true; return nil }
	calls := map[string]func(m *routertest.Member) error{
		"place":     func(m *routertest.Member) error { _, err := m.Queues.Place(ctx, ns, "new"); return err },
		"get-queue": func(m *routertest.Member) error { _, _, err := m.Queues.Queue(ctx, ns, "q"); return err },
		"get-queues": func(m *routertest.Member) error {
			_, err := m.Queues.Queues(ctx, ns, queues.Query{Limit: 9})
			return err
		},
		"put-queue": func(m *routertest.Member) error {
			_, err := m.Queues.PutQueue(ctx, auditlog.Action{}, ns, "q", pause)
			return err
		},
		"drop-queue":   func(m *routertest.Member) error { return m.Queues.DropQueue(ctx, task.Author{}, ns, "q") },
		"ensure-queue": func(m *routertest.Member) error { return m.Queues.EnsureQueue(ctx, 1, ns, "q") },
		"spread-queue": func(m *routertest.Member) error {
			_, err := m.Queues.Spread(ctx, task.Author{}, ns, "q", queues.SpreadTarget{Shards: []uint32{1, 2}})
			return err
		},
	}
	for method, call := range calls {
		routertest.InFleet(t, 2, func(f *routertest.Fleet) {
			m := f.Nodes[2]
			if _, err := m.Queues.Place(ctx, ns, "q"); err != nil {
				t.Fatal(err)
			}
			before, lost := f.Count(method), false
			f.With(func() {
				f.Network = func(_, _ uint32, sent string) routertest.Delivery {
					if sent != method || lost {
						return routertest.Arrives
					}
					lost = true
					return routertest.AnswerLost
				}
			})
			err := call(m)
			once := method == "put-queue" || method == "drop-queue"
			sent := f.Count(method) - before
			if !lost || once && (sent != 1 || !errors.Is(err, task.ErrUnavailable)) || !once && (sent != 2 || err != nil) {
				t.Errorf("%s was sent %d times: %v", method, sent, err)
			}
		})
	}
}

// What a node reads or changes goes into its copy; what fails does not.
func TestCopyIsUpdated(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		ctx, ns, m := context.Background(), routertest.Namespace, f.Nodes[2]
		version := func(name string) uint64 {
			q, ok := m.Queues.Copied(t.Context(), ns, name)
			if !ok {
				return 0
			}
			return max(q.Config.Version, 1)
		}
		if err := m.Queues.EnsureQueue(ctx, 1, ns, "q"); err != nil || version("q") != 1 {
			t.Errorf("ensured: version %d, %v", version("q"), err)
		}
		q, err := m.Queues.Spread(ctx, task.Author{}, ns, "q", queues.SpreadTarget{Shards: []uint32{1, 2}})
		if err != nil || len(q.Parts) != 2 || version("q") != 2 {
			t.Errorf("spread: %+v, version %d, %v", q, version("q"), err)
		}
		f.With(func() {
			q.Config.Version = 7
			f.Queues["q"] = q
		})
		if err := m.Queues.Refresh(ctx, ns, "q"); err != nil || version("q") != 7 {
			t.Errorf("refreshed: version %d, %v", version("q"), err)
		}
		f.With(func() { f.SystemLeader = 0 })
		_, placed := m.Queues.Place(ctx, ns, "new")
		_, moved := m.Queues.Spread(ctx, task.Author{}, ns, "q", queues.SpreadTarget{})
		for what, err := range map[string]error{"refreshed": m.Queues.Refresh(ctx, ns, "q"), "placed": placed, "spread": moved,
			"ensured": m.Queues.EnsureQueue(ctx, 1, ns, "new"), "dropped": m.Queues.DropQueue(ctx, task.Author{}, ns, "q")} {
			if !errors.Is(err, task.ErrUnavailable) || version("q") != 7 || len(m.Copy) != 1 {
				t.Errorf("%s without a leader: %v, version %d, and %d copies", what, err, version("q"), len(m.Copy))
			}
		}
		f.With(func() { f.SystemLeader = 1 })
		if err := m.Queues.DropQueue(ctx, task.Author{}, ns, "q"); err != nil || version("q") != 0 || len(f.Queues) != 0 {
			t.Errorf("dropped: version %d, %d queues, %v", version("q"), len(f.Queues), err)
		}
		m.Copy["gone"] = queues.Queue{Name: "gone"}
		if err := m.Queues.Refresh(ctx, ns, "gone"); err != nil || version("gone") != 0 {
			t.Errorf("one that is gone: version %d, %v", version("gone"), err)
		}
	})
}

// A change that another always precedes is given up after some attempts.
func TestLateChangesAreGivenUp(t *testing.T) {
	routertest.InFleet(t, 1, func(f *routertest.Fleet) {
		tries := 0
		_, err := f.Nodes[1].Queues.PutQueue(context.Background(), auditlog.Action{}, routertest.Namespace, "q",
			func(c *task.QueueConfig) error {
				tries++
				c.Paused = !c.Paused
				f.With(func() {
					q := f.Queues["q"]
					q.Config.Version++
					f.Queues["q"] = q
				})
				return nil
			})
		if tries != 10 || !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("after %d attempts: %v", tries, err)
		}
	})
}
