package router

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

const ns = "default"

func (m *member) put(n int) ([]task.ID, error) {
	specs := make([]task.Spec, n)
	for i := range specs {
		specs[i] = task.Spec{Type: "job", Queue: "q"}
	}
	got, _, err := m.Enqueue(context.Background(), 1, ns, specs)
	ids := make([]task.ID, len(got))
	for i := range got {
		ids[i] = got[i].ID
		err = errors.Join(err, got[i].Err)
	}
	return ids, err
}

// made returns how many tasks were created.
func (f *fleet) made() (n int) {
	f.with(func() { n = f.shards[1].made })
	return n
}

// mustPut creates tasks in the shard itself.
func (f *fleet) mustPut(n int) (ids []task.ID) {
	f.with(func() {
		for range n {
			ids = append(ids, f.shards[1].add())
		}
		f.shards[1].tell()
	})
	return ids
}

// A call runs wherever its shard is led: here without the network, elsewhere with one message once the leader is known; a node without a
// replica finds it too.
func TestACallFindsTheLeader(t *testing.T) {
	inFleet(t, 4, func(f *fleet) {
		f.shards[1].replicas = []uint32{1, 2, 3}
		for n := range uint32(4) {
			if _, err := f.nodes[n+1].put(3); err != nil {
				t.Errorf("node %d: %v", n+1, err)
			}
		}
		if made := f.made(); made != 12 || f.count("enqueue") != 3 {
			t.Errorf("%d tasks by %d messages", made, f.count("enqueue"))
		}
		f.lead(1, 3)
		f.with(func() { f.shards[1].shy = true }) // the replicas do not know: node 4 must ask them in turn
		for range 2 {
			if _, err := f.nodes[4].put(1); err != nil {
				t.Error(err)
			}
		}
		if n := f.count("enqueue"); n > 3+4 { // 1, 2, 3 in some order, then 3 directly
			t.Errorf("%d messages: the leader is not remembered", n-3)
		}
		// The refusal of one item, and its error, come back unchanged.
		got, at, err := f.nodes[4].Enqueue(context.Background(), 1, ns, []task.Spec{{Type: "bad"}, {Type: "job"}})
		if err != nil || !errors.Is(got[0].Err, task.ErrInvalidArgument) || got[1].Err != nil || at.Shard != 1 {
			t.Errorf("got %+v at %+v, %v", got, at, err)
		}
	})
}

// While there is no leader, a call waits; once there is one again it runs, once.
func TestACallOutlivesAnElection(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		f.lead(1, 0)
		began := time.Now()
		time.AfterFunc(3*time.Second, func() { f.lead(1, 2) })
		_, err := f.nodes[1].put(1)
		if took := time.Since(began); err != nil || f.made() != 1 || took < 3*time.Second || took > 3300*time.Millisecond {
			t.Errorf("after %s: %v, %d tasks", took, err, f.made())
		}
	})
}

// A call that certainly did not arrive is tried at other nodes; one that may have run is not, unless it is a read.
func TestWhatIsRepeated(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		// Node 1 leads, but can't be reached for a second.
		broken := true
		f.network = func(_, to uint32, _ string) fate {
			if to == 1 && broken {
				return notSent
			}
			return arrives
		}
		time.AfterFunc(time.Second, func() { f.with(func() { broken = false }) })
		ids, err := f.nodes[2].put(1)
		if err != nil || f.made() != 1 {
			t.Fatalf("%d tasks, %v", f.made(), err)
		}

		lost := 1
		f.network = func(_, _ uint32, _ string) fate {
			if lost > 0 {
				lost--
				return answerLost
			}
			return arrives
		}
		began := time.Now()
		_, err = f.nodes[2].put(1)
		if e, ok := task.AsError(err); !ok || e.Code != task.CodeUnavailable || !errors.Is(err, broker.ErrUnknown) || !strings.Contains(e.Message, "outcome is not known") {
			t.Errorf("a lost answer: %v", err)
		}
		if f.made() != 2 || time.Since(began) > 100*time.Millisecond {
			t.Errorf("after %s: %d tasks", time.Since(began), f.made())
		}
		lost = 2
		if v, _, err := f.nodes[2].Task(context.Background(), ns, ids[0], 0); err != nil || v.ID != ids[0] {
			t.Errorf("a read whose answer was lost: %v, %v", v, err)
		}
	})
}

// A leader that hangs is not waited for once the others have elected another: a read is answered there, and an enqueue fails with an
// unknown outcome. A replica that merely does not know the leader ends no call.
func TestALeaderThatHangs(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		ids := f.mustPut(1)
		f.network = func(_, to uint32, _ string) fate {
			if to == 1 {
				return hangs
			}
			return arrives
		}
		time.AfterFunc(4*time.Second, func() { f.lead(1, 0) })
		time.AfterFunc(5*time.Second, func() { f.lead(1, 3) })
		most := 5*time.Second + deposedGrace + 2*remoteCheckEvery
		began := time.Now()
		read := make(chan error)
		go func() {
			_, _, err := f.nodes[2].Task(context.Background(), ns, ids[0], 0)
			read <- err
		}()
		_, err := f.nodes[2].put(1)
		if took := time.Since(began); !errors.Is(err, broker.ErrUnknown) || !strings.Contains(err.Error(), errNewLeader.Error()) || took < 5*time.Second || took > most {
			t.Errorf("an enqueue to a leader that hangs, after %s: %v", took, err)
		}
		if err := <-read; err != nil || time.Since(began) > most+100*time.Millisecond {
			t.Errorf("a read of a leader that hangs, after %s: %v", time.Since(began), err)
		}

		// Node 2's replica names a node that no longer leads; the real leader is known from a hint.
		if _, _, err := f.nodes[3].Claim(context.Background(), 1, queueCall(10), 0); err != nil {
			t.Fatal(err)
		}
		f.with(func() { f.network = nil; f.shards[1].hints = map[uint32]uint32{2: 1} })
		began = time.Now()
		_, _, err = f.nodes[2].Claim(context.Background(), 1, queueCall(1), 10*time.Second)
		if took := time.Since(began); err != nil || took < 10*time.Second || f.count("claim") != 2 {
			t.Errorf("a claim past a replica that lags ended after %s and %d messages: %v", took, f.count("claim"), err)
		}
	})
}

// A call that finds no leader says which nodes were asked and what they answered, and the next one does not wait as long.
func TestACallThatFindsNoLeader(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		f.lead(1, 0)
		f.network = func(_, to uint32, _ string) fate {
			if to == 3 {
				return notSent
			}
			return arrives
		}
		began := time.Now()
		_, err := f.nodes[1].put(1)
		e, ok := task.AsError(err)
		if !ok || e.Code != task.CodeUnavailable || errors.Is(err, broker.ErrUnknown) || e.RetryAfter == 0 {
			t.Fatalf("got %v", err)
		}
		for _, want := range []string{"shard 1", "no leader", "node n1 knows no leader", "node n2 knows no leader", "node n3 does not answer (not sent)"} {
			if !strings.Contains(e.Message, want) {
				t.Errorf("%q lacks %q", e.Message, want)
			}
		}
		if took := time.Since(began); took < routeTime || took > routeTime+time.Second {
			t.Errorf("it took %s", took)
		}
		if n := f.count("enqueue"); n > 200 {
			t.Errorf("%d messages", n)
		}
		began = time.Now()
		_, err = f.nodes[1].put(1)
		if took := time.Since(began); err == nil || took > 2*leaderlessTime {
			t.Errorf("the next one took %s: %v", took, err)
		}
		f.lead(1, 2)
		if _, err := f.nodes[1].put(1); err != nil {
			t.Error(err)
		}
		f.lead(1, 0)
		time.AfterFunc(5*time.Second, func() { f.lead(1, 2) })
		if _, err := f.nodes[1].put(1); err != nil {
			t.Errorf("a new search gives up early: %v", err)
		}
		// The caller's own deadline ends the search too.
		f.lead(1, 0)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began = time.Now()
		if _, _, err := f.nodes[2].Task(ctx, ns, task.NewID(1, 1, 1), 0); !errors.Is(err, task.ErrUnavailable) || time.Since(began) > time.Second+10*latency {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// A leader on a node that is not yet in this one's map is found through the answers of others.
func TestAHintBeyondTheMap(t *testing.T) {
	inFleet(t, 4, func(f *fleet) {
		f.shards[1].replicas, f.shards[1].leader = []uint32{1, 2}, 3
		began := time.Now()
		if _, err := f.nodes[4].put(1); err != nil || time.Since(began) > 10*latency {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// Two nodes that name each other as leader are not asked in turn without a pause.
func TestHintsInACircle(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		s := f.shards[1]
		s.replicas, s.leader, s.hints = []uint32{1, 2}, 0, map[uint32]uint32{1: 2, 2: 1}
		if _, err := f.nodes[3].put(1); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		if n := f.count("enqueue"); n > 200 {
			t.Errorf("%d messages", n)
		}
	})
}

// A wait for a result continues for the rest of its time when the leader changes: from here away, to others, and back.
func TestAWaitGoesOnOverLeaders(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		ids := f.mustPut(2)
		for i, at := range []uint32{2, 0, 3, 1} {
			time.AfterFunc(time.Duration(i+1)*5*time.Second, func() { f.lead(1, at) })
		}
		began := time.Now()
		done := make(chan time.Duration, 1)
		go func() {
			v, _, err := f.nodes[1].Task(context.Background(), ns, ids[0], time.Minute)
			if err != nil || v.Exec.State != task.Cancelled {
				t.Errorf("got %v, %v", v, err)
			}
			done <- time.Since(began)
		}()
		pass(17 * time.Second)
		if err := cancel(context.Background(), f.nodes[3], ids[0]); err != nil {
			t.Error(err)
		}
		if took := <-done; took > 18*time.Second {
			t.Errorf("told after %s", took)
		}
		// It ends in time if there is no result.
		began = time.Now()
		v, _, err := f.nodes[2].Task(context.Background(), ns, ids[1], 30*time.Second)
		if took := time.Since(began); err != nil || v.Exec.State != task.Ready || took < 29*time.Second || took > 31*time.Second {
			t.Errorf("a wait in vain: %v, %v after %s", v, err, took)
		}
		// One message takes the rest of a wait to a new leader.
		before := f.count("task")
		time.AfterFunc(5*time.Second, func() { f.lead(1, 2) })
		if _, _, err := f.nodes[1].Task(context.Background(), ns, ids[1], 30*time.Second); err != nil || f.count("task") != before+1 {
			t.Errorf("%d messages of one wait, %v", f.count("task")-before, err)
		}
	})
}

// A node that is about to stop ends the waits of its own callers, not those of other nodes' callers.
func TestAWaitOutlivesADrain(t *testing.T) {
	inFleet(t, 2, func(f *fleet) {
		ids := f.mustPut(1)
		f.with(func() { f.shards[1].tasks[ids[0]].state = task.Claimed; f.shards[1].ready = 0 })
		close(f.nodes[1].drain)
		time.AfterFunc(20*time.Second, func() { f.mustPut(1) })
		time.AfterFunc(10*time.Second, func() { f.lead(1, 2) })
		began := time.Now()
		got, _, err := f.nodes[2].Claim(context.Background(), 1, broker.ClaimCall{Namespace: ns, Queues: []broker.Share{{Queue: "q"}}, Max: 1}, time.Minute)
		if took := time.Since(began); err != nil || len(got) != 1 || took < 20*time.Second || took > 21*time.Second {
			t.Errorf("after %s: %v, %v", took, got, err)
		}
		f.lead(1, 1)
		f.with(func() { f.shards[1].tasks[ids[0]].state = task.Claimed })
		time.AfterFunc(20*time.Second, func() {
			f.with(func() { f.shards[1].tasks[ids[0]].state = task.Succeeded; f.shards[1].tell() })
		})
		v, _, err := f.nodes[2].Task(context.Background(), ns, ids[0], time.Minute)
		if err != nil || v.Exec.State != task.Succeeded {
			t.Errorf("a wait for a result: %v, %v", v, err)
		}
		if n := f.count("claim") + f.count("task"); n > 400 {
			t.Errorf("%d messages while the other node drains", n)
		}
	})
}

// drainInAClaim stops a node while a claim that it made for a caller, with a key or without, has tasks elsewhere and no answer yet.
func drainInAClaim(t *testing.T, f *fleet, key string) {
	t.Helper()
	m := f.nodes[2]
	f.network = func(_, _ uint32, method string) fate {
		if method == "claim" {
			return hangs
		}
		return arrives
	}
	began := time.Now()
	ended := make(chan error, 1)
	go func() {
		c := queueCall(1)
		c.ClaimKey = key
		got, _, err := m.Claim(context.Background(), 1, c, time.Minute)
		if len(got) > 0 {
			t.Errorf("got %v", got)
		}
		ended <- err
	}()
	pass(time.Second)
	id := f.mustPut(1)[0] // claimed there, and the answer does not come
	pass(latency)
	close(m.drain)
	if err := <-ended; err != nil || time.Since(began) > 2*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	m.Close() // immediately: what was claimed for nobody is given back first
	if x := f.state(id); x.state != task.Ready {
		t.Errorf("the node took a claim along: %s", x.state)
	}
}

// A node that is about to stop ends its own callers' waits at other nodes, and loses nothing.
func TestADrainEndsWaitsElsewhere(t *testing.T) {
	for _, key := range []string{"", "the caller's"} {
		inFleet(t, 2, func(f *fleet) { drainInAClaim(t, f, key) })
	}
	inFleet(t, 2, func(f *fleet) {
		id := f.mustPut(1)[0]
		m := f.nodes[2]
		time.AfterFunc(time.Second, func() { close(m.drain) })
		began := time.Now()
		v, _, err := m.Task(context.Background(), ns, id, time.Minute)
		if err != nil || v.Exec.State != task.Ready || time.Since(began) > 2*time.Second {
			t.Errorf("after %s: %+v, %v", time.Since(began), v, err)
		}
	})
}

// onOne is a queue in shard 1.
var onOne = broker.OnQueue{OnShard: broker.OnShard{Shard: 1, Namespace: ns}, Queue: "q"}

func TestAServedCallIsNotSentOn(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		args := enqueueArgs{1, ns, []task.Spec{{Type: "job"}}}
		request, err := verb.Encode(&args)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := f.nodes[2].Serve(context.Background(), "enqueue", request)
		var a reply[enqueueAnswer]
		if err != nil || verb.Decode(answer, &a) != nil || a.Fault == nil || a.Fault.Elsewhere == nil || a.Fault.Elsewhere.Node != 1 || f.count("enqueue") != 0 {
			t.Errorf("got %+v, %v", a, err)
		}
		// A call that is unknown, can't be decoded or panics fails alone.
		for method, request := range map[string][]byte{"later": nil, "enqueue": []byte("x"), "purge": mustEncode(t, broker.QueueCommand{OnQueue: onOne})} {
			answer, err := f.nodes[1].Serve(context.Background(), method, request)
			var a reply[broker.BulkDone]
			if err != nil || verb.Decode(answer, &a) != nil || a.Fault == nil || (method == "later") != (a.Fault.NotRun != "") {
				t.Errorf("%s: %+v, %v", method, a.Fault, err)
			}
		}
		if _, err := broker.PurgeQueue.Call(context.Background(), f.nodes[2], broker.QueueCommand{OnQueue: onOne}); err == nil || errors.Is(err, task.ErrUnavailable) {
			t.Errorf("a panic there: %v", err)
		}
		if err := f.nodes[1].ServeStream("later", &fakeStream{ctx: context.Background()}); err == nil {
			t.Error("a stream of an unknown kind is served")
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

// A task whose shard does not exist is not found; a shard that only the system shard knows yet does exist.
func TestShardsThatNobodyHas(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		nowhere := task.NewID(77, 1, 1)
		for _, m := range f.nodes {
			if _, _, err := m.Task(context.Background(), ns, nowhere, 0); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("a read: %v", err)
			}
			if err := cancel(context.Background(), m, nowhere); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("a cancel: %v", err)
			}
			got, _, err := m.Settle(context.Background(), 77, []broker.Settle{{Verb: broker.Ack, Hold: broker.Hold{ID: nowhere}}})
			if err != nil || !errors.Is(got[0].Err, task.ErrNotFound) {
				t.Errorf("an ack: %v, %v", got, err)
			}
		}
		f.with(func() { f.leader0 = 0 })
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, _, err := f.nodes[2].Task(ctx, ns, nowhere, 0); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("without the system shard: %v", err)
		}
	})
}

// Close ends calls that look for a leader, and all goroutines: the bubble would not end otherwise.
func TestCloseEndsSearches(t *testing.T) {
	inFleet(t, 2, func(f *fleet) {
		f.lead(1, 0)
		errs := make(chan error, 1)
		go func() { _, err := f.nodes[2].put(1); errs <- err }()
		pass(time.Second)
		f.nodes[2].Close()
		pass(10 * latency) // a message may be in flight
		select {
		case err := <-errs:
			asked := strings.Contains(err.Error(), "the outcome is not known") // one was
			if !errors.Is(err, task.ErrUnavailable) || !asked && !strings.Contains(err.Error(), "this node is stopping") {
				t.Errorf("got %v", err)
			}
		default:
			t.Error("a call looks on")
		}
	})
}

func TestLeaderAndReady(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		f.shards[1].replicas = []uint32{1, 2}
		for _, m := range f.nodes {
			if node, term, _ := m.Leader(context.Background(), 1); node != 1 || term != 1 {
				t.Errorf("node %d: leader %d in term %d", m.number, node, term)
			}
		}
		f.with(func() { f.leader0 = 3 })
		m := f.nodes[2]
		m.cfg.SystemLeader = func() uint32 { return 3 }
		if err := m.Ready(); err != nil {
			t.Error(err)
		}
		f.lead(1, 0)
		if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "shard 1") {
			t.Errorf("without a leader: %v", err)
		}
		began := time.Now()
		if node, _, _ := f.nodes[3].Leader(context.Background(), 1); node != 0 || time.Since(began) > leaderTime+100*time.Millisecond {
			t.Errorf("leader %d after %s", node, time.Since(began))
		}
		f.lead(1, 1)
		m.age = maxMapAge + time.Second
		if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "31s old") {
			t.Errorf("with an old map: %v", err)
		}
	})
}

// A stale read uses any replica, this node's first, and needs no leader; nodes that are away are skipped.
func TestPeek(t *testing.T) {
	inFleet(t, 4, func(f *fleet) {
		f.shards[1].replicas = []uint32{1, 2, 3}
		ids, err := f.nodes[1].put(1)
		if err != nil {
			t.Fatal(err)
		}
		for n := range uint32(4) {
			if v, at, age, err := f.nodes[n+1].Peek(context.Background(), ns, ids[0]); err != nil || v.ID != ids[0] || at.Shard != 1 || age != time.Second {
				t.Errorf("node %d: %+v at %+v, %v old, %v", n+1, v, at, age, err)
			}
		}
		if n := f.count("peek"); n != 1 {
			t.Errorf("%d messages, want that of node 4 only", n)
		}
		if _, _, _, err := f.nodes[4].Peek(context.Background(), ns, task.NewID(9, 1, 1)); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("of a shard that nobody has: %v", err)
		}
	})
}

// All calls may be repeated when their outcome is unknown, except these, whose second run would be noticed.
func TestWhatMayBeRepeated(t *testing.T) {
	once := []string{"abandon-once", "add-to-group", "claim", "drop-queue", "enqueue", "make-group", "put-queue", "settle"}
	var got []string
	for name, make := range served {
		if !make().Rule().Idempotent {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, once) {
		t.Errorf("not repeated are %q, want %q", got, once)
	}
}
