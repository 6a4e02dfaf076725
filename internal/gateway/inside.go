package gateway

import (
	"context"
	"net"

	"google.golang.org/grpc/peer"
)

// insideAddr is the address of a caller within the process: the host on whose behalf it calls.
type insideAddr string

// Network implements net.Addr.
func (insideAddr) Network() string { return "inside" }

// String implements net.Addr.
func (a insideAddr) String() string { return string(a) }

// insideConn is the server's end of a connection within the process.
type insideConn struct {
	net.Conn
	from insideAddr
}

func (c insideConn) RemoteAddr() net.Addr { return c.from }

// DialInside connects a client within this process, such as the web UI, which speaks gRPC over memory, in plaintext. from is the
// host on whose behalf it calls: what is done that way is noted as from there, by face "ui". It waits until the gateway serves.
func (g *Gateway) DialInside(ctx context.Context, from string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case g.inside.conns <- insideConn{far, insideAddr(from)}:
		return near, nil
	case <-g.door.closed:
		_ = near.Close()
		return nil, net.ErrClosed
	case <-ctx.Done():
		_ = near.Close()
		return nil, ctx.Err()
	}
}

// isInside tells whether a call came over DialInside.
func isInside(p *peer.Peer) bool {
	_, ok := p.Addr.(insideAddr)
	return ok
}
