package node

import (
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltype"

	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/task"
)

// Two of three nodes are lost for good. The third continues as a new cluster, which accepts nothing of the old one, and new nodes
// join it.
func TestRecover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		dirs := map[string]string{"n1": t.TempDir(), "n2": t.TempDir(), "n3": t.TempDir()}
		w.start("n1", dirs["n1"], "n1")
		w.start("n2", dirs["n2"], "n1")
		w.start("n3", dirs["n3"], "n1")
		w.until("three voters each", w.replicated(3))
		c := w.nodes["n2"].client()
		id, _ := enqueue(t, c, "mail")
		held, err := claims.New(c).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"mail"}, Lease: time.Hour})
		if err != nil || len(held) != 1 {
			t.Fatalf("claim: %d, %v", len(held), err)
		}
		pass(time.Second) // so that the third has it
		was := w.nodes["n3"].ClusterID()
		for name := range dirs {
			w.crash(name)
		}
		seen, err := Recover(RecoverConfig{Dir: dirs["n3"], DryRun: true})
		if err != nil || len(seen.Shards) != 2 || seen.Shards[0].Index == 0 {
			t.Fatalf("a dry run gives %+v, %v", seen, err)
		}
		for range 2 { // repeated, as after an interruption
			rec, err := Recover(RecoverConfig{Dir: dirs["n3"]})
			if err != nil || rec.Node != "n3" || rec.Cluster == was {
				t.Fatalf("recovered %+v, %v", rec, err)
			}
		}
		w.start("n3", dirs["n3"])
		c = w.nodes["n3"].client()
		if info, err := c.Task(t.Context(), id); err != nil || info.State != pawltype.StateClaimed {
			t.Errorf("the task is %+v, %v", info, err)
		}
		if err := claims.New(c).Ack(t.Context(), held[0]); !errors.Is(err, pawltype.ErrStaleClaim) {
			t.Errorf("an ack with a token of the former life: %v", err)
		}
		w.start("n1", t.TempDir(), "n3")
		w.start("n2", t.TempDir(), "n3")
		w.until("three voters each", w.replicated(3))
		w.crash("n3")
		if info, err := w.nodes["n1"].client().Task(t.Context(), id); err != nil || info.ID != id {
			t.Errorf("at another node the task is %+v, %v", info, err)
		}
	})
}

// Data shards know of later rounds than the recovered system shard. What they get from it is newer than that all the same, so a namespace
// can be removed.
func TestRecoveredVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := start(t, Config{Dir: dir, DataShards: 1})
		if _, err := admin.New(s.client()).Namespaces().Create(t.Context(), "team", admin.QuotaChange{}); err != nil {
			t.Fatal(err)
		}
		later := task.Share{Version: 1_000_000 << 20, Amounts: task.Amounts{Backlog: 1}}
		if _, err := (routerShards{s.Node}).PutShare(t.Context(), 1, task.SpaceName{Namespace: "team"}, later); err != nil {
			t.Fatal(err)
		}
		s.end()
		if _, err := Recover(RecoverConfig{Dir: dir}); err != nil {
			t.Fatal(err)
		}
		s = start(t, Config{Dir: dir})
		if _, err := admin.New(s.client()).Namespaces().Delete(t.Context(), "team"); err != nil {
			t.Errorf("the namespace can't be removed: %v", err)
		}
	})
}

// A recovery that would lose shards changes nothing; an unfinished one keeps the node from starting.
func TestRecoverRefuses(t *testing.T) {
	bySameGoroutines(t, "TestRecover")
	dir := t.TempDir()
	start(t, Config{Dir: dir, DataShards: 2}).end()
	b, err := datadir.OpenIdentity(vfs.Default, dir, DefaultName, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	two := b.Read().Replicas[2]
	if err := b.Hold(2, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Recover(RecoverConfig{Dir: dir}); err == nil {
		t.Error("it gave a shard up that nobody said to")
	}
	rec, err := Recover(RecoverConfig{Dir: dir, DryRun: true})
	if err != nil || !slices.Equal(rec.Lost, []uint32{2}) {
		t.Errorf("a dry run says %+v, %v", rec, err)
	}
	if err := b.Hold(2, &two); err != nil {
		t.Fatal(err)
	}
	start(t, Config{Dir: dir}).end()

	if err := b.Update(func(i *datadir.Identity) { i.Recovering = true }); err != nil {
		t.Fatal(err)
	}
	refused(t, Config{Dir: dir}, "repeat `pawl recover`")
	if _, err := Recover(RecoverConfig{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	start(t, Config{Dir: dir}).end()
	if _, err := Recover(RecoverConfig{Dir: t.TempDir()}); err == nil {
		t.Error("an empty directory was recovered")
	}
	put(t, filepath.Join(dir, datadir.IdentityFile), "{")
	put(t, filepath.Join(dir, datadir.IdentityCopy), "{")
	if _, err := Recover(RecoverConfig{Dir: dir}); err == nil {
		t.Error("a damaged identity was taken")
	}
}
