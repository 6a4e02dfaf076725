package test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
)

// TestAuditThroughCrashes kills the server repeatedly while an operator pauses, edits and cancels. Every acknowledged
// action is in the audit log exactly once, however often it was repeated, and every unanswered one at most once.
func TestAuditThroughCrashes(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--shards", "2")
	s.start()
	client := s.dial(pawl.DialOptions{RetryFor: startLimit})
	operator := admin.New(client).WithActor("operator")
	if _, err := operator.Queues().Put(t.Context(), "mail", admin.QueueSettings{}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	answered := make(chan map[string]bool, 1)
	var acknowledged atomic.Int64
	go func() {
		done := map[string]bool{}
		for n := 0; ctx.Err() == nil; n++ {
			pause, cancel := fmt.Sprint("pause ", n), fmt.Sprint("cancel ", n)
			if _, err := operator.WithReason(pause).Queues().Pause(ctx, "mail"); err == nil {
				done[pause] = true
				acknowledged.Add(1)
			}
			ref, err := client.Enqueue(ctx, pawl.RawTask{Type: "job"}, pawl.Queue("mail"))
			if err != nil {
				continue
			}
			if _, err = operator.WithReason(cancel).Tasks().Cancel(ctx, ref.ID); err == nil {
				done[cancel] = true
			}
		}
		answered <- done
	}()
	s.killOften(count(t, "PAWL_KILLS", 12))
	// A busy machine may start the server so late that few calls get through between the kills.
	for more := 0; acknowledged.Load() < 10; more++ {
		if more == 100 {
			t.Fatalf("only %d calls were acknowledged", acknowledged.Load())
		}
		s.killOften(1)
	}
	stop()
	done := <-answered
	found := map[string]int{}
	for e, err := range operator.Audit().List(t.Context(), admin.AuditFilter{Actor: "operator"}) {
		if err != nil {
			t.Fatal(err)
		}
		if found[e.Reason]++; found[e.Reason] > 1 {
			t.Errorf("%q is in the audit log %d times", e.Reason, found[e.Reason])
		}
	}
	for reason := range done {
		if found[reason] != 1 {
			t.Errorf("%q was acknowledged, but is in the audit log %d times", reason, found[reason])
		}
	}
	for shard := range uint32(3) {
		if v, err := operator.Cluster().VerifyShard(t.Context(), shard); err != nil || len(v.Problems) > 0 {
			t.Errorf("shard %d: %+v, %v", shard, v, err)
		}
	}
	t.Logf("%d calls were acknowledged, the audit log has %d entries", len(done), len(found))
}
