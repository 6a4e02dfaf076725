package node

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// The shards learn since which version a namespace exists, and in which one it was removed.
func TestShardsLearnVersionsOfNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shards := routerShards{start(t, Config{Dir: t.TempDir(), DataShards: 1}).Node}
		if err := shards.CopyQueues(t.Context(), 1, "team", 10, map[string]task.QueueConfig{
			"a": {Version: 1, Settings: task.DefaultSettings()}}); err != nil {
			t.Fatal(err)
		}
		if err := shards.EraseNamespace(t.Context(), 1, "team", 9); !errors.Is(err, task.ErrWrongState) {
			t.Errorf("a removal from before the namespace: %v, want ErrWrongState", err)
		}
		if err := shards.EraseNamespace(t.Context(), 1, "team", 11); err != nil {
			t.Errorf("its removal: %v", err)
		}
	})
}

// The shard of the operations learns since which version the namespace of one exists, though it has no queues.
func TestOperationsCarryVersionsOfNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Dir: t.TempDir(), DataShards: 1})
		if _, err := admin.New(s.client()).Namespaces().Create(t.Context(), "team", admin.QuotaChange{}); err != nil {
			t.Fatal(err)
		}
		spec := broker.OperationSpec{Action: task.Cancel, Filter: broker.Filter{Queue: "a", States: []task.State{task.Ready}},
			Request: task.NewID(1, 1, 1)}
		if _, _, err := s.router.Operations.StartOperation(t.Context(), "team", spec); err != nil {
			t.Fatal(err)
		}
		if err := (routerShards{s.Node}).EraseNamespace(t.Context(), 1, "team", 1); !errors.Is(err, task.ErrWrongState) {
			t.Errorf("a removal from before the namespace: %v, want ErrWrongState", err)
		}
		if _, err := admin.New(s.client()).Namespaces().Delete(t.Context(), "team"); err != nil {
			t.Errorf("its removal: %v", err)
		}
	})
}
