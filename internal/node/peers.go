package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/fxamacker/cbor/v2"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/node/members"
	"github.com/pawlq/pawl/internal/router/claim"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/transport"
	"github.com/pawlq/pawl/internal/verb"
)

// nodeOf returns the number of a replica's node.
func nodeOf(replica uint64) uint32 { return uint32(replica) }

// nodeNames names nodes as the map of the cluster does.
type nodeNames struct{ copy *cluster.Copy }

// node returns the name of a node.
func (n nodeNames) node(number uint64) string {
	if node, ok := n.copy.Node(uint32(number)); ok {
		return node.Name
	}
	return fmt.Sprintf("node %d", number)
}

// ofReplica returns the name of a replica's node, or its number if the map doesn't have it.
func (n nodeNames) ofReplica(replica uint64) string {
	if node, ok := n.copy.Node(nodeOf(replica)); ok {
		return node.Name
	}
	return fmt.Sprint(nodeOf(replica))
}

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

// SendSnapshot implements shard.Transport. The head is the shard's number, the size and the message.
func (l link) SendSnapshot(ctx context.Context, m *pb.Message, size uint64, body func(io.Writer) error) error {
	head, err := proto.MarshalOptions{}.MarshalAppend(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, l.shard), size), m)
	if err != nil {
		return err
	}
	return l.via.SendSnapshot(ctx, nodeOf(m.GetTo()), head, body)
}

// errNoMember: the node's parts don't exist yet.
var errNoMember = errors.New("this node belongs to no cluster yet")

// peerHandler handles what other nodes send: it is the transport.Handler.
type peerHandler struct{ n *Node }

// known returns the cluster as this node knows it; nil: it knows no map yet.
func (e peerHandler) known() *cluster.Map {
	if e.n.member.Load() {
		return e.n.copy.Map()
	}
	return e.n.bootstrap.known.Load()
}

// wants are the calls that matter for the admission of a node.
var wants = map[string]members.Request{cluster.Changes.Name(): members.Changes, methodReach: members.Reach}

// ownMethods are the methods that other nodes call besides verbs.
var ownMethods = []string{methodHello, methodJoin, methodReach, methodHash, methodMap, methodReport, methodImage, forward.ScopedMethod}

// checkNames panics if a verb has the name of such a method, and so could not be called.
func checkNames(verbs *verb.Parts) {
	for _, name := range ownMethods {
		if verbs.Named(name) != nil {
			panic(fmt.Sprintf("a verb has the name of the method %q", name))
		}
	}
}

// admitPeer admits members only.
func (e peerHandler) admitPeer(p transport.Peer, method string) error {
	return e.n.refresher.Admit(e.known(), p.Number, p.Name, wants[method])
}

// refused counts and records the refusals of nodes that are not members, or claim to be others.
func (e peerHandler) refused(p transport.Peer, proven, address string, reason error) {
	no := (*members.Refusal)(nil)
	if out := errors.As(reason, &no) && no.Out || errors.Is(reason, transport.ErrCertificate); out && e.n.member.Load() {
		e.n.evidence.RefusedNode(p.Name, proven, address, reason)
	}
}

// unreachable tells the groups that a node gets no messages.
func (e peerHandler) unreachable(node uint32) {
	if !e.n.member.Load() {
		return
	}
	for _, id := range e.n.replicas.all() {
		row, ok := e.n.copy.Shard(id)
		rep := e.n.replicas.get(id)
		if !ok || rep == nil {
			continue
		}
		if r, ok := row.On(node); ok {
			rep.shard.Unreachable(r.ID)
		}
	}
}

// self returns how this node identifies itself to other nodes.
func (e peerHandler) self() transport.Peer {
	me := e.n.dir.Identity.Read()
	return transport.Peer{Cluster: datadir.DecodeID(me.Cluster), Number: me.Node, Name: me.Name}
}

// Raft implements transport.Handler. It drops messages for replicas that are no longer here, and messages that a node sends for
// replicas other than its own.
func (e peerHandler) Raft(from transport.Peer, messages []transport.Envelope) {
	if !e.n.member.Load() {
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
	if len(head) < 4+8 {
		return fmt.Errorf("head of %d bytes", len(head))
	}
	id, size, m := binary.BigEndian.Uint32(head), binary.BigEndian.Uint64(head[4:]), new(pb.Message)
	if err := proto.Unmarshal(head[4+8:], m); err != nil {
		return err
	}
	if !e.n.member.Load() {
		return errNoMember
	}
	if nodeOf(m.GetFrom()) != from.Number {
		return fmt.Errorf("%v sent the state of replica %s", from, shard.ReplicaName(id, m.GetFrom()))
	}
	rep := e.n.replicas.get(id)
	if rep == nil || rep.id != m.GetTo() {
		return fmt.Errorf("replica %s is not here", shard.ReplicaName(id, m.GetTo()))
	}
	if err := e.n.disk.MustHold(id, size); err != nil {
		return err
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
		return e.n.bootstrap.hello(request)
	case methodJoin:
		return e.admit(ctx, from, request)
	}
	switch {
	case method == methodReach:
		return e.reach(ctx, from, request)
	case !e.n.member.Load():
		return nil, errNoMember
	}
	switch method {
	case methodHash:
		return e.n.replicas.hash(request)
	case methodMap:
		return e.n.copy.Map().Encode(), nil
	case methodReport:
		return cbor.Marshal(e.n.health.report())
	case cluster.Changes.Name():
		if err := e.known().CheckMember(from.Number); err != nil {
			return forward.Refuse(err)
		}
	}
	return e.n.router.Serve(ctx, method, request)
}

// ask calls a node, perhaps this one.
func (e peerHandler) ask(ctx context.Context, node uint32, method string, request []byte) ([]byte, error) {
	if node == e.n.dir.Identity.Read().Node {
		return e.Call(ctx, e.self(), method, request)
	}
	return e.n.transport.Call(ctx, node, method, request)
}

// Stream implements transport.Handler.
func (e peerHandler) Stream(from transport.Peer, method string, s transport.Stream) error {
	if !e.n.member.Load() {
		return errNoMember
	}
	if method == methodImage {
		return e.n.images.serve(s)
	}
	return e.n.router.ServeStream(method, s)
}

// routerPeers adapts the transport to the router's interface.
type routerPeers struct{ *transport.Transport }

// OpenStream implements router.Peers.
func (f routerPeers) OpenStream(ctx context.Context, node uint32, method string) (claim.Stream, error) {
	return f.Transport.OpenStream(ctx, node, method)
}

func notSent(err error) bool { return errors.Is(err, transport.ErrNotSent) }
