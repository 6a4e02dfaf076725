package router_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/task"
)

// What all nodes counted for a type is added up. A call limited to some queues sees only those, whichever node counted them.
func TestTypesOfAllNodes(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		now := time.Now()
		for i, queue := range map[uint32]string{1: "secret", 2: "mail", 3: "mail"} {
			e := stats.Event{Namespace: routertest.Namespace, Queue: queue, Type: "welcome", Ran: time.Second, Task: [16]byte{byte(i)}}
			e.Counts = e.Counts.With(stats.Enqueued).With(stats.Succeeded)
			f.Nodes[i].Recorder.Record(now, []stats.Event{e})
		}
		r := f.Nodes[1]
		for _, c := range []struct {
			scope       task.Scope
			queue, want string
		}{
			{task.Scope{}, "", "3 [mail secret] 3 3"}, {task.Scope{}, "secret", "1 [mail secret] 1 1"},
			{task.Scope{Queues: []string{"ma*"}},
				"", "2 [mail] 2 2"},
			{task.Scope{Queues: []string{"ma*"}}, "secret", "0 [mail] 0 0"}, {task.Scope{Queues: []string{}}, "", "0 [] 0 0"},
		} {
			ctx := task.WithScope(context.Background(), c.scope)
			all := r.Stats.TypeStats(ctx, stats.TypeQuery{Namespace: routertest.Namespace, Type: "welcome", Window: stats.Hour}, c.queue)
			sum, queues, missing := all.Value, all.Value.Queues, all.Missing
			counts := r.Stats.TypeCounts(ctx, routertest.Namespace, c.queue, "wel*", stats.Hour).Value
			briefs := r.Stats.TypeBriefs(ctx, routertest.Namespace, c.queue, []string{"welcome"}, stats.Hour).Value
			ended := uint64(0)
			for _, x := range counts.Counts {
				ended += x.Ended
			}
			if got := fmt.Sprint(sum.Total().Succeeded, queues, briefs[0].Run.Count(), ended); got != c.want || len(missing) > 0 ||
				len(sum.Slowest) != int(sum.Total().Succeeded) {
				t.Errorf("queues %v, queue %q: got %s, %d slowest, missing nodes %v; want %s", c.scope.Queues, c.queue, got,
					len(sum.Slowest), missing, c.want)
			}
		}
		if counts := r.Stats.TypeCounts(context.Background(), routertest.Namespace, "", "", stats.Hour).Value; len(counts.Counts) != 1 {
			t.Errorf("TypeCounts of all types = %+v, want one type", counts.Counts)
		}
		if counts := r.Stats.TypeCounts(context.Background(), routertest.Namespace, "", "none*",
			stats.Hour).Value; len(counts.Counts) != 0 {
			t.Errorf("TypeCounts without a matching type = %+v, want none", counts.Counts)
		}
		f.With(func() {
			f.Network = func(_, to uint32, _ string) routertest.Delivery {
				return map[uint32]routertest.Delivery{3: routertest.NotSent}[to]
			}
		})
		if got := r.Stats.TypeStats(context.Background(), stats.TypeQuery{Namespace: routertest.Namespace, Type: "welcome",
			Window: stats.Hour},
			""); got.Value.Total().Succeeded != 2 || fmt.Sprint(got.Missing) != `[node "n3"]` {
			t.Errorf("TypeStats without node 3: %d succeeded, missing %v; want 2 and n3", got.Value.Total().Succeeded, got.Missing)
		}
	})
}
