package convert_test

import (
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/task"
)

// The shard is parsed from ids as the broker makes them.
func TestTheShardIsInTheID(t *testing.T) {
	for _, shard := range []uint32{0, 1, 2, 255, 256, 0xabc, task.MaxShard} {
		id := task.NewID(shard, 1753000000000, 0x0123456789abcdef).String()
		if got, ok := convert.ShardOf(id); !ok || got != shard {
			t.Errorf("%s: got shard %d, %v, want %d", id, got, ok, shard)
		}
		if got, ok := convert.ShardOf(strings.ToUpper(id)); !ok || got != shard {
			t.Errorf("%s: got shard %d, %v, want %d", strings.ToUpper(id), got, ok, shard)
		}
	}
	if got, ok := convert.ShardOf("0199a0e4-0f4c-7001-8000-000000000001"); !ok || got != 1 {
		t.Errorf("ShardOf of a known id = %d, %v, want 1", got, ok)
	}
	for _, id := range []string{"", "t1", "0199a0e4-0f4c-4001-8000-000000000001", "0199a0e4-0f4c-7x01-8000-000000000001",
		"0199a0e40f4c70018000000000000001", "0199a0e4-0f4c-7+01-8000-000000000001", "0199a0e4-0f4cx7001-8000-000000000001",
		"0199a0e4-0f4c-7001x8000-000000000001"} {
		if got, ok := convert.ShardOf(id); ok || got != 0 {
			t.Errorf("ShardOf(%q) = %d, %v, want none", id, got, ok)
		}
	}
}
