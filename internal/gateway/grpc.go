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
	// maxStreams bounds the calls of one connection that run at once. A client of the SDK has one connection for all: a stream for each
	// worker, and a call for each goroutine that waits for a result. Those beyond wait in the client for one to end. Each costs some
	// 13 KiB, and metadata.
	maxStreams = 2_000
	// maxStrangers bounds those of them that want no token: whether the server lives, and what its protocol is.
	maxStrangers = 8
	// strangerRest is when such a call that was one too many may be made again.
	strangerRest = 5 * time.Second
	// maxHeaders bounds the metadata of a call.
	maxHeaders = 32 << 10
	// streamWindow is the bytes of a call that may be on their way before anybody reads them, which may be long when there is no room
	// for its message. Who reads a longer message lets all of it come. gRPC takes no smaller one.
	streamWindow = 64 << 10
	// connWindow is that of all calls of a connection, and bounds none: gRPC opens it again whoever has read or not.
	connWindow = 8 << 20
	// readBuffer is what each connection takes as long as it lives. Larger frames are read past it.
	readBuffer = 4 << 10
	// A peer that says nothing for pingEvery is asked whether it lives, and is cut off when it does not answer.
	pingEvery   = 30 * time.Second
	pingTimeout = 10 * time.Second
	// pingMin is how often clients may ask the same.
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

// register registers the services of the API: with the server of gRPC, and with REST.
func (g *Gateway) register(s grpc.ServiceRegistrar) {
	pawlv1.RegisterProducerServiceServer(s, producers{Gateway: g})
	pawlv1.RegisterWorkerServiceServer(s, workers{Gateway: g})
	pawlv1.RegisterOperatorServiceServer(s, operators{Gateway: g})
	pawlv1.RegisterScheduleServiceServer(s, schedulers{Gateway: g})
	pawlv1.RegisterAccessServiceServer(s, accessService{Gateway: g})
	pawlv1.RegisterWebhookServiceServer(s, webhookService{Gateway: g})
	pawlv1.RegisterMarkerServiceServer(s, markerService{Gateway: g})
	pawlv1.RegisterAuditServiceServer(s, auditors{Gateway: g})
	pawlv1.RegisterGroupServiceServer(s, groupers{Gateway: g})
	pawlv1.RegisterOperationServiceServer(s, mass{Gateway: g})
	pawlv1.RegisterEventServiceServer(s, eventService{Gateway: g})
	pawlv1.RegisterWorkerRegistryServiceServer(s, workerRegistry{Gateway: g})
	pawlv1.RegisterStatsServiceServer(s, statisticians{Gateway: g})
	pawlv1.RegisterClusterServiceServer(s, clusters{Gateway: g})
}

// serving registers services so that their calls are let in by what comes with their headers, before anything of a message is taken. gRPC
// itself calls an interceptor of unary calls when the message has been decoded.
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

// unary makes a handler that begins a call, lets it in, receives its message, ends it with its trailers and the status of its error, and
// keeps a panic from ending more than it.
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
			err = shownOut(ctx, err)
		}
		g.observed(c, err, time.Since(began))
		_ = grpc.SetTrailer(ctx, g.trailer(c)) // fails only if the call has ended
		if err != nil {
			return nil, g.statusOf(caller, err)
		}
		return answer, nil
	}
}

// enter lets a call in by its headers, as admit does. Leave must be called at its end.
func (g *Gateway) enter(ctx context.Context, c *call, n need) (_ context.Context, leave func(), err error) {
	if n.reach != public {
		return g.admit(ctx, c, n, shownByGRPC(ctx))
	}
	strangers := infoOfGRPC(ctx).strangers
	if strangers == nil {
		return ctx, func() {}, nil
	}
	leave = func() { strangers.Add(-1) }
	if strangers.Add(1) > maxStrangers {
		return ctx, leave, task.Unavailable(strangerRest, "%d calls that want no token run on this connection, and no more can", maxStrangers)
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
	return shownOut(ctx, handle(srv, &callStream{s, ctx, in, info.IsClientStream}))
}

// shownOut is how a call has ended: if its token did before it, by that.
func shownOut(ctx context.Context, err error) error {
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
	many bool // messages may come
}

func (s *callStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *callStream) RecvMsg(m any) error {
	if s.many {
		return s.in.next(m)
	}
	return s.in.only(m)
}

// panicked makes an error of a panic; its stack goes to the log.
func (g *Gateway) panicked(where string, p any) error {
	return fmt.Errorf("%s: panic: %v\n%s", where, p, debug.Stack())
}
