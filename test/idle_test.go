package test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/pawlq/pawl"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

const (
	// fewWorkers is the number with which the latency of many is compared.
	fewWorkers = 100
	// probes is the number of tasks whose latency is measured, probePause the time between them; fewProbes is the number with -short.
	probes     = 500
	fewProbes  = 20
	probePause = 10 * time.Millisecond
	// idleTime is how long the server's work is measured while nothing happens.
	idleTime = 10 * time.Second
	// pingEvery is how often the SDKs for Python and TypeScript ping while a worker's stream is open.
	pingEvery = 10 * time.Second
	// shortIdle is idleTime with -short.
	shortIdle = time.Second
)

// BenchmarkIdleWorkers connects PAWL_IDLE_WORKERS workers (10,000 are the goal, 500 the default, few with -short), each
// with a connection and a stream of its own, to a server in a process of its own, in plaintext and over TLS. It prints
// what they cost the server while they wait, and while they also ping, and how long a task takes from its enqueue to
// one of them, beside the same with 100 workers.
func BenchmarkIdleWorkers(b *testing.B) {
	n := 500
	if testing.Short() {
		n = fewWorkers + 20
	}
	if text := os.Getenv("PAWL_IDLE_WORKERS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < fewWorkers {
			b.Fatalf("PAWL_IDLE_WORKERS=%q is not a number from %d", text, fewWorkers)
		}
	}
	b.Run("plaintext", func(b *testing.B) { benchIdle(b, n, nil) })
	b.Run("tls", func(b *testing.B) { benchIdle(b, n, newTrust(b)) })
}

func benchIdle(b *testing.B, n int, trust *trust) {
	idle := idleTime
	if testing.Short() {
		idle = shortIdle
	}
	for b.Loop() {
		s := newServer(b, trust.flags()...)
		s.start()
		p := &pool{b: b, addr: s.addr, creds: trust.credentials(), got: make(chan int64, probes), raw: make(chan *pingableConn, n)}
		client := s.dial(trust.options()...)
		p.grow(fewWorkers)
		few := p.latency(client)
		before := s.figure("status", "VmRSS:") // KiB
		p.grow(n)
		time.Sleep(time.Second) // what connecting left behind
		worker := float64(s.figure("status", "VmRSS:")-before) / float64(n-fewWorkers)
		busy := s.cpu()
		time.Sleep(idle)
		busy = s.cpu() - busy
		pinged := s.cpu()
		p.ping(idle)
		pinged = s.cpu() - pinged
		many := p.latency(client)
		b.ReportMetric(worker, "KiB/worker")
		b.ReportMetric(100*busy.Seconds()/idle.Seconds(), "%cpu-idle")
		b.ReportMetric(100*pinged.Seconds()/idle.Seconds(), "%cpu-pinged")
		for name, all := range map[string][]time.Duration{"few": few, "many": many} {
			b.ReportMetric(float64(all[len(all)/2].Microseconds()), "µs-p50-"+name)
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "µs-p99-"+name)
		}
		p.close()
		s.kill()
	}
}

// pool is workers that wait, each with a connection of its own.
type pool struct {
	b     *testing.B
	addr  string
	creds credentials.TransportCredentials
	conns []*grpc.ClientConn
	raw   chan *pingableConn
	got   chan int64 // when what was received was enqueued, and how long it took: see latency
	work  sync.WaitGroup
}

// grow connects workers until there are n.
func (p *pool) grow(n int) {
	const atOnce = 50
	for len(p.conns) < n {
		var joining sync.WaitGroup
		for range min(atOnce, n-len(p.conns)) {
			conn, err := grpc.NewClient("passthrough:///"+p.addr, grpc.WithTransportCredentials(pingable{p.creds, p.raw}),
				grpc.WithReadBufferSize(2<<10), grpc.WithWriteBufferSize(2<<10))
			if err != nil {
				p.b.Fatal(err)
			}
			p.conns = append(p.conns, conn)
			joining.Go(func() { p.join(conn) })
		}
		joining.Wait()
	}
}

// join opens a worker's stream, and reports what arrives on it.
func (p *pool) join(conn *grpc.ClientConn) {
	stream, err := pawlv1.NewWorkerServiceClient(conn).Work(context.Background(), grpc.WaitForReady(true))
	if err == nil {
		err = stream.Send(&pawlv1.WorkRequest{Hello: &pawlv1.WorkHello{Queues: []*pawlv1.QueueShare{{Queue: "idle"}}, Worker: "idle"},
			Grant: 1})
	}
	if err != nil {
		p.b.Error(err)
		return
	}
	p.work.Go(func() {
		for {
			frame, err := stream.Recv()
			if err != nil {
				return // the pool was closed
			}
			for _, t := range frame.GetTasks() {
				var sent int64
				if err := json.Unmarshal(t.GetPayload(), &sent); err != nil {
					p.b.Error(err)
				}
				p.got <- time.Now().UnixNano() - sent
				_ = stream.Send(&pawlv1.WorkRequest{Grant: 1, Settle: &pawlv1.SettleRequest{
					Acks: []*pawlv1.AckRequest{{TaskId: t.GetTaskId(), ClaimToken: t.GetClaimToken()}}}})
			}
		}
	})
}

// ping has each connection send pings for a while.
func (p *pool) ping(d time.Duration) {
	began := time.Now()
	var pinging sync.WaitGroup
	for range p.conns {
		conn := <-p.raw
		pinging.Go(func() {
			for at := rand.N(pingEvery); at < d; at += pingEvery { // #nosec G404 -- only spreads them
				time.Sleep(time.Until(began.Add(at)))
				if err := conn.ping(); err != nil {
					p.b.Error(err)
				}
			}
		})
	}
	pinging.Wait()
	time.Sleep(time.Until(began.Add(d)))
}

// pingable are credentials whose connections can ping more often than gRPC's own pings allow, which is every 10 s.
type pingable struct {
	credentials.TransportCredentials
	made chan<- *pingableConn
}

func (p pingable) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := p.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	out := &pingableConn{Conn: conn}
	p.made <- out
	return out, info, nil
}

func (p pingable) Clone() credentials.TransportCredentials {
	return pingable{p.TransportCredentials.Clone(), p.made}
}

type pingableConn struct {
	net.Conn
	mu sync.Mutex // guards Write
}

// Write implements net.Conn. gRPC writes whole frames.
func (c *pingableConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *pingableConn) ping() error {
	return http2.NewFramer(c, nil).WritePing(false, [8]byte{})
}

// latency is how long tasks take from their enqueue to a worker, in order.
func (p *pool) latency(client *pawl.Client) (all []time.Duration) {
	n := probes
	if testing.Short() {
		n = fewProbes
	}
	for range n {
		sent, _ := json.Marshal(time.Now().UnixNano())
		if _, err := client.Enqueue(context.Background(), pawl.RawTask{Type: "probe", Payload: sent}, pawl.Queue("idle")); err != nil {
			p.b.Fatal(err)
		}
		all = append(all, time.Duration(<-p.got))
		time.Sleep(probePause)
	}
	slices.Sort(all)
	return all
}

func (p *pool) close() {
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.work.Wait()
}
