package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/router/claims"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/transport"
)

// nodeOf returns the number of a replica's node.
func nodeOf(replica uint64) uint32 { return uint32(replica) }

// link connects a shard to its other replicas.
type link struct {
	shard uint32
	via   *transport.Transport
}

// Send implements shard.Transport.
func (l link) Send(ms []*pb.Message) {
	for len(ms) > 0 {
		to, n := nodeOf(ms[0].GetTo()), 1
		for n < len(ms) && nodeOf(ms[n].GetTo()) == to {
			n++
		}
		out := make([]transport.Envelope, n)
		for i, m := range ms[:n] {
			out[i] = transport.Envelope{Shard: l.shard, Message: m}
		}
		l.via.Send(to, out)
		ms = ms[n:]
	}
}

// SendSnapshot implements shard.Transport. The head is the shard's number and the message.
func (l link) SendSnapshot(ctx context.Context, m *pb.Message, body func(io.Writer) error) error {
	head, err := proto.MarshalOptions{}.MarshalAppend(binary.BigEndian.AppendUint32(nil, l.shard), m)
	if err != nil {
		return err
	}
	return l.via.SendSnapshot(ctx, nodeOf(m.GetTo()), head, body)
}

// self returns how this node identifies itself.
func (n *Node) self() transport.Peer {
	me := n.identity.read()
	return transport.Peer{Cluster: decodeID(me.Cluster), Number: me.Node, Name: me.Name}
}

// admitPeer refuses nodes that claim another's number. A node that this one hasn't heard of yet may have just joined. From a removed
// node nothing is accepted (peerHandler) except its request for changes, which tells it that it was removed.
func (n *Node) admitPeer(p transport.Peer) error {
	if !n.member.Load() {
		return nil
	}
	if node, ok := n.copy.Node(p.Number); ok && node.Name != p.Name {
		return fmt.Errorf("node %d is named %q, not %q", p.Number, node.Name, p.Name)
	}
	return nil
}

// unreachable tells the groups that a node gets no messages.
func (n *Node) unreachable(node uint32) {
	if !n.member.Load() {
		return
	}
	for _, id := range n.replicas.all() {
		row, ok := n.copy.Shard(id)
		rep := n.replicas.get(id)
		if !ok || rep == nil {
			continue
		}
		if r, ok := row.On(node); ok {
			rep.shard.Unreachable(r.ID)
		}
	}
}

// errNoMember: the node's parts don't exist yet.
var errNoMember = errors.New("this node belongs to no cluster yet")

// errRemoved: the caller was removed from the cluster.
var errRemoved = errors.New("you were removed from the cluster")

// peerHandler handles what other nodes send: it is the transport.Handler.
type peerHandler struct{ n *Node }

// Raft implements transport.Handler. It drops messages for replicas that are no longer here, and messages that a node sends for
// replicas other than its own.
func (e peerHandler) Raft(from transport.Peer, messages []transport.Envelope) {
	if !e.n.member.Load() || e.n.removed(from.Number) {
		return
	}
	for _, m := range messages {
		if rep := e.n.replicas.get(m.Shard); rep != nil && rep.id == m.Message.GetTo() && nodeOf(m.Message.GetFrom()) == from.Number {
			_ = rep.shard.Step(m.Message) // Raft makes up for what doesn't fit
		}
	}
}

// Snapshot implements transport.Handler.
func (e peerHandler) Snapshot(ctx context.Context, from transport.Peer, head []byte, body io.Reader) error {
	if len(head) < 4 {
		return fmt.Errorf("head of %d bytes", len(head))
	}
	id, m := binary.BigEndian.Uint32(head), new(pb.Message)
	if err := proto.Unmarshal(head[4:], m); err != nil {
		return err
	}
	if !e.n.member.Load() {
		return errNoMember
	}
	if e.n.removed(from.Number) {
		return errRemoved
	}
	rep := e.n.replicas.get(id)
	if rep == nil || rep.id != m.GetTo() {
		return fmt.Errorf("replica %s is not here", shard.ReplicaName(id, m.GetTo()))
	}
	if e.n.checkSpace != nil {
		if err := e.n.checkSpace(); err != nil {
			return err
		}
	}
	if err := rep.shard.Receive(ctx, m, body); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, body) // to its end, which reports whether anything went wrong
	return err
}

// Call implements transport.Handler.
func (e peerHandler) Call(ctx context.Context, from transport.Peer, method string, request []byte) ([]byte, error) {
	switch method {
	case methodHello:
		return e.n.hello(request)
	case methodJoin:
		return e.n.admit(ctx, request)
	}
	if !e.n.member.Load() {
		return nil, errNoMember
	}
	if e.n.removed(from.Number) && method != callChanges {
		return nil, errRemoved
	}
	switch method {
	case methodHash:
		return e.n.hash(request)
	case methodMap:
		return e.n.copy.Map().Encode(), nil
	case methodReport:
		return cbor.Marshal(e.n.report())
	}
	return e.n.router.Serve(ctx, method, request)
}

// Stream implements transport.Handler.
func (e peerHandler) Stream(from transport.Peer, method string, s transport.Stream) error {
	if !e.n.member.Load() {
		return errNoMember
	}
	if e.n.removed(from.Number) {
		return errRemoved
	}
	if method == methodImage {
		return e.n.serveImage(s)
	}
	return e.n.router.ServeStream(method, s)
}

// routerPeers adapts the transport to the router's interface.
type routerPeers struct{ *transport.Transport }

// OpenStream implements router.Peers.
func (f routerPeers) OpenStream(ctx context.Context, node uint32, method string) (claims.Stream, error) {
	return f.Transport.OpenStream(ctx, node, method)
}

func notSent(err error) bool { return errors.Is(err, transport.ErrNotSent) }
