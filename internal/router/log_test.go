package router_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// inLogs runs a test on audit logs and events of all shards. Each audit log has one entry, each second of the shards' time. A node refuses
// to read audit logs for a reason that the test may set.
func inLogs(t *testing.T, test func(f *routertest.Fleet, refusals map[uint32]error)) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		f.AddShard(2, 2, 3)
		f.SystemLeader = 3
		refusals := map[uint32]error{}
		for n, m := range f.Nodes {
			data, system := routertest.FakeBroker{M: m}, routertest.FakeControl{M: m}
			check := func(shard uint32) error {
				if node, _, _ := data.Leader(shard); node != uint64(n) {
					return &broker.NotLeader{Shard: shard, Node: uint32(node)}
				}
				return nil
			}
			verbtest.On(m.Broker, router.ReadAudit, func(_ context.Context, q router.AuditReading) (out router.AuditRead, err error) {
				if err := check(q.Shard); err != nil {
					return out, err
				}
				out.Page, out.At = pageOf(q.Shard), routertest.At(q.Shard)
				return out, refusals[n]
			})
			verbtest.On(m.Broker, router.ReadEvents, func(_ context.Context, q router.EventsIn) (events.Page, error) {
				if err := check(q.Shard); err != nil {
					return events.Page{}, err
				}
				return eventsOf(q.Shard), nil
			})
			verbtest.On(m.Control, auditlog.Read, func(context.Context, auditlog.Reading) (broker.AuditPage, error) {
				return pageOf(0), system.Check()
			})
			verbtest.On(m.Control, queues.ReadEvents, func(context.Context, queues.EventQuery) (events.Page, error) {
				if system.Check() != nil {
					return events.Page{}, &shard.NotLeader{} // as the system shard's own rounds return it
				}
				return eventsOf(0), nil
			})
		}
		test(f, refusals)
	})
}

func pageOf(id uint32) (p broker.AuditPage) {
	p.Entries = append(p.Entries, broker.AuditEntry{Seq: uint64(id), At: store.Time(id + 1),
		Action: task.Action(fmt.Sprint("of shard ", id))})
	return p
}

func eventsOf(id uint32) events.Page {
	return events.Page{Events: []events.Event{{Queue: fmt.Sprint("of shard ", id)}}}
}

// The audit logs of all shards, the system shard's among them, form one list, newest first. A refusal of one shard is the answer.
func TestAuditOfAllShards(t *testing.T) {
	inLogs(t, func(f *routertest.Fleet, refusals map[uint32]error) {
		ctx := context.Background()
		for n, m := range f.Nodes {
			all, at, err := m.Audit(ctx, broker.AuditQuery{}, nil, 10)
			if err != nil || len(all.Missing) > 0 {
				t.Fatal(all.Missing, err)
			}
			list := all.Value
			var got []string
			for _, r := range list.Records {
				got = append(got, string(r.Action))
			}
			if s := strings.Join(got, ", "); s != "of shard 2, of shard 1, of shard 0" || len(at) != 3 || list.More != nil {
				t.Errorf("node %d: the audit log has %s, at %v, more after %v", n, s, at, list.More)
			}
		}
		f.With(func() { f.Shards[1].Leader = 0 })
		began := time.Now()
		if list, at, err := f.Nodes[1].Audit(ctx, broker.AuditQuery{}, nil, 10); err != nil || len(list.Value.Records) != 2 ||
			len(at) != 2 || fmt.Sprint(list.Missing) != "[shard 1]" || !strings.Contains(list.Missing[0].Why, "has no leader") {
			t.Errorf("while shard 1 has no leader, the audit log has %+v, at %v, %v", list, at, err)
		}
		if took := time.Since(began); took > verb.PartTime {
			t.Errorf("without it, the audit log takes %s", took)
		}
		f.With(func() { f.Shards[1].Leader = 1 })
		refusals[2] = task.Invalid("q", "is refused")
		if _, _, err := f.Nodes[1].Audit(ctx, broker.AuditQuery{}, nil, 10); !errors.Is(err, task.ErrInvalidArgument) ||
			err.Error() != refusals[2].Error() {
			t.Errorf("Audit with a refusal = %v, want it alone", err)
		}
	})
}

// What was done to a task is in its own shard: no other is asked, so none can delay the answer. An id that names no shard has no entries.
func TestAuditOfATask(t *testing.T) {
	inLogs(t, func(f *routertest.Fleet, _ map[uint32]error) {
		f.With(func() { f.Shards[1].Leader = 0 })
		of := func(kind task.TargetKind, shard byte) broker.AuditQuery {
			return broker.AuditQuery{Target: task.Target{Kind: kind, Name: task.ID{6: 0x70, 7: shard, 8: 0x80}.String()}}
		}
		for _, c := range []struct {
			query   broker.AuditQuery
			records int
			missing string
		}{{of(task.OnTask, 2), 1, "[]"}, {of(task.OnGroup, 2), 2, "[shard 1]"}, {of(task.OnTask, 9), 2, "[shard 1]"},
			{of(task.OnTask, 0), 2, "[shard 1]"}} {
			began := time.Now()
			list, at, err := f.Nodes[1].Audit(context.Background(), c.query, nil, 10)
			if err != nil || len(list.Value.Records) != c.records || len(at) != c.records || fmt.Sprint(list.Missing) != c.missing {
				t.Errorf("the audit log of %v has %+v, at %v, %v, want %d entries and missing %s", c.query.Target, list, at, err,
					c.records, c.missing)
			}
			if took := time.Since(began); c.missing == "[]" && took >= verb.PartTime {
				t.Errorf("the audit log of %v takes %s", c.query.Target, took)
			}
		}
	})
}

// The events of a shard are read where it is led, those of queues where the system shard is led.
func TestEventsOfAnyShard(t *testing.T) {
	inLogs(t, func(f *routertest.Fleet, _ map[uint32]error) {
		for n, m := range f.Nodes {
			for id := range uint32(3) {
				page, err := m.Events.Events(context.Background(), id, events.Query{})
				if want := fmt.Sprint("of shard ", id); err != nil || len(page.Events) != 1 || page.Events[0].Queue != want {
					t.Errorf("node %d: Events of shard %d = %+v, %v", n, id, page, err)
				}
			}
		}
	})
}
