package listen

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Shutdown cuts off calls that outlast its context, and returns when their handlers have ended, even those that take
// their time to notice: what they use is closed next.
func TestShutdownWaitsForHandlers(t *testing.T) {
	const unnoticed = time.Second // how long a handler goes on after its context has ended
	for what, call := range map[string]func(pipe *bufconn.Listener){
		"gRPC": func(pipe *bufconn.Listener) {
			c, err := grpc.NewClient("passthrough:localhost", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
			if err == nil {
				_ = c.Invoke(context.Background(), "/a/b", &emptypb.Empty{}, &emptypb.Empty{})
				_ = c.Close()
			}
		},
		"HTTP": func(pipe *bufconn.Listener) { send(pipe, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") },
		"HTTP with an unread body": func(pipe *bufconn.Listener) {
			send(pipe, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var running, began bool
			handle := func(ctx context.Context) {
				running, began = true, true
				<-ctx.Done()
				time.Sleep(unnoticed)
				running = false
			}
			rpc := grpc.NewServer(append(GRPCOptions(), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
				handle(s.Context())
				return nil
			}))...)
			web := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { handle(r.Context()) })
			s, pipe := New(Config{Logger: slog.New(slog.DiscardHandler)}, rpc, web), bufconn.Listen(64<<10)
			served := make(chan error)
			go func() { served <- s.Serve(pipe) }()
			go call(pipe)
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			at := time.Now()
			for range 2 {
				s.Shutdown(ctx)
			}
			if took := time.Since(at); !began || running || took != time.Second+unnoticed {
				t.Errorf("%s: a handler began: %v; it runs after a shutdown of %v: %v", what, began, took, running)
			}
			if err := <-served; err != nil {
				t.Errorf("%s: Serve = %v", what, err)
			}
		})
	}
}

// send sends a request over a connection, and reads until it is closed.
func send(pipe *bufconn.Listener, request string) {
	conn, err := pipe.Dial()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.Copy(conn, strings.NewReader(request))
	_, _ = io.Copy(io.Discard, conn)
}
