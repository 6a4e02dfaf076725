package transport

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
)

// The identity of a request, sent before its body as metadata of the RPC.
const (
	keyCluster   = "pawl-cluster" // the sender
	keyNumber    = "pawl-node"
	keyName      = "pawl-name"
	keyToCluster = "pawl-to-cluster" // the recipient; absent: whichever node is there
	keyToNumber  = "pawl-to-node"
	keyMethod    = "pawl-method" // of calls and streams
)

var noCluster [16]byte

// incoming is a request to be admitted: its sender, as it claims, and what it is for.
type incoming struct {
	from      Peer
	toCluster [16]byte
	toNumber  uint32
	method    string
}

// String returns a node's name and number for people: `node "n1" (3)`.
func (p Peer) String() string {
	if p.Number == 0 {
		return fmt.Sprintf("node %q", p.Name)
	}
	return fmt.Sprintf("node %q (%d)", p.Name, p.Number)
}

// shortCluster returns enough of a cluster's id to tell two apart.
func shortCluster(id [16]byte) string { return hex.EncodeToString(id[:4]) + "…" }

// withIdentity adds the identity to a request. to is the number of the node that the request is for, 0 for whichever is there. Other
// metadata in the context is dropped: it was meant for other recipients.
func (t *Transport) withIdentity(ctx context.Context, to uint32, method string) context.Context {
	self := t.cfg.Self()
	md := identify(self)
	if self.Cluster != noCluster {
		md[keyToCluster] = md[keyCluster]
	}
	if to != 0 {
		md[keyToNumber] = []string{strconv.FormatUint(uint64(to), 10)}
	}
	if method != "" {
		md[keyMethod] = []string{method}
	}
	return metadata.NewOutgoingContext(ctx, md)
}

func identify(p Peer) metadata.MD {
	return metadata.MD{
		keyCluster: {hex.EncodeToString(p.Cluster[:])},
		keyNumber:  {strconv.FormatUint(uint64(p.Number), 10)},
		keyName:    {p.Name},
	}
}

// admit admits a request, or refuses it with a reason to its sender and in the log. open means that the request may use the
// methods that need no cluster.
func (t *Transport) admit(ctx context.Context, open bool) (incoming, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	v, err := readIncoming(md)
	if err == nil {
		err = t.examine(ctx, v, open)
	}
	if err == nil {
		return v, nil
	}
	return incoming{}, t.refuse(ctx, v, err)
}

// refuse logs why a request is not admitted or is ended, and returns the error for its sender.
func (t *Transport) refuse(ctx context.Context, v incoming, err error) error {
	if t.logLimit.allow("refused " + v.from.String()) {
		t.cfg.Logger.Warn("a peer was refused", "peer", v.from.Name, "number", v.from.Number, "address", remote(ctx), "reason", err)
	}
	proven, address := CallerOf(ctx)
	t.cfg.Refused(v.from, proven, address, err)
	return refusal(err.Error())
}

// examine returns why a request can't be admitted in the current state.
func (t *Transport) examine(ctx context.Context, v incoming, open bool) error {
	self := t.cfg.Self()
	if name, ok := provenName(ctx); ok && name != v.from.Name {
		return fmt.Errorf("%v %w %q", v.from, ErrCertificate, name)
	}
	switch open = open && t.open[v.method]; {
	case v.from.Cluster == noCluster && open:
		return nil
	case v.from.Cluster == noCluster:
		return fmt.Errorf("node %q belongs to no cluster yet: it may join ours, but nothing else", v.from.Name)
	case self.Cluster == noCluster:
		return fmt.Errorf("this node, %q, belongs to no cluster yet", self.Name)
	case v.from.Cluster != self.Cluster || v.toCluster != noCluster && v.toCluster != self.Cluster:
		return fmt.Errorf("node %q of cluster %s tried to reach us; we are node %q of cluster %s: its --join address is wrong",
			v.from.Name, shortCluster(v.from.Cluster), self.Name, shortCluster(self.Cluster))
	case v.from.Number == 0:
		return fmt.Errorf("node %q has our cluster, but no number", v.from.Name)
	case v.toNumber != 0 && v.toNumber != self.Number:
		return fmt.Errorf("this is %s, not node %d", describe(self), v.toNumber)
	case open:
		return nil
	}
	if c := acceptedFrom(ctx); c != nil {
		c.note(v.from) // before Admit is asked: SetPeers either finds it, or has been called before Admit
	}
	return t.cfg.Admit(v.from, v.method)
}

// describe names this node in a refusal: "node 3 (n3)".
func describe(self Peer) string {
	if self.Number == 0 {
		return fmt.Sprintf("node %q, which has no number yet", self.Name)
	}
	return fmt.Sprintf("node %d (%s)", self.Number, self.Name)
}

var errStranger = errors.New("this port is for the nodes of a Pawl cluster; clients use another one")

func readIncoming(md metadata.MD) (incoming, error) {
	from, err := readPeer(md)
	if err != nil {
		return incoming{}, errStranger
	}
	v := incoming{from: from, method: one(md, keyMethod)}
	if s := one(md, keyToCluster); s != "" {
		if v.toCluster, err = parseCluster(s); err != nil {
			return incoming{}, err
		}
	}
	if s := one(md, keyToNumber); s != "" {
		if v.toNumber, err = parseNumber(s); err != nil {
			return incoming{}, err
		}
	}
	return v, nil
}

// readPeer decodes what identify encoded.
func readPeer(md metadata.MD) (Peer, error) {
	cluster, err := parseCluster(one(md, keyCluster))
	if err != nil {
		return Peer{}, err
	}
	number, err := parseNumber(one(md, keyNumber))
	if err != nil {
		return Peer{}, err
	}
	name := one(md, keyName)
	if name == "" || len(name) > maxName {
		return Peer{}, fmt.Errorf("name of a peer has %d bytes, want 1 to %d", len(name), maxName)
	}
	return Peer{Cluster: cluster, Number: number, Name: name}, nil
}

// maxName bounds the name of a node.
const maxName = 63

func one(md metadata.MD, key string) string {
	if v := md[key]; len(v) == 1 {
		return v[0]
	}
	return ""
}

func parseCluster(s string) (id [16]byte, err error) {
	if len(s) != 2*len(id) {
		return id, fmt.Errorf("cluster id has %d digits, want %d", len(s), 2*len(id))
	}
	_, err = hex.Decode(id[:], []byte(s))
	return id, err
}

func parseNumber(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("node number: %w", err)
	}
	return uint32(n), nil
}

// provenName returns the name in the certificate of a request's sender; ok is false without TLS.
func provenName(ctx context.Context) (string, bool) {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return "", false
	}
	return nameOf(p)
}

func nameOf(p *grpcpeer.Peer) (string, bool) {
	proof, ok := p.AuthInfo.(proof)
	return proof.name, ok
}

// CallerOf returns the name that the certificate of a request's sender proves, "" if it has none, and the address.
func CallerOf(ctx context.Context) (proven, address string) {
	proven, _ = provenName(ctx)
	return proven, remote(ctx)
}

func remote(ctx context.Context) string {
	if p, ok := grpcpeer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}
