package node

import (
	"errors"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltype"
)

// Everything acknowledged is there after a restart, and continues where it was.
func TestRestartKeepsTasks(t *testing.T) {
	dir := t.TempDir()
	s := start(t, Config{Dir: dir})
	c := s.client()
	add := func(queue string, opts ...pawl.Option) *pawl.Ref {
		ref, err := c.Enqueue(t.Context(), pawl.RawTask{Type: "job", Payload: []byte(`{"n":1}`)}, append(opts, pawl.Queue(queue))...)
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	claim := func(queue string) *pawl.Claim {
		got, err := claims.New(c).Claim(t.Context(), claims.Request{Queues: pawl.Strict{queue}, Lease: time.Hour})
		if err != nil || len(got) != 1 {
			t.Fatalf("claim from %q: %d tasks, %v", queue, len(got), err)
		}
		return got[0]
	}
	states := map[string]pawltype.State{}
	states[add("paused").ID] = pawltype.StateReady
	if _, err := admin.New(c).WithReason("for the restart").Queues().Pause(t.Context(), "paused"); err != nil {
		t.Fatal(err)
	}
	states[add("later", pawl.In(time.Hour)).ID] = pawltype.StateScheduled
	keyed := add("keyed", pawl.IdempotencyKey("k"))
	states[keyed.ID] = pawltype.StateReady
	states[add("dead").ID] = pawltype.StateDead
	if _, err := claims.New(c).Fail(t.Context(), claim("dead"), pawl.DeadLetter(errors.New("no such user"))); err != nil {
		t.Fatal(err)
	}
	done := add("done")
	states[done.ID] = pawltype.StateSucceeded
	result := claim("done")
	if err := result.SetResult("all well"); err != nil {
		t.Fatal(err)
	}
	if err := claims.New(c).Ack(t.Context(), result); err != nil {
		t.Fatal(err)
	}
	states[add("held").ID] = pawltype.StateClaimed
	held := claim("held")
	cluster := s.ClusterID()
	s.end()

	const moved = "pawl.example:7295"
	s = start(t, Config{Dir: dir, APIAddress: moved})
	c = s.client()
	if s.ClusterID() != cluster {
		t.Errorf("after the restart it is of cluster %s, was of %s", s.ClusterID(), cluster)
	}
	for id, want := range states {
		info, err := c.Task(t.Context(), id)
		if err != nil || info.State != want || string(info.Payload) != `{"n":1}` {
			t.Errorf("task %s is %+v, %v, want %s", id, info, err, want)
		}
	}
	if info, err := c.Task(t.Context(), done.ID); err != nil || string(info.Result) != `"all well"` {
		t.Errorf("the result is %+v, %v", info, err)
	}
	if info, err := admin.New(c).Queues().Get(t.Context(), "paused"); err != nil || !info.Paused {
		t.Errorf("queue %q is %+v, %v, want it paused", "paused", info, err)
	}
	if again := add("keyed", pawl.IdempotencyKey("k")); !again.Duplicate || again.ID != keyed.ID {
		t.Errorf("the same key got %+v, want a duplicate of %s", again, keyed.ID)
	}
	if err := claims.New(c).Ack(t.Context(), held); err != nil {
		t.Errorf("ack of a claim from before the restart: %v", err)
	}
	for late, at := time.After(10*time.Second), ""; at != moved; {
		changed := s.copy.Changed()
		if at = s.copy.Map().Nodes[0].APIAddress; at != moved {
			select {
			case <-changed:
			case <-late:
				t.Fatalf("10 s after the restart its map has the address %s, want %s", at, moved)
			}
		}
	}
	if status, err := admin.New(c).Cluster().Status(t.Context()); err != nil || status.Nodes[0].APIAddress != moved {
		t.Errorf("its status is %+v, %v, want the address %s", status, err, moved)
	}
}
