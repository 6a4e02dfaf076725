package forward_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// A call runs where its shard is led: on this node without the network, and elsewhere with one message once the leader is known. A node
// without a replica finds the leader too.
func TestCallFindsLeader(t *testing.T) {
	routertest.InFleet(t, 4, func(f *routertest.Fleet) {
		f.Shards[1].Replicas = []uint32{1, 2, 3}
		for n := range uint32(4) {
			if _, err := f.Nodes[n+1].Put(3); err != nil {
				t.Errorf("node %d: %v", n+1, err)
			}
		}
		if made := f.Made(); made != 12 || f.Count("enqueue") != 3 {
			t.Errorf("%d tasks were created with %d messages, want 12 with 3", made, f.Count("enqueue"))
		}
		f.Lead(1, 3)
		f.With(func() { f.Shards[1].Shy = true }) // the replicas do not know the leader, so node 4 must ask them in turn
		for range 2 {
			if _, err := f.Nodes[4].Put(1); err != nil {
				t.Error(err)
			}
		}
		if n := f.Count("enqueue"); n > 3+4 { // 1, 2, 3 in some order, then 3 directly
			t.Errorf("%d messages for two calls, so the leader was not remembered", n-3)
		}
		// The refusal of one item, and its error, come back unchanged.
		got, at, err := f.Nodes[4].Enqueue(context.Background(), 1, routertest.Namespace, []task.Spec{{Type: "bad"}, {Type: "job"}})
		if err != nil || !errors.Is(got[0].Err, task.ErrInvalidArgument) || got[1].Err != nil || at.Shard != 1 {
			t.Errorf("Enqueue of a bad and a good task = %+v at %+v, %v", got, at, err)
		}
	})
}

// While there is no leader, a call waits. Once there is one again, it runs once.
func TestCallSurvivesElection(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		f.Lead(1, 0)
		began := time.Now()
		time.AfterFunc(3*time.Second, func() { f.Lead(1, 2) })
		_, err := f.Nodes[1].Put(1)
		if took := time.Since(began); err != nil || f.Made() != 1 || took < 3*time.Second || took > 3300*time.Millisecond {
			t.Errorf("Enqueue across an election ended after %s: %v, %d tasks", took, err, f.Made())
		}
	})
}

// A call that certainly did not arrive is tried at other nodes. One that may have run is not, unless it only reads.
func TestRepeatedCalls(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		// Node 1 leads, but can't be reached for a second.
		broken := true
		f.Network = func(_, to uint32, _ string) routertest.Delivery {
			if to == 1 && broken {
				return routertest.NotSent
			}
			return routertest.Arrives
		}
		time.AfterFunc(time.Second, func() { f.With(func() { broken = false }) })
		ids, err := f.Nodes[2].Put(1)
		if err != nil || f.Made() != 1 {
			t.Fatalf("%d tasks, want 1 (%v)", f.Made(), err)
		}

		lost := 1
		f.Network = func(_, _ uint32, _ string) routertest.Delivery {
			if lost > 0 {
				lost--
				return routertest.AnswerLost
			}
			return routertest.Arrives
		}
		began := time.Now()
		_, err = f.Nodes[2].Put(1)
		if e, ok := task.AsError(err); !ok || e.Code != task.CodeUnavailable || !errors.Is(err, broker.ErrUnknown) ||
			!strings.Contains(e.Message, "outcome is not known") {
			t.Errorf("Enqueue with a lost response: %v, want an unknown outcome", err)
		}
		if f.Made() != 2 || time.Since(began) > 100*time.Millisecond {
			t.Errorf("after %s there are %d tasks, want 2 at once", time.Since(began), f.Made())
		}
		lost = 2
		if v, _, err := f.Nodes[2].Task(context.Background(), routertest.Namespace, ids[0], 0); err != nil || v.ID != ids[0] {
			t.Errorf("read whose response was lost: %v, %v", v, err)
		}
	})
}

// A call does not wait for a leader that hangs once the others have elected another. A read is answered by the new leader, and an
// enqueue fails with an unknown outcome. A replica that merely does not know the leader ends no call.
func TestHangingLeader(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		ids := f.Put(1)
		f.Network = func(_, to uint32, _ string) routertest.Delivery {
			if to == 1 {
				return routertest.Hangs
			}
			return routertest.Arrives
		}
		time.AfterFunc(4*time.Second, func() { f.Lead(1, 0) })
		time.AfterFunc(5*time.Second, func() { f.Lead(1, 3) })
		most := 5*time.Second + forward.DeposedGrace + 2*forward.RemoteCheckEvery
		began := time.Now()
		read := make(chan error)
		go func() {
			_, _, err := f.Nodes[2].Task(context.Background(), routertest.Namespace, ids[0], 0)
			read <- err
		}()
		_, err := f.Nodes[2].Put(1)
		if took := time.Since(began); !errors.Is(err, broker.ErrUnknown) || !strings.Contains(err.Error(), forward.ErrNewLeader.Error()) ||
			took < 5*time.Second || took > most {
			t.Errorf("Enqueue to a leader that hangs ended after %s: %v", took, err)
		}
		if err := <-read; err != nil || time.Since(began) > most+100*time.Millisecond {
			t.Errorf("read from a leader that hangs ended after %s: %v", time.Since(began), err)
		}

		// Node 2's replica names a node that no longer leads. The node knows the real leader from a hint.
		if _, _, err := f.Nodes[3].Claim(context.Background(), 1, routertest.QueueCall(10), 0); err != nil {
			t.Fatal(err)
		}
		f.With(func() { f.Network = nil; f.Shards[1].Hints = map[uint32]uint32{2: 1} })
		began = time.Now()
		_, _, err = f.Nodes[2].Claim(context.Background(), 1, routertest.QueueCall(1), 10*time.Second)
		if took := time.Since(began); err != nil || took < 10*time.Second || f.Count("claim") != 2 {
			t.Errorf("Claim with an outdated replica ended after %s and %d messages: %v", took, f.Count("claim"), err)
		}
	})
}

// A call that finds no leader reports which nodes it asked and how they responded. The next call does not wait as long.
func TestCallWithoutLeader(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		f.Lead(1, 0)
		f.Network = func(_, to uint32, _ string) routertest.Delivery {
			if to == 3 {
				return routertest.NotSent
			}
			return routertest.Arrives
		}
		began := time.Now()
		_, err := f.Nodes[1].Put(1)
		e, ok := task.AsError(err)
		if !ok || e.Code != task.CodeUnavailable || errors.Is(err, broker.ErrUnknown) || e.RetryAfter == 0 {
			t.Fatalf("Enqueue without a leader: %v, want unavailable with a retry time", err)
		}
		for _, want := range []string{"shard 1", "no leader", `node "n1" knows no leader`, `node "n2" knows no leader`,
			`node "n3" does not answer (not sent)`} {
			if !strings.Contains(e.Message, want) {
				t.Errorf("error %q lacks %q", e.Message, want)
			}
		}
		if took := time.Since(began); took < forward.SearchTime || took > forward.SearchTime+time.Second {
			t.Errorf("the search for a leader took %s", took)
		}
		if n := f.Count("enqueue"); n > 200 {
			t.Errorf("%d messages were sent, want at most 200", n)
		}
		began = time.Now()
		_, err = f.Nodes[1].Put(1)
		if took := time.Since(began); err == nil || took > 2*forward.LeaderlessTime {
			t.Errorf("the next call took %s: %v", took, err)
		}
		f.Lead(1, 2)
		if _, err := f.Nodes[1].Put(1); err != nil {
			t.Error(err)
		}
		f.Lead(1, 0)
		time.AfterFunc(5*time.Second, func() { f.Lead(1, 2) })
		if _, err := f.Nodes[1].Put(1); err != nil {
			t.Errorf("a new search gave up early: %v", err)
		}
		// The caller's own deadline ends the search too.
		f.Lead(1, 0)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began = time.Now()
		if _, _, err := f.Nodes[2].Task(ctx, routertest.Namespace, task.NewID(1, 1, 1), 0); !errors.Is(err, task.ErrUnavailable) ||
			time.Since(began) > time.Second+10*routertest.Latency {
			t.Errorf("call with a deadline of 1s ended after %s: %v", time.Since(began), err)
		}
	})
}

// A leader on a node that is missing in this node's map is found through the responses of others.
func TestHintMissingInMap(t *testing.T) {
	routertest.InFleet(t, 4, func(f *routertest.Fleet) {
		f.Shards[1].Replicas, f.Shards[1].Leader = []uint32{1, 2}, 3
		began := time.Now()
		if _, err := f.Nodes[4].Put(1); err != nil || time.Since(began) > 10*routertest.Latency {
			t.Errorf("Enqueue took %s: %v", time.Since(began), err)
		}
	})
}

// Two nodes that name each other as leader are not asked in turn without a pause.
func TestCircularHints(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		s := f.Shards[1]
		s.Replicas, s.Leader, s.Hints = []uint32{1, 2}, 0, map[uint32]uint32{1: 2, 2: 1}
		if _, err := f.Nodes[3].Put(1); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("Enqueue with circular hints: %v, want unavailable", err)
		}
		if n := f.Count("enqueue"); n > 200 {
			t.Errorf("%d messages were sent, want at most 200", n)
		}
	})
}

// A wait for a result continues for the rest of its time when the leader changes from this node to others and back.
func TestWaitSurvivesElections(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		ids := f.Put(2)
		for i, at := range []uint32{2, 0, 3, 1} {
			time.AfterFunc(time.Duration(i+1)*5*time.Second, func() { f.Lead(1, at) })
		}
		began := time.Now()
		done := make(chan time.Duration, 1)
		go func() {
			v, _, err := f.Nodes[1].Task(context.Background(), routertest.Namespace, ids[0], time.Minute)
			if err != nil || v.Exec.State != task.Cancelled {
				t.Errorf("Task = %v, %v, want cancelled", v, err)
			}
			done <- time.Since(began)
		}()
		routertest.Pass(17 * time.Second)
		if err := routertest.Cancel(context.Background(), f.Nodes[3], ids[0]); err != nil {
			t.Error(err)
		}
		if took := <-done; took > 18*time.Second {
			t.Errorf("the result arrived after %s", took)
		}
		// Without a result, the wait ends on time.
		began = time.Now()
		v, _, err := f.Nodes[2].Task(context.Background(), routertest.Namespace, ids[1], 30*time.Second)
		if took := time.Since(began); err != nil || v.Exec.State != task.Ready || took < 29*time.Second || took > 31*time.Second {
			t.Errorf("wait without a result: %v, %v after %s", v, err, took)
		}
		// One message takes the rest of a wait to a new leader.
		before := f.Count("task")
		time.AfterFunc(5*time.Second, func() { f.Lead(1, 2) })
		if _, _, err := f.Nodes[1].Task(context.Background(), routertest.Namespace, ids[1], 30*time.Second); err != nil ||
			f.Count("task") != before+1 {
			t.Errorf("%d messages for one wait, want 1 (%v)", f.Count("task")-before, err)
		}
	})
}

// A node that is about to stop ends the waits of its own callers, not those of callers on other nodes.
func TestRemoteWaitSurvivesDrain(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		ids := f.Put(1)
		f.With(func() { f.Shards[1].Tasks[ids[0]].State = task.Claimed; f.Shards[1].Ready = 0 })
		close(f.Nodes[1].Drain)
		time.AfterFunc(20*time.Second, func() { f.Put(1) })
		time.AfterFunc(10*time.Second, func() { f.Lead(1, 2) })
		began := time.Now()
		got, _, err := f.Nodes[2].Claim(context.Background(), 1, broker.ClaimCall{Namespace: routertest.Namespace,
			Queues: []broker.Share{{Queue: "q"}}, Max: 1}, time.Minute)
		if took := time.Since(began); err != nil || len(got) != 1 || took < 20*time.Second || took > 21*time.Second {
			t.Errorf("Claim through the draining node ended after %s: %v, %v", took, got, err)
		}
		f.Lead(1, 1)
		f.With(func() { f.Shards[1].Tasks[ids[0]].State = task.Claimed })
		time.AfterFunc(20*time.Second, func() {
			f.With(func() { f.Shards[1].Tasks[ids[0]].State = task.Succeeded; f.Shards[1].Tell() })
		})
		v, _, err := f.Nodes[2].Task(context.Background(), routertest.Namespace, ids[0], time.Minute)
		if err != nil || v.Exec.State != task.Succeeded {
			t.Errorf("wait for a result at a draining node: %v, %v", v, err)
		}
		if n := f.Count("claim") + f.Count("task"); n > 400 {
			t.Errorf("%d messages while the other node drained, want at most 400", n)
		}
	})
}

// drainInAClaim stops a node while its claim for a caller, with or without a key, has taken tasks at another node and has no response yet.
func drainInAClaim(t *testing.T, f *routertest.Fleet, key string) {
	t.Helper()
	m := f.Nodes[2]
	f.Network = func(_, _ uint32, method string) routertest.Delivery {
		if method == "claim" {
			return routertest.Hangs
		}
		return routertest.Arrives
	}
	began := time.Now()
	ended := make(chan error, 1)
	go func() {
		c := routertest.QueueCall(1)
		c.ClaimKey = key
		got, _, err := m.Claim(context.Background(), 1, c, time.Minute)
		if len(got) > 0 {
			t.Errorf("Claim returned %v, want nothing", got)
		}
		ended <- err
	}()
	routertest.Pass(time.Second)
	id := f.Put(1)[0] // claimed there, but the response never arrives
	routertest.Pass(routertest.Latency)
	close(m.Drain)
	if err := <-ended; err != nil || time.Since(began) > 2*time.Second {
		t.Errorf("Claim on the draining node ended after %s: %v", time.Since(began), err)
	}
	m.Close() // immediately, so what was claimed for no caller is given back first
	if x := f.State(id); x.State != task.Ready {
		t.Errorf("the claim was not given back, the task is %s", x.State)
	}
}

// A node that is about to stop ends its own callers' waits at other nodes without losing tasks.
func TestDrainEndsOwnRemoteWaits(t *testing.T) {
	for _, key := range []string{"", "the caller's"} {
		routertest.InFleet(t, 2, func(f *routertest.Fleet) { drainInAClaim(t, f, key) })
	}
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		id := f.Put(1)[0]
		m := f.Nodes[2]
		time.AfterFunc(time.Second, func() { close(m.Drain) })
		began := time.Now()
		v, _, err := m.Task(context.Background(), routertest.Namespace, id, time.Minute)
		if err != nil || v.Exec.State != task.Ready || time.Since(began) > 2*time.Second {
			t.Errorf("wait on the draining node ended after %s: %+v, %v", time.Since(began), v, err)
		}
	})
}

func TestServedCallIsNotForwarded(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		args := struct {
			Shard     uint32
			Namespace string
			Specs     []task.Spec
		}{1, routertest.Namespace, []task.Spec{{Type: "job"}}}
		request, err := verb.Encode(&args)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := f.Nodes[2].Serve(context.Background(), "enqueue", request)
		var a reply[struct{}]
		if err != nil || verb.Decode(answer, &a) != nil || a.Fault == nil || a.Fault.Elsewhere == nil || a.Fault.Elsewhere.Node != 1 ||
			f.Count("enqueue") != 0 {
			t.Errorf("Serve on a node that does not lead = %+v, %v, want a hint and no forwarded call", a, err)
		}
		// A call that is unknown, can't be decoded or panics fails without affecting others.
		for method, request := range map[string][]byte{"later": nil, "enqueue": []byte("x"), "purge": mustEncode(t,
			broker.QueueCommand{OnQueue: routertest.OnOne})} {
			answer, err := f.Nodes[1].Serve(context.Background(), method, request)
			var a reply[broker.Purged]
			if err != nil || verb.Decode(answer, &a) != nil || a.Fault == nil || (method == "later") != (a.Fault.NotRun != "") {
				t.Errorf("%s: fault %+v, %v", method, a.Fault, err)
			}
		}
		if _, err := broker.PurgeQueue.Call(context.Background(), f.Nodes[2], broker.QueueCommand{OnQueue: routertest.OnOne}); err == nil ||
			errors.Is(err, task.ErrUnavailable) {
			t.Errorf("call that panicked on the other node: %v", err)
		}
		if err := f.Nodes[1].ServeStream("later", &routertest.FakeStream{Ctx: context.Background()}); err == nil {
			t.Error("ServeStream accepted a stream of an unknown kind")
		}
	})
}

func mustEncode[T any](t *testing.T, v T) []byte {
	b, err := verb.Encode(&v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A task in a shard that does not exist is not found. A shard that only the system shard knows yet does exist.
func TestNonexistentShards(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		nowhere := task.NewID(77, 1, 1)
		for _, m := range f.Nodes {
			if _, _, err := m.Task(context.Background(), routertest.Namespace, nowhere, 0); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("Task in a missing shard: %v, want not found", err)
			}
			if err := routertest.Cancel(context.Background(), m, nowhere); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("Cancel in a missing shard: %v, want not found", err)
			}
			got, _, err := m.Settle(context.Background(), 77, []broker.Settle{{Verb: broker.Ack, Hold: broker.Hold{ID: nowhere}}})
			if err != nil || !errors.Is(got[0].Err, task.ErrNotFound) {
				t.Errorf("Ack in a missing shard: %v, %v, want not found", got, err)
			}
		}
		f.With(func() { f.SystemLeader = 0 })
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, _, err := f.Nodes[2].Task(ctx, routertest.Namespace, nowhere, 0); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("Task while the system shard has no leader: %v, want unavailable", err)
		}
	})
}

// Close ends calls that search for a leader, and all goroutines. Otherwise the synctest bubble would not end.
func TestCloseEndsSearches(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		f.Lead(1, 0)
		errs := make(chan error, 1)
		go func() { _, err := f.Nodes[2].Put(1); errs <- err }()
		routertest.Pass(time.Second)
		f.Nodes[2].Close()
		routertest.Pass(10 * routertest.Latency) // a message may be in flight
		select {
		case err := <-errs:
			asked := strings.Contains(err.Error(), "the outcome is not known") // a request was in flight
			if !errors.Is(err, task.ErrUnavailable) || !asked && !strings.Contains(err.Error(), "this node is stopping") {
				t.Errorf("call ended by Close: %v", err)
			}
		default:
			t.Error("the call still searches for a leader after Close")
		}
	})
}

func TestLeaderAndReady(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		f.Shards[1].Replicas = []uint32{1, 2}
		for _, m := range f.Nodes {
			if node, term, _ := m.Leader(context.Background(), 1); node != 1 || term != 1 {
				t.Errorf("node %d: Leader = %d in term %d, want 1 in term 1", m.Number, node, term)
			}
		}
		f.With(func() { f.SystemLeader = 3 })
		m := f.Nodes[2]
		m.SystemLeader = 3
		if err := m.Ready(); err != nil {
			t.Error(err)
		}
		f.Lead(1, 0)
		if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "shard 1") {
			t.Errorf("Ready without a leader: %v, want an error that names shard 1", err)
		}
		began := time.Now()
		if node, _, _ := f.Nodes[3].Leader(context.Background(), 1); node != 0 || time.Since(began) > forward.LeaderTime+
			100*time.Millisecond {
			t.Errorf("Leader = %d after %s, want none soon", node, time.Since(began))
		}
		f.Lead(1, 1)
		m.MapAge = forward.MaxMapAge + time.Second
		if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "31s old") {
			t.Errorf("Ready with an outdated map: %v", err)
		}
	})
}

// All calls may be repeated when their outcome is unknown, except these, which would have an effect when run twice.
func TestRepeatableMethods(t *testing.T) {
	once := []string{"abandon-once", "add-to-group", "claim", "drop-queue", "enqueue", "make-group", "operate",
		"purge", "put-queue", "remove-marker", "remove-namespace", "remove-webhook", "revoke-token", "settle"}
	var got []string
	routertest.InFleet(t, 1, func(f *routertest.Fleet) {
		for _, name := range f.Nodes[1].Parts.Names() {
			if !f.Nodes[1].Parts.Named(name).Rule().Idempotent {
				got = append(got, name)
			}
		}
	})
	slices.Sort(got)
	if !slices.Equal(got, once) {
		t.Errorf("calls that must not be repeated are %q, want %q", got, once)
	}
}

// A verb of the system shard runs where that is led, wherever it is called.
func TestVerbsOfTheSystemShard(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		for _, leader := range []uint32{1, 3} {
			f.With(func() { f.SystemLeader = leader })
			for n, m := range f.Nodes {
				for shard, want := range map[uint32]bool{1: true, 77: false} {
					if got, err := cluster.HasShard.Call(context.Background(), m, shard); err != nil || got != want {
						t.Errorf("node %d, system shard led by %d: shard %d exists: %t, %v; want %t", n, leader, shard, got, err, want)
					}
				}
			}
		}
	})
}
