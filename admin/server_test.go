package admin_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
)

// server stands in for the connection: it records requests and answers immediately.
type server struct {
	client *pawl.Client
	answer func(reply any) // fills in a response. If nil, it stays empty
	err    error           // returned instead of a response
	frames [][]any         // for each stream that is opened: messages, errors, and durations of silence

	mu    sync.Mutex
	calls []call
}

// call is a request as received.
type call struct {
	at            time.Time
	method        string
	req           any
	actor, reason []string
}

// start returns the operators' calls over a connection to a server.
func start(t testing.TB, opts ...pawl.DialOptions) (*server, admin.Client) {
	t.Helper()
	s := &server{}
	client, err := pawl.Dial("localhost", append(opts, pawl.DialOptions{NoRouting: true, Logger: slog.New(slog.DiscardHandler),
		GRPC: []grpc.DialOption{
			grpc.WithUnaryInterceptor(s.unary), grpc.WithStreamInterceptor(s.open)}})...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	s.client = client
	return s, admin.New(client)
}

func (s *server) unary(ctx context.Context, method string, req, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker,
	_ ...grpc.CallOption) error {
	if method == grpc_health_v1.Health_Check_FullMethodName { // the client's own probe
		return nil
	}
	s.note(ctx, method, req)
	if s.err != nil {
		return s.err
	}
	if s.answer != nil {
		s.answer(reply)
	}
	if r, ok := req.(interface{ GetCursor() string }); ok && r.GetCursor() == "NextCursor" { // the first page's cursor: no second page
		proto.Reset(reply.(proto.Message))
	}
	return nil
}

func (s *server) note(ctx context.Context, method string, req any) {
	md, _ := metadata.FromOutgoingContext(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call{time.Now(), method[strings.LastIndex(method, ".")+1:], proto.Clone(req.(proto.Message)),
		md.Get("pawl-actor"), md.Get("pawl-reason-bin")})
}

// taken returns the calls made since it was last called.
func (s *server) taken() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// open opens a stream. If its first frame is an error, open returns that instead.
func (s *server) open(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, method string, _ grpc.Streamer,
	_ ...grpc.CallOption) (grpc.ClientStream, error) {
	frames := s.frames[0]
	s.frames = s.frames[1:]
	if err, refused := frames[0].(error); refused {
		return nil, err
	}
	return &stream{ctx: ctx, method: method, server: s, frames: frames}, nil
}

// stream is a stream of responses to one request.
type stream struct {
	grpc.ClientStream
	ctx    context.Context
	method string
	server *server
	frames []any
}

func (s *stream) SendMsg(req any) error {
	s.server.note(s.ctx, s.method, req)
	return nil
}

func (s *stream) CloseSend() error { return nil }

func (s *stream) RecvMsg(reply any) error {
	for {
		frame := s.frames[0]
		s.frames = s.frames[1:]
		switch frame := frame.(type) {
		case time.Duration:
			select {
			case <-time.After(frame):
			case <-s.ctx.Done():
				return s.ctx.Err()
			}
		case error:
			return frame
		case proto.Message:
			proto.Merge(reply.(proto.Message), frame)
			return nil
		}
	}
}
