package node

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// detours counts answers given by another node's leader, as reported to the client.
type detours struct{ n atomic.Int64 }

func (d *detours) option() pawl.DialOptions {
	return pawl.DialOptions{GRPC: []grpc.DialOption{grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
		cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		var md metadata.MD
		err := invoke(ctx, method, req, reply, cc, append(opts, grpc.Trailer(&md))...)
		if len(md.Get("pawl-leader")) > 0 {
			d.n.Add(1)
		}
		return err
	})}}
}

// A client with the address of one node finds the leader by itself, also when leadership moves and when the leader dies; its caller
// sees no error.
func TestClientGoesDirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.form()
		leader := w.leaderOf(1)
		told := "n1"
		if leader == told {
			told = "n2"
		}
		var d detours
		c, err := pawl.Dial(told+":7295", pawl.DialOptions{Dialer: w.dial, Logger: slog.New(slog.DiscardHandler)}, d.option())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		enqueue := func(n int) {
			t.Helper()
			for range n {
				if _, err := c.Enqueue(t.Context(), pawl.RawTask{Type: "job"}, pawl.Queue("mail")); err != nil {
					t.Fatal(err)
				}
				pass(10 * time.Millisecond)
			}
		}
		wantDetours := func(what string, most int64) {
			t.Helper()
			if n := d.n.Swap(0); n > most {
				t.Errorf("%s: %d calls were forwarded, want at most %d", what, n, most)
			}
		}
		enqueue(10)
		wantDetours("at first", 3)
		enqueue(50)
		wantDetours("then", 0)
		third := map[string]string{"n1": "n3", "n2": "n3", "n3": "n1"}[leader]
		if third == told {
			third = "n2"
		}
		if err := admin.New(c).Cluster().TransferLeader(t.Context(), 1, third); err != nil {
			t.Fatal(err)
		}
		for w.leaderOf(1) != third {
			enqueue(10)
		}
		enqueue(10)
		d.n.Store(0)
		enqueue(50)
		wantDetours("after a move", 0)
		w.crash(third)
		enqueue(100)
		d.n.Store(0)
		enqueue(50)
		wantDetours("after a death", 0)
	})
}

// The cost of the detour through another node: three nodes on loopback, and a client with the address of one that leads nothing.
func BenchmarkDirect(b *testing.B) {
	names := []string{"n1", "n2", "n3"}
	listeners := map[string][2]net.Listener{}
	var join []string
	for _, name := range names {
		var ls [2]net.Listener
		for i := range ls {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			ls[i] = l
		}
		listeners[name] = ls
		join = append(join, ls[1].Addr().String())
	}
	all := map[string]*Node{}
	var mu sync.Mutex
	var starts sync.WaitGroup
	for _, name := range names {
		dir := filepath.Join(b.TempDir(), name)
		starts.Go(func() {
			n, err := Start(b.Context(), Config{Name: name, Dir: dir, Listener: listeners[name][0], PeerListener: listeners[name][1],
				Join: join, MinFree: 1, Fatal: func(err error) { b.Error(err) }})
			if err != nil {
				b.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all[name] = n
		})
	}
	starts.Wait()
	b.Cleanup(func() {
		for _, n := range all {
			_ = n.Stop(context.Background())
		}
	})
	if b.Failed() {
		b.FailNow()
	}
	leader := uint64(0)
	for leader == 0 || all["n1"].copy.Version() == 0 {
		leader, _, _ = all["n1"].broker.Leader(1)
		time.Sleep(10 * time.Millisecond)
	}
	told := "n1"
	if (nodeNames{all["n1"].copy}).node(leader) == told {
		told = "n2"
	}
	for _, direct := range []bool{false, true} {
		opts := []pawl.DialOptions{{Logger: slog.New(slog.DiscardHandler)}}
		if !direct {
			opts = append(opts, pawl.DialOptions{NoRouting: true})
		}
		c, err := pawl.Dial(listeners[told][0].Addr().String(), opts...)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
		task := pawl.RawTask{Type: "job", Payload: []byte(`"` + strings.Repeat("x", 300) + `"`)}
		ref, err := c.Enqueue(b.Context(), task)
		if err != nil {
			b.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond) // until the client has found the leader
		b.Run(fmt.Sprintf("read/direct=%v", direct), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Task(b.Context(), ref.ID); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("enqueue/direct=%v", direct), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Enqueue(b.Context(), task); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("enqueue64/direct=%v", direct), func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := c.Enqueue(b.Context(), task); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
