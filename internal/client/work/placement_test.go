package work

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/route"
)

// nodes is a Router with configured answers.
type nodes struct {
	leaders     map[uint32]string
	each        []string // leader of any shard, check by check, the last for ever; nil: see leaders
	asked       int
	knows       bool
	unreachable string
	several     int
	forgotten   []route.Destination
}

func (n *nodes) HasSeveralNodes()             { n.several++ }
func (n *nodes) Knows(route.Destination) bool { return n.knows }
func (n *nodes) Forget(d route.Destination)   { n.forgotten = append(n.forgotten, d) }

func (n *nodes) LeaderNow(_ context.Context, shard uint32) string {
	if n.asked++; n.each != nil {
		return n.each[min(n.asked, len(n.each))-1]
	}
	return n.leaders[shard]
}

func (n *nodes) Reach(_ context.Context, name string) bool {
	return name == "" || name != n.unreachable
}

// id returns the id of a task of a shard.
func id(shard, n int) string { return fmt.Sprintf("00dc6acf-ac00-7%03x-8000-%012x", shard, n) }

// routed returns a run with enough slots for all pushed tasks.
func routed(t *testing.T, router *nodes) *world {
	w := &world{T: t}
	w.start(args{of: map[string]string{"slots": "1000"}})
	w.run.placement.router = router
	w.run.hello.Queues = []*pawlv1.QueueShare{{Queue: "q"}}
	return w
}

// A stream belongs to the node whose shards most tasks come from, if they are twice as many as those of its own.
func TestBetterNode(t *testing.T) {
	leaders := map[uint32]string{1: "n1", 2: "n2", 3: "n3", 4: "n4", 5: "n5", 6: "n6", 12: "n2"}
	for _, x := range []struct {
		pushed map[int]int // tasks by shard
		want   string
	}{
		{nil, ""},
		{map[int]int{1: 3}, ""},
		{map[int]int{1: 2, 2: 3}, ""},
		{map[int]int{1: 1, 2: 2}, "n2"},
		{map[int]int{1: 1, 2: 3}, "n2"},
		{map[int]int{1: 1, 2: 1, 12: 1}, "n2"},
		{map[int]int{2: 9, 3: 1, 4: 1, 5: 1, 6: 1}, "n2"},
		{map[int]int{2: 1, 99: 5}, "n2"},
		{map[int]int{99: 5}, ""},
	} {
		w := routed(t, &nodes{leaders: leaders})
		w.run.placement.take()
		for shard, n := range x.pushed {
			for i := range n {
				w.push(args{lone: []string{id(shard, i)}}, time.Now())
			}
		}
		if got := w.run.placement.betterNode(t.Context(), "n1"); got != x.want {
			t.Errorf("tasks by shard %v: got %q, want %q", x.pushed, got, x.want)
		}
		if got := w.run.placement.betterNode(t.Context(), "n1"); got != "" {
			t.Errorf("tasks by shard %v are counted again: %q", x.pushed, got)
		}
	}
}

// A stream moves when another node has led most of its tasks at two checks in a row and can be reached; one that was opened without
// knowing the leader moves at the first.
func TestStreamsMove(t *testing.T) {
	const first, later = 3 * time.Second, 30 * time.Second
	for what, x := range map[string]struct {
		router      nodes
		questions   int
		least, most time.Duration
	}{
		"twice the same":         {nodes{knows: true, each: []string{"n2"}}, 2, 20 * time.Second, 2 * later},
		"not in a row":           {nodes{knows: true, each: []string{"n2", "n1", "n2"}}, 4, 40 * time.Second, 4 * later},
		"two others":             {nodes{knows: true, each: []string{"n2", "n3"}}, 3, 30 * time.Second, 3 * later},
		"after nothing":          {nodes{knows: true, each: []string{"n1", "n2"}}, 3, 30 * time.Second, 3 * later},
		"can't be reached":       {nodes{knows: true, unreachable: "n2", each: []string{"n2", "n2", "n3"}}, 4, 40 * time.Second, 4 * later},
		"blind":                  {nodes{each: []string{"n2"}}, 1, time.Second, first},
		"blind, later":           {nodes{each: []string{"n1", "n1", "n2"}}, 3, 21 * time.Second, first + 2*later},
		"blind, not to be found": {nodes{unreachable: "n2", each: []string{"n2", "n3"}}, 3, 21 * time.Second, first + 2*later},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, renew, began := routed(t, &x.router), make(chan struct{}, 1), time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			var background sync.WaitGroup
			background.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					w.run.placement.count(id(2, n))
					time.Sleep(time.Second)
				}
			})
			w.run.placement.watch(ctx, &background, &oneStream{md: metadata.Pairs("pawl-node", "n1")}, route.OfShard(2), renew)
			select {
			case <-renew:
			case <-time.After(time.Hour):
			}
			if took := time.Since(began); x.router.asked != x.questions || took < x.least || took > x.most+time.Second {
				t.Errorf("%s: the stream moved after %d checks and %s, want %d and %s to %s", what, x.router.asked, took,
					x.questions, x.least, x.most)
			}
			cancel()
			background.Wait()
		})
	}
}

// A stream is watched only if it names its node, and may move.
func TestWatchedStreams(t *testing.T) {
	for what, x := range map[string]struct {
		md   metadata.MD
		err  error
		want int
	}{
		"a node":    {metadata.Pairs("pawl-node", "n1"), nil, 1},
		"no node":   {metadata.MD{}, nil, 0},
		"two nodes": {metadata.Pairs("pawl-node", "n1", "pawl-node", "n2"), nil, 0},
		"broken":    {metadata.Pairs("pawl-node", "n1"), io.EOF, 0},
	} {
		router := &nodes{}
		w := routed(t, router)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var background sync.WaitGroup
		w.run.placement.watch(ctx, &background, &oneStream{md: x.md, mdErr: x.err}, route.Destination{}, nil)
		background.Wait()
		if counted := w.run.placement.pushed != nil; router.several != x.want || counted != (x.want == 1) {
			t.Errorf("%s: watched %d times, want %d, tasks are counted: %v", what, router.several, x.want, counted)
		}
		w.run.placement.router = nil
		w.run.placement.watch(ctx, &background, &oneStream{md: x.md, mdErr: x.err}, route.Destination{}, nil)
	}
}

// A stream goes where most tasks came from, or where its queues are. If a stream broke, its destination is forgotten.
func TestDestinations(t *testing.T) {
	router := &nodes{}
	w := routed(t, router)
	if got, want := w.run.placement.destination(), route.OfShares(w.run.hello.Queues); got != want {
		t.Errorf("at first: %+v, want %+v", got, want)
	}
	w.run.placement.take()
	w.push(args{lone: []string{id(7, 1)}}, time.Now())
	w.run.placement.take()
	if got, want := w.run.placement.destination(), route.OfShard(7); got != want {
		t.Errorf("later: %+v, want %+v", got, want)
	}
	for what, x := range map[string]struct {
		stream  oneStream
		want    int
		watches int
	}{
		"closed":             {oneStream{recvs: []error{io.EOF}}, 0, 0},
		"broken":             {oneStream{recvs: []error{errors.New("x")}}, 1, 0},
		"not opened":         {oneStream{opens: errors.New("x")}, 1, 0},
		"broken after words": {oneStream{recvs: []error{nil, nil, errors.New("x")}, md: metadata.Pairs("pawl-node", "n1")}, 1, 1},
	} {
		router.several = 0
		router.forgotten = nil
		w.run.cfg.Worker = &x.stream
		_, _ = w.run.session(t.Context(), nil)
		if len(router.forgotten) != x.want || x.want > 0 && router.forgotten[0] != route.OfShard(7) {
			t.Errorf("%s: forgotten destinations are %+v", what, router.forgotten)
		}
		if router.several != x.watches {
			t.Errorf("%s: watched %d times, want %d", what, router.several, x.watches)
		}
	}
}
