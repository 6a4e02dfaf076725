package router

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/router/claim"
	"github.com/pawlq/pawl/internal/router/enqueue"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

const ns = "default"

// instant is a broker that answers immediately, and the other half of a cluster of two.
type instant struct {
	leader uint32
	claims []broker.Claimed
}

func (b *instant) Leader(uint32) (node, term, index uint64) { return uint64(b.leader), 1, 1 }
func (b *instant) Draining() <-chan struct{}                { return nil }
func (b *instant) WatchClaims(func(broker.Lost), func([]broker.Hold)) claim.LocalWatch {
	return nil
}

func (b *instant) enqueue(_ context.Context, q enqueue.Enqueueing) (out enqueue.TasksEnqueued, err error) {
	if len(q.Specs) > 0 {
		out.Out, out.At = make([]broker.Enqueued, len(q.Specs)), broker.Stamp{Shard: q.Shard}
	}
	return out, nil
}

func (b *instant) claim(context.Context, claim.Claiming) (claim.TasksClaimed, error) {
	return claim.TasksClaimed{Out: b.claims}, nil
}

func (b *instant) settle(context.Context, claim.Settling) (out claim.ClaimsSettled, err error) {
	return out, nil
}

type instantMap struct{}

func (instantMap) Replicas(uint32) []uint32                  { return []uint32{1, 2} }
func (instantMap) Shards() []uint32                          { return []uint32{1} }
func (instantMap) Nodes() []forward.Node                     { return nil }
func (instantMap) Queue(string, string) (queues.Queue, bool) { return queues.Queue{}, false }
func (instantMap) Learned(queues.Queue)                      {}
func (instantMap) Dropped(string, string)                    {}
func (instantMap) Age() time.Duration                        { return 0 }

// wire is a network without latency.
type wire struct{ to *Router }

func (w *wire) Call(ctx context.Context, _ uint32, method string, request []byte) ([]byte, error) {
	return w.to.Serve(ctx, method, request)
}

func (*wire) OpenStream(context.Context, uint32, string) (claim.Stream, error) {
	return nil, errors.New("none")
}

// pair returns the router of node 1 in a cluster of two. Node 2 leads if far is set.
func pair(b *testing.B, far bool) *Router {
	leader := uint32(1)
	if far {
		leader = 2
	}
	claimed := make([]broker.Claimed, 20)
	for i := range claimed {
		claimed[i] = broker.Claimed{Envelope: &schema.Envelope{ID: task.NewID(1, 1, uint64(i)), Namespace: ns,
			Queue: "default", Type: "mail", Payload: make([]byte, 1024), Headers: map[string]string{
				"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}},
			Exec: &schema.Exec{State: task.Claimed, Queue: "default", Type: "mail", Fence: 1, MaxAttempts: 5, CreatedAt: 1,
				RunAt: 1, ReadyAt: 1}}
	}
	routers, wires := make([]*Router, 2), [2]*wire{{}, {}}
	for i := range routers {
		there, on, parts := &instant{leader: leader, claims: claimed}, verbtest.Answers{}, &verb.Parts{}
		verbtest.On(on, enqueue.EnqueueTasks, there.enqueue)
		verbtest.On(on, claim.ClaimTasks, there.claim)
		ServeBy(on, parts)
		hot.Serve(there, parts)
		routers[i] = New(Config{Node: uint32(i + 1), Parts: parts, Broker: there, Map: instantMap{}, Peers: wires[i],
			NotSent: func(error) bool {
				return false
			},
			SystemLeader: func() uint32 { return 0 }})
		b.Cleanup(routers[i].Close)
	}
	wires[0].to, wires[1].to = routers[1], routers[0]
	return routers[0]
}

// hot are the verbs that every task takes, on a broker that answers immediately.
var hot verb.Table[*instant]

var (
	hotEnqueue = verb.New(&hot, verb.Rule{Name: "bench-enqueue"}, (*instant).enqueue)
	hotClaim   = verb.New(&hot, verb.Rule{Name: "bench-claim"}, (*instant).claim)
	hotSettle  = verb.New(&hot, verb.Rule{Name: "bench-settle"}, (*instant).settle)
)

// The cost of a call on top of the broker's work, when this node leads.
func BenchmarkLocalCall(b *testing.B) {
	r := pair(b, false)
	for name, call := range map[string]func(context.Context) error{
		"enqueue": func(ctx context.Context) error {
			_, err := forward.Call(ctx, r.Forwarder, hotEnqueue, 1, enqueue.Enqueueing{OnShard: broker.OnShard{Shard: 1, Namespace: ns}})
			return err
		},
		"claim": func(ctx context.Context) error {
			_, err := forward.CallLocal(ctx, r.Forwarder, hotClaim, claim.Claiming{Shard: 1})
			return err
		},
		"settle": func(ctx context.Context) error {
			_, err := forward.Call(ctx, r.Forwarder, hotSettle, 1, claim.Settling{Shard: 1})
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if err := call(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The cost of two encodings and two decodings, without a network.
func BenchmarkRemoteEnqueue100(b *testing.B) {
	r := pair(b, true)
	specs := make([]task.Spec, 100)
	for i := range specs {
		specs[i] = task.Spec{Type: "mail", Queue: "default", Payload: make([]byte, 1024), Priority: task.Normal,
			RequestID: task.NewID(1, 1, uint64(i))}
	}
	b.ReportAllocs()
	b.SetBytes(100 * 1024)
	for b.Loop() {
		if got, _, err := r.Enqueue(b.Context(), 1, ns, specs); err != nil || len(got) != 100 {
			b.Fatal(got, err)
		}
	}
}

func BenchmarkRemoteClaim20(b *testing.B) {
	r := pair(b, true)
	c := broker.ClaimCall{Namespace: ns, Queues: []broker.Share{{Queue: "q"}}, Max: 20, MaxBytes: 1 << 20, Worker: "w"}
	b.ReportAllocs()
	b.SetBytes(20 * 1024)
	for b.Loop() {
		if got, _, err := r.Claim(b.Context(), 1, c, time.Second); err != nil || len(got) != 20 {
			b.Fatal(got, err)
		}
	}
}
