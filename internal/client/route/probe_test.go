package route

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// hangingNode is a node that can hang, and a connection to it.
type hangingNode struct {
	t    *testing.T
	conn *conn

	takes      atomic.Int64              // how long a call takes
	probeTakes atomic.Int64              // how long a probe takes
	stops      atomic.Int64              // how long this process is stopped when the next probe ends
	interval   atomic.Int64              // between two messages of a stream; 0: it sends none; -1: it ends
	frames     chan *pawlv1.WorkResponse // what it sends over a worker's stream
	probes     atomic.Int64
	dials      atomic.Int64
	hangs      atomic.Pointer[atomic.Bool] // of the connection made last
}

// hangingConn is a connection to a node that receives nothing while it hangs.
type hangingConn struct {
	net.Conn
	hangs *atomic.Bool
}

// Write implements net.Conn.
func (c hangingConn) Write(b []byte) (int, error) {
	if c.hangs.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func withHangingNode(t *testing.T, test func(h *hangingNode)) {
	synctest.Test(t, func(t *testing.T) {
		h := &hangingNode{t: t, frames: make(chan *pawlv1.WorkResponse)}
		l := bufconn.Listen(1 << 16)
		s := grpc.NewServer(grpc.UnknownServiceHandler(h.serve),
			grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
		go s.Serve(l)
		defer s.Stop()
		cfg := &Config{Dialer: func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := l.DialContext(ctx)
			hangs := &atomic.Bool{}
			h.hangs.Store(hangs)
			h.dials.Add(1)
			return hangingConn{conn, hangs}, err
		}, GRPC: []grpc.DialOption{grpc.WithChainUnaryInterceptor(h.stop)}}
		var err error
		if h.conn, err = cfg.open("passthrough:///n1"); err != nil {
			t.Fatal(err)
		}
		defer h.conn.Close()
		h.call(codes.OK, 0, 0)
		test(h)
	})
}

func (h *hangingNode) serve(_ any, s grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(s)
	in := &emptypb.Empty{}
	if err := s.RecvMsg(in); err != nil {
		return err
	}
	switch method {
	case grpc_health_v1.Health_Check_FullMethodName:
		h.probes.Add(1)
		rest(s.Context(), h.probeTakes.Load())
	case "/x/call":
		rest(s.Context(), h.takes.Load())
	case "/x/work":
		for frame := range h.frames {
			if err := s.SendMsg(frame); err != nil || frame.GetDraining() {
				return err
			}
		}
	default:
		if h.interval.Load() < 0 {
			return nil
		}
		for h.interval.Load() > 0 {
			rest(s.Context(), h.interval.Load())
			if err := s.SendMsg(in); err != nil {
				return err
			}
		}
		<-s.Context().Done()
	}
	return s.SendMsg(in)
}

func (h *hangingNode) stop(ctx context.Context, method string, req, resp any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, resp, cc, opts...)
	if method == grpc_health_v1.Health_Check_FullMethodName {
		time.Sleep(time.Duration(h.stops.Swap(0)))
	}
	return err
}

func rest(ctx context.Context, d int64) {
	select {
	case <-time.After(time.Duration(d)):
	case <-ctx.Done():
	}
}

// call makes a call, and checks how it ends and when.
func (h *hangingNode) call(want codes.Code, least, most time.Duration) {
	h.t.Helper()
	began := time.Now()
	err := h.conn.Invoke(context.Background(), "/x/call", &emptypb.Empty{}, &emptypb.Empty{})
	if took := time.Since(began); status.Code(err) != want || took < least || took > most {
		h.t.Errorf("call after %s: %v, want %s after %s to %s", took, err, want, least, most)
	}
}

// stream opens a stream, sends a message, and receives what there is until it breaks.
func (h *hangingNode) stream() (s grpc.ClientStream, broken <-chan time.Duration) {
	h.t.Helper()
	return h.streamOf("/x/stream", &emptypb.Empty{})
}

// work opens a worker's stream as stream does.
func (h *hangingNode) work() (s grpc.ClientStream, broken <-chan time.Duration) {
	h.t.Helper()
	return h.streamOf("/x/work", &pawlv1.WorkRequest{})
}

func (h *hangingNode) streamOf(method string, first proto.Message) (s grpc.ClientStream, broken <-chan time.Duration) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := h.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err == nil {
		err = s.SendMsg(first)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	ends := make(chan time.Duration, 1)
	began := time.Now()
	go func() {
		defer cancel()
		for s.RecvMsg(&pawlv1.WorkResponse{}) == nil {
		}
		ends <- time.Since(began)
	}()
	return s, ends
}

func (h *hangingNode) wantProbes(what string, want int64) {
	h.t.Helper()
	synctest.Wait()
	if got := h.probes.Swap(0); got != want {
		h.t.Errorf("%s: %d probes, want %d", what, got, want)
	}
}

// A connection to a node that hangs is replaced as soon as there may be other leaders; before, gRPC's pings took up to 15 s.
func TestNodeThatHangsIsLeft(t *testing.T) {
	withHangingNode(t, func(h *hangingNode) {
		for range 3 {
			h.hangs.Load().Store(true)
			h.call(codes.Unavailable, probeTimeout+firstCheck, probeTimeout+2*firstCheck)
			h.call(codes.OK, 0, 0)
		}
		// It is also left if its callers are less patient.
		h.hangs.Load().Store(true)
		for range 3 {
			ctx, cancel := context.WithTimeout(context.Background(), firstCheck/2)
			if err := h.conn.Invoke(ctx, "/x/call", &emptypb.Empty{}, &emptypb.Empty{}); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("a brief call ended with %v", err)
			}
			cancel()
			time.Sleep(probeTimeout / 2)
		}
		time.Sleep(probeTimeout)
		h.call(codes.OK, 0, 0)
		// Calls that began before it hung, or at any time since, end with it.
		h.takes.Store(int64(time.Hour))
		ends := make(chan time.Duration, 3)
		began := time.Now()
		for range cap(ends) {
			go func() { h.call(codes.Unavailable, 0, probeTimeout+2*firstCheck); ends <- time.Since(began) }()
			time.Sleep(300 * time.Millisecond)
			h.hangs.Load().Store(true)
		}
		for range cap(ends) {
			if took := <-ends; took > probeTimeout+2*firstCheck {
				t.Errorf("a call ended after %s", took)
			}
		}
		if h.dials.Load() != 5 {
			t.Errorf("%d connections were made, want 5: the last one was not needed", h.dials.Load())
		}
	})
}

// A stream breaks as soon when something was sent over it, and by gRPC's pings when it only waits.
func TestStreamOfNodeThatHangs(t *testing.T) {
	withHangingNode(t, func(h *hangingNode) {
		for n := range time.Duration(8) {
			s, broken := h.stream()
			// Not together with a ping of gRPC, every 10 s: an answer to it that arrives after the message was sent
			// counts as one to the message.
			idle := time.Minute + time.Second + n*firstCheck
			time.Sleep(idle)
			h.hangs.Load().Store(true)
			if err := s.SendMsg(&emptypb.Empty{}); err != nil {
				t.Fatal(err)
			}
			if took := <-broken - idle; took < probeTimeout || took > probeTimeout+2*firstCheck {
				t.Errorf("a stream broke %s after something was sent", took)
			}
		}
		h.interval.Store(int64(firstCheck / 3))
		s, broken := h.stream()
		for range 10 { // what it sends is answered
			_ = s.SendMsg(&emptypb.Empty{})
			time.Sleep(firstCheck / 4)
		}
		h.hangs.Load().Store(true)
		h.interval.Store(0)
		time.Sleep(firstCheck / 3)
		began := time.Now()
		_ = s.SendMsg(&emptypb.Empty{})
		<-broken
		if took := time.Since(began); took > probeTimeout+2*firstCheck {
			t.Errorf("a busy stream broke %s after something was sent", took)
		}
		_, broken = h.stream()
		time.Sleep(time.Minute)
		h.hangs.Load().Store(true)
		if took := <-broken - time.Minute; took < probeTimeout || took > 15*time.Second {
			t.Errorf("an idle stream broke after %s", took)
		}
	})
}

// settles is a frame with an ending or an extension of each kind, and answers are frames with the answers to it, from two shards.
var (
	settles = &pawlv1.WorkRequest{Settle: &pawlv1.SettleRequest{Acks: []*pawlv1.AckRequest{{}}, Fails: []*pawlv1.FailRequest{{}},
		Extends: []*pawlv1.ExtendRequest{{}}, Releases: []*pawlv1.ReleaseRequest{{}}}}
	answers = []*pawlv1.WorkResponse{
		{Settled: &pawlv1.SettleResponse{Acks: []*pawlv1.Settled{{}}, Fails: []*pawlv1.Settled{{}}, Releases: []*pawlv1.Settled{{}}}},
		{Settled: &pawlv1.SettleResponse{Extends: []*pawlv1.Settled{{}}}}}
)

// A worker's stream is probed until each ending and extension is answered, even if other frames arrive meanwhile: a node that hangs after
// it is left as soon as if nothing had arrived.
func TestUnansweredEndings(t *testing.T) {
	withHangingNode(t, func(h *hangingNode) {
		for _, frame := range []*pawlv1.WorkRequest{
			{Settle: &pawlv1.SettleRequest{Acks: settles.GetSettle().GetAcks()}},
			{Settle: &pawlv1.SettleRequest{Fails: settles.GetSettle().GetFails()}},
			{Settle: &pawlv1.SettleRequest{Extends: settles.GetSettle().GetExtends()}},
			{Settle: &pawlv1.SettleRequest{Releases: settles.GetSettle().GetReleases()}},
		} {
			s, broken := h.work()
			began := time.Now()
			_ = s.SendMsg(frame)
			h.frames <- &pawlv1.WorkResponse{Tasks: []*pawlv1.ClaimedTask{{}}}
			synctest.Wait()
			h.hangs.Load().Store(true)
			<-broken
			if took := time.Since(began); took < probeTimeout || took > probeTimeout+2*firstCheck {
				t.Errorf("the stream of a worker that awaits the answer to {%v} broke after %s", frame, took)
			}
			h.frames <- &pawlv1.WorkResponse{Draining: true}
			h.call(codes.OK, 0, 0)
			time.Sleep(maxCheck)
			h.probes.Store(0)
			time.Sleep(10 * time.Minute)
			h.wantProbes("stream that broke", 0)
		}
		s, broken := h.work()
		for _, frame := range []*pawlv1.WorkRequest{settles, settles} {
			_ = s.SendMsg(frame)
		}
		for _, frame := range append(answers, answers...) {
			time.Sleep(time.Minute)
			if n := h.probes.Swap(0); n < 10 || n > 16 {
				t.Errorf("%d probes in a minute while answers are awaited, want about 15", n)
			}
			h.frames <- frame
		}
		h.frames <- answers[0] // to nothing
		time.Sleep(probeTimeout)
		h.probes.Store(0)
		time.Sleep(time.Hour)
		h.wantProbes("answered endings", 0)
		_ = s.SendMsg(&pawlv1.WorkRequest{Settle: &pawlv1.SettleRequest{Acks: settles.GetSettle().GetAcks()}})
		time.Sleep(time.Minute)
		if n := h.probes.Swap(0); n < 10 {
			t.Errorf("%d probes in a minute after more answers than were awaited, want about 15", n)
		}
		h.frames <- &pawlv1.WorkResponse{Draining: true}
		<-broken
		_ = s.SendMsg(settles)
		time.Sleep(time.Minute)
		h.probes.Store(0)
		time.Sleep(time.Hour)
		h.wantProbes("stream that ended", 0)
		if h.dials.Load() != 5 {
			t.Errorf("%d connections were made, want 5", h.dials.Load())
		}
	})
}

// A node that is slow is not left, and is probed less and less often.
func TestSlowNodeIsNotLeft(t *testing.T) {
	withHangingNode(t, func(h *hangingNode) {
		h.takes.Store(int64(29 * time.Second))
		h.probeTakes.Store(int64(probeTimeout - 1))
		h.call(codes.OK, 29*time.Second, 29*time.Second)
		if n := h.probes.Swap(0); n < 5 || n > 8 {
			t.Errorf("a call of 29 s had %d probes", n)
		}
		// Whatever it sends shows that it is alive.
		h.probeTakes.Store(int64(time.Minute))
		h.interval.Store(int64(probeTimeout - 1))
		s, broken := h.stream()
		h.call(codes.OK, 29*time.Second, 29*time.Second)
		if h.dials.Load() != 1 {
			t.Errorf("%d connections were made to a slow node", h.dials.Load())
		}
		h.hangs.Load().Store(true)
		_ = s.SendMsg(&emptypb.Empty{})
		h.interval.Store(0)
		<-broken
	})
}

// A process that was stopped during a probe has not read what arrived meanwhile: that does not show that the node hangs.
func TestStoppedProcessLeavesNoNode(t *testing.T) {
	withHangingNode(t, func(h *hangingNode) {
		const stopped = 5 * time.Second
		h.probeTakes.Store(int64(time.Hour))
		h.stops.Store(int64(stopped))
		h.takes.Store(int64(stopped + 4*time.Second))
		h.call(codes.OK, stopped+4*time.Second, stopped+4*time.Second)
	})
}

// Nothing is probed as long as calls are answered, whether there are many or few, nor is an idle connection.
func TestNoProbesWithoutSilence(t *testing.T) {
	withHangingNode(t, func(h *hangingNode) {
		for _, pause := range []time.Duration{time.Millisecond, firstCheck - time.Millisecond, firstCheck, 2 * firstCheck, time.Minute} {
			for range 30 {
				h.call(codes.OK, 0, 0)
				time.Sleep(pause)
			}
			h.wantProbes("calls every "+pause.String(), 0)
		}
		time.Sleep(time.Hour)
		h.wantProbes("idle connection", 0)
		h.interval.Store(-1)
		_, broken := h.stream()
		<-broken
		time.Sleep(time.Hour)
		if n := h.probes.Swap(0); n > 1 {
			t.Errorf("%d probes after a stream has ended", n)
		}
		// A stream that answers what is sent, now and then.
		h.interval.Store(int64(firstCheck / 2))
		_, _ = h.stream()
		h.takes.Store(int64(time.Minute))
		h.call(codes.OK, time.Minute, time.Minute)
		h.wantProbes("busy stream", 0)
		h.interval.Store(0)
		h.takes.Store(0)
		time.Sleep(time.Hour)
		h.wantProbes("idle stream", 0)
		for range 60 {
			h.call(codes.OK, 0, 0)
			time.Sleep(time.Second)
		}
		h.wantProbes("calls every second beside an idle stream", 0)
	})
}

// A connection that is closed while it is probed ends at once.
func TestCloseWhileProbing(t *testing.T) {
	withHangingNode(t, func(h *hangingNode) {
		h.hangs.Load().Store(true)
		ended := make(chan struct{})
		began := time.Now()
		go func() { h.call(codes.Canceled, 2*firstCheck, 2*firstCheck+1); close(ended) }()
		time.Sleep(2*firstCheck + 1)
		_ = h.conn.Close()
		<-ended
		if took := time.Since(began); took != 2*firstCheck+1 {
			t.Errorf("a call ended after %s", took)
		}
		time.Sleep(time.Minute)
		if h.conn.prober.timer.Stop() {
			t.Error("a closed connection is still checked")
		}
	})
}
