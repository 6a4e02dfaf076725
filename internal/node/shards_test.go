package node

import "testing"

// A directory keeps the number of shards that it was made with, and 0 asks for just that.
func TestDataShards(t *testing.T) {
	for _, c := range []struct{ asked, has int }{{0, 1}, {1, 1}, {3, 3}} {
		dir := t.TempDir()
		for _, again := range []int{c.asked, 0, c.has} {
			s := start(t, Config{Dir: dir, DataShards: again})
			if s.id.Shards != c.has {
				t.Errorf("made with %d and started with %d it has %d shards, want %d", c.asked, again, s.id.Shards, c.has)
			}
			s.end()
		}
	}
}

func TestOtherDataShardsAreRefused(t *testing.T) {
	dir := t.TempDir()
	start(t, Config{Dir: dir, DataShards: 2}).end()
	refused(t, Config{Dir: dir, DataShards: 1}, "--shards (DataShards) is 1", "has 2 data shards")
	refused(t, Config{Dir: dir, DataShards: 4}, "--shards (DataShards) is 4", "has 2 data shards")
	refused(t, Config{Dir: dir, DataShards: -1}, "shards: -1", "between 1 and 64")
	refused(t, Config{Dir: dir, DataShards: 65}, "shards: 65", "between 1 and 64")
	if s := start(t, Config{Dir: dir}); s.id.Shards != 2 {
		t.Errorf("after refusals it has %d shards, want 2", s.id.Shards)
	}
}

func TestInMemoryDataShards(t *testing.T) {
	if s := start(t, Config{InMemory: true}); s.id.Shards != 1 {
		t.Errorf("in memory it has %d shards, want 1", s.id.Shards)
	}
}
