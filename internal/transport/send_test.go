package transport

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// TestSend: messages arrive complete, and in order on each of the two connections.
func TestSend(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		var small, big []Envelope
		for i := range 500 {
			small = append(small, heartbeat(uint32(i%7), uint64(i)))
			big = append(big, entries(uint32(i%5), uint64(i), 10_000))
		}
		for i := range small {
			a.Send(2, []Envelope{small[i], big[i]})
		}
		settle()
		var gotSmall, gotBig []Envelope
		for _, e := range b.received() {
			if len(e.Message.GetEntries()) == 0 {
				gotSmall = append(gotSmall, e)
			} else {
				gotBig = append(gotBig, e)
			}
		}
		same := func(a, b Envelope) bool { return a.Shard == b.Shard && proto.Equal(a.Message, b.Message) }
		if !slices.EqualFunc(gotSmall, small, same) || !slices.EqualFunc(gotBig, big, same) {
			t.Errorf("got %d small and %d big messages, want %d and %d in the same order", len(gotSmall), len(gotBig), len(small), len(big))
		}
		if b.from != member(1) {
			t.Errorf("messages came from %v, want %v", b.from, member(1))
		}
		if lost := a.losses(); len(lost) > 0 {
			t.Errorf("losses at %v, want none", lost)
		}
	})
}

// TestLargest: the largest possible entry fits into a frame; a message too large for any peer affects only itself.
func TestLargest(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		a.Send(2, []Envelope{entries(1, 1, 28<<20)})
		settle()
		if got := b.received(); len(got) != 1 || len(got[0].Message.Entries[0].Data) != 28<<20 {
			t.Errorf("got %d messages, want one with 28 MiB", len(got))
		}
		a.Send(2, []Envelope{entries(1, 2, maxMessage)})
		settle()
		a.Send(2, []Envelope{entries(1, 3, 10)})
		settle()
		if got := b.received(); len(got) != 1 || got[0].Message.Entries[0].GetIndex() != 3 {
			t.Errorf("got %d messages after one that was too large, want the next one", len(got))
		}
		if len(a.losses()) != 1 {
			t.Errorf("losses at %v, want one", a.losses())
		}
		a.says("a message to a peer was dropped", "at most 50331648")
	})
}

// TestHeartbeatsBesideLargeEntries: a link of 1 Mbit/s that is full of entries delays no heartbeat.
func TestHeartbeatsBesideLargeEntries(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		settle()
		net.cable("n2").slow(125_000)
		for i := range 40 {
			a.Send(2, []Envelope{entries(1, uint64(i), 256<<10)})
		}
		var worst time.Duration
		for i := range 50 {
			sent := time.Now()
			a.Send(2, []Envelope{heartbeat(1, uint64(i))})
			for !slices.ContainsFunc(b.received(), func(e Envelope) bool { return len(e.Message.Entries) == 0 }) {
				pass(time.Millisecond)
			}
			worst = max(worst, time.Since(sent))
			pass(100 * time.Millisecond)
		}
		if worst > 20*time.Millisecond {
			t.Errorf("a heartbeat took %v, want at most 20ms", worst)
		}
		if len(a.losses()) > 0 {
			t.Errorf("losses at %v, want none", a.losses())
		}
	})
}

// TestSlowLink: a link of 1 Mbit/s carries entries for minutes, and is not considered dead.
func TestSlowLink(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		net.cable("n2").slow(125_000)
		const n = 60
		for i := range n {
			a.Send(2, []Envelope{entries(1, uint64(i), 256<<10)})
		}
		pass(n * (256 << 10) / 125_000 * 1100 * time.Millisecond)
		if got := b.received(); len(got) != n {
			t.Errorf("%d of %d messages arrived", len(got), n)
		}
		if dials := net.cable("n2").dialled(); dials > 2 {
			t.Errorf("%d dials, want 2", dials)
		}
	})
}

// TestNewNumberIsAnnounced: a node that rejoined under another number identifies itself by it on connections opened before. Messages under
// its old number are rejected.
func TestNewNumberIsAnnounced(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		both := []Envelope{heartbeat(1, 1), entries(1, 1, 10_000)}
		a.Send(2, both)
		settle()
		if got := b.senders(); !slices.Equal(got, []uint32{1, 1}) {
			t.Fatalf("messages came from nodes %d, want both from 1", got)
		}
		again := member(1)
		again.Number = 4
		a.become(again)
		a.Send(2, both)
		settle()
		if got := b.senders(); !slices.Equal(got, []uint32{4, 4}) {
			t.Errorf("after the new number messages came from nodes %d, want both from 4", got)
		}
		if lost := a.losses(); len(lost) > 0 {
			t.Errorf("losses at %v, want none", lost)
		}
	})
}

// TestOverflow: messages that a peer doesn't accept are bounded by count and bytes, and reported once a second.
func TestOverflow(t *testing.T) {
	for _, c := range []struct {
		name string
		one  Envelope
		most int
	}{
		{"count", heartbeat(1, 1), smallCount},
		{"bytes", entries(1, 1, 4<<20), bigBytes >> 22},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, net *network) {
				a, b := pair(t, net)
				stuck := make(chan struct{})
				b.raft = func([]Envelope) { <-stuck }
				began := time.Now()
				for range 45 { // the window takes 2 MiB of them first
					for range c.most {
						a.Send(2, []Envelope{c.one})
					}
					pass(100 * time.Millisecond)
				}
				synctest.Wait()
				lost := a.losses()
				if n := len(lost); n < 3 || n > 5 {
					t.Errorf("Unreachable was called %d times in 4.5s: %v, want once a second", n, lost)
				}
				for i := 1; i < len(lost); i++ {
					if d := lost[i].Sub(lost[i-1]); d < time.Second {
						t.Errorf("calls %d and %d of Unreachable were %v apart, want 1s", i-1, i, d)
					}
				}
				p, _ := a.peer(2)
				for _, q := range []*queue{p.smallQueue, p.bigQueue} {
					if q.count > q.most || q.bytes > q.mostBytes {
						t.Errorf("the queue has %d messages of %d bytes, want at most %d and %d", q.count, q.bytes, q.most, q.mostBytes)
					}
				}
				if time.Since(began) > 5*time.Second {
					t.Errorf("Send took %v, want it not to block", time.Since(began))
				}
				close(stuck)
				settle()
				if p.smallQueue.count+p.bigQueue.count+p.smallQueue.bytes+p.bigQueue.bytes != 0 {
					t.Errorf("the queues still have %d and %d bytes, want none", p.smallQueue.bytes, p.bigQueue.bytes)
				}
			})
		})
	}
}

// TestSendAfterCut: the connection is re-established, both to peers that come back and to peers that moved.
func TestSendAfterCut(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		arrives := func(n *node, what string) {
			t.Helper()
			for range 40 {
				a.Send(2, []Envelope{heartbeat(1, 1), entries(1, 1, 100)})
				pass(50 * time.Millisecond)
			}
			if got := n.received(); len(got) < 20 {
				t.Errorf("%s: %d messages of 80 arrived within 2s", what, len(got))
			}
		}
		arrives(b, "at first")
		net.cable("n2").cut()
		arrives(b, "after a cut")
		if len(a.losses()) == 0 {
			t.Error("Unreachable was not called after the cut")
		}
		b.Close()
		pass(50 * time.Second)
		a.says("a peer can't be reached", "peer=n2")
		again := start(t, net, member(2))
		pass(3 * time.Second)
		arrives(again, "after a restart")
		a.says("a peer can be reached again", "peer=n2")
		moved := start(t, net, Peer{Cluster: ours, Number: 2, Name: "elsewhere"})
		a.SetPeers(map[uint32]Address{2: {"elsewhere", "n2"}})
		arrives(moved, "after a move")
		if got := again.received(); len(got) > 0 {
			t.Errorf("%d messages went to the old address", len(got))
		}
	})
}

// TestSilence: a peer that is cut off without notice is detected, and found again.
func TestSilence(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		pass(10 * time.Second)
		dials := net.cable("n2").dialled()
		if dials > 3 {
			t.Errorf("%d dials without a fault, want at most one for each connection", dials)
		}
		net.cable("n2").silence(true)
		pass(2*pingEvery + pingWait + time.Second)
		if net.cable("n2").dialled() == dials {
			t.Error("the silent peer was not dialled again")
		}
		pass(20 * time.Second)
		net.cable("n2").silence(false)
		pass(handshakeTimeout + reconnectMost*2)
		a.Send(2, []Envelope{heartbeat(1, 42), entries(1, 42, 10)})
		settle()
		if got := b.received(); len(got) != 2 {
			t.Errorf("%d messages arrived after the silence, want 2", len(got))
		}
		if _, _, ok := a.Offset(2); !ok {
			t.Error("no ping arrived after the silence")
		}
	})
}

// TestSetPeers: removed peers get no messages, and requests in flight to them fail.
func TestSetPeers(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		b.stream = func(_ Peer, _ string, s Stream) error { <-s.Context().Done(); return s.Context().Err() }
		s, err := a.OpenStream(t.Context(), 2, "work")
		if err != nil {
			t.Fatal(err)
		}
		a.SetPeers(map[uint32]Address{1: {"n1", "n1"}, 2: {"n2", "n2"}}) // nothing new
		settle()
		if _, err := a.peer(1); err == nil {
			t.Error("the node is a peer of itself")
		}
		if s.Context().Err() != nil {
			t.Error("setting the same peers again cut a stream")
		}
		a.SetPeers(map[uint32]Address{1: {"n1", "n1"}})
		if _, err := s.Recv(); err == nil || errors.Is(err, ErrNotSent) {
			t.Errorf("a stream to a removed peer = %v, want an error", err)
		}
		if _, err := a.Call(t.Context(), 2, "claim", nil); !errors.Is(err, ErrNotSent) {
			t.Errorf("call to a removed peer = %v, want ErrNotSent", err)
		}
		a.Send(2, []Envelope{heartbeat(1, 1)})
		dials := net.cable("n2").dialled()
		pass(time.Minute)
		if net.cable("n2").dialled() != dials {
			t.Error("a removed peer was dialled")
		}
	})
}

func TestFrames(t *testing.T) {
	want := []Envelope{heartbeat(1, 1), entries(1<<32-1, 2, 300), {Shard: 0, Message: &pb.Message{}}}
	b, err := appendFrame(nil, sized(want))
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > frameSize(want) {
		t.Errorf("the frame has %d bytes, more than its bound of %d", len(b), frameSize(want))
	}
	got, err := parseFrame(b)
	same := func(a, b Envelope) bool { return a.Shard == b.Shard && proto.Equal(a.Message, b.Message) }
	if err != nil || !slices.EqualFunc(got, want, same) {
		t.Errorf("parsed %v, %v, want %v", got, err, want)
	}
	for n := range b {
		if got, err := parseFrame(b[:n]); !errors.Is(err, errFrame) {
			t.Errorf("parse of the first %d of %d bytes = %v, %v, want errFrame", n, len(b), got, err)
		}
	}
	for in, word := range map[string]string{
		"\xff\xff\xff\xff\x0f":             "claims 4294967295 messages in 0 bytes",
		"\x01\xff\xff\xff\xff\xff\x01\x00": "shard 68719476735 is above",
		"\x01\x01\x05ab":                   "a message of 5 bytes in the last 2",
		"\x01\x01\x01\xff":                 "message of shard 1",
		"\x00x":                            "1 bytes after its last message",
	} {
		if _, err := parseFrame([]byte(in)); !errors.Is(err, errFrame) || !strings.Contains(err.Error(), word) {
			t.Errorf("parse of %q = %v, want %q in the error", in, err, word)
		}
	}
}

// sized caches the sizes of messages, as appendFrame requires.
func sized(envelopes []Envelope) []Envelope {
	frameSize(envelopes)
	return envelopes
}

// FuzzFrame: no bytes make parsing panic, or allocate much more than their size; parsed frames can be encoded again.
func FuzzFrame(f *testing.F) {
	for _, seed := range [][]Envelope{nil, {heartbeat(1, 1)}, {entries(3, 9, 40), heartbeat(2, 2)}} {
		b, err := appendFrame(nil, sized(seed))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		envelopes, err := parseFrame(b)
		if err != nil {
			if envelopes != nil {
				t.Errorf("parseFrame returned the error %v with messages %v", envelopes, err)
			}
			return
		}
		again, err := appendFrame(nil, sized(envelopes))
		if err != nil {
			t.Fatal(err)
		}
		if back, err := parseFrame(again); err != nil || fmt.Sprint(back) != fmt.Sprint(envelopes) {
			t.Errorf("encoded and parsed again: %v, %v, want %v", back, err, envelopes)
		}
	})
}
