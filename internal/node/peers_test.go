package node

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxamacker/cbor/v2"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/node/evidence"
	"github.com/pawlq/pawl/internal/node/members"
	"github.com/pawlq/pawl/internal/transport"
)

// Only members are admitted, under their own names.
func TestAdmitPeer(t *testing.T) {
	n := &Node{bootstrap: &bootstrap{}, refresher: members.NewRefresher()}
	e := peerHandler{n}
	m := &cluster.Map{Version: 1, Nodes: []cluster.Node{{Number: 1, Name: "n1", State: cluster.Active}, {Number: 2, Name: "n2",
		State: cluster.Removed},
		{Number: 4, Name: "n4", State: cluster.Draining}, {Number: 7, Name: "n7", State: cluster.Removed}, {Number: 8, Name: "n7",
			State: cluster.Active}}}
	m.Settings.NextNode = 9
	for _, c := range []struct {
		number       uint32
		name, method string
		refused      string // "": admitted
		asked, fresh bool   // it may have just joined: a newer map is asked for, and nobody is alarmed
	}{
		{number: 1, name: "n1", method: "tokens"},
		{number: 4, name: "n4"},
		{number: 1, name: "n2", refused: `node 1 is named "n1", not "n2"`},
		{number: 2, name: "n1", method: cluster.Changes.Name(), refused: `node 2 is named "n2", not "n1"`},
		{number: 2, name: "n2", refused: "you were removed"},
		{number: 2, name: "n2", method: methodReach, refused: "you were removed"},
		{number: 2, name: "n2", method: cluster.Changes.Name()},
		{number: 3, name: "n3", method: methodReach, refused: "you were removed"},
		{number: 5, name: "n5", refused: "you were removed"},
		{number: 5, name: "n5", method: cluster.Changes.Name()},
		{number: 9, name: "n9", refused: "does not know a member with number 9 yet", asked: true, fresh: true},
		{number: 9, name: "n9", method: cluster.Changes.Name(), refused: "does not know a member with number 9 yet",
			asked: true, fresh: true},
		{number: 9, name: "n9", method: methodReach},
		// after it lost its disk again
		{number: 9, name: "n7", refused: "does not know a member with number 9 yet", asked: true, fresh: true},
		{number: 9, name: "n7", method: methodReach},
		{number: 9999, name: "n2", method: "tokens", refused: "does not know a member with number 9999 yet", asked: true},
		{number: 9999, name: "n2", method: methodReach, refused: "does not know a member with number 9999 yet", asked: true},
	} {
		for _, member := range []bool{false, true} { // before it starts its replicas, a node goes by the map that it saved
			n.bootstrap.known.Store(m)
			n.copy = cluster.NewCopy(m)
			n.member.Store(member)
			err := e.admitPeer(transport.Peer{Number: c.number, Name: c.name}, c.method)
			if c.refused == "" && err != nil || c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("%+v, member %t: %v", c, member, err)
			}
			no := (*members.Refusal)(nil)
			if asked := errors.As(err, &no) && no.Unknown; asked != c.asked {
				t.Errorf("%+v, member %t: a newer map is wanted: %t", c, member, asked)
			}
			if no != nil && no.Out == c.fresh {
				t.Errorf("%+v, member %t: it is out for certain: %t", c, member, no.Out)
			}
		}
	}
	for _, c := range []struct {
		number uint32
		name   string
		good   bool
	}{{1, "n1", true}, {1, "n4", false}, {2, "n2", false}, {5, "n5", false}, {9, "n9", true}, {9, "n2", false}, {0, "n2", false},
		{0, "n9", true}, {8, "n7", true}, {7, "n7", false}} {
		if err := members.CheckAnswer(m, c.number, c.name); (err == nil) != c.good {
			t.Errorf("answer of node %d (%s): %v", c.number, c.name, err)
		}
	}
	n.member.Store(false)
	n.bootstrap.known.Store(nil)
	if err := e.admitPeer(transport.Peer{Number: 9, Name: "n9"}, methodReach); err != nil {
		t.Errorf("a node without a map: %v", err)
	}
}

// stranger is a node of a test's own making, with the certificate of its name.
func (w *network) stranger(p transport.Peer, h transport.Handler) *transport.Transport {
	w.t.Helper()
	return w.impostor(p.Name, p, h)
}

// impostor is a stranger with the certificate of another name.
func (w *network) impostor(name string, p transport.Peer, h transport.Handler) *transport.Transport {
	w.t.Helper()
	at := func(file string) string { return w.certs + "/" + file }
	self := transport.Peer{Name: name}
	s, err := transport.New(transport.Config{Self: func() transport.Peer { return self }, Handler: h, Dial: w.dial,
		Open: []string{methodHello, methodJoin}, TLS: &transport.TLS{CertFile: at(name + ".crt"), KeyFile: at(name + ".key"),
			CAFile: at("ca.crt")}})
	if err != nil {
		w.t.Fatal(err)
	}
	self = p
	w.t.Cleanup(s.Close)
	return s
}

// The certificate of a removed node is good for nothing, under any number, except to join anew under its own name. That it was
// tried is counted, logged and in the audit log.
func TestRemovedNodeIsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.lines = &logLines{}
		w.certify("n1", "n2", "n3")
		w.grow()
		w.crash("n3")
		s := w.nodes["n1"]
		w.until("removed", func() error { return admin.New(s.client()).Cluster().RemoveNode(t.Context(), "n3", true) })
		pass(time.Second) // all know
		id := datadir.DecodeID(s.ClusterID())
		report, err := cbor.Marshal(cluster.ChangesCall{Report: cluster.Report{Node: 1}})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []transport.Peer{{Number: 3}, {Number: 1}, {Number: 4}, {Number: 9999}} {
			p.Cluster, p.Name = id, "n3"
			thief := w.stranger(p, nil)
			for _, method := range []string{"tokens", methodMap, methodReach, methodReport, cluster.Changes.Name()} {
				_, answer, err := thief.CallAddress(t.Context(), "n1:7296", method, report)
				if method == cluster.Changes.Name() && p.Number == 3 { // it learns that it was removed, and nothing else
					if err != nil || !strings.Contains(string(answer), "was removed") || len(answer) > 500 {
						t.Errorf("changes for %v: %d bytes, %v", p, len(answer), err)
					}
					continue
				}
				if err == nil || !strings.Contains(err.Error(), "refused") {
					t.Errorf("%s as %v: %d bytes, %v", method, p, len(answer), err)
				}
			}
		}
		counted := s.auth.Failed(auth.FailedNode)
		if counted < 15 {
			t.Errorf("%d refusals were counted", counted)
		}
		_, _, err = w.impostor("n3", transport.Peer{Cluster: id, Number: 2, Name: "n2"}, nil).CallAddress(t.Context(), "n1:7296", methodMap,
			nil)
		if err == nil || !strings.Contains(err.Error(), "refused") || s.auth.Failed(auth.FailedNode) != counted+1 {
			t.Errorf("as n2: %v, and %d refusals were counted", err, s.auth.Failed(auth.FailedNode)-counted)
		}
		request, err := cbor.Marshal(cluster.JoinRequest{Name: "n2", PeerAddress: "x:1", APIAddress: "x:2", MinLevel: 1, MaxLevel: 1,
			Nonce: [16]byte{1}})
		if err != nil {
			t.Fatal(err)
		}
		_, answer, err := w.stranger(transport.Peer{Name: "n3"}, nil).CallAddress(t.Context(), "n1:7296", methodJoin, request)
		if err != nil || !strings.Contains(string(answer), `asked to join as "n2"`) {
			t.Errorf("join under another name: %q, %v", answer, err)
		}
		if s.copy.Map().CheckMember(1) != nil {
			t.Error("n1 is no member any more")
		}
		if lines := w.lines.about("node=n1", "a caller was refused", "event=refusals code=permission_denied", "actor=n3 interface=node",
			"object=n3"); len(lines) < 15 || strings.Contains(lines[0], "unverified") {
			t.Errorf("recorded: %q", lines)
		}
		if lines := w.lines.about("node=n1", "a caller was refused", `has the certificate of node \"n3\"`, "actor=n3 interface=node",
			"object=n2"); len(lines) != 1 {
			t.Errorf("recorded of the node as n2: %q", lines)
		}
		if lines := w.lines.about("node=n1", "a caller was refused", `asked to join as \"n2\"`, "actor=n3 interface=node address=",
			"object=n2"); len(lines) != 1 || strings.Contains(lines[0], "unverified") {
			t.Errorf("recorded of the node that asked to join as n2: %q", lines)
		}
		if lines := w.lines.about("node=n1", "a peer was refused", "you were removed from the cluster"); len(lines) != 1 {
			t.Errorf("logged: %q", lines)
		}
		pass(2 * evidence.RefusalsEvery)
		entries := 0
		for _, e := range auditOf(t, s, admin.AuditFilter{}) {
			if e.Action == "access.refused" && strings.Contains(string(e.After), `"no_member":`) {
				entries++
			}
		}
		if entries == 0 {
			t.Error("the audit log has no entry on the refusals")
		}
		w.start("n3", t.TempDir(), "n1") // its operator may add it again
	})
}

// A node that no leader answers finds a newer map at the addresses of --join once a member calls that it doesn't know.
func TestNewerMapIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.certify("n1", "n2", "n3")
		w.start("n1", t.TempDir(), "n1")
		s := w.start("n2", t.TempDir(), "n1")
		w.until("the map", func() error { return s.copy.Map().CheckMember(2) })
		id := datadir.DecodeID(s.ClusterID())
		w.crash("n1")
		newer := *s.copy.Map()
		newer.Version++
		newer.Settings.NextNode++
		newer.Nodes = append(newer.Nodes[:len(newer.Nodes):len(newer.Nodes)], cluster.Node{Number: 3, Name: "n3", State: cluster.Active,
			PeerAddress: "n3:7296"})
		l := w.listen("n1:7296")
		go func() { _ = w.stranger(transport.Peer{Cluster: id, Number: 1, Name: "n1"}, mapServer{&newer}).Serve(l) }()
		third := w.stranger(transport.Peer{Cluster: id, Number: 3, Name: "n3"}, nil)
		ask := func() error { _, _, err := third.CallAddress(t.Context(), "n2:7296", methodReport, nil); return err }
		if err := ask(); err == nil {
			t.Error("n2 answered a node that it does not know")
		}
		pass(10 * time.Second)
		w.until("n2 knows n3", ask)
	})
}

// A removed node that listens at an address of --join is believed nothing: neither that a node had come further, nor a map, nor that it
// admits.
func TestRemovedNodeAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.certify("n1", "n2", "n3")
		dirs := w.grow()
		w.crash("n3")
		w.until("removed", func() error { return admin.New(w.nodes["n1"].client()).Cluster().RemoveNode(t.Context(), "n3", true) })
		pass(time.Minute)
		leader, name := w.leaderOf(systemShard), "n1"
		if leader == name {
			name = "n2"
		}
		number, evil := w.nodes[name].dir.Identity.Read().Node, *w.nodes[name].copy.Map()
		w.crash(name)
		evil.Version = 1 << 40
		evil.Nodes = append(slices.Clone(evil.Nodes), cluster.Node{Number: 9999, Name: "n3", State: cluster.Active, PeerAddress: "n3:7296"})
		thief := transport.Peer{Cluster: datadir.DecodeID(w.nodes[leader].ClusterID()), Number: 9999, Name: "n3"}
		l := w.listen("n3:7296")
		go func() { _ = w.stranger(thief, mapServer{&evil}).Serve(l) }()

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s, err := w.tryStart(ctx, name, dirs[name], "n3")
		if err != nil {
			t.Fatal(err)
		}
		if now := s.dir.Identity.Read().Node; now != number {
			t.Errorf("it believed that it had come further: it is number %d now, and was %d", now, number)
		}
		w.crash(leader)
		pass(10 * time.Second)
		if _, _, err := w.stranger(thief, nil).CallAddress(t.Context(), name+":7296", methodReport, nil); err == nil {
			t.Error("it answered a node that it does not know")
		}
		pass(10 * time.Second)
		if _, ok := s.copy.Node(9999); ok {
			t.Error("it believed the map")
		}
		if _, _, err := s.bootstrap.askToJoin(t.Context(), "n3:7296", nil); err == nil || !strings.Contains(err.Error(), "was removed") {
			t.Errorf("it asked to join: %v", err)
		}
	})
}

// mapServer has a map, admits anybody to it, and says that all had come further.
type mapServer struct{ m *cluster.Map }

func (s mapServer) Call(_ context.Context, _ transport.Peer, method string, request []byte) ([]byte, error) {
	switch method {
	case methodMap:
		return s.m.Encode(), nil
	case methodJoin:
		return cbor.Marshal(admission{Joined: cluster.Joined{Number: 9999, Map: s.m}})
	case methodReach:
		var known members.Known
		if err := cbor.Unmarshal(request, &known); err != nil { // its replicas are those of the answer
			return nil, err
		}
		for i := range known.Reached {
			known.Reached[i].Index = 1 << 40
		}
		return cbor.Marshal(known)
	}
	return nil, errNoMember
}
func (mapServer) Raft(transport.Peer, []transport.Envelope) {}
func (mapServer) Snapshot(context.Context, transport.Peer, []byte, io.Reader) error {
	return errNoMember
}
func (mapServer) Stream(transport.Peer, string, transport.Stream) error { return errNoMember }

// A member sends the states of its own replicas only.
func TestSnapshotOfAnothersReplica(t *testing.T) {
	n := &Node{}
	n.replicas = &replicas{}
	n.member.Store(true)
	from := cluster.ReplicaID(0, 2)
	m, err := proto.Marshal(&pb.Message{From: &from})
	if err != nil {
		t.Fatal(err)
	}
	head := append(make([]byte, 4+8), m...)
	for number, want := range map[uint32]string{2: "is not here", 3: "sent the state of replica"} {
		err := (peerHandler{n}).Snapshot(t.Context(), transport.Peer{Number: number}, head, strings.NewReader(""))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("from node %d: %v, want %q", number, err, want)
		}
	}
}
