package router_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/task"
)

// A node that hangs or can't be reached is reported as silent, so that its workers are not counted as missing. One that has not been heard
// from for a while is reported as away. If it is unknown which, it is silent. None delays the answer for long.
func TestQueueWorkersWithoutSomeNodes(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		f.Nodes[1].Registry.Join(registry.Hello{Namespace: routertest.Namespace, Name: "w", Capacity: 2,
			Queues: []registry.Share{{Queue: "q"}}},
			"", 0, nil)
		queues := []broker.QueueName{{Namespace: routertest.Namespace, Name: "q"}, {Namespace: routertest.Namespace, Name: "other"}}
		for _, c := range []struct {
			deliveries   map[uint32]routertest.Delivery
			away         []string
			leader       uint32
			silent, gone string
		}{
			{nil, []string{"n2"}, 1, "", ""}, // it responds, so it is not away to the caller
			{map[uint32]routertest.Delivery{2: routertest.Hangs}, nil, 1, "n2", ""},
			{map[uint32]routertest.Delivery{2: routertest.NotSent}, nil, 1, "n2", ""},
			{map[uint32]routertest.Delivery{2: routertest.AnswerLost}, nil, 1, "n2", ""},
			{map[uint32]routertest.Delivery{2: routertest.Hangs, 3: routertest.NotSent}, nil, 1, "n2 n3", ""},
			{map[uint32]routertest.Delivery{2: routertest.Hangs, 3: routertest.NotSent}, []string{"n3"}, 1, "n2", "n3"},
			{map[uint32]routertest.Delivery{2: routertest.NotSent}, []string{"n2"}, 1, "", "n2"},
			// it leads the system shard, so no other node can report it as away
			{map[uint32]routertest.Delivery{2: routertest.Hangs}, []string{"n2"}, 2, "n2", ""},
		} {
			f.With(func() {
				f.Network = func(_, to uint32, _ string) routertest.Delivery { return c.deliveries[to] }
				f.Away, f.SystemLeader = c.away, c.leader
			})
			began := time.Now()
			all := f.Nodes[1].Workers.QueueWorkers(context.Background(), queues)
			for i, w := range all {
				if got := strings.Join(w.Silent, " "); got != c.silent {
					t.Errorf("%+v: silent nodes are %q for queue %s", c, got, queues[i].Name)
				}
				if got := strings.Join(w.Away, " "); got != c.gone {
					t.Errorf("%+v: away nodes are %q for queue %s", c, got, queues[i].Name)
				}
			}
			if all[0].Workers != 1 || all[1].Workers != 0 {
				t.Errorf("%+v: got %d and %d workers, want 1 and 0", c, all[0].Workers, all[1].Workers)
			}
			if took := time.Since(began); took > 2*registry.TallyTime+100*time.Millisecond {
				t.Errorf("%+v: QueueWorkers took %v", c, took)
			}
			counts := f.Nodes[1].Workers.CountWorkers(context.Background(), routertest.Namespace, []string{"q"})
			if known := len(counts.Missing) == 0; known != (c.silent == "") || counts.Value[0] != 1 {
				t.Errorf("%+v: CountWorkers = %v", c, counts)
			}
		}
	})
}

// randomWorker is a worker in the model.
type randomWorker struct {
	namespace                   string
	queues, types               []string
	nodes                       []uint32 // one that claims by single calls may use several nodes
	stream, quiet, drains, lost bool
	slots                       int
	running                     map[string]int // tasks by queue
}

func drawWorker(r *rand.Rand, nodes int) *randomWorker {
	some := func(names ...string) (out []string) {
		for _, name := range names {
			if r.IntN(2) == 0 {
				out = append(out, name)
			}
		}
		return out
	}
	w := &randomWorker{namespace: []string{routertest.Namespace, routertest.Namespace, "other"}[r.IntN(3)], queues: some("a", "b", "c"),
		types: some("x", "y"), slots: 1 + r.IntN(4), stream: r.IntN(3) > 0, running: map[string]int{}}
	switch r.IntN(5) {
	case 0:
		w.quiet = true
	case 1:
		w.drains = w.stream
	case 2:
		w.lost = w.stream
	}
	if w.nodes = []uint32{1 + r.Uint32N(uint32(nodes))}; !w.stream && r.IntN(2) == 0 {
		if n := 1 + r.Uint32N(uint32(nodes)); n != w.nodes[0] {
			w.nodes = append(w.nodes, n)
		}
	}
	for range r.IntN(w.slots + 1) {
		w.running[[]string{"a", "b", "c"}[r.IntN(3)]]++
	}
	return w
}

// join registers the worker with its nodes.
func (w *randomWorker) join(f *routertest.Fleet, number int) {
	name := fmt.Sprint("w", number)
	hello := registry.Hello{Namespace: w.namespace, Name: name, Address: "a", Types: w.types, Capacity: w.slots}
	for _, q := range w.queues {
		hello.Queues = append(hello.Queues, registry.Share{Queue: q})
	}
	var runs []registry.Run
	for queue, n := range w.running {
		for range n {
			number++
			runs = append(runs, registry.Run{Task: task.NewID(1, int64(number), uint64(len(runs))), Queue: queue,
				LeaseUntil: time.Now().Add(time.Hour)})
		}
	}
	for at, node := range w.nodes {
		var is *registry.Worker
		if known := f.Nodes[node].Registry; w.stream {
			is = known.Join(hello, name, 0, nil)
		} else {
			is = known.Begin(hello)
			is.Done()
		}
		if at == 0 {
			is.Took(runs, time.Now())
		}
		if w.quiet {
			for _, n := range f.Nodes {
				n.Registry.SetQuiet(1, false, []registry.QuietChange{{Namespace: w.namespace, ID: is.ID(),
					Quiet: &registry.Quiet{Version: 1,
						Until: time.Now().Add(time.Hour)}}})
			}
		}
		if w.drains {
			is.Drains()
		}
		if w.lost {
			is.Leave(false)
		}
	}
}

// counted returns the counts of a queue's workers that the model expects from the nodes together.
func counted(all []*randomWorker, queue string, hears func(node uint32) bool) string {
	var workers, connected, slots, busy, callers, quiet, draining, held int
	for _, w := range all {
		n := 0
		for _, node := range w.nodes {
			if hears(node) {
				n++
			}
		}
		if w.namespace != routertest.Namespace || w.lost || n == 0 {
			continue
		}
		if rests := w.quiet || w.drains; rests && hears(w.nodes[0]) && len(w.queues) > 0 {
			held += w.running[queue]
		}
		if !slices.Contains(w.queues, queue) {
			continue
		}
		inUse := 0
		for _, n := range w.running {
			inUse += n
		}
		switch {
		case w.quiet:
			quiet++
		case w.drains:
			draining++
		case w.stream:
			workers, connected, slots, busy = workers+1, connected+1, slots+w.slots, busy+inUse
		default:
			workers, callers = workers+1, callers+1
		}
	}
	return fmt.Sprint(workers, connected, slots, busy, callers, quiet, draining, held)
}

// Each node counts workers as the model does, whatever they do and through whichever nodes, except those on nodes that don't respond.
func TestQueueWorkersModel(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 17)) // #nosec G404 -- a test that can be repeated
		routertest.InFleet(t, 3, func(f *routertest.Fleet) {
			var all []*randomWorker
			for i := range r.IntN(8) {
				w := drawWorker(r, 3)
				w.join(f, 100*(i+1))
				all = append(all, w)
			}
			asked, mute := 1+r.Uint32N(3), uint32(0)
			if m := 1 + r.Uint32N(6); m <= 3 && m != asked {
				mute = m
			}
			f.With(func() {
				f.Network = func(_, to uint32, _ string) routertest.Delivery {
					if to == mute {
						return routertest.Hangs
					}
					return routertest.Arrives
				}
			})
			names := []string{"a", "b", "c", "none"}
			queues := make([]broker.QueueName, len(names))
			for i, name := range names {
				queues[i] = broker.QueueName{Namespace: routertest.Namespace, Name: name}
			}
			for i, w := range f.Nodes[asked].Workers.QueueWorkers(context.Background(), queues) {
				var g task.WorkerGroup
				for j := range w.Groups {
					g.Add(&w.Groups[j])
				}
				got := fmt.Sprint(w.Workers, g.Connected, g.Slots, g.Busy, g.Callers, g.Quiet, g.Draining, w.Held)
				if want := counted(all, names[i], func(node uint32) bool { return node != mute }); got != want {
					t.Errorf("seed %d: node %d counted %s for queue %s, want %s; node %d hangs", seed, asked, got, names[i], want, mute)
				}
				if (len(w.Silent) > 0) != (mute != 0) {
					t.Errorf("seed %d: silent nodes are %v, and node %d hangs", seed, w.Silent, mute)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}
