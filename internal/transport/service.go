package transport

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// The service between nodes. All its methods are streams for the server, even those with one request and one answer: so it
// can refuse a request before reading it.
const serviceName = "pawl.peer.v1.Peer"

const (
	methodRaft     = "/" + serviceName + "/Raft"     // frames of Raft messages, no answer
	methodSnapshot = "/" + serviceName + "/Snapshot" // head, chunks, end; one answer
	methodCall     = "/" + serviceName + "/Call"     // one request, one answer
	methodStream   = "/" + serviceName + "/Stream"   // frames both ways
	methodPing     = "/" + serviceName + "/Ping"     // an empty request; the answer is the time
)

var service = grpc.ServiceDesc{
	ServiceName: serviceName,
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{
		{StreamName: "Raft", Handler: admitted(false, (*Transport).serveRaft), ClientStreams: true},
		{StreamName: "Snapshot", Handler: admitted(false, (*Transport).serveSnapshot), ClientStreams: true},
		{StreamName: "Call", Handler: admitted(true, (*Transport).serveCall)},
		{StreamName: "Stream", Handler: admitted(false, (*Transport).serveStream), ClientStreams: true, ServerStreams: true},
		{StreamName: "Ping", Handler: admitted(false, (*Transport).servePing)},
	},
}

// admitted admits requests before it passes them to serve.
func admitted(open bool, serve func(*Transport, incoming, grpc.ServerStream) error) grpc.StreamHandler {
	return func(srv any, s grpc.ServerStream) error {
		t := srv.(*Transport)
		v, err := t.admit(s.Context(), open)
		if err != nil {
			return err
		}
		return serve(t, v, s)
	}
}

const (
	// keepaliveAfter is how long a connection is silent before its server checks the other side, and keepaliveWait is how long the
	// other side may take to answer: so a connection cut without notice is detected.
	keepaliveAfter = 2 * time.Second
	keepaliveWait  = 3 * time.Second
	// keepaliveClient is the shortest interval that gRPC allows clients. Our pings notice a cut earlier.
	keepaliveClient = 10 * time.Second
	// The windows are the bytes that may be in flight before they are read: enough for a snapshot at its full rate over 30 ms, but few Raft
	// messages to a node that doesn't read. Dynamic windows would cost a ping and its answer for each heartbeat.
	streamWindow = 2 << 20
	connWindow   = 8 << 20
)

func (t *Transport) newServer() *grpc.Server {
	s := grpc.NewServer(
		grpc.ForceServerCodecV2(codec{}),
		grpc.Creds(t.credentials("")),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxMetadata),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveAfter, Timeout: keepaliveWait}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
	)
	s.RegisterService(&service, t)
	return s
}
