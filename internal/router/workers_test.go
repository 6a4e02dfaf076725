package router

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/task"
)

// workersOf returns the names in a list in one line, with their nodes, and the names of silent nodes.
func workersOf(l registry.Listing) string {
	var all []string
	for _, w := range l.Workers {
		all = append(all, w.Name+"@"+w.Node)
	}
	if l.More {
		all = append(all, "…")
	}
	for _, n := range l.Silent {
		all = append(all, "not "+n.Node)
	}
	return strings.Join(all, " ")
}

func TestWorkersOfAllNodes(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		for i, m := range []uint32{1, 2, 3, 1, 2, 3} {
			f.nodes[m].cfg.Registry.Join(registry.Hello{Namespace: "default", Name: fmt.Sprint("w", i), Queues: []registry.Share{{Queue: "q"}}}, "", 0, nil)
		}
		f.nodes[2].cfg.Registry.Join(registry.Hello{Namespace: "other", Name: "x"}, "", 0, nil)
		r := f.nodes[1].Router
		list := func(q registry.Query, node string) registry.Listing {
			t.Helper()
			q.Namespace = "default"
			l, err := r.Workers(context.Background(), q, node)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		expect := func(what string, l registry.Listing, want string) {
			t.Helper()
			if got := workersOf(l); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		expect("all", list(registry.Query{Limit: 9}, ""), "w0@n1 w1@n2 w2@n3 w3@n1 w4@n2 w5@n3")
		expect("of a node", list(registry.Query{Limit: 9}, "n3"), "w2@n3 w5@n3")
		page := list(registry.Query{Limit: 4}, "")
		expect("a page", page, "w0@n1 w1@n2 w2@n3 w3@n1 …")
		expect("the next", list(registry.Query{Limit: 4, After: page.Workers[3].Place()}, ""), "w4@n2 w5@n3")
		if _, err := r.Workers(context.Background(), registry.Query{Namespace: "default", Limit: 1}, "n9"); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("of a node that is not there: %v", err)
		}

		// A node that does not answer is named, and delays nobody for long.
		f.with(func() {
			f.network = func(_, to uint32, _ string) fate {
				return map[uint32]fate{2: notSent, 3: hangs}[to]
			}
		})
		began := time.Now()
		expect("without two nodes", list(registry.Query{Limit: 9}, ""), "w0@n1 w3@n1 not n2 not n3")
		if took := time.Since(began); took > workersTime+time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// watchWorkers has all nodes find out which workers are lost, until stop is called.
func (f *fleet) watchWorkers() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var runs sync.WaitGroup
	for _, m := range f.nodes {
		runs.Go(func() { m.WatchWorkers(ctx) })
	}
	return func() { cancel(); runs.Wait() }
}

// A worker whose stream breaks is lost, unless another node has seen it since; a node that does not answer does not delay that.
func TestLostWorkersOfAllNodes(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		defer f.watchWorkers()()
		join := func(node uint32, name string) *registry.Worker {
			return f.nodes[node].cfg.Registry.Join(registry.Hello{Namespace: "default", Name: name}, name, 0, nil)
		}
		join(1, "dies").Leave(false)
		join(1, "moves").Leave(false)
		moved := join(2, "moves")
		expect := func(what, want string) {
			t.Helper()
			list, err := f.nodes[3].Workers(context.Background(), registry.Query{Namespace: "default", Limit: 9, Lost: true}, "")
			if err != nil {
				t.Fatal(err)
			}
			got := workersOf(list)
			for _, w := range list.Workers {
				if w.Lost != nil {
					got += " (" + w.Name + " " + w.Lost.Reason + ")"
				}
			}
			if got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		pass(time.Minute)
		expect("one died, one moved", "dies@n1 moves@n2 (dies disconnected)")
		moved.Leave(true)
		pass(time.Minute)
		expect("the other has ended", "dies@n1 (dies disconnected)")
		f.with(func() {
			f.network = func(_, to uint32, _ string) fate {
				return map[uint32]fate{2: hangs}[to]
			}
		})
		join(3, "later").Leave(false)
		pass(time.Minute)
		expect("without one node", "dies@n1 later@n3 not n2 (dies disconnected) (later disconnected)")
	})
}

// A worker that claims by single calls and lets a lease end is lost, as the leader of the shard reports; one that acked through another
// node is not.
func TestLostClaimersOfAllNodes(t *testing.T) {
	inFleet(t, 2, func(f *fleet) {
		defer f.watchWorkers()()
		const node = 2 // which does not lead
		f.mustPut(2)
		got, _, err := f.nodes[node].Claim(context.Background(), 1, queueCall(2), 0)
		if err != nil || len(got) != 2 {
			t.Fatalf("claimed %v, %v", got, err)
		}
		for i, name := range []string{"acks", "vanishes"} {
			w := f.nodes[node].cfg.Registry.Begin(registry.Hello{Namespace: ns, Name: name, Address: "a"})
			w.Took([]registry.Run{{Task: got[i].ID, Token: got[i].Token, LeaseUntil: time.Now().Add(30 * time.Second)}}, time.Now())
			w.Done()
		}
		pass(30 * time.Second)
		f.with(func() {
			acked, expired := f.shards[1].tasks[got[0].ID], f.shards[1].tasks[got[1].ID]
			acked.state, acked.outcome = task.Succeeded, task.StaleCompleted
			expired.state, expired.outcome = task.Ready, task.StaleExpired
		})
		pass(time.Minute)
		list, err := f.nodes[1].Workers(context.Background(), registry.Query{Namespace: ns, Limit: 9, Lost: true}, "")
		if err != nil || workersOf(list) != "acks@n2 vanishes@n2" || list.Workers[0].Lost != nil || list.Workers[1].Lost == nil {
			t.Errorf("they are %+v, %v, want the one that vanished lost", list.Workers, err)
		}
	})
}
