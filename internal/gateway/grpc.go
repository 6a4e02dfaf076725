package gateway

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/pawlq/pawl/api/keda"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/access"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/gateway/receive"
	"github.com/pawlq/pawl/internal/gateway/send"
	"github.com/pawlq/pawl/internal/task"
)

func (g *Gateway) newGRPC() *grpc.Server {
	server := grpc.NewServer(append(listen.GRPCOptions(), grpc.StreamInterceptor(g.streaming), grpc.MaxSendMsgSize(contract.MaxMessage))...)
	s := serving{server, g}
	g.services.register(g.answers.Registrar(access.RecordReads(s, g.cfg.Trail)))
	keda.RegisterExternalScalerServer(s, &g.services.scaler)
	g.health = health.NewServer()
	grpc_health_v1.RegisterHealthServer(s, healthService{g.health, g})
	reflection.Register(s)
	return server
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
	rpc, wants := access.RPCName(method), access.NeedOfRPC(method)
	return func(srv any, caller context.Context, _ func(any) error, _ grpc.UnaryServerInterceptor) (answer any, err error) {
		began := time.Now()
		ctx, out := g.answers.Begin(caller)
		defer out.Release()
		ctx, c := callinfo.Begin(ctx, task.InterfaceGRPC, rpc)
		defer func() {
			if p := recover(); p != nil {
				err = callinfo.Panicked(method, p)
				g.observer.Observed(c, err, time.Since(began))
				answer, err = nil, g.Status(caller, err)
			}
		}()
		ctx, leave, err := g.access.AdmitGRPC(ctx, c, wants)
		defer leave()
		if err != nil {
			return nil, g.Status(caller, err)
		}
		in, err := receive.New(caller, c.Namespace, wants.LargestMessage(), g.memory, &g.Errors)
		if err == nil {
			defer in.Close()
			answer, err = handle(srv, ctx, in.Only, nil)
			err = callinfo.ErrorOf(ctx, err)
		}
		g.observer.Observed(c, err, time.Since(began))
		_ = grpc.SetTrailer(ctx, g.leaders.Trailer(c)) // fails only if the call has ended
		if err != nil {
			return nil, g.Status(caller, err)
		}
		return out.Message(ctx, answer), nil
	}
}

func (g *Gateway) streaming(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	ctx, out := g.answers.Begin(s.Context())
	defer out.Release()
	ctx, c := callinfo.Begin(ctx, task.InterfaceGRPC, access.RPCName(info.FullMethod))
	g.observer.Streams(c)
	defer func() {
		s.SetTrailer(g.leaders.Trailer(c))
		if p := recover(); p != nil {
			err = callinfo.Panicked(info.FullMethod, p)
		}
		g.observer.Observed(c, err, -1)
		err = g.Status(s.Context(), err)
	}()
	wants := access.NeedOfRPC(info.FullMethod)
	ctx, leave, err := g.access.AdmitGRPC(ctx, c, wants)
	defer leave()
	if err != nil {
		return err
	}
	in, err := receive.New(s.Context(), c.Namespace, wants.LargestMessage(), g.memory, &g.Errors)
	if err != nil {
		return err
	}
	defer in.Close()
	c.Receiver = in
	return callinfo.ErrorOf(ctx, handle(srv, &callStream{s, ctx, in, out, info.IsClientStream}))
}

// callStream is a stream with its call.
type callStream struct {
	grpc.ServerStream
	ctx  context.Context
	in   *receive.Receiver
	out  *send.Answer
	many bool // whether there may be many messages
}

func (s *callStream) Context() context.Context { return s.ctx }

// SendMsg implements grpc.ServerStream.
func (s *callStream) SendMsg(m any) error { return s.out.Send(s.ctx, s.ServerStream, m) }

// RecvMsg implements grpc.ServerStream.
func (s *callStream) RecvMsg(m any) error {
	if s.many {
		return s.in.Next(m)
	}
	return s.in.Only(m)
}
