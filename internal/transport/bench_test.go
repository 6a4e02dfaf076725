package transport

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
)

// benchPair starts two nodes over TCP on this machine.
func benchPair(b *testing.B, secure bool) (*Transport, *counter) {
	b.Helper()
	got := &counter{arrived: make(chan struct{}, 1)}
	addresses := map[uint32]Address{}
	var ca *authority
	if secure {
		ca = newAuthority(b)
	}
	var first *Transport
	for number := uint32(1); number <= 2; number++ {
		self := member(number)
		cfg := Config{Self: func() Peer { return self }, Handler: got}
		if secure {
			cfg.TLS = ca.node(self.Name, month)
		}
		t, err := New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		go func() { _ = t.Serve(l) }()
		b.Cleanup(t.Close)
		addresses[number] = Address{l.Addr().String(), self.Name}
		if first == nil {
			first = t
		}
	}
	first.SetPeers(addresses)
	return first, got
}

// counter is a handler that counts Raft messages and echoes calls.
type counter struct {
	handler
	count   atomic.Int64
	arrived chan struct{}
}

func (c *counter) Raft(_ Peer, messages []Envelope) {
	c.count.Add(int64(len(messages)))
	select {
	case c.arrived <- struct{}{}:
	default:
	}
}

func modes(b *testing.B, run func(b *testing.B, secure bool)) {
	b.Run("plain", func(b *testing.B) { run(b, false) })
	b.Run("tls", func(b *testing.B) { run(b, true) })
}

// BenchmarkCall: 64 callers with requests and answers of 1 KiB.
func BenchmarkCall(b *testing.B) {
	modes(b, func(b *testing.B, secure bool) {
		t, c := benchPair(b, secure)
		c.handler.node = &node{}
		request := make([]byte, 1024)
		const callers = 64
		b.ReportAllocs()
		b.ResetTimer()
		var todo atomic.Int64
		todo.Store(int64(b.N))
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for todo.Add(-1) >= 0 {
					if _, err := t.Call(b.Context(), 2, "m", request); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	})
}

// BenchmarkSend: heartbeats, and entries of 4 KiB, as fast as they arrive.
func BenchmarkSend(b *testing.B) {
	for name, one := range map[string]Envelope{"heartbeats": heartbeat(1, 1), "4KiB": entries(1, 1, 4096)} {
		b.Run(name, func(b *testing.B) {
			modes(b, func(b *testing.B, secure bool) {
				t, c := benchPair(b, secure)
				batch := make([]Envelope, 16)
				for i := range batch {
					batch[i] = one
				}
				b.ReportAllocs()
				b.ResetTimer()
				for sent := 0; sent < b.N; {
					n := min(len(batch), b.N-sent)
					t.Send(2, batch[:n])
					sent += n
					for int64(sent)-c.count.Load() > 2048 {
						<-c.arrived
					}
				}
				for c.count.Load() < int64(b.N) {
					<-c.arrived
				}
				b.SetBytes(int64(roughBytes(one.Message)))
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			})
		})
	}
}

// BenchmarkOneWay: from Send to the handler, one message at a time.
func BenchmarkOneWay(b *testing.B) {
	modes(b, func(b *testing.B, secure bool) {
		t, c := benchPair(b, secure)
		t.Send(2, []Envelope{heartbeat(1, 1)})
		<-c.arrived
		b.ResetTimer()
		for range b.N {
			t.Send(2, []Envelope{{Shard: 1, Message: &pb.Message{}}})
			<-c.arrived
		}
	})
}
