package node

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/pawlq/pawl/internal/task"
)

// The shards learn since which version a namespace exists, and in which one it was removed.
func TestShardsLearnVersionsOfNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shards := routerShards{start(t, Config{Dir: t.TempDir(), DataShards: 1}).Node}
		if err := shards.CopyQueues(t.Context(), 1, "team", 10, map[string]task.QueueConfig{"a": {Version: 1, Settings: task.DefaultSettings()}}); err != nil {
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
