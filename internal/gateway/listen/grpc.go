package listen

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/pawlq/pawl/internal/grpcpool"
)

const (
	// maxStreams bounds the concurrent calls of one connection. A client of the SDK for Go uses one connection for everything: a stream
	// per worker, and a call for each goroutine that waits for a result. Calls beyond it wait in the client for another to end.
	// Each costs some 13 KiB, and metadata.
	maxStreams = 2_000
	// maxHeaders bounds the metadata of a call.
	maxHeaders = 32 << 10
	// StreamWindow is how many bytes of a call may be in flight before anybody reads them, which may take long when there is no
	// memory for its message. Reading a longer message opens the window for all of it. gRPC accepts no smaller window.
	StreamWindow = 64 << 10
	// connWindow is the window for all calls of a connection, and limits none: gRPC reopens it whether or not anything was read.
	connWindow = 8 << 20
	// readBuffer is allocated for each connection for as long as it lives. Larger frames bypass it.
	readBuffer = 4 << 10
	// A peer that is silent for pingEvery is pinged, and disconnected if it does not answer.
	pingEvery   = 30 * time.Second
	pingTimeout = 10 * time.Second
	// pingMin is how often clients may ping: those of the Python SDK do every 2 s while a call waits, to leave a node that hangs.
	pingMin = time.Second
)

// GRPCOptions are the options of a gRPC server that serves the connections of a server.
func GRPCOptions() []grpc.ServerOption {
	return append(grpcpool.ServerOptions(),
		grpc.Creds(newHandshaken()), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaders),
		grpc.StaticStreamWindowSize(StreamWindow), grpc.StaticConnWindowSize(connWindow),
		grpc.ReadBufferSize(readBuffer), grpc.ConnectionTimeout(headerTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout, Time: pingEvery, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingMin, PermitWithoutStream: true}),
	)
}
