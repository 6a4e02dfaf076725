package gateway

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/pawlq/pawl/api/keda"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/grpcpool"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// maxStreams bounds the concurrent calls of one connection. A client of the SDK uses one connection for everything: a stream
	// per worker, and a call for each goroutine that waits for a result. Calls beyond it wait in the client for another to end.
	// Each costs some 13 KiB, and metadata.
	maxStreams = 2_000
	// maxPublicCalls bounds those of them that need no token: health checks and reflection.
	maxPublicCalls = 8
	// publicCallRetryAfter is when such a call that exceeded the limit may be retried.
	publicCallRetryAfter = 5 * time.Second
	// maxHeaders bounds the metadata of a call.
	maxHeaders = 32 << 10
	// streamWindow is how many bytes of a call may be in flight before anybody reads them, which may take long when there is no
	// memory for its message. Reading a longer message opens the window for all of it. gRPC accepts no smaller window.
	streamWindow = 64 << 10
	// connWindow is the window for all calls of a connection, and limits none: gRPC reopens it whether or not anything was read.
	connWindow = 8 << 20
	// readBuffer is allocated for each connection for as long as it lives. Larger frames bypass it.
	readBuffer = 4 << 10
	// A peer that is silent for pingEvery is pinged, and disconnected if it does not answer.
	pingEvery   = 30 * time.Second
	pingTimeout = 10 * time.Second
	// pingMin is how often clients may ping.
	pingMin = 5 * time.Second
)

func (g *Gateway) newGRPC() *grpc.Server {
	server := grpc.NewServer(append(grpcpool.ServerOptions(),
		grpc.Creds(newHandshaken()), grpc.StreamInterceptor(g.streaming), grpc.MaxSendMsgSize(contract.MaxMessage), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaders),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connWindow),
		grpc.ReadBufferSize(readBuffer), grpc.ConnectionTimeout(headerTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingEvery, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingMin, PermitWithoutStream: true}),
	)...)
	s := serving{server, g}
	g.register(s)
	keda.RegisterExternalScalerServer(s, scaler{Gateway: g})
	g.health = health.NewServer()
	grpc_health_v1.RegisterHealthServer(s, healthService{g.health, g})
	reflection.Register(s)
	return server
}

// register registers the services of the API: with the gRPC server, and with REST.
func (g *Gateway) register(s grpc.ServiceRegistrar) {
	pawlv1.RegisterProducerServiceServer(s, producerService{Gateway: g})
	pawlv1.RegisterWorkerServiceServer(s, workerService{Gateway: g})
	pawlv1.RegisterOperatorServiceServer(s, operatorService{Gateway: g})
	pawlv1.RegisterScheduleServiceServer(s, scheduleService{Gateway: g})
	pawlv1.RegisterAccessServiceServer(s, accessService{Gateway: g})
	pawlv1.RegisterWebhookServiceServer(s, webhookService{Gateway: g})
	pawlv1.RegisterMarkerServiceServer(s, markerService{Gateway: g})
	pawlv1.RegisterAuditServiceServer(s, auditService{Gateway: g})
	pawlv1.RegisterGroupServiceServer(s, groupService{Gateway: g})
	pawlv1.RegisterOperationServiceServer(s, operationService{Gateway: g})
	pawlv1.RegisterEventServiceServer(s, eventService{Gateway: g})
	pawlv1.RegisterWorkerRegistryServiceServer(s, workerRegistryService{Gateway: g})
	pawlv1.RegisterStatsServiceServer(s, statsService{Gateway: g})
	pawlv1.RegisterClusterServiceServer(s, clusterService{Gateway: g})
}

// serving registers services so that their calls are admitted by their headers, before any of a message is read. gRPC itself calls
// an interceptor of unary calls only after the message has been decoded.
type serving struct {
	*grpc.Server
	g *Gateway
}

// RegisterService implements grpc.ServiceRegistrar.
func (s serving) RegisterService(d *grpc.ServiceDesc, impl any) {
	with := *d
	with.Methods = slices.Clone(d.Methods)
	for i := range with.Methods {
		m := &with.Methods[i]
		m.Handler = s.g.unary("/"+d.ServiceName+"/"+m.MethodName, m.Handler)
	}
	s.Server.RegisterService(&with, impl)
}

// unary returns a handler that begins a call, admits it, receives its message, ends it with its trailers and the status of its
// error, and confines a panic to it.
func (g *Gateway) unary(method string, handle grpc.MethodHandler) grpc.MethodHandler {
	rpc, wants := rpcName(method), needOfRPC(method)
	return func(srv any, caller context.Context, _ func(any) error, _ grpc.UnaryServerInterceptor) (answer any, err error) {
		began := time.Now()
		ctx, c := begin(caller, "grpc", rpc)
		defer func() {
			if p := recover(); p != nil {
				err = g.panicked(method, p)
				g.observed(c, err, time.Since(began))
				answer, err = nil, g.statusOf(caller, err)
			}
		}()
		ctx, leave, err := g.enter(ctx, c, wants)
		defer leave()
		if err != nil {
			return nil, g.statusOf(caller, err)
		}
		in, err := g.newReceiver(caller, c, wants)
		if err == nil {
			defer in.close()
			answer, err = handle(srv, ctx, in.only, nil)
			err = callError(ctx, err)
		}
		g.observed(c, err, time.Since(began))
		_ = grpc.SetTrailer(ctx, g.trailer(c)) // fails only if the call has ended
		if err != nil {
			return nil, g.statusOf(caller, err)
		}
		return answer, nil
	}
}

// enter admits a call by its headers, as admit does. The caller must call leave at its end.
func (g *Gateway) enter(ctx context.Context, c *call, n need) (_ context.Context, leave func(), err error) {
	if n.reach != public {
		return g.admit(ctx, c, n, grpcCredentials(ctx))
	}
	strangers := infoOfGRPC(ctx).publicCalls
	if strangers == nil {
		return ctx, func() {}, nil
	}
	leave = func() { strangers.Add(-1) }
	if strangers.Add(1) > maxPublicCalls {
		return ctx, leave, task.Unavailable(publicCallRetryAfter, "%d calls that need no token are in progress on this connection, the maximum", maxPublicCalls)
	}
	return ctx, leave, nil
}

func (g *Gateway) streaming(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	ctx, c := begin(s.Context(), "grpc", rpcName(info.FullMethod))
	g.streams(c)
	defer func() {
		s.SetTrailer(g.trailer(c))
		if p := recover(); p != nil {
			err = g.panicked(info.FullMethod, p)
		}
		g.observed(c, err, -1)
		err = g.statusOf(s.Context(), err)
	}()
	wants := needOfRPC(info.FullMethod)
	ctx, leave, err := g.enter(ctx, c, wants)
	defer leave()
	if err != nil {
		return err
	}
	in, err := g.newReceiver(s.Context(), c, wants)
	if err != nil {
		return err
	}
	defer in.close()
	c.receiver = in
	return callError(ctx, handle(srv, &callStream{s, ctx, in, info.IsClientStream}))
}

// callError returns the error of a call: if its token ended first, that is the error.
func callError(ctx context.Context, err error) error {
	if cause, refused := task.AsError(context.Cause(ctx)); refused {
		return cause
	}
	return err
}

// callStream is a stream with its call.
type callStream struct {
	grpc.ServerStream
	ctx  context.Context
	in   *receiver
	many bool // whether there may be many messages
}

func (s *callStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *callStream) RecvMsg(m any) error {
	if s.many {
		return s.in.next(m)
	}
	return s.in.only(m)
}

// panicked returns a panic as an error, with its stack for the log.
func (g *Gateway) panicked(where string, p any) error {
	return fmt.Errorf("%s: panic: %v\n%s", where, p, debug.Stack())
}
