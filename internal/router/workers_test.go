package router_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// workersOf returns in one line the names in a list with their nodes, and the nodes that did not respond.
func workersOf(l verb.Partial[registry.Page]) string {
	var all []string
	for _, w := range l.Value.Workers {
		all = append(all, w.Name+"@"+w.Node)
	}
	if l.Value.More {
		all = append(all, "…")
	}
	for _, n := range l.Missing {
		all = append(all, "not "+n.Node)
	}
	return strings.Join(all, " ")
}

func TestWorkersOfAllNodes(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		for i, m := range []uint32{1, 2, 3, 1, 2, 3} {
			f.Nodes[m].Registry.Join(registry.Hello{Namespace: "default", Name: fmt.Sprint("w", i), Queues: []registry.Share{{Queue: "q"}}},
				"", 0, nil)
		}
		f.Nodes[2].Registry.Join(registry.Hello{Namespace: "other", Name: "x"}, "", 0, nil)
		r := f.Nodes[1].Router
		list := func(q registry.Query, node string) verb.Partial[registry.Page] {
			t.Helper()
			q.Namespace = "default"
			l, err := r.Workers.Workers(context.Background(), q, node)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		expect := func(what string, l verb.Partial[registry.Page], want string) {
			t.Helper()
			if got := workersOf(l); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		expect("all", list(registry.Query{Limit: 9}, ""), "w0@n1 w1@n2 w2@n3 w3@n1 w4@n2 w5@n3")
		expect("of a node", list(registry.Query{Limit: 9}, "n3"), "w2@n3 w5@n3")
		page := list(registry.Query{Limit: 4}, "")
		expect("a page", page, "w0@n1 w1@n2 w2@n3 w3@n1 …")
		expect("the next", list(registry.Query{Limit: 4, After: page.Value.Workers[3].Place()}, ""), "w4@n2 w5@n3")
		if _, err := r.Workers.Workers(context.Background(), registry.Query{Namespace: "default", Limit: 1}, "n9"); !errors.Is(err,
			task.ErrNotFound) {
			t.Errorf("Workers of a node that does not exist: %v, want not found", err)
		}

		// A node that does not respond is reported, and does not delay the list for long.
		f.With(func() {
			f.Network = func(_, to uint32, _ string) routertest.Delivery {
				return map[uint32]routertest.Delivery{2: routertest.NotSent, 3: routertest.Hangs}[to]
			}
		})
		began := time.Now()
		expect("without two nodes", list(registry.Query{Limit: 9}, ""), "w0@n1 w3@n1 not n2 not n3")
		if took := time.Since(began); took > verb.PartTime+time.Second {
			t.Errorf("Workers took %v", took)
		}
	})
}

// watchWorkers has all nodes detect lost workers until stop is called.
func watchWorkers(f *routertest.Fleet) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var runs sync.WaitGroup
	for _, m := range f.Nodes {
		runs.Go(func() { m.Workers.Watch(ctx) })
	}
	return func() { cancel(); runs.Wait() }
}

// A worker whose stream breaks is lost, unless another node has seen it since. A node that does not respond does not delay this.
func TestLostWorkersOfAllNodes(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		defer watchWorkers(f)()
		join := func(node uint32, name string) *registry.Worker {
			return f.Nodes[node].Registry.Join(registry.Hello{Namespace: "default", Name: name}, name, 0, nil)
		}
		join(1, "dies").Leave(false)
		join(1, "moves").Leave(false)
		moved := join(2, "moves")
		expect := func(what, want string) {
			t.Helper()
			list, err := f.Nodes[3].Workers.Workers(context.Background(), registry.Query{Namespace: "default", Limit: 9, Lost: true}, "")
			if err != nil {
				t.Fatal(err)
			}
			got := workersOf(list)
			for _, w := range list.Value.Workers {
				if w.Lost != nil {
					got += " (" + w.Name + " " + w.Lost.Reason + ")"
				}
			}
			if got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		routertest.Pass(time.Minute)
		expect("one died, one moved", "dies@n1 moves@n2 (dies disconnected)")
		moved.Leave(true)
		routertest.Pass(time.Minute)
		expect("the other has ended", "dies@n1 (dies disconnected)")
		f.With(func() {
			f.Network = func(_, to uint32, _ string) routertest.Delivery {
				return map[uint32]routertest.Delivery{2: routertest.Hangs}[to]
			}
		})
		join(3, "later").Leave(false)
		routertest.Pass(time.Minute)
		expect("without one node", "dies@n1 later@n3 not n2 (dies disconnected) (later disconnected)")
	})
}

// A worker that claims by single calls and lets a lease expire is lost, as the leader of the shard reports. One that acked through
// another node is not.
func TestLostClaimersOfAllNodes(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		defer watchWorkers(f)()
		const node = 2 // this node does not lead
		f.Put(2)
		got, _, err := f.Nodes[node].Claim(context.Background(), 1, routertest.QueueCall(2), 0)
		if err != nil || len(got) != 2 {
			t.Fatalf("Claim = %v, %v", got, err)
		}
		for i, name := range []string{"acks", "vanishes"} {
			w := f.Nodes[node].Registry.Begin(registry.Hello{Namespace: routertest.Namespace, Name: name, Address: "a"})
			w.Took([]registry.Run{{Task: got[i].ID, Token: got[i].Token, LeaseUntil: time.Now().Add(30 * time.Second)}}, time.Now())
			w.Done()
		}
		routertest.Pass(30 * time.Second)
		f.With(func() {
			acked, expired := f.Shards[1].Tasks[got[0].ID], f.Shards[1].Tasks[got[1].ID]
			acked.State, acked.Outcome = task.Succeeded, task.StaleCompleted
			expired.State, expired.Outcome = task.Ready, task.StaleExpired
		})
		routertest.Pass(time.Minute)
		list, err := f.Nodes[1].Workers.Workers(context.Background(), registry.Query{Namespace: routertest.Namespace, Limit: 9, Lost: true},
			"")
		if err != nil || workersOf(list) != "acks@n2 vanishes@n2" || list.Value.Workers[0].Lost != nil ||
			list.Value.Workers[1].Lost == nil {
			t.Errorf("workers = %+v, %v; want only the one that vanished marked as lost", list.Value.Workers, err)
		}
	})
}
