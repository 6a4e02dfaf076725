package transport

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

var (
	ours   = [16]byte{0x77, 1}
	theirs = [16]byte{0x0a, 0xf3}
)

// node is a transport under test, with everything that it received and logged.
type node struct {
	*Transport
	t    *testing.T
	name string
	log  *lines

	mu       sync.Mutex
	self     Peer
	got      []Envelope
	from     Peer
	numbers  []uint32    // of the senders of got
	lost     []time.Time // when Unreachable was called
	gone     map[uint32]error
	raft     func([]Envelope)
	call     func(ctx context.Context, from Peer, method string, request []byte) ([]byte, error)
	stream   func(from Peer, method string, s Stream) error
	snapshot func(ctx context.Context, head []byte, body io.Reader) error
}

// start starts a node with a name, listening at an address of the same name. It stops with the test's bubble.
func start(t *testing.T, net *network, self Peer, change ...func(*Config)) *node {
	t.Helper()
	n := &node{t: t, name: self.Name, self: self, log: &lines{}, gone: map[uint32]error{}}
	cfg := Config{
		Self: n.who, Handler: handler{n}, Dial: net.dial, Open: []string{"join"},
		Logger: slog.New(slog.NewTextHandler(n.log, nil)),
		Admit: func(p Peer, _ string) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.gone[p.Number]
		},
		Unreachable: func(uint32) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.lost = append(n.lost, time.Now())
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if n.Transport, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	l := net.listen(self.Name)
	served := make(chan error, 1)
	go func() { served <- n.Serve(l) }()
	t.Cleanup(func() {
		n.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return n
}

// member returns a node of our cluster.
func member(number uint32) Peer {
	return Peer{Cluster: ours, Number: number, Name: fmt.Sprint("n", number)}
}

// pair starts nodes n1 and n2, which know each other.
func pair(t *testing.T, net *network, change ...func(*Config)) (*node, *node) {
	t.Helper()
	a, b := start(t, net, member(1), change...), start(t, net, member(2), change...)
	all := map[uint32]Address{1: {"n1", "n1"}, 2: {"n2", "n2"}}
	a.SetPeers(all)
	b.SetPeers(all)
	return a, b
}

func (n *node) who() Peer {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.self
}

func (n *node) become(p Peer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.self = p
}

func (n *node) remove(number uint32, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone[number] = err
}

// handler handles what peers send to a node.
type handler struct{ *node }

func (h handler) Raft(from Peer, messages []Envelope) {
	n := h.node
	n.mu.Lock()
	n.got, n.from = append(n.got, messages...), from
	for range messages {
		n.numbers = append(n.numbers, from.Number)
	}
	raft := n.raft
	n.mu.Unlock()
	if raft != nil {
		raft(messages)
	}
}

func (h handler) Snapshot(ctx context.Context, _ Peer, head []byte, body io.Reader) error {
	return h.snapshot(ctx, head, body)
}

// Call echoes, unless the test specifies otherwise.
func (h handler) Call(ctx context.Context, from Peer, method string, request []byte) ([]byte, error) {
	if h.call == nil {
		return append([]byte(method+" "), request...), nil
	}
	return h.call(ctx, from, method, request)
}

func (h handler) Stream(from Peer, method string, s Stream) error { return h.stream(from, method, s) }

// received returns the Raft messages received, and clears them.
func (n *node) received() []Envelope {
	n.mu.Lock()
	defer n.mu.Unlock()
	got := n.got
	n.got = nil
	return got
}

// senders returns the number of each message's sender, and clears them.
func (n *node) senders() []uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	got := n.numbers
	n.numbers = nil
	return got
}

func (n *node) losses() []time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost
}

// says checks that exactly one line of the log has all the words.
func (n *node) says(words ...string) {
	n.t.Helper()
	found := 0
	for _, line := range n.log.all() {
		has := true
		for _, w := range words {
			has = has && strings.Contains(line, w)
		}
		if has {
			found++
		}
	}
	if found != 1 {
		n.t.Errorf("%s logged %d lines with %q, want 1:\n%s", n.name, found, words, strings.Join(n.log.all(), "\n"))
	}
}

// lines is a log in memory.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSpace(l.b.String()), "\n")
}

// bubble runs a test in fake time. It fails if a goroutine is left at the end.
func bubble(t *testing.T, test func(t *testing.T, net *network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newNetwork()) })
}

// pass lets fake time pass, in the bubble that a test is in.
func pass(d time.Duration) { time.Sleep(d) }

// settle lets everything happen that takes only a moment.
func settle() {
	time.Sleep(time.Millisecond)
	synctest.Wait()
}

// within returns a context that ends after a span of fake time.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// heartbeat is a small message, entries a large one.
func heartbeat(shard uint32, commit uint64) Envelope {
	m := message(pb.MsgHeartbeat)
	m.Commit = proto.Uint64(commit)
	return Envelope{Shard: shard, Message: m}
}

func entries(shard uint32, index uint64, bytes int) Envelope {
	m := message(pb.MsgApp)
	m.Entries = []*pb.Entry{{Term: proto.Uint64(7), Index: proto.Uint64(index), Data: make([]byte, bytes)}}
	return Envelope{Shard: shard, Message: m}
}

func message(kind pb.MessageType) *pb.Message {
	return &pb.Message{Type: kind.Enum(), To: proto.Uint64(2), From: proto.Uint64(1), Term: proto.Uint64(7)}
}
