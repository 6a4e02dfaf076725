package node

import (
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
)

// auditOf returns the audit log as a node reports it, oldest first.
func auditOf(t *testing.T, s *server, f admin.AuditFilter) (all []*admin.AuditEntry) {
	t.Helper()
	for e, err := range admin.New(s.client()).Audit().List(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	slices.Reverse(all)
	return all
}

// Whichever node receives a call, and wherever it is decided, the entry has the caller's name. No change of leaders loses or
// duplicates one.
func TestAuditOfThreeNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.form()
		var want []string
		for name, s := range w.nodes {
			operator := admin.New(s.client()).WithActor("lena@" + name).WithReason("by way of " + name)
			id, err := s.client().Enqueue(t.Context(), pawl.RawTask{Type: "job"}, pawl.Queue("mail"))
			if err != nil {
				t.Fatal(err)
			}
			for _, do := range []func() error{
				func() error {
					_, err := operator.WithReason("pause by "+name).Queues().Pause(t.Context(), "mail")
					return err
				},
				func() error { _, err := operator.Queues().Resume(t.Context(), "mail"); return err },
				func() error { _, err := operator.Tasks().Discard(t.Context(), id.ID); return err },
			} {
				if err := do(); err != nil {
					t.Fatal(err)
				}
			}
			want = append(want, "lena@"+name+" queue.pause pause by "+name, "lena@"+name+" queue.resume by way of "+name,
				"lena@"+name+" task.discard by way of "+name)
		}
		check := func(when string) {
			t.Helper()
			for name, s := range w.nodes {
				var got []string
				for _, e := range auditOf(t, s, admin.AuditFilter{}) {
					if strings.HasPrefix(e.Actor, "lena@") {
						got = append(got, e.Actor+" "+e.Action+" "+e.Reason)
						if e.Interface != "grpc" || e.Address == "" || len(e.Hash) != 64 {
							t.Errorf("%s: %s tells %+v", when, name, e)
						}
					}
				}
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("%s: %s tells %q, want %q", when, name, got, want)
				}
			}
		}
		check("at first")
		w.crash(w.leaderOf(1))
		w.until("the others serve", func() error {
			for _, s := range w.nodes {
				_, err := admin.New(s.client()).Queues().Get(t.Context(), "mail")
				return err
			}
			return nil
		})
		check("with another leader")
	})
}

// Changes of the cluster are recorded, once each.
func TestAuditOfCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.form()
		operator := admin.New(w.nodes["n2"].client()).WithActor("lena")
		ctx := t.Context()
		twice := func(what string, do func() error) {
			t.Helper()
			for range 2 {
				w.until(what, do)
			}
		}
		twice("drain", func() error { return operator.Cluster().DrainNode(ctx, "n3") })
		twice("undrain", func() error { return operator.Cluster().UndrainNode(ctx, "n3") })
		twice("lead", func() error { return operator.Cluster().TransferLeader(ctx, 1, "n2") })
		twice("shards", func() error { return operator.Cluster().AddShards(ctx, 2) })
		twice("replication", func() error { return operator.Cluster().SetReplication(ctx, 1) })
		twice("audit retention", func() error { return operator.Cluster().SetAuditRetention(ctx, 48*time.Hour) })
		// it is already the highest: no change
		twice("level", func() error { _, err := operator.Cluster().RaiseFeatureLevel(ctx); return err })
		if _, err := operator.Cluster().Backup(ctx, io.Discard, nil); err != nil {
			t.Error(err)
		}
		var got []string
		for _, e := range auditOf(t, w.nodes["n1"], admin.AuditFilter{Action: "cluster.*"}) {
			if e.Action != "cluster.join" {
				got = append(got, e.Action+" "+strings.TrimSpace(e.TargetKind+" "+e.Target)+" "+string(e.Before)+" → "+string(e.After))
			} else if e.Interface != "node" || e.Actor != e.Target {
				t.Errorf("a node joined as %+v", e)
			}
		}
		want := []string{
			`cluster.drain node n3 {"state":"active"} → {"state":"draining"}`,
			`cluster.undrain node n3 {"state":"draining"} → {"state":"active"}`,
			`cluster.lead shard 1  → {"preferred_leader":"n2"}`,
			`cluster.add_shards cluster {"data_shards":1} → {"data_shards":2}`,
			`cluster.replication cluster {"replication":3} → {"replication":1}`,
			`cluster.audit_retention cluster {"audit_retention":"2160h0m0s"} → {"audit_retention":"48h0m0s"}`,
			`cluster.backup cluster  → {"shards":3}`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("the cluster was changed by %q, want %q", got, want)
		}
		if joins := auditOf(t, w.nodes["n1"], admin.AuditFilter{Action: "cluster.join"}); len(joins) != 2 {
			t.Errorf("%d nodes joined, want 2", len(joins))
		}
	})
}

// verify finds a changed or missing entry, in the system shard and in others.
func TestVerifyFindsBrokenAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Dir: t.TempDir()})
		c := s.client()
		for range 3 {
			ref, err := c.Enqueue(t.Context(), pawl.RawTask{Type: "job"}, pawl.Queue("mail"))
			if err == nil {
				_, err = admin.New(c).Tasks().Cancel(t.Context(), ref.ID)
			}
			if err == nil {
				_, err = admin.New(c).WithReason(ref.ID).Queues().Pause(t.Context(), "mail")
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for id := range uint32(2) {
			if v, err := admin.New(c).Cluster().VerifyShard(t.Context(), id); err != nil || len(v.Problems) > 0 {
				t.Errorf("shard %d: %+v, %v", id, v, err)
			}
			entry := binary.BigEndian.AppendUint64([]byte("A\x00edefault\x00"), 2)
			_, _, err := shard.Update(t.Context(), s.replicas.get(id).shard, func(tx *store.Tx) (struct{}, error) {
				row, ok := tx.Get(entry)
				if !ok {
					t.Errorf("shard %d has no second entry", id)
				}
				tx.Set(entry, []byte(strings.Replace(string(row), "action", "Action", 1)))
				return struct{}{}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			v, err := admin.New(c).Cluster().VerifyShard(t.Context(), id)
			if err != nil || len(v.Problems) != 1 || !strings.Contains(v.Problems[0], "audit: entry 3 does not follow") {
				t.Errorf("shard %d after the harm: %+v, %v", id, v, err)
			}
		}
	})
}

// Data shards learn the retention of the audit log, also after a restart. A jump of the clock deletes nothing for an hour.
func TestAuditRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		dir := t.TempDir()
		s := w.start("n1", dir)
		if err := admin.New(s.client()).WithActor("lena").Cluster().SetAuditRetention(t.Context(), 48*time.Hour); err != nil {
			t.Fatal(err)
		}
		id, err := s.client().Enqueue(t.Context(), pawl.RawTask{Type: "job"})
		if err == nil {
			_, err = admin.New(s.client()).WithActor("lena").Tasks().Discard(t.Context(), id.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.crash("n1")
		pass(49 * time.Hour)
		s = w.start("n1", dir)
		noted := func() int { return len(auditOf(t, s, admin.AuditFilter{Actor: "lena", Action: "task.*"})) }
		if n := noted(); n != 1 {
			t.Errorf("after a jump of the clock there are %d entries, want 1", n)
		}
		w.sleep(58 * time.Minute)
		pass(time.Minute)
		if n := noted(); n != 1 {
			t.Errorf("59 minutes later there are %d entries, want 1", n)
		}
		pass(3 * time.Minute)
		if n := noted(); n != 0 {
			t.Errorf("an hour later there are %d entries, want none", n)
		}
	})
}
