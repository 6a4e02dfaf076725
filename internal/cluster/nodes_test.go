package cluster

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// joinOf returns a node's request to join. Addresses and nonce are derived from the number.
func joinOf(name string, n int) JoinRequest {
	r := JoinRequest{Name: name, PeerAddress: fmt.Sprintf("10.0.0.%d:7", n), APIAddress: fmt.Sprintf("10.0.0.%d:8", n), Version: "v1",
		MinLevel: 1, MaxLevel: 1}
	r.Nonce[0], r.Nonce[1] = byte(n), 1
	return r
}

func join(t *testing.T, c *Control, name string, n int) uint32 {
	t.Helper()
	j, err := c.Placement.Join(bg, joinOf(name, n))
	must(t, err)
	return j.Number
}

// beat makes the leader hear from the given nodes.
func beat(t *testing.T, c *Control, nodes ...uint32) {
	t.Helper()
	for _, n := range nodes {
		_, err := c.Copies.Changes(bg, 1<<60, Report{Node: n}, 0)
		must(t, err)
	}
}

func mapOf(t *testing.T, c *Control) *Map {
	t.Helper()
	m, err := c.Placement.Map(bg)
	must(t, err)
	return m
}

func stateOf(t *testing.T, c *Control, number uint32) Node {
	t.Helper()
	n, ok := mapOf(t, c).Node(number)
	if !ok {
		t.Fatalf("the map has no node %d", number)
	}
	return n
}

// saw makes the leader observe a shard with these voters, all of which answer except the dead ones.
func saw(c *Control, shard uint32, voters []uint64, dead ...uint64) {
	c.Placement.observations.observed(shard, observation{status: statusOf(voters, nil, dead...), at: time.Now()})
}

func TestFound(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		at := w.State.Applied().Index
		w.open(5) // is a no-op
		m := mapOf(t, w.leader.control)
		if w.State.Applied().Index != at || len(m.Nodes) != 1 || len(m.Shards) != 3 ||
			m.Settings != (system.Settings{Replication: 3, Level: 1,
				NextNode: 2, DataShards: 2}) {
			t.Errorf("after Found the map is %+v", m)
		}
		s, _ := m.Shard(2)
		if want := (Shard{ID: 2, Replicas: []Replica{{ID: 1, Node: 1, Founder: true}}, NextIncarnation: 1}); !reflect.DeepEqual(s, want) {
			t.Errorf("shard 2 is %+v, want its founder on node 1", s)
		}
		is(t, c.Placement.Found(bg, FirstNode{Name: "N1"}, 1), task.ErrInvalidArgument, "N1")
		is(t, c.Placement.Found(bg, FirstNode{Name: "n1"}, MaxDataShards+1), task.ErrInvalidArgument, "between 1 and 64")
	})
}

// A directory from before nodes had rows already has queues.
func TestFormingKeepsQueues(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		at := w.State.Applied()
		tx := w.State.Begin(at.Time+1, at.Index+1)
		q := queues.Queue{Namespace: "default", Name: "old", Shard: 1, Config: task.QueueConfig{Version: 3,
			Settings: task.DefaultSettings()}}
		row := fmt.Appendf([]byte{1}, `{"shard":1,"config":%q,"slots":{"later":[1]}}`, base64Of(q.Config.Encode()))
		tx.Set([]byte("qdefault\x00old"), row)
		must(t, w.State.Apply(storePosition(at.Index+1), tx.Seal(nil)))
		tx.Close()
		c := w.open(1)
		if got, err := c.Queues.Queue(bg, "default", "old"); err != nil || !reflect.DeepEqual(got, q) || w.copyOf(1, "old").Version != 3 {
			t.Errorf("the queue is %+v, %v, and the shard has %+v", got, err, w.copyOf(1, "old"))
		}
	})
}

func TestJoin(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		j, err := c.Placement.Join(bg, joinOf("n2", 2))
		if err != nil || j.Number != 2 || len(j.Map.Nodes) != 2 || j.Map.Settings.NextNode != 3 {
			t.Fatalf("Join = %+v, %v, want node 2 and a map of two nodes", j, err)
		}
		if again := join(t, c, "n2", 2); again != 2 {
			t.Errorf("repeating the same Join returned node %d, want 2", again)
		}
		r := joinOf("n3", 2)
		_, err = c.Placement.Join(bg, r)
		is(t, err, task.ErrConflict, `joined as "n2"`)
		pass(time.Minute)
		beat(t, c, 2)
		_, err = c.Placement.Join(bg, joinOf("n2", 3))
		is(t, err, task.ErrConflict, `node "n2" is running as number 2 at 10.0.0.2:7`)
		r = joinOf("n3", 3)
		r.PeerAddress = "10.0.0.2:7"
		_, err = c.Placement.Join(bg, r)
		is(t, err, task.ErrConflict, `10.0.0.2:7 is that of node "n2"`)
		r = joinOf("n3", 3)
		r.APIAddress = "10.0.0.2:8"
		_, err = c.Placement.Join(bg, r)
		is(t, err, task.ErrConflict, `API address 10.0.0.2:8`)
		r = joinOf("n3", 3)
		r.MinLevel, r.MaxLevel = 2, 4
		_, err = c.Placement.Join(bg, r)
		is(t, err, task.ErrWrongState, `"n3" works at feature levels 2 to 4, but the cluster is at 1`)
		if n := join(t, c, "n3", 3); n != 3 {
			t.Errorf("the third node has number %d, want 3", n)
		}
	})
}

func TestJoinChecksItsRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		for what, spoil := range map[string]func(*JoinRequest){
			`"N2" is not 1 to 63`:   func(r *JoinRequest) { r.Name = "N2" },
			`"" is not 1 to 63`:     func(r *JoinRequest) { r.Name = "" },
			`is not 1 to 63`:        func(r *JoinRequest) { r.Name = strings.Repeat("n", 64) },
			`"nowhere" is not host`: func(r *JoinRequest) { r.PeerAddress = "nowhere" },
			`":8" is not host:port`: func(r *JoinRequest) { r.APIAddress = ":8" },
			`at most 300`:           func(r *JoinRequest) { r.APIAddress = strings.Repeat("n", 301) + ":8" },
			`at most 100`:           func(r *JoinRequest) { r.Version = strings.Repeat("n", 101) },
			`levels 2 to 1`:         func(r *JoinRequest) { r.MinLevel = 2 },
			`all zeros`:             func(r *JoinRequest) { r.Nonce = [16]byte{} },
		} {
			r := joinOf("n2", 2)
			spoil(&r)
			_, err := c.Placement.Join(bg, r)
			is(t, err, task.ErrInvalidArgument, what)
		}
	})
}

// A node that lost its disk joins under its old name. It gets a new number, and the old one is removed permanently.
func TestJoinWithoutItsDisk(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		join(t, c, "n2", 2)
		beat(t, c, 1, 2)
		must(t, c.Placement.takeRowStep(bg, mapOf(t, c).Shards[1], Step{Kind: AddReplica, Node: 2}))
		must(t, c.Placement.Transfer(bg, nobody, 1, "n2"))
		_, err := c.Placement.Join(bg, joinOf("n2", 3))
		is(t, err, task.ErrConflict, "is running")
		pass(aliveFor)
		// Shard 1 has no leader: the old node may be needed, and may come back.
		_, err = c.Placement.Join(bg, joinOf("n2", 3))
		is(t, err, task.ErrUnavailable, "shard 1")
		id := ReplicaID(1, 2)
		saw(c, 1, []uint64{1, id}, id)
		_, err = c.Placement.Join(bg, joinOf("n2", 3))
		is(t, err, task.ErrUnavailable, "shard 1", "lose its majority") // until its replicas are no longer needed
		saw(c, 1, []uint64{1})
		r := joinOf("n2", 3)
		r.PeerAddress, r.APIAddress = "10.0.0.2:7", "10.0.0.2:8" // the same machine
		j, err := c.Placement.Join(bg, r)
		if err != nil || j.Number != 3 {
			t.Fatalf("Join of the replacement node = %+v, %v, want number 3", j, err)
		}
		if old := stateOf(t, c, 2); old.State != Removed || old.ReplacedBy != 3 {
			t.Errorf("the replaced node is %+v, want it removed and replaced by 3", old)
		}
		if s, _ := mapOf(t, c).Shard(1); !s.leaves(id) || s.Preferred != 0 {
			t.Errorf("shard 1 is %+v, want the old replica leaving and no preferred leader", s)
		}
		_, err = c.Placement.Join(bg, joinOf("n2", 2)) // the old directory is used again
		is(t, err, task.ErrWrongState, "joined again as number 3")
		_, err = c.Copies.Changes(bg, 0, Report{Node: 2}, 0)
		is(t, err, task.ErrWrongState, "joined again as number 3")
		_, err = c.Copies.Changes(bg, 0, Report{Node: 9}, 0)
		is(t, err, task.ErrWrongState, "not known")
	})
}

// A newly elected leader has not heard from any node. It must not mistake that for silence.
func TestNewLeaderDeclaresNobodyDead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		first := w.leader
		join(t, c, "n2", 2)
		beat(t, c, 2)
		pass(time.Hour)
		again := w.open(1)
		_, err := again.Placement.Join(bg, joinOf("n2", 3))
		is(t, err, task.ErrConflict, "is running")
		pass(2 * sameLeader)
		first.lead() // what it heard in its former term is outdated
		if o, err := c.Placement.Overview(bg); err != nil || o.Nodes[1].Reported || c.Placement.liveness.silent(2) != 0 {
			t.Errorf("after another election the nodes are %+v, %v, want node 2 not yet heard from", o.Nodes, err)
		}
		pass(aliveFor)
		join(t, c, "n2", 3)
		// A dropped round ends a term, but the times at which nodes were heard from are kept.
		pass(time.Minute)
		c.Dropped(true)
		c.Elected()
		if d := c.Placement.liveness.silent(3); d < time.Minute {
			t.Errorf("node 3 counts as silent for %v, want at least a minute", d)
		}
	})
}

func TestHello(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		join(t, c, "n2", 2)
		p := Presence{Number: 2, PeerAddress: "10.0.1.2:7", APIAddress: "10.0.1.2:8", Version: "v2", MinLevel: 1, MaxLevel: 3}
		if n, err := c.Placement.Hello(bg, p); err != nil || n.PeerAddress != p.PeerAddress || n.Name != "n2" || stateOf(t, c, 2) != n {
			t.Errorf("Hello = %+v, %v, want node n2 with its new address", n, err)
		}
		at := w.State.Applied().Index
		if _, err := c.Placement.Hello(bg, p); err != nil || w.State.Applied().Index != at {
			t.Errorf("repeating the same Hello wrote to the store or failed: %v", err)
		}
		p.MinLevel = 2
		_, err := c.Placement.Hello(bg, p)
		is(t, err, task.ErrWrongState, "feature levels 2 to 3")
		p.MinLevel, p.Number = 1, 1
		_, err = c.Placement.Hello(bg, p)
		is(t, err, task.ErrConflict, `node "n2"`)
		p.Number = 7
		_, err = c.Placement.Hello(bg, p)
		is(t, err, task.ErrWrongState, "not known")
		was := stateOf(t, c, 1)
		n, err := c.Placement.Hello(bg, Presence{Number: 1, Version: "v3", MinLevel: 1, MaxLevel: 4})
		if was.Version, was.MaxLevel = "v3", 4; err != nil || n != was || stateOf(t, c, 1) != was {
			t.Errorf("Hello without addresses = %+v, %v, want %+v", n, err, was)
		}
		alone := Presence{Number: 1, APIAddress: "10.0.1.1:9", Version: "v3", MinLevel: 1, MaxLevel: 4}
		n, err = c.Placement.Hello(bg, alone)
		if was.APIAddress = alone.APIAddress; err != nil || n != was || stateOf(t, c, 1) != was {
			t.Errorf("Hello of a node that listens to no others = %+v, %v, want %+v", n, err, was)
		}
		alone.APIAddress = p.APIAddress
		_, err = c.Placement.Hello(bg, alone)
		is(t, err, task.ErrConflict, `that of node "n2"`)
	})
}

func TestDrainAndRemove(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		is(t, c.Placement.Remove(bg, nobody, "n1", true), task.ErrWrongState, "the only one")
		join(t, c, "n2", 2)
		// A change of voters requested by the previous leader may still arrive.
		saw(c, 0, []uint64{1, 2, 3})
		saw(c, 1, []uint64{1, 2, 3})
		is(t, c.Placement.Remove(bg, nobody, "n1", true), task.ErrUnavailable, "not known now who votes")
		pass(stepTimeout)
		is(t, c.Placement.Drain(bg, nobody, "n9"), task.ErrNotFound)
		must(t, c.Placement.Drain(bg, nobody, "n2"))
		must(t, c.Placement.Drain(bg, nobody, "n2"))
		if n := stateOf(t, c, 2); n.State != Draining {
			t.Errorf("after Drain the node is %s, want draining", n.State)
		}
		must(t, c.Placement.Undrain(bg, nobody, "n2"))
		if n := stateOf(t, c, 2); n.State != Active {
			t.Errorf("after Undrain the node is %s, want active", n.State)
		}
		is(t, c.Placement.Remove(bg, nobody, "n1", false), task.ErrWrongState, "shards 0, 1", "drain it first")
		saw(c, 0, []uint64{1})
		saw(c, 1, []uint64{1})
		is(t, c.Placement.Remove(bg, nobody, "n1", true), task.ErrWrongState, "the system shard", "lose its majority")
		is(t, c.Placement.Remove(bg, nobody, "n9", true), task.ErrNotFound)
		must(t, c.Placement.Remove(bg, nobody, "n2", false))
		must(t, c.Placement.Remove(bg, nobody, "n2", false)) // a repeat
		is(t, c.Placement.Drain(bg, nobody, "n2"), task.ErrNotFound)
		if n := stateOf(t, c, 2); n.State != Removed {
			t.Errorf("after Remove the node is %s, want removed", n.State)
		}
	})
}

// A forced removal succeeds although the node holds replicas, as long as every shard can do without them.
func TestRemoveByForce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		pass(stepTimeout)
		var voters []uint64
		for n := 2; n <= 5; n++ {
			join(t, c, fmt.Sprint("n", n), n)
			must(t, c.Placement.takeRowStep(bg, mapOf(t, c).Shards[1], Step{Kind: AddReplica, Node: uint32(n)}))
			voters = append(voters, ReplicaID(uint32(n-1), uint32(n)))
		}
		is(t, c.Placement.Remove(bg, nobody, "n5", true), task.ErrUnavailable, "shard 1", "not known now who votes")
		voters = append(voters, 1)
		saw(c, 1, voters, voters[0]) // n2 is dead
		must(t, c.Placement.Remove(bg, nobody, "n5", true))
		if s, _ := mapOf(t, c).Shard(1); !s.leaves(voters[3]) {
			t.Errorf("shard 1 is %+v, want the replica on n5 leaving", s)
		}
		// n5 still answers, but no node talks to it any longer. With n2 dead there is no majority without n4.
		is(t, c.Placement.Remove(bg, nobody, "n4", true), task.ErrWrongState, "shard 1", "only 2 others of the 5 voters")
		must(t, c.Placement.Remove(bg, nobody, "n2", true))
		saw(c, 1, []uint64{1, voters[1], voters[2]})
		pass(freshStatus)
		is(t, c.Placement.Remove(bg, nobody, "n4", true), task.ErrUnavailable, "not known now who votes")
	})
}

func TestNodeLimits(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		fill := func(from uint32, n int, state NodeState) {
			must(t, changeMap(bg, c.Placement, func(tx *storeTx, m *Map) error {
				for i := range n {
					number := from + uint32(i)
					c.Placement.setNode(tx, Node{Number: number, Name: fmt.Sprint("x", number), PeerAddress: fmt.Sprint("x:", number),
						APIAddress: fmt.Sprint("y:", number), State: state, Nonce: [16]byte{9, byte(i), byte(i >> 8)}})
				}
				m.Settings.NextNode = from + uint32(n)
				c.Placement.setSettings(tx, m.Settings)
				return nil
			}))
		}
		fill(2, maxRemovedNodes, Removed)
		if n := join(t, c, "n2", 2); n != 2+maxRemovedNodes {
			t.Errorf("the new node has number %d", n)
		}
		m := mapOf(t, c)
		if _, there := m.Node(2); there || countRemoved(m.Nodes) != maxRemovedNodes-1 {
			t.Errorf("there are %d removed nodes, and the oldest still exists: %v", countRemoved(m.Nodes), there)
		}
		fill(m.Settings.NextNode, MaxNodes-2, Active)
		_, err := c.Placement.Join(bg, joinOf("n3", 3))
		is(t, err, task.ErrWrongState, "1000 nodes")
	})
}

func TestAddShards(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		join(t, c, "n2", 2)
		beat(t, c, 1, 2)
		must(t, c.Placement.AddShards(bg, nobody, 4))
		m := mapOf(t, c)
		for id := uint32(3); id <= 4; id++ {
			if s, _ := m.Shard(id); len(s.Replicas) != 1 || s.Replicas[0] != (Replica{ID: 2, Node: 2, Founder: true}) {
				t.Errorf("shard %d is %+v, want one founder on node 2", id, s)
			}
		}
		at := w.State.Applied().Index
		must(t, c.Placement.AddShards(bg, nobody, 4))
		if m.Settings.DataShards != 4 || w.State.Applied().Index != at {
			t.Errorf("the settings are %+v, or a repeat wrote to the store", m.Settings)
		}
		is(t, c.Placement.AddShards(bg, nobody, 3), task.ErrWrongState, "can only grow")
		is(t, c.Placement.AddShards(bg, nobody, 65), task.ErrInvalidArgument, "between 1 and 64")
		pass(aliveFor)
		is(t, c.Placement.AddShards(bg, nobody, 5), task.ErrUnavailable, "shard 5")
	})
}

func TestMoveAndTransfer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		join(t, c, "n2", 2)
		beat(t, c, 1, 2)
		is(t, c.Placement.Move(bg, nobody, 9, "n1", "n2"), task.ErrNotFound, `shard "9"`)
		is(t, c.Placement.Move(bg, nobody, 1, "n1", "n9"), task.ErrNotFound, `node "n9"`)
		is(t, c.Placement.Move(bg, nobody, 1, "n2", "n1"), task.ErrWrongState, `no replica on node "n2"`)
		is(t, c.Placement.Move(bg, nobody, 1, "n1", "n1"), task.ErrWrongState, `has a replica on node "n1" already`)
		is(t, c.Placement.Transfer(bg, nobody, 1, "n2"), task.ErrWrongState, `node "n2" has no replica`)
		must(t, c.Placement.Drain(bg, nobody, "n2"))
		is(t, c.Placement.Move(bg, nobody, 1, "n1", "n2"), task.ErrWrongState, "draining")
		must(t, c.Placement.Undrain(bg, nobody, "n2"))
		must(t, c.Placement.Move(bg, nobody, 1, "n1", "n2"))
		must(t, c.Placement.Move(bg, nobody, 1, "n1", "n2")) // a repeat
		want := Shard{ID: 1, Replicas: []Replica{{1, 1, true}, {ReplicaID(1, 2), 2, false}}, Leaving: []uint64{1}, NextIncarnation: 2}
		if s, _ := mapOf(t, c).Shard(1); !reflect.DeepEqual(s, want) {
			t.Errorf("shard 1 is %+v, want replicas on both nodes, with the first leaving", s)
		}
		is(t, c.Placement.Transfer(bg, nobody, 1, "n1"), task.ErrWrongState, "stays")
		must(t, c.Placement.Transfer(bg, nobody, 1, "n2"))
		if s, _ := mapOf(t, c).Shard(1); s.Preferred != 2 {
			t.Errorf("shard 1 is %+v, want node 2 as preferred leader", s)
		}
		must(t, c.Placement.Transfer(bg, nobody, 1, ""))
		if s, _ := mapOf(t, c).Shard(1); s.Preferred != 0 {
			t.Errorf("shard 1 is %+v, want no preferred leader", s)
		}
		pass(aliveFor)
		is(t, c.Placement.Move(bg, nobody, 0, "n1", "n2"), task.ErrWrongState, "not seen in the last")
	})
}

func TestSettings(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		is(t, c.Placement.SetReplication(bg, nobody, 2), task.ErrInvalidArgument, "1, 3, 5 or 7")
		must(t, c.Placement.SetReplication(bg, nobody, 5))
		if s := mapOf(t, c).Settings; s.Replication != 5 {
			t.Errorf("the settings are %+v, want replication 5", s)
		}
		_, err := c.Placement.Hello(bg, Presence{Number: 1, PeerAddress: "n1:1", APIAddress: "n1:2", Version: "v2",
			MinLevel: 1, MaxLevel: 2})
		must(t, err)
		if level, err := c.Placement.RaiseLevel(bg, nobody); err != nil || level != 2 {
			t.Errorf("RaiseLevel = %d, %v, want 2", level, err)
		}
		_, err = c.Placement.Join(bg, joinOf("n2", 2)) // supports level 1 only
		is(t, err, task.ErrWrongState, "the cluster is at 2")
		r := joinOf("n2", 2)
		r.MaxLevel = 2
		_, err = c.Placement.Join(bg, r)
		must(t, err)
		if level, err := c.Placement.RaiseLevel(bg, nobody); err != nil || level != 2 {
			t.Errorf("repeating RaiseLevel = %d, %v, want 2", level, err)
		}
	})
}

// A step that was planned for an older row changes nothing.
func TestStaleStep(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		join(t, c, "n2", 2)
		planned := mapOf(t, c).Shards[1]
		step := Step{Kind: AddReplica, Node: 2}
		must(t, c.Placement.takeRowStep(bg, planned, step))
		if err := c.Placement.takeRowStep(bg, planned, step); err == nil || !strings.Contains(err.Error(), "changed meanwhile") {
			t.Errorf("taking the same step twice: %v, want that the row changed meanwhile", err)
		}
		must(t, c.Placement.Drain(bg, nobody, "n2"))
		if err := c.Placement.takeRowStep(bg, mapOf(t, c).Shards[0], step); err == nil {
			t.Error("a draining node got a replica")
		}
	})
}

type storeTx = store.Tx

func storePosition(index uint64) store.Position {
	return store.Position{Index: index, Term: 1, Time: store.Time(index)}
}

// The map is decoded again only when something in it has changed.
func TestMapIsDecodedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		read := func() *Map {
			t.Helper()
			m, err := c.Placement.Map(bg)
			must(t, err)
			fresh, err := system.View(bg, c.shard, readMap)
			must(t, err)
			if !reflect.DeepEqual(m, fresh) {
				t.Errorf("the map is %+v, but the tables have %+v", m, fresh)
			}
			return m
		}
		last := read()
		if read() != last {
			t.Error("the map was decoded again although nothing had changed")
		}
		for _, c := range []struct {
			what   string
			change func() error
		}{
			{"a shard", func() error { return c.Placement.AddShards(bg, nobody, 3) }},
			{"a node", func() error { _, err := c.Placement.Join(bg, joinOf("n2", 2)); return err }},
			{"a setting", func() error { return c.Placement.SetReplication(bg, nobody, 1) }},
			{"a drain", func() error { return c.Placement.Drain(bg, nobody, "n1") }},
			{"its end", func() error { return c.Placement.Undrain(bg, nobody, "n1") }},
		} {
			must(t, c.change())
			now := read()
			if now == last {
				t.Errorf("%s did not change the map", c.what)
			}
			last = now
		}
	})
}

// BenchmarkMap reads the map of 8 nodes and 64 shards with three replicas, as the reconciler does twice a second.
func BenchmarkMap(b *testing.B) {
	s := newWorld(b).newReplica()
	s.lead()
	c := s.control
	_, err := system.Update(bg, c.shard, func(tx *store.Tx) (struct{}, error) {
		c.Placement.setSettings(tx, system.Settings{DataShards: 64})
		for n := range uint32(8) {
			c.Placement.setNode(tx, Node{Number: n + 1, Name: fmt.Sprintf("n%d", n+1), PeerAddress: "10.0.0.1:7296",
				APIAddress: "10.0.0.1:7295"})
		}
		for id := range uint32(65) {
			s := Shard{ID: id}
			for n := range uint32(3) {
				s.Replicas = append(s.Replicas, Replica{ID: uint64(n+1) << 32, Node: n + 1})
			}
			c.Placement.setShard(tx, s)
		}
		return struct{}{}, nil
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Placement.Map(bg); err != nil {
			b.Fatal(err)
		}
	}
}

// A node that describes itself invalidly is refused, and a move that names an unknown node says which.
func TestCallsOfNodesAreChecked(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		if _, err := c.Placement.Hello(bg, Presence{Number: 1, Version: strings.Repeat("v", maxVersion+1), MinLevel: 1,
			MaxLevel: 1}); err == nil {
			t.Error("Hello accepted a version that is too long")
		}
		parts := &verb.Parts{}
		c.Serve(parts)
		_, err := MoveReplica.Call(bg, parts, ReplicaMove{Shard: 1, From: "n1", To: "n7"})
		is(t, err, task.ErrNotFound, `"n7"`)
	})
}
