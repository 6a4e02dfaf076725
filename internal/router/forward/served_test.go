package forward_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/system/schedules"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// What limits a call to some queues goes with it to other nodes, also if it is limited to none.
func TestScopeIsForwarded(t *testing.T) {
	inGroup(t, 2, func(g *group) {
		g.lead(1, 2)
		var got task.Scope
		g.runs(2, func(ctx context.Context, _ job) (string, error) {
			got = task.ScopeOf(ctx)
			return "seen", nil
		})
		for _, scope := range []task.Scope{{}, {Queues: []string{}}, {Queues: []string{"a", "b*"}}} {
			got = task.Scope{Queues: []string{"unset"}}
			answer, err := g.nodes[1].once.Call(task.WithScope(bg, scope), one)
			same(t, "answer", answer+text(err), "seen")
			if !got.Equal(scope) {
				t.Errorf("the scope %#v arrived as %#v", scope, got)
			}
			want := "scoped>2"
			if scope.All() {
				want = "once>2"
			}
			same(t, "messages", g.messages(), want)
		}
		// Decoders of other releases may make nil of an empty list: that is still no queue.
		request := mustEncode(t, struct {
			Queues  []string
			Method  string
			Request []byte
		}{nil, "once", mustEncode(t, one)})
		_, err := g.nodes[2].Serve(bg, "scoped", request)
		same(t, "error", text(err), "")
		if got.All() || len(got.Queues) != 0 {
			t.Errorf("a missing list of queues arrived as %#v, want none", got)
		}
	})
}

// A call whose limits can't be read certainly does not run. Another node may be able to read them.
func TestDamagedScope(t *testing.T) {
	inGroup(t, 3, func(g *group) {
		g.lead(1, 3)
		g.knows(1, 2)
		for _, request := range [][]byte{nil, []byte("x"), mustEncode(t, struct{ Queues int }{7})} {
			answer, err := g.nodes[2].Serve(bg, "scoped", request)
			var a reply[struct{}]
			if err != nil || verb.Decode(answer, &a) != nil || a.Fault == nil || a.Fault.NotRun != "what it is limited to can't be read" {
				t.Errorf("Serve of a damaged scope: %+v, %v", a.Fault, err)
			}
		}
		damaged := true
		g.network = func(_ context.Context, to uint32, deliver func() ([]byte, error)) ([]byte, error) {
			if damaged {
				damaged = false
				return g.nodes[to].Serve(bg, "scoped", []byte("x"))
			}
			return deliver()
		}
		got, err := g.nodes[1].once.Call(task.WithScope(bg, task.Scope{Queues: []string{"a"}}), one)
		same(t, "answer", got+text(err), "done by 3")
		same(t, "messages", g.messages(), "scoped>2 scoped>3")
		same(t, "runs", g.jobs(), "once@1 once@3") // node 1's own replica costs nothing to ask
	})
}

// A request that can't be read fails within, and does not run. A panic is an error, too.
func TestServeAnswersErrors(t *testing.T) {
	inGroup(t, 2, func(g *group) {
		p := g.nodes[2]
		fault := func(name string, request []byte) *forward.Fault {
			answer, err := p.Serve(bg, name, request)
			var a reply[string]
			if err != nil || verb.Decode(answer, &a) != nil {
				t.Fatalf("Serve of %s: %v", name, err)
			}
			return a.Fault
		}
		if f := fault("once", []byte("xyz")); f == nil || !strings.HasPrefix(f.Within, "once: request of 3 bytes: ") || g.jobs() != "" {
			t.Errorf("unreadable request: %+v", f)
		}
		g.runs(2, func(context.Context, job) (string, error) { panic("at the disco") })
		if f := fault("once", mustEncode(t, one)); f == nil || !strings.HasPrefix(f.Within, "panic: at the disco\n") {
			t.Errorf("panic: %+v", f)
		}
		g.fails(2, nil)
		if f := fault("once", mustEncode(t, one)); f != nil {
			t.Errorf("no error: %+v", f)
		}
		g.lead(1, 2) // what was done before an error comes back with it
		g.runs(2, func(context.Context, job) (string, error) { return "half", task.Invalid("id", "is odd") })
		got, err := g.nodes[1].once.Call(bg, one)
		same(t, "answer", got, "half")
		refusedWith(t, "error", err, task.ErrInvalidArgument, "is odd")
	})
}

// The errors of an answer's items travel apart from it, each at its place.
func TestItemErrors(t *testing.T) {
	none := make([]error, 2)
	at := func(errs []error) func(int) *error { return func(i int) *error { return &errs[i] } }
	if faults := forward.FaultsOf(2, at(none)); faults != nil {
		t.Errorf("faults of no errors: %v", faults)
	}
	errs := []error{nil, task.Invalid("id", "is odd"), nil, broker.Unknown("lost"), errors.New("disk broke")}
	faults := forward.FaultsOf(len(errs), at(errs))
	if len(faults) != 5 || slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		t.Errorf("%d faults, and the items keep %v", len(faults), errs)
	}
	forward.ErrorsOf(faults, len(errs), at(errs))
	if errs[0] != nil || !errors.Is(errs[1], task.ErrInvalidArgument) || errs[2] != nil || !errors.Is(errs[3], broker.ErrUnknown) ||
		text(errs[4]) != "shard 0: node 0: disk broke" {
		t.Errorf("errors %v", errs)
	}
	if f, err := forward.ReadFault(nil); f != nil || err != nil {
		t.Errorf("an answer without the field has the fault %v, %v", f, err)
	}
	// An answer of another release may have fewer items than faults, or more.
	few := make([]error, 2)
	forward.ErrorsOf(faults, 2, at(few))
	forward.ErrorsOf(faults[:2], 5, at(make([]error, 5)))
	if few[0] != nil || !errors.Is(few[1], task.ErrInvalidArgument) {
		t.Errorf("errors %v", few)
	}
	lost := forward.FaultOf(fmt.Errorf("x: %w", context.Canceled)).Err(3, 4)
	refusedWith(t, "call that was cut off", lost, broker.ErrUnknown, "shard 3: node 4 was cut off")
}

// A call on this node allocates nothing.
func TestLocalCallAllocatesNothing(t *testing.T) {
	inGroup(t, 1, func(g *group) {
		g.lead(1, 1)
		p := g.nodes[1]
		var table verb.Table[*peer]
		double := verb.New(&table, verb.Rule{Name: "double"}, func(_ *peer, _ context.Context, j job) (int, error) {
			return 2 * int(j.Wait), nil
		})
		table.Serve(p, p.parts)
		allocs := testing.AllocsPerRun(100, func() {
			if got, err := forward.Call(bg, p.Forwarder, double, 1, job{1, 21}); got != 42 || err != nil {
				t.Errorf("double = %d, %v", got, err)
			}
		})
		same(t, "allocations", allocs, 0)
	})
}

// unencodable is a request that can't travel.
type unencodable struct {
	job
	C chan int
}

// A request that can't be encoded is sent nowhere.
func TestUnencodableRequest(t *testing.T) {
	inGroup(t, 2, func(g *group) {
		g.lead(1, 2)
		var table verb.Table[*peer]
		odd := verb.New(&table, verb.Rule{Name: "odd", Idempotent: true}, func(*peer, context.Context, unencodable) (string, error) {
			return "ran", nil
		})
		for _, p := range g.nodes {
			table.Serve(p, p.parts)
		}
		_, err := odd.Call(bg, g.nodes[1], unencodable{one, make(chan int)})
		if !strings.HasPrefix(text(err), "odd for node 2: ") || errors.Is(err, broker.ErrUnknown) || g.messages() != "" {
			t.Errorf("a request that can't be encoded: %v", err)
		}
	})
}

// What a forwarder knows of the leaders comes from its own replica first, then from what it was told.
func TestLeaders(t *testing.T) {
	inGroup(t, 3, func(g *group) {
		p := g.nodes[1]
		told := func(shard, node uint32) { p.LeadsNoMore(9, broker.NotLeader{Shard: shard, Node: node}) }
		known := func(what string, shard, leader uint32, elsewhere uint64, leads bool) {
			t.Helper()
			same(t, what+": leader", p.LeaderOf(shard), leader)
			same(t, what+": elsewhere", p.LeaderElsewhere(shard), elsewhere)
			same(t, what+": leads", p.Leads(shard), leads)
		}
		known("nothing", 1, 0, 0, false)
		told(1, 3)
		known("told", 1, 3, 3, false)
		p.LeadsNoMore(2, broker.NotLeader{Shard: 1}) // not the one who was said to lead
		known("told by a stranger", 1, 3, 3, false)
		p.LeadsNoMore(3, broker.NotLeader{Shard: 1})
		known("told by the leader", 1, 0, 0, false)
		told(1, 3)
		g.knows(1, 2)
		known("replica", 1, 2, 2, false)
		g.knows(1, 1)
		known("own", 1, 1, 0, true)
		p.system = 2
		known("system shard", forward.SystemShard, 2, 2, false)
		p.system = 0
		told(forward.SystemShard, 3)
		known("system shard by hearsay", forward.SystemShard, 3, 3, false)
		told(task.MaxShard, 3)
		known("highest shard", task.MaxShard, 3, 3, false)
		told(task.MaxShard+1, 3)
		known("shard that cannot exist", task.MaxShard+1, 0, 0, false)
		known("system shard, still", forward.SystemShard, 3, 3, false)
		same(t, "number", p.Node(), 1)
		same(t, "nodes", len(p.Nodes()), 3)
		same(t, "map", p.HasMap(), true)
		g.with(func() { g.names = g.names[:1] })
		same(t, "map of one", p.HasMap(), true)
		g.with(func() { p.noMap = true })
		same(t, "no map", p.HasMap(), false)
		if nodes := p.Nodes(); len(nodes) != 1 || nodes[0] != (forward.Node{Number: 1}) {
			t.Errorf("nodes without a map: %v", nodes)
		}
	})
}

// Leader asks the others for half a second at most, and falls back on what they said.
func TestLeader(t *testing.T) {
	inGroup(t, 3, func(g *group) {
		p := g.nodes[1]
		lead := func(what string, want ...uint64) {
			t.Helper()
			node, term, index := p.Leader(bg, 1)
			same(t, what, fmt.Sprint(node, term, index), strings.Trim(fmt.Sprint(want), "[]"))
		}
		lead("nobody", 0, 0, 0)
		g.knows(1, 2)
		g.messages()
		lead("by the replica", 2, 7, 101)
		g.knows(1, 1)
		lead("this node", 1, 7, 101)
		same(t, "messages", g.messages(), "")
		g.knows(1, 0)
		g.knows(3, 3)
		lead("by asking", 3, 7, 103)
		g.network = hang(3)
		began := time.Now()
		lead("from a node that hangs", 0, 0, 0)
		same(t, "time", time.Since(began), forward.LeaderTime)
		g.network = nil
		g.knows(3, 2)
		g.knows(2, 3)
		p.LeadsNoMore(9, broker.NotLeader{Shard: 1, Node: 3})
		began = time.Now()
		lead("by hearsay", 3, 0, 0)
		if took := time.Since(began); took > forward.LeaderTime || took < forward.LeaderTime/4 {
			t.Errorf("Leader took %s", took)
		}
		_, err := p.Serve(bg, "leader", mustEncode(t, struct{ Shard uint32 }{1}))
		same(t, "error", text(err), "")
		got, err := g.nodes[3].Serve(bg, "leader", mustEncode(t, struct{ Shard uint32 }{1}))
		var a reply[struct{}]
		if err != nil || verb.Decode(got, &a) != nil || a.Fault == nil || a.Fault.Elsewhere == nil ||
			*a.Fault.Elsewhere != (broker.NotLeader{Shard: 1, Node: 2}) {
			t.Errorf("a node that does not lead says %+v, %v", a.Fault, err)
		}
	})
}

// A node is ready when its map is recent and each of its replicas knows a leader; those of other nodes don't matter.
func TestReady(t *testing.T) {
	inGroup(t, 2, func(g *group) {
		p := g.nodes[1]
		g.with(func() { p.shards = []uint32{1, 2}; p.replicas[2] = []uint32{2}; p.system = 2; p.leads[1] = 2 })
		same(t, "ready", text(p.Ready()), "")
		p.age = forward.MaxMapAge
		same(t, "ready with an old map", text(p.Ready()), "")
		p.age++
		refusedWith(t, "older map", p.Ready(), task.ErrUnavailable, "the map of the cluster is 30s old")
		p.age = 0
		g.knows(1, 0)
		refusedWith(t, "no leader", p.Ready(), task.ErrUnavailable, "shard 1: no leader answers")
		g.knows(1, 2)
		g.with(func() { p.system = 0 })
		refusedWith(t, "no system shard", p.Ready(), task.ErrUnavailable, "the system shard: no leader answers")
		g.with(func() { p.replicas[forward.SystemShard] = []uint32{2} })
		same(t, "ready without a replica of the system shard", text(p.Ready()), "")
	})
}

// A lookup of the system shard's own tables goes where it is led.
func TestLookupsOfTheSystemShard(t *testing.T) {
	inGroup(t, 2, func(g *group) {
		p := g.nodes[1]
		g.lead(forward.SystemShard, 1)
		p.system, g.nodes[2].system = 1, 2
		p.home = lives(0, &broker.NotLeader{Node: 2})
		g.nodes[2].home = func(_ context.Context, ns, name string) (schedules.Home, error) { return schedules.Home{Shard: 6}, nil }
		p.hasShard = func(uint32) (bool, error) { g.knows(1, 1); return false, nil }
		has, err := p.HasShard(bg, 7)
		same(t, "HasShard", fmt.Sprint(has)+text(err), "false")
		shard, err := p.ShardByName(bg, &broker.AtHome{})
		same(t, "ShardByName", fmt.Sprint(shard)+text(err), "6")
	})
}
