package apiproto

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// The parts of a spread queue are added up. A reason that all parts report is returned once. Any other reason names its shard.
func TestPartsAreExplained(t *testing.T) {
	paused := broker.Reason{Code: task.WhyQueuePaused, Detail: "paused", Count: 3}
	full := func(n int) broker.Reason {
		return broker.Reason{Code: task.WhyQueueMaxRunning, Detail: fmt.Sprintf("runs %d", n), Limit: n, Count: 1}
	}
	q := queues.Queue{Name: "q", Parts: []queues.Part{{Shard: 1, Next: 1}, {Shard: 2, Next: 2}, {Shard: 3, Next: 4}, {Shard: 4, Next: 8}}}
	keys := func(from int) (keys []broker.HeldKey) {
		for i := range 7 {
			keys = append(keys, broker.HeldKey{Key: fmt.Sprintf("k%02d", from+i), Code: task.WhyKeyRate, Tasks: int64(100 - from - i)})
		}
		return keys
	}
	got := ExplainedQueue(q, []*broker.QueueExplanation{
		{Ready: 3, Claimable: 0, Claimed: 4, Waiting: 1, Reasons: []broker.Reason{paused, full(4)}, Keys: keys(0),
			Idle: []broker.IdleType{{Type: "a", Tasks: 1}}, NextDue: 50},
		{Partial: true, Reasons: []broker.Reason{{Code: task.WhyNoLeader, Detail: "none"}}},
		nil,
		{Ready: 5, Claimable: 2, Claimed: 6, Waiting: 2, Reasons: []broker.Reason{full(6), paused}, Keys: keys(6),
			Idle: []broker.IdleType{{Type: "b", Tasks: 5}, {Type: "a", Tasks: 3}}, NextDue: 40, OldestReady: 7},
	})
	var reasons, held, idle []string
	for _, r := range got.GetReasons() {
		reasons = append(reasons, fmt.Sprintf("%s shard %d count %d", r.GetCode(), r.GetShard(), r.GetCount()))
	}
	for _, k := range got.GetKeys() {
		held = append(held, fmt.Sprintf("%s %d", k.GetKey(), k.GetTasks()))
	}
	for _, i := range got.GetIdleTypes() {
		idle = append(idle, fmt.Sprintf("%s %d", i.GetType(), i.GetTasks()))
	}
	for _, c := range []struct{ what, got, want string }{
		{"reasons", strings.Join(reasons, "; "), "no_leader shard 2 count 0; queue_paused shard 0 count 6; queue_max_running " +
			"shard 1 count 1; queue_max_running shard 4 count 1"},
		{"keys", strings.Join(held, "; "), "k06 188; k00 100; k01 99; k02 98; k03 97; k04 96; k05 95; k07 93; k08 92; k09 91"},
		{"types", strings.Join(idle, "; "), "b 5; a 4"},
	} {
		if c.got != c.want {
			t.Errorf("%s = %s\nwant %s", c.what, c.got, c.want)
		}
	}
	got.Reasons, got.Keys, got.IdleTypes = nil, nil, nil
	want := &pawlv1.ExplainQueueResponse{Queue: "q", Ready: 8, Claimable: 2, Claimed: 10, Waiting: 3, NextDue: TimeProto(40),
		OldestReadyAt: TimeProto(7), Partial: true}
	if !proto.Equal(got, want) {
		t.Errorf("ExplainedQueue = %v\nwant %v", got, want)
	}
}

// The earlier of two times is the one that is known, or the smaller one.
func TestEarlier(t *testing.T) {
	for _, c := range [][3]broker.Time{{0, 0, 0}, {0, 2, 2}, {1, 0, 1}, {1, 2, 1}, {2, 1, 1}, {2, 2, 2}} {
		if got := earlier(c[0], c[1]); got != c[2] {
			t.Errorf("earlier(%d, %d) = %d", c[0], c[1], got)
		}
	}
}
