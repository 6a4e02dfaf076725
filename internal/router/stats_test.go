package router_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/verb"
)

// The statistics of all nodes are added up, queue by queue in the order of the call. A node that does not respond is reported.
func TestStatsOfAllNodes(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		ctx, now := context.Background(), time.Now()
		for n, m := range f.Nodes {
			for queue, events := range map[string]int{"mail": int(n), "sms": 10 * int(n)} {
				e := stats.Event{Namespace: routertest.Namespace, Queue: queue, Type: "t"}
				e.Counts = e.Counts.With(stats.Enqueued)
				m.Recorder.Record(now, slices.Repeat([]stats.Event{e}, events))
			}
			m.Recorder.Tick(now, stats.Tick{Namespace: routertest.Namespace, Schedule: fmt.Sprint("s", n), Late: time.Hour})
		}
		r := f.Nodes[2]
		enqueued := func(q stats.Queue) (n uint64, late int, missing []verb.Missing) {
			all := r.Stats.Stats(ctx, q, stats.Hour)
			for _, rates := range all.Value.Rates {
				n += uint64(rates.Enqueued)
			}
			return n, len(all.Value.Late), all.Missing
		}
		for q, want := range map[stats.Queue]string{{Namespace: routertest.Namespace, Name: "sms"}: "60 0 []",
			{Namespace: routertest.Namespace}: "66 3 []", {Namespace: "other"}: "0 0 []"} {
			n, late, missing := enqueued(q)
			if got := fmt.Sprint(n, late, missing); got != want {
				t.Errorf("stats of %+v: enqueued, late and missing are %s, want %s", q, got, want)
			}
		}
		names := []string{"sms", "none", "mail"}
		briefs, trends := r.Stats.Briefs(ctx, routertest.Namespace, names).Value, r.Stats.Trends(ctx, routertest.Namespace,
			names, stats.Hour).Value
		for i, want := range []uint64{60, 0, 6} {
			trend := uint64(0)
			for _, s := range trends[i].Steps {
				trend += uint64(s.In)
			}
			if brief := uint64(briefs[i].Rates.Enqueued); brief != want || trend != want {
				t.Errorf("%s: brief has %d enqueued, trend has %d, want %d", names[i], brief, trend, want)
			}
		}
		status := func(what string, ready int64, missing string) {
			t.Helper()
			got := r.Stats.NamespaceStatus(ctx, routertest.Namespace)
			if got.Value.Ready != ready || fmt.Sprint(got.Missing) != missing || ready > 0 && len(got.Value.Queues) != 1 ||
				slices.ContainsFunc(got.Value.Idle, func(c broker.QueueCount) bool { return c.Queue == "served" }) ||
				len(got.Value.Idle) == 0 {
				t.Errorf("%s: %d tasks of %v are ready, and %v are missing; want %d, and %s", what, got.Value.Ready, got.Value.Queues,
					got.Missing, ready, missing)
			}
		}
		counted := func(what, want, missing string) {
			t.Helper()
			if got := r.Stats.QueueCounts(ctx, broker.CountsQuery{Namespace: routertest.Namespace}); fmt.Sprint(got.Value) != want ||
				fmt.Sprint(got.Missing) != missing {
				t.Errorf("%s: the counts are %v, and %v are missing; want %s, and %s", what, got.Value, got.Missing, want, missing)
			}
		}
		f.AddShard(2, 2, 2)
		f.AddShard(3, 3, 3)
		for n, m := range f.Nodes {
			m.Totals = []broker.QueueCount{{Queue: "mail", N: int64(n)}, {Queue: fmt.Sprint("q", n), N: 7},
				{Queue: "served", N: 1, Served: n == 2}}
		}
		status("three shards", 1+2+3, "[]")
		counted("three shards", "[{mail 6 false} {q1 7 false} {q2 7 false} {q3 7 false}]", "[]")
		// Two nodes report on a shard while one of them does not know yet that the other leads it. It counts once, whoever answers first.
		for node, shard := range map[uint32]uint32{1: 3, 2: 3, 3: 1} {
			f.Nodes[node].Led = map[uint32]uint64{shard: 4}
			status("with an earlier leader", 1+2+3, "[]")
			counted("with an earlier leader", "[{mail 6 false} {q1 7 false} {q2 7 false} {q3 7 false}]", "[]")
			f.Nodes[node].Led = nil
		}
		f.With(func() { f.Shards[1].Leader = 0 })
		status("shard 1 has no leader", 2+3, "[shard 1]")
		counted("shard 1 has no leader", "[{mail 5 false} {q2 7 false} {q3 7 false}]", "[shard 1]")
		f.With(func() { f.Network = func(_, to uint32, _ string) routertest.Delivery { return routertest.NotSent } })
		status("nobody else answers", 2, `[node "n1" node "n3" shard 1 shard 3]`)
		counted("nobody else answers", "[{mail 2 false} {q2 7 false}]", `[node "n1" node "n3" shard 1 shard 3]`)
		for what, missing := range map[string][]verb.Missing{"briefs": r.Stats.Briefs(ctx, routertest.Namespace, names).Missing,
			"trends": r.Stats.Trends(ctx, routertest.Namespace, names, stats.Hour).Missing, "types": r.Stats.TypeCounts(ctx,
				routertest.Namespace, "", "", stats.Hour).Missing, "type briefs": r.Stats.TypeBriefs(ctx, routertest.Namespace, "", names,
				stats.Hour).Missing,
			"a type": r.Stats.TypeStats(ctx, stats.TypeQuery{Namespace: routertest.Namespace, Type: "t", Window: stats.Hour}, "").Missing} {
			if fmt.Sprint(missing) != `[node "n1" node "n3"]` {
				t.Errorf("%s lack %v", what, missing)
			}
		}
		if _, _, missing := enqueued(stats.Queue{Namespace: routertest.Namespace}); fmt.Sprint(missing) != `[node "n1" node "n3"]` {
			t.Errorf("missing nodes are %v, want n1 and n3", missing)
		}
	})
}

// otherNames is a network that replaces the queues or types in requests, so that responses have an unexpected length.
type otherNames struct {
	routertest.FakePeers
	t     *testing.T
	names []string
}

func (p otherNames) Call(ctx context.Context, to uint32, name string, request []byte) ([]byte, error) {
	var args map[string]any
	if err := verb.Decode(request, &args); err != nil || args["Names"] == nil {
		p.t.Errorf("a request of %s is %v, %v, want Names", name, args, err)
	}
	args["Names"] = p.names
	request, err := verb.Encode(&args)
	if err != nil {
		p.t.Error(err)
	}
	return p.FakePeers.Call(ctx, to, name, request)
}

// A response of an unexpected length does no harm.
func TestAnswersOfAnotherLength(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		ctx, names := context.Background(), []string{"a", "b"}
		for _, others := range [][]string{{"a"}, {"a", "b", "c"}} {
			f.Nodes[1].UsePeers(otherNames{routertest.FakePeers{M: f.Nodes[1]}, t, others})
			a, b, c := f.Nodes[1].Stats.Briefs(ctx, routertest.Namespace, names).Value, f.Nodes[1].Stats.Trends(ctx, routertest.Namespace,
				names, stats.Hour).Value, f.Nodes[1].Stats.TypeBriefs(ctx, routertest.Namespace, "", names, stats.Hour).Value
			if len(a) != 2 || len(b) != 2 || len(c) != 2 {
				t.Errorf("got %d briefs, %d trends and %d type briefs, want 2 each", len(a), len(b), len(c))
			}
		}
	})
}
