package gateway

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/pawlq/pawl/api/keda"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// maxStreams bounds the calls of one connection that run at once.
	maxStreams = 10_000
	// maxHeaders bounds the metadata of a call.
	maxHeaders = 32 << 10
	// The windows are the bytes that may be on their way before they are read: some batches of a thousand tasks.
	streamWindow = 2 << 20
	connWindow   = 8 << 20
	// readBuffer is what each connection takes as long as it lives. Larger frames are read past it.
	readBuffer = 4 << 10
	// A peer that says nothing for pingEvery is asked whether it lives, and is cut off when it does not answer.
	pingEvery   = 30 * time.Second
	pingTimeout = 10 * time.Second
	// pingMin is how often clients may ask the same.
	pingMin = 5 * time.Second
)

func (g *Gateway) newGRPC() *grpc.Server {
	s := grpc.NewServer(
		grpc.Creds(newHandshaken()), grpc.UnaryInterceptor(g.unary), grpc.StreamInterceptor(g.streaming),
		grpc.MaxRecvMsgSize(contract.MaxMessage), grpc.MaxSendMsgSize(contract.MaxMessage), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaders),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connWindow),
		grpc.ReadBufferSize(readBuffer), grpc.ConnectionTimeout(headerTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingEvery, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingMin, PermitWithoutStream: true}),
	)
	pawlv1.RegisterProducerServiceServer(s, producers{Gateway: g})
	pawlv1.RegisterWorkerServiceServer(s, workers{Gateway: g})
	pawlv1.RegisterOperatorServiceServer(s, operators{Gateway: g})
	pawlv1.RegisterScheduleServiceServer(s, schedulers{Gateway: g})
	pawlv1.RegisterAccessServiceServer(s, keepers{Gateway: g})
	pawlv1.RegisterWebhookServiceServer(s, heralds{Gateway: g})
	pawlv1.RegisterAuditServiceServer(s, auditors{Gateway: g})
	pawlv1.RegisterGroupServiceServer(s, groupers{Gateway: g})
	pawlv1.RegisterOperationServiceServer(s, mass{Gateway: g})
	pawlv1.RegisterEventServiceServer(s, herald{Gateway: g})
	pawlv1.RegisterRosterServiceServer(s, rollCall{Gateway: g})
	pawlv1.RegisterStatsServiceServer(s, statisticians{Gateway: g})
	pawlv1.RegisterClusterServiceServer(s, clusters{Gateway: g})
	keda.RegisterExternalScalerServer(s, scaler{Gateway: g})
	g.health = health.NewServer()
	grpc_health_v1.RegisterHealthServer(s, g.health)
	reflection.Register(s)
	return s
}

// unary begins a call, ends it with its trailers and the status of its error, and keeps a panic from ending more than it.
func (g *Gateway) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	caller, began := ctx, time.Now()
	ctx, c := begin(ctx, "grpc", rpcName(info.FullMethod))
	defer func() {
		if p := recover(); p != nil {
			err = g.panicked(info.FullMethod, p)
			g.observed(c, err, time.Since(began))
			answer, err = nil, g.statusOf(caller, err)
		}
	}()
	ctx, leave, err := g.admit(ctx, c, needOfRPC(info.FullMethod), shownByGRPC(ctx))
	defer leave()
	if err != nil {
		return nil, g.statusOf(caller, err)
	}
	answer, err = handle(ctx, req)
	err = shownOut(ctx, err)
	g.observed(c, err, time.Since(began))
	if md := g.trailer(c); md != nil {
		_ = grpc.SetTrailer(ctx, md) // fails only if the call has ended
	}
	if err != nil {
		return nil, g.statusOf(caller, err)
	}
	return answer, nil
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
	ctx, leave, err := g.admit(ctx, c, needOfRPC(info.FullMethod), shownByGRPC(ctx))
	defer leave()
	if err == nil {
		err = shownOut(ctx, handle(srv, &callStream{s, ctx}))
	}
	return err
}

// shownOut is how a call has ended: if its token did before it, by that.
func shownOut(ctx context.Context, err error) error {
	if cause, refused := task.AsError(context.Cause(ctx)); refused && ctx.Err() != nil {
		return cause
	}
	return err
}

// callStream is a stream with its call.
type callStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *callStream) Context() context.Context { return s.ctx }

// panicked makes an error of a panic; its stack goes to the log.
func (g *Gateway) panicked(where string, p any) error {
	return fmt.Errorf("%s: panic: %v\n%s", where, p, debug.Stack())
}
