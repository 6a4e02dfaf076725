package gateway

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/fanout"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// A response from a shard that another node leads names that node. One from this node's own shards, or from several, names none.
func TestResponsesNameRemoteLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1, 2)
		f.home["b"] = 2
		_, l := serve(t, f)
		producer := pawlv1.NewProducerServiceClient(dial(t, l))
		specs := func(queues ...string) (out []*pawlv1.TaskSpec) {
			for _, q := range queues {
				out = append(out, &pawlv1.TaskSpec{Type: "a", Queue: new(q), Payload: []byte("1")})
			}
			return out
		}
		for _, c := range []struct {
			leader uint64
			queues []string
			want   string
		}{{1, []string{"a"}, ""}, {2, []string{"a", "a"}, "n2"}, {2, []string{"a", "b"}, ""}, {0, []string{"a"}, ""}} {
			f.set(func() { f.leader = c.leader })
			var trailer metadata.MD
			if _, err := producer.EnqueueBatch(t.Context(), &pawlv1.EnqueueBatchRequest{Tasks: specs(c.queues...)},
				grpc.Trailer(&trailer)); err != nil {
				t.Fatal(err)
			}
			got := ""
			if v := trailer.Get("pawl-leader"); len(v) > 0 {
				got = v[0]
			}
			if got != c.want || len(trailer.Get("pawl-shard")) != 1 {
				t.Errorf("tasks in %v while node %d leads: trailers %v, want leader %q", c.queues, c.leader, trailer, c.want)
			}
		}
	})
}

// A worker's stream names the node that serves it. A standalone node is not named.
func TestStreamsNameNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		_, l := serve(t, f)
		conn := dial(t, l)
		for _, c := range []struct {
			m    *cluster.Map
			want int
		}{{f.admin.m, 1}, {&cluster.Map{}, 0}, {&cluster.Map{Nodes: f.admin.m.Nodes[:2]}, 1}, {&cluster.Map{Nodes: f.admin.m.Nodes[:1]}, 0},
			{nil, 0}} {
			f.set(func() { f.admin.m = c.m })
			stream, err := pawlv1.NewWorkerServiceClient(conn).Work(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			hello := &pawlv1.WorkRequest{Hello: &pawlv1.WorkHello{Queues: []*pawlv1.QueueShare{{Queue: "a"}},
				Order: pawlv1.Order_ORDER_STRICT, Worker: "w"}}
			if err := stream.Send(hello); err != nil {
				t.Fatal(err)
			}
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			header, err := stream.Header()
			if got := header.Get("pawl-node"); err != nil || len(got) != c.want || c.want == 1 && got[0] != "n1" {
				t.Errorf("stream with the map %+v: header %v, %v", c.m, header, err)
			}
		}
	})
}

// silentCalls are those whose responses come from no data shard: they are about the cluster, or about what nodes know by themselves.
var silentCalls = regexp.MustCompile(`^(Access|Cluster|Marker|Webhook|WorkerRegistry)Service/|^StatsService/(Get(|Type|Queue)Stats|` +
	`ListTypes)$|^OperatorService/(DeleteQueue|GetServer)$`)

// The responses of all other calls carry the state of the shard that they reflect.
func TestResponsesAreStamped(t *testing.T) {
	someStats() // outside of all bubbles
	for name, request := range goodCalls {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			ctx, c := callinfo.Begin(t.Context(), "grpc", name)
			if _, err := s.calls[name](ctx, s.fill(request)); err != nil {
				t.Fatal(err)
			}
			if shard, index, at, ok := c.Stamp(); ok == silentCalls.MatchString(name) || ok && (shard != "1" || index == "0" || at == "") {
				t.Errorf("%s: stamp of shard %q, index %q, time %q", name, shard, index, at)
			}
		})
	}
	for what, do := range sqsCalls {
		f, g, q, claimed := startSQSCall(t)
		ctx, c := callinfo.Begin(t.Context(), "sqs", "test")
		if err := do(ctx, g, q, claimed); err != nil {
			t.Fatal(err)
		}
		about := slices.Contains([]string{"find a queue", "list queues", "put a queue"}, what)
		if _, _, _, ok := c.Stamp(); ok == about {
			t.Errorf("SQS call to %s: stamped = %t after %d calls", what, ok, f.faults.asked)
		}
	}
}

// deeds records the actions of changes to queues.
type deeds struct {
	fanout.Cluster
	done []task.Action
}

func (d *deeds) PutQueue(ctx context.Context, action auditlog.Action, ns, name string, change func(*task.QueueConfig) error) (queues.Queue,
	error) {
	d.done = append(d.done, action.Action)
	return d.Cluster.PutQueue(ctx, action, ns, name, change)
}

// Changes of queues are recorded under their own actions, and the parts of a queue are limited.
func TestQueueActionsAreRecorded(t *testing.T) {
	s := newStage(t)
	queues := &deeds{Cluster: s.g.cfg.Cluster}
	s.g.cfg.Cluster = queues
	s.g.wire()
	for _, name := range []string{"OperatorService/PauseQueue", "OperatorService/ResumeQueue", "OperatorService/PutQueue"} {
		if _, err := s.call(name, s.fill(goodCalls[name])); err != nil {
			t.Fatal(err)
		}
	}
	if want := []task.Action{task.QueuePaused, task.QueueResumed, task.QueuePut}; !slices.Equal(queues.done, want) {
		t.Errorf("recorded actions = %v, want %v", queues.done, want)
	}
	for _, n := range []int{0, -1, contract.MaxParts + 1} {
		if _, err := s.call("OperatorService/SpreadQueue", s.fill(fmt.Sprintf(`{"queue":"mail","parts":%d}`, n))); !strings.Contains(
			fmt.Sprint(err), "no shards are named") {
			t.Errorf("SpreadQueue into %d parts: %v", n, err)
		}
	}
}

// A list without a next page has no cursor.
func TestEmptyListsEnd(t *testing.T) {
	f := newFake()
	g := newGateway(f)
	ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
	verbtest.On(f.table(), broker.ListGroups, func(context.Context, broker.GroupList) (out broker.Paged[broker.GroupPage], err error) {
		out.Page.More = true
		return out, nil
	})
	verbtest.On(f.table(), broker.GroupMembers, func(context.Context, broker.MemberList) (out broker.MembersListed, err error) {
		out.Members.More = true
		return out, nil
	})
	groups, err := g.services.group.ListGroups(ctx, &pawlv1.ListGroupsRequest{})
	members, err2 := g.services.group.ListGroupMembers(ctx, &pawlv1.ListGroupMembersRequest{GroupId: someID})
	if err != nil || err2 != nil || groups.NextCursor != "" || members.NextCursor != "" {
		t.Errorf("lists = %v, %v, errors %v, %v", groups, members, err, err2)
	}
}

// bareStream is a stream that is not gRPC's own.
type bareStream struct {
	grpc.ServerStream
	ctx     context.Context
	trailer metadata.MD
}

func (s *bareStream) Context() context.Context  { return s.ctx }
func (s *bareStream) SetTrailer(md metadata.MD) { s.trailer = md }

// stamped returns the shards whose states the response to a call reflects.
func stamped(c *callinfo.Call) []string {
	shards, _, _, ok := c.Stamp()
	if !ok {
		return nil
	}
	return strings.Split(shards, ", ")
}

// lentStream is the part of gRPC's streams that a receiver reads from.
type lentStream struct{ grpc.ServerTransportStream }

func (lentStream) ReadMessageHeader([]byte) error    { return io.EOF }
func (lentStream) Read(int) (mem.BufferSlice, error) { return nil, io.EOF }
func (lentStream) RecvCompress() string              { return "" }
func (lentStream) WriteStatus(*status.Status) error  { return nil }

// A call whose messages can't be read is not run. A stream ends with trailers about the shards that it asked.
func TestCallsOnBareStreams(t *testing.T) {
	g := newGateway(newFake())
	made := 0
	_, err := g.unary("/pawl.v1.OperatorService/GetServer", func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any,
		error) {
		made++
		return nil, nil
	})(nil, t.Context(), nil, nil)
	if status.Code(err) != codes.Internal || made != 0 || g.access.Calls.InUse() != 0 {
		t.Errorf("unreadable call: %v, run %d times, %d calls in use", err, made, g.access.Calls.InUse())
	}
	for _, read := range []bool{false, true} {
		s := &bareStream{ctx: t.Context()}
		if made = 0; read {
			s.ctx = grpc.NewContextWithServerTransportStream(t.Context(), lentStream{})
		}
		err := g.streaming(nil, s, &grpc.StreamServerInfo{FullMethod: rpcWatch}, func(_ any, s grpc.ServerStream) error {
			made++
			callinfo.Note(s.Context(), broker.Stamp{Shard: 3, Index: 1})
			return nil
		})
		if (err == nil) != read || (made == 1) != read || (s.trailer["pawl-shard"] != nil) != read || g.access.Calls.InUse() != 0 {
			t.Errorf("stream that can be read (%t): %v, run %d times, trailers %v, %d calls in use", read, err, made, s.trailer,
				g.access.Calls.InUse())
		}
	}
}
