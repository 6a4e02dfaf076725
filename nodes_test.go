package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pawlq/pawl"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

// nodes are three fakes, n1 to n3, that share their tasks, like nodes that forward calls. They record the calls that each of them gets.
type nodes struct {
	t *testing.T
	f *fake

	mu      sync.Mutex
	servers map[string]*grpc.Server
	pipes   map[string]*bufconn.Listener // by address
	addrs   map[string]string            // as nodes advertise them
	leaders map[uint32]string            // by shard
	homes   map[string]uint32            // shards of queues, 1 if missing
	seen    []string                     // "n1 Enqueue"
	dials   []string                     // addresses
	version uint64
	log     strings.Builder

	// Hooks.
	options  func(node string) []grpc.ServerOption                  // of a server that starts
	before   func(node, method string) error                        // before a call is handled
	editMap  func(node string, m *pawlv1.GetMapResponse)            // changes a node's map
	reach    func(ctx context.Context, addr string) (string, error) // the address that a dial reaches
	trailers func(metadata.MD) metadata.MD                          // of a response
}

// startNodes runs three nodes until the test ends. n1 leads all shards.
func startNodes(t *testing.T) *nodes {
	t.Helper()
	return startNodesWith(t, func(string) []grpc.ServerOption { return nil })
}

func startNodesWith(t *testing.T, options func(node string) []grpc.ServerOption) *nodes {
	t.Helper()
	c := &nodes{t: t, f: newFake(), servers: map[string]*grpc.Server{}, pipes: map[string]*bufconn.Listener{}, addrs: map[string]string{},
		leaders: map[uint32]string{1: "n1"}, homes: map[string]uint32{}, version: 1, options: options}
	made := uint64(0)
	c.f.newID = func(s *pawlv1.TaskSpec) string {
		made++
		return task.NewID(c.shardOf(s.GetQueue()), time.Now().UnixMilli(), made).String()
	}
	t.Cleanup(c.f.stop)
	for _, name := range []string{"n1", "n2", "n3"} {
		c.start(name)
	}
	return c
}

func (c *nodes) start(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	server := c.f.newServer(append(c.options(name),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			return c.intercept(ctx, name, req, info, handle)
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if info.FullMethod == pawlv1.ProducerService_Produce_FullMethodName {
				return c.produce(name, s)
			}
			if err := c.arrived(name, "Work"); err != nil {
				return err
			}
			_ = s.SetHeader(metadata.Pairs("pawl-node", name))
			return handle(srv, s)
		}))...)
	pawlv1.RegisterClusterServiceServer(server, mapper{c: c, name: name})
	grpc_health_v1.RegisterHealthServer(server, mapper{c: c, name: name})
	c.addrs[name] = name + ":7295"
	c.servers[name], c.pipes[c.addrs[name]] = server, bufconn.Listen(1<<20)
	go server.Serve(c.pipes[c.addrs[name]])
	c.t.Cleanup(server.Stop)
}

// kill stops a node immediately.
func (c *nodes) kill(name string) {
	c.mu.Lock()
	server := c.servers[name]
	delete(c.pipes, name+":7295")
	c.mu.Unlock()
	server.Stop()
}

// arrived records a call.
func (c *nodes) arrived(name, method string) error {
	c.mu.Lock()
	c.seen = append(c.seen, name+" "+method)
	before := c.before
	c.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(name, method)
}

// produce serves a producer's stream, with stamps like those of a gateway.
func (c *nodes) produce(name string, s grpc.ServerStream) error {
	stream := &grpc.GenericServerStream[pawlv1.ProduceRequest, pawlv1.ProduceResponse]{ServerStream: s}
	return c.f.produce(stream, func(ctx context.Context, method string, req any) (any, []*pawlv1.ShardStamp, error) {
		if err := c.arrived(name, method[1:]); err != nil {
			return nil, nil, err
		}
		resp, err := c.f.run(ctx, req)
		return resp, c.stamp(c.trailer(name, req)), err
	})
}

// stamp converts a trailer to its form in a frame. Duplicate values become several stamps.
func (c *nodes) stamp(trailer metadata.MD) (stamps []*pawlv1.ShardStamp) {
	leaders := trailer.Get("pawl-leader")
	if len(leaders) == 0 {
		leaders = []string{""}
	}
	for _, leader := range leaders {
		for _, said := range trailer.Get("pawl-shard") {
			if shard, err := strconv.Atoi(said); err == nil {
				stamps = append(stamps, &pawlv1.ShardStamp{Shard: uint32(shard), Leader: leader})
			}
		}
	}
	return stamps
}

// intercept responds with trailers like those of a gateway.
func (c *nodes) intercept(ctx context.Context, name string, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if err := c.arrived(name, info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:]); err != nil {
		return nil, err
	}
	if trailer := c.trailer(name, req); trailer != nil {
		_ = grpc.SetTrailer(ctx, trailer)
	}
	return handle(ctx, req)
}

// trailer returns what the response to a request says about its shard. If nil: nothing.
func (c *nodes) trailer(name string, req any) metadata.MD {
	var shard uint32
	switch r := req.(type) {
	case *pawlv1.EnqueueRequest:
		shard = c.shardOf(r.GetTask().GetQueue())
	case *pawlv1.EnqueueBatchRequest:
		shard = c.shardOf(r.GetTasks()[0].GetQueue())
	case *pawlv1.ClaimRequest:
		shard = c.shardOf(r.GetQueues()[0].GetQueue())
	case *pawlv1.SettleRequest:
		shard = c.shardOf("")
	case interface{ GetTaskId() string }:
		id, err := task.ParseID(r.GetTaskId())
		if err != nil {
			return nil
		}
		shard = id.Shard()
	default:
		return nil
	}
	trailer := metadata.Pairs("pawl-shard", fmt.Sprint(shard))
	c.mu.Lock()
	if leader := c.leaders[shard]; leader != name {
		trailer.Set("pawl-leader", leader)
	}
	c.mu.Unlock()
	if c.trailers != nil {
		trailer = c.trailers(trailer)
	}
	return trailer
}

func (c *nodes) shardOf(queue string) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if shard, ok := c.homes[queue]; ok {
		return shard
	}
	return 1
}

// mapper is the cluster service and the health service of one node.
type mapper struct {
	pawlv1.UnimplementedClusterServiceServer
	grpc_health_v1.UnimplementedHealthServer
	c    *nodes
	name string
}

func (m mapper) GetMap(context.Context, *pawlv1.GetMapRequest) (*pawlv1.GetMapResponse, error) {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	out := &pawlv1.GetMapResponse{Version: m.c.version, Node: m.name, ClusterId: "c1"}
	for name, addr := range m.c.addrs {
		out.Nodes = append(out.Nodes, &pawlv1.MapNode{Name: name, ApiAddress: addr})
	}
	for shard, leader := range m.c.leaders {
		out.Shards = append(out.Shards, &pawlv1.MapShard{Shard: shard, Leader: leader})
	}
	if m.c.editMap != nil {
		m.c.editMap(m.name, out)
	}
	return out, nil
}

func (m mapper) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	out, err := m.GetMap(ctx, nil)
	if err == nil && r.GetService() != "" && r.GetService() != pawlv1.NodeService(out.GetClusterId(), out.GetNode()) {
		err = status.Error(codes.NotFound, "unknown service")
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, err
}

// client returns a client with the addresses of some nodes.
func (c *nodes) client(addr string, opts ...pawl.DialOptions) *pawl.Client {
	c.t.Helper()
	log := slog.New(slog.NewTextHandler(lockedLog{c}, nil))
	client, err := pawl.Dial(addr, append([]pawl.DialOptions{{Dialer: c.dial, Logger: log}}, opts...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { client.Close() })
	return client
}

type lockedLog struct{ c *nodes }

func (l lockedLog) Write(b []byte) (int, error) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.log.Write(b)
}

func (c *nodes) dial(ctx context.Context, addr string) (net.Conn, error) {
	c.mu.Lock()
	c.dials = append(c.dials, addr)
	reach := c.reach
	c.mu.Unlock()
	if reach != nil {
		var err error
		if addr, err = reach(ctx, addr); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	l := c.pipes[addr]
	c.mu.Unlock()
	if l == nil {
		return nil, errors.New("nobody is there")
	}
	return l.DialContext(ctx)
}

// set changes hooks.
func (c *nodes) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *nodes) lead(shard uint32, node string) { c.set(func() { c.leaders[shard] = node }) }

// took returns the calls to the nodes since it was last called.
func (c *nodes) took() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := strings.Join(c.seen, ", ")
	c.seen = nil
	return out
}

// dialled returns the addresses that were dialled since it was last called.
func (c *nodes) dialled() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := strings.Join(c.dials, ", ")
	c.dials = nil
	return out
}

func (c *nodes) logged() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.String()
}
