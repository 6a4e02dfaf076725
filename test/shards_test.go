package test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pawlq/pawl/admin"
)

// manyQueues returns enough queues for each of a few shards to get some.
func manyQueues(n int) []string {
	queues := make([]string, n)
	for i := range queues {
		queues[i] = fmt.Sprintf("q%d", i)
	}
	return queues
}

// TestShards runs the load of TestKill over several data shards. PAWL_SHARD_KILLS sets how often the server is killed.
func TestShards(t *testing.T) {
	t.Parallel()
	const shards = 4
	s := newServer(t, "--shards", fmt.Sprint(shards))
	s.start()
	w := load{addrs: []string{s.addr}, queues: manyQueues(4 * shards), scattered: true}.start(t)
	kills := count(t, "PAWL_SHARD_KILLS", 6)
	slowest := s.killOften(kills)
	w.flow(&w.acked)
	busyShards(t, s, shards)
	w.finish()
	tasks := w.check()
	t.Logf("%d kills, %d tasks; %d unanswered enqueues; slowest start %s", kills, tasks, w.unknown.Load(), slowest)
}

// busyShards checks that there are that many shards, each with a leader and entries of its own.
func busyShards(t *testing.T, s *server, want int) {
	t.Helper()
	for _, shard := range shardsOf(t, s, want) {
		if shard.Leader == "" || shard.Index == 0 {
			t.Errorf("shard %d has leader %q and has applied nothing: %+v", shard.Shard, shard.Leader, shard)
		}
	}
}

// shardsOf returns the server's shards, and checks their number.
func shardsOf(t *testing.T, s *server, want int) []admin.ServerShard {
	t.Helper()
	info, err := admin.New(s.dial()).Cluster().Server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Shards) != want {
		t.Errorf("there are %d shards, want %d: %+v", len(info.Shards), want, info.Shards)
	}
	return info.Shards
}

// TestOtherShards starts a server with fewer shards than its directory has: it must refuse, since tasks would be
// unreachable, and report both numbers. With a larger number it adds shards, and without a number it keeps the existing
// ones.
func TestOtherShards(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--shards", "4")
	s.start()
	w := load{addrs: []string{s.addr}, queues: manyQueues(8), scattered: true}.start(t)
	w.flow(&w.acked)
	s.kill()
	for _, other := range []string{"1", "3"} {
		s.flags = []string{"--shards", other}
		if said := s.refuses(); !strings.Contains(said, "4 data shards") || !strings.Contains(said, "is "+other) {
			t.Errorf("a start with %s shards printed %q, want both numbers", other, said)
		}
	}
	s.flags = []string{"--shards", "6"}
	s.start()
	w.flow(&w.acked)
	shardsOf(t, s, 6)
	s.kill()
	s.flags = nil
	s.start()
	w.flow(&w.acked)
	shardsOf(t, s, 6)
	w.finish()
	w.check()
}
