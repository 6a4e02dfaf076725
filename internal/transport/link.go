package transport

import (
	"context"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
)

// link is a connection to one address. It is established when first needed, and again whenever it broke.
type link struct {
	cc *grpc.ClientConn

	mu   sync.Mutex
	conn net.Conn // the connection dialled last
}

// newLink returns a link to a node that must prove its name; any node if the name is empty.
func (t *Transport) newLink(at Address) *link {
	l := &link{}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := t.cfg.Dial(ctx, at.Address)
		if err == nil {
			l.mu.Lock()
			l.conn = conn
			l.mu.Unlock()
		}
		return conn, err
	}
	var err error
	// Only the dialer uses the address: gRPC neither resolves it nor parses a scheme from it.
	l.cc, err = grpc.NewClient("passthrough:///peer",
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(t.credentials(at.Name)),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithMaxHeaderListSize(maxMetadata),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: reconnectFirst, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectMost},
			MinConnectTimeout: handshakeTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveClient, Timeout: keepaliveWait, PermitWithoutStream: true}),
		grpc.WithIdleTimeout(0),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithNoProxy(),
	)
	if err != nil {
		panic(fmt.Sprintf("options of a connection: %v", err))
	}
	return l
}

// reset cuts the connection, which a silent peer won't do. Requests in flight on it fail, and the next use dials again.
func (l *link) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

// close closes the link. It cuts the connection first, since gRPC would try to say goodbye to a peer that may not listen.
func (l *link) close() {
	l.reset()
	_ = l.cc.Close()
}

// begin opens a stream and waits until the other side has admitted it. The stream must end with its context at the latest.
func (t *Transport) begin(ctx context.Context, l *link, path string, to uint32, method string) (grpc.ClientStream, error) {
	s, err := l.cc.NewStream(t.withIdentity(ctx, to, method), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, path)
	if err != nil {
		return nil, outcome(ctx, err, false)
	}
	header, err := s.Header()
	if err == nil && header == nil { // it ended without being admitted; RecvMsg returns the reason
		err = s.RecvMsg(new(frame))
	}
	if err != nil {
		return nil, outcome(ctx, err, true)
	}
	return s, nil
}
