package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// refused checks that every way to reach n2 fails before its handler runs, and that both sides report the words.
func refused(t *testing.T, a, b *node, words ...string) {
	t.Helper()
	b.call = func(context.Context, Peer, string, []byte) ([]byte, error) {
		t.Error("a call reached the handler")
		return nil, nil
	}
	b.stream = func(Peer, string, Stream) error { t.Error("a stream reached the handler"); return nil }
	b.snapshot = func(context.Context, []byte, io.Reader) error { t.Error("a snapshot reached the handler"); return nil }
	_, callErr := a.Call(within(t, 5*time.Second), 2, "claim", nil)
	_, openErr := a.Call(within(t, 5*time.Second), 2, "join", nil)
	_, streamErr := a.OpenStream(within(t, 5*time.Second), 2, "work")
	_, body := state(10)
	snapshotErr := a.SendSnapshot(within(t, 5*time.Second), 2, nil, body)
	for what, err := range map[string]error{"call": callErr, "open call": openErr, "stream": streamErr, "snapshot": snapshotErr} {
		if !errors.Is(err, ErrNotSent) {
			t.Errorf("%s = %v, want ErrNotSent", what, err)
		}
		for _, w := range words {
			if !strings.Contains(fmt.Sprint(err), w) {
				t.Errorf("%s = %v, want %q in the error", what, err, w)
			}
		}
	}
	for range 50 {
		a.Send(2, []Envelope{heartbeat(1, 1), entries(1, 1, 10)})
		pass(100 * time.Millisecond)
	}
	if got := b.received(); len(got) > 0 {
		t.Errorf("%d messages reached the handler", len(got))
	}
	if len(a.losses()) == 0 {
		t.Error("Unreachable was not called although messages were lost")
	}
	for _, w := range words {
		a.says("a peer refused us", strings.ReplaceAll(w, `"`, `\"`))
		b.says("a peer was refused", strings.ReplaceAll(w, `"`, `\"`))
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		a, b  Peer
		setup func(a, b *node)
		words string
	}{
		"another cluster": {
			a: Peer{Cluster: theirs, Number: 1, Name: "n1"}, b: member(2),
			words: `node "n1" of cluster 0af30000… tried to reach us; we are node "n2" of cluster 77010000…: its --join address is wrong`,
		},
		"another number":  {a: member(1), b: Peer{Cluster: ours, Number: 3, Name: "n2"}, words: "this is node 3 (n2), not node 2"},
		"no cluster here": {a: member(1), b: Peer{Name: "n2"}, words: `this node, "n2", belongs to no cluster yet`},
		"no number":       {a: Peer{Cluster: ours, Name: "n1"}, b: member(2), words: `node "n1" has our cluster, but no number`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, net *network) {
				a, b := start(t, net, c.a), start(t, net, c.b)
				a.SetPeers(map[uint32]Address{2: {"n2", "n2"}})
				refused(t, a, b, c.words)
			})
		})
	}
}

// TestRemoved: nothing is accepted from a removed member, not even on streams that it had open.
func TestRemoved(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		a.Send(2, []Envelope{heartbeat(1, 1), entries(1, 1, 10)})
		settle()
		if got := b.received(); len(got) != 2 {
			t.Fatalf("%d messages arrived, want 2", len(got))
		}
		b.remove(1, errors.New("node 1 was removed"))
		a.Send(2, []Envelope{heartbeat(1, 2), entries(1, 2, 10)})
		settle()
		if got := b.received(); len(got) != 0 {
			t.Errorf("%d messages of a removed member arrived on an open stream", len(got))
		}
		if _, err := a.Call(t.Context(), 2, "claim", nil); !errors.Is(err, ErrNotSent) || !strings.Contains(err.Error(),
			"node 1 was removed") {
			t.Errorf("call = %v, want a refusal", err)
		}
		if answer, err := a.Call(t.Context(), 2, "join", nil); err != nil || string(answer) != "join " {
			t.Errorf("open call = %q, %v, want it answered without Admit", answer, err)
		}
		b.remove(1, nil)
		pass(2 * time.Second)
		ended := make(chan error, 2)
		b.stream = func(_ Peer, _ string, s Stream) error { _, err := s.Recv(); ended <- err; return err }
		if _, err := a.OpenStream(t.Context(), 2, "work"); err != nil {
			t.Fatal(err)
		}
		other := start(t, net, member(3))
		other.SetPeers(map[uint32]Address{2: {"n2", "n2"}})
		stays, err := other.OpenStream(t.Context(), 2, "work")
		if err != nil {
			t.Fatal(err)
		}
		settle()
		b.remove(1, errors.New("node 1 was removed"))
		b.SetPeers(map[uint32]Address{3: {"n3", "n3"}})
		settle()
		if len(ended) != 1 {
			t.Errorf("%d streams ended with the removal of their node, want 1", len(ended))
		}
		if stays.Context().Err() != nil {
			t.Error("the stream of another member was cut")
		}
		if n := len(b.accepted.all); n == 0 || n > 3 {
			t.Errorf("%d connections are accounted for", n)
		}
		b.remove(1, nil)
		b.SetPeers(map[uint32]Address{1: {"n1", "n1"}, 3: {"n3", "n3"}})
		pass(2 * time.Second)
		a.Send(2, []Envelope{heartbeat(1, 3)})
		settle()
		if got := b.received(); len(got) != 1 {
			t.Errorf("%d messages arrived after the member was admitted again, want 1", len(got))
		}
	})
}

// TestRemovedBehindAnotherName: a removed member's connection is also closed if its last request claimed to be from another one.
func TestRemovedBehindAnotherName(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		_, a, b := tlsPair(t, net, month)
		ended := make(chan error, 1)
		b.stream = func(_ Peer, _ string, s Stream) error { _, err := s.Recv(); ended <- err; return err }
		if _, err := a.OpenStream(t.Context(), 2, "work"); err != nil {
			t.Fatal(err)
		}
		a.become(member(3))
		if _, err := a.Call(t.Context(), 2, "claim", nil); err == nil || !strings.Contains(err.Error(),
			`has the certificate of node "n1"`) {
			t.Fatalf("call as another node: %v", err)
		}
		b.remove(1, errors.New("node 1 was removed"))
		b.SetPeers(map[uint32]Address{3: {"n3", "n3"}})
		settle()
		if len(ended) != 1 {
			t.Error("the stream of the removed member is still open")
		}
	})
}

// TestRefusalText: a reason of any length and with any characters arrives, shortened.
func TestRefusalText(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		b.remove(1, errors.New(strings.Repeat("ü\n", 10_000)))
		_, err := a.Call(t.Context(), 2, "claim", nil)
		if !errors.Is(err, ErrNotSent) || !strings.Contains(err.Error(), "refused: ü\nü") || len(err.Error()) > 2*maxRefusalText {
			t.Errorf("call = %.200v, want a refusal of at most %d bytes", err, maxRefusalText)
		}
	})
}

// TestUnidentifiedClients: a client that speaks the protocol without identifying itself, or sends nonsense, is admitted nowhere.
func TestUnidentifiedClients(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		b.call = func(context.Context, Peer, string, []byte) ([]byte, error) {
			t.Error("a call reached the handler")
			return nil, nil
		}
		l := a.newLink(Address{Address: "n2"})
		defer l.close()
		good := identify(member(1))
		for name, md := range map[string]metadata.MD{
			"nothing":          nil,
			"no name":          {keyCluster: good[keyCluster], keyNumber: good[keyNumber]},
			"a short cluster":  {keyCluster: {"77"}, keyNumber: {"1"}, keyName: {"n1"}},
			"a cluster of z":   {keyCluster: {strings.Repeat("z", 32)}, keyNumber: {"1"}, keyName: {"n1"}},
			"a number too big": {keyCluster: good[keyCluster], keyNumber: {"4294967296"}, keyName: {"n1"}},
			"two names":        {keyCluster: good[keyCluster], keyNumber: {"1"}, keyName: {"n1", "n2"}},
			"a long name":      {keyCluster: good[keyCluster], keyNumber: {"1"}, keyName: {strings.Repeat("n", 64)}},
			"a bad target":     {keyCluster: good[keyCluster], keyNumber: {"1"}, keyName: {"n1"}, keyToNumber: {"x"}},
			"a bad cluster":    {keyCluster: good[keyCluster], keyNumber: {"1"}, keyName: {"n1"}, keyToCluster: {"x"}},
			"a foreign one":    {keyCluster: {strings.Repeat("0", 31) + "1"}, keyNumber: {"1"}, keyName: {"n1"}},
			"another cluster": {keyCluster: good[keyCluster], keyNumber: {"1"}, keyName: {"n1"},
				keyToCluster: {strings.Repeat("0", 31) + "1"}},
			"much": {keyCluster: good[keyCluster], keyNumber: {"1"}, keyName: {"n1"}, "x": {strings.Repeat("x", maxMetadata)}},
		} {
			out, in := frame{kind: kindBody}, new(frame)
			ctx := metadata.NewOutgoingContext(within(t, time.Second), md)
			if err := l.cc.Invoke(ctx, methodCall, &out, in); err == nil {
				t.Errorf("a call with %s was accepted", name)
			}
		}
		s, err := l.cc.NewStream(a.withIdentity(t.Context(), 2, ""), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, methodRaft)
		if err != nil {
			t.Fatal(err)
		}
		_ = s.SendMsg(&frame{kind: kindBody, body: []byte("\x05nonsense")})
		if err := s.RecvMsg(new(frame)); err == nil || !strings.Contains(err.Error(), "damaged frame") {
			t.Errorf("an invalid frame = %v, want it refused", err)
		}
		b.says("a peer's frame can't be read", "peer=n1")
	})
}

// TestScan: connections that send other protocols, too slowly or too much are closed, and take little memory.
func TestScan(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		start(t, net, member(2))
		for _, bytes := range []string{
			"GET / HTTP/1.1\r\nHost: x\r\n\r\n", strings.Repeat("\x16\x03\x01", 1000), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnonsense!", "PRI",
			"",
		} {
			conn, err := net.dial(t.Context(), "n2")
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			go func() { _, _ = conn.Write([]byte(bytes)) }()
			if _, err := io.Copy(io.Discard, conn); err != nil {
				t.Errorf("%.10q: reading until the close: %v", bytes, err)
			}
			if took := time.Since(began); took > handshakeTimeout {
				t.Errorf("%.10q was closed after %v, want at most %v", bytes, took, handshakeTimeout)
			}
			_ = conn.Close()
		}
	})
}

// TestHandshakeMemory: a connection that never sends a valid handshake takes less than 64 KiB in all.
func TestHandshakeMemory(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		start(t, net, member(2))
		const n = 20
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			conn, err := net.dial(t.Context(), "n2")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = conn.Write([]byte("GET / HTTP/1.1\r\nHost: pawl\r\n\r\n"))
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
		runtime.ReadMemStats(&after)
		// The tests' pipe itself has 512 KiB.
		if each := (after.TotalAlloc-before.TotalAlloc)/n - 512<<10; int64(each) > 64<<10 {
			t.Errorf("each connection allocated %d bytes, want at most %d", int64(each), 64<<10)
		}
	})
}

// TestGate: connections above the limit are closed, and places are freed.
func TestGate(t *testing.T) {
	bubble(t, func(t *testing.T, network *network) {
		g := limitListener(network.listen("a"), 2, new(acceptedConns))
		accepted := make(chan net.Conn, 10)
		go func() {
			for {
				conn, err := g.Accept()
				if err != nil {
					return
				}
				accepted <- conn
			}
		}()
		dial := func() net.Conn {
			conn, err := network.dial(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			return conn
		}
		dial()
		dial()
		if n, err := dial().Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("a connection above the limit: read %d, %v, want it closed", n, err)
		}
		first := <-accepted
		_ = first.Close()
		_ = first.Close() // frees one place, not two
		dial()
		if n, err := dial().Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("a connection above the limit after a close: read %d, %v, want it closed", n, err)
		}
		_ = g.Close()
	})
}

func TestLogLimiter(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network) {
		var s logLimiter
		said := 0
		for range 181 {
			if s.allow("a") {
				said++
			}
			pass(time.Second)
		}
		if said != 4 {
			t.Errorf("%d lines were allowed in 3 minutes, want 4", said)
		}
		for i := range 10 * maxLogKeys {
			s.allow(fmt.Sprint(i))
		}
		if len(s.last) > maxLogKeys || s.allow("one more") {
			t.Errorf("%d keys are kept, want at most %d", len(s.last), maxLogKeys)
		}
		pass(logPause)
		if !s.allow("one more") {
			t.Error("no line is allowed after a flood")
		}
	})
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aüb", 2, "a"}, {"üü", 3, "ü"}, {"a\xffb", 9, "a?b"}, {"ü", 1, ""}} {
		if got := cut(c.in, c.n); got != c.want {
			t.Errorf("cut(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
}
