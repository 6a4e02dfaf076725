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
	"google.golang.org/protobuf/types/known/emptypb"
)

// beating is a connection to a node that can hang.
type beating struct {
	t    *testing.T
	conn *conn

	takes  atomic.Int64 // how long a call takes
	pinged atomic.Int64 // how long a probe takes
	stops  atomic.Int64 // how long this process is stopped when the next probe ends
	beats  atomic.Int64 // between two messages of a stream; 0: it sends none; -1: it ends
	probes atomic.Int64
	dials  atomic.Int64
	hangs  atomic.Pointer[atomic.Bool] // of the connection made last
}

// hanging is a connection to a node that receives nothing while it hangs.
type hanging struct {
	net.Conn
	hangs *atomic.Bool
}

// Write implements net.Conn.
func (c hanging) Write(b []byte) (int, error) {
	if c.hangs.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func inPulse(t *testing.T, test func(b *beating)) {
	synctest.Test(t, func(t *testing.T) {
		b := &beating{t: t}
		l := bufconn.Listen(1 << 16)
		s := grpc.NewServer(grpc.UnknownServiceHandler(b.serve),
			grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
		go s.Serve(l)
		defer s.Stop()
		cfg := &Config{Dialer: func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := l.DialContext(ctx)
			hangs := &atomic.Bool{}
			b.hangs.Store(hangs)
			b.dials.Add(1)
			return hanging{conn, hangs}, err
		}, GRPC: []grpc.DialOption{grpc.WithChainUnaryInterceptor(b.stop)}}
		var err error
		if b.conn, err = cfg.open("passthrough:///n1"); err != nil {
			t.Fatal(err)
		}
		defer b.conn.Close()
		b.call(codes.OK, 0, 0)
		test(b)
	})
}

func (b *beating) serve(_ any, s grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(s)
	in := &emptypb.Empty{}
	if err := s.RecvMsg(in); err != nil {
		return err
	}
	switch method {
	case grpc_health_v1.Health_Check_FullMethodName:
		b.probes.Add(1)
		rest(s.Context(), b.pinged.Load())
	case "/x/call":
		rest(s.Context(), b.takes.Load())
	default:
		if b.beats.Load() < 0 {
			return nil
		}
		for b.beats.Load() > 0 {
			rest(s.Context(), b.beats.Load())
			if err := s.SendMsg(in); err != nil {
				return err
			}
		}
		<-s.Context().Done()
	}
	return s.SendMsg(in)
}

func (b *beating) stop(ctx context.Context, method string, req, resp any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, resp, cc, opts...)
	if method == grpc_health_v1.Health_Check_FullMethodName {
		time.Sleep(time.Duration(b.stops.Swap(0)))
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
func (b *beating) call(want codes.Code, least, most time.Duration) {
	b.t.Helper()
	began := time.Now()
	err := b.conn.Invoke(context.Background(), "/x/call", &emptypb.Empty{}, &emptypb.Empty{})
	if took := time.Since(began); status.Code(err) != want || took < least || took > most {
		b.t.Errorf("call after %s: %v, want %s after %s to %s", took, err, want, least, most)
	}
}

// stream opens a stream, sends a message, and receives what there is until it breaks.
func (b *beating) stream() (s grpc.ClientStream, broken <-chan time.Duration) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := b.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/x/stream")
	if err == nil {
		err = s.SendMsg(&emptypb.Empty{})
	}
	if err != nil {
		b.t.Fatal(err)
	}
	ends := make(chan time.Duration, 1)
	began := time.Now()
	go func() {
		defer cancel()
		for s.RecvMsg(&emptypb.Empty{}) == nil {
		}
		ends <- time.Since(began)
	}()
	return s, ends
}

func (b *beating) wantProbes(what string, want int64) {
	b.t.Helper()
	synctest.Wait()
	if got := b.probes.Swap(0); got != want {
		b.t.Errorf("%s: %d probes, want %d", what, got, want)
	}
}

// A connection to a node that hangs is replaced as soon as there may be other leaders; before, gRPC's pings took up to 15 s.
func TestNodeThatHangsIsLeft(t *testing.T) {
	inPulse(t, func(b *beating) {
		for range 3 {
			b.hangs.Load().Store(true)
			b.call(codes.Unavailable, probeTimeout+firstLook, probeTimeout+2*firstLook)
			b.call(codes.OK, 0, 0)
		}
		// It is also left if its callers are less patient.
		b.hangs.Load().Store(true)
		for range 3 {
			ctx, cancel := context.WithTimeout(context.Background(), firstLook/2)
			if err := b.conn.Invoke(ctx, "/x/call", &emptypb.Empty{}, &emptypb.Empty{}); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("a brief call ended with %v", err)
			}
			cancel()
			time.Sleep(probeTimeout / 2)
		}
		time.Sleep(probeTimeout)
		b.call(codes.OK, 0, 0)
		// Calls that began before it hung, or at any time since, end with it.
		b.takes.Store(int64(time.Hour))
		ends := make(chan time.Duration, 3)
		began := time.Now()
		for range cap(ends) {
			go func() { b.call(codes.Unavailable, 0, probeTimeout+2*firstLook); ends <- time.Since(began) }()
			time.Sleep(300 * time.Millisecond)
			b.hangs.Load().Store(true)
		}
		for range cap(ends) {
			if took := <-ends; took > probeTimeout+2*firstLook {
				t.Errorf("a call ended after %s", took)
			}
		}
		if b.dials.Load() != 5 {
			t.Errorf("%d connections were made, want 5: the last one was not needed", b.dials.Load())
		}
	})
}

// A stream breaks as soon when something was sent over it, and by gRPC's pings when it only waits.
func TestStreamOfNodeThatHangs(t *testing.T) {
	inPulse(t, func(b *beating) {
		for n := range time.Duration(8) {
			s, broken := b.stream()
			// Not together with a ping of gRPC, every 10 s: if its answer arrives after the message was sent, that is no longer owed an answer.
			idle := time.Minute + time.Second + n*firstLook
			time.Sleep(idle)
			b.hangs.Load().Store(true)
			if err := s.SendMsg(&emptypb.Empty{}); err != nil {
				t.Fatal(err)
			}
			if took := <-broken - idle; took < probeTimeout || took > probeTimeout+2*firstLook {
				t.Errorf("a stream broke %s after something was sent", took)
			}
		}
		b.beats.Store(int64(firstLook / 3))
		s, broken := b.stream()
		for range 10 { // what it sends is answered
			_ = s.SendMsg(&emptypb.Empty{})
			time.Sleep(firstLook / 4)
		}
		b.hangs.Load().Store(true)
		b.beats.Store(0)
		time.Sleep(firstLook / 3)
		began := time.Now()
		_ = s.SendMsg(&emptypb.Empty{})
		<-broken
		if took := time.Since(began); took > probeTimeout+2*firstLook {
			t.Errorf("a busy stream broke %s after something was sent", took)
		}
		_, broken = b.stream()
		time.Sleep(time.Minute)
		b.hangs.Load().Store(true)
		if took := <-broken - time.Minute; took < probeTimeout || took > 15*time.Second {
			t.Errorf("an idle stream broke after %s", took)
		}
	})
}

// A node that is slow is not left, and is probed less and less often.
func TestSlowNodeIsNotLeft(t *testing.T) {
	inPulse(t, func(b *beating) {
		b.takes.Store(int64(29 * time.Second))
		b.pinged.Store(int64(probeTimeout - 1))
		b.call(codes.OK, 29*time.Second, 29*time.Second)
		if n := b.probes.Swap(0); n < 5 || n > 8 {
			t.Errorf("a call of 29 s had %d probes", n)
		}
		// Whatever it sends is a sign of life.
		b.pinged.Store(int64(time.Minute))
		b.beats.Store(int64(probeTimeout - 1))
		s, broken := b.stream()
		b.call(codes.OK, 29*time.Second, 29*time.Second)
		if b.dials.Load() != 1 {
			t.Errorf("%d connections were made to a slow node", b.dials.Load())
		}
		b.hangs.Load().Store(true)
		_ = s.SendMsg(&emptypb.Empty{})
		b.beats.Store(0)
		<-broken
	})
}

// A process that was stopped during a probe has not read what arrived meanwhile: that is no sign of a node that hangs.
func TestStoppedProcessLeavesNoNode(t *testing.T) {
	inPulse(t, func(b *beating) {
		const stopped = 5 * time.Second
		b.pinged.Store(int64(time.Hour))
		b.stops.Store(int64(stopped))
		b.takes.Store(int64(stopped + 4*time.Second))
		b.call(codes.OK, stopped+4*time.Second, stopped+4*time.Second)
	})
}

// Nothing is probed as long as calls are answered, whether there are many or few, nor is an idle connection.
func TestNoProbesWithoutSilence(t *testing.T) {
	inPulse(t, func(b *beating) {
		for _, pause := range []time.Duration{time.Millisecond, firstLook - time.Millisecond, firstLook, 2 * firstLook, time.Minute} {
			for range 30 {
				b.call(codes.OK, 0, 0)
				time.Sleep(pause)
			}
			b.wantProbes("calls every "+pause.String(), 0)
		}
		time.Sleep(time.Hour)
		b.wantProbes("idle connection", 0)
		b.beats.Store(-1)
		_, broken := b.stream()
		<-broken
		time.Sleep(time.Hour)
		if n := b.probes.Swap(0); n > 1 {
			t.Errorf("%d probes after a stream has ended", n)
		}
		// A stream that answers what is sent, now and then.
		b.beats.Store(int64(firstLook / 2))
		_, _ = b.stream()
		b.takes.Store(int64(time.Minute))
		b.call(codes.OK, time.Minute, time.Minute)
		b.wantProbes("busy stream", 0)
		b.beats.Store(0)
		b.takes.Store(0)
		time.Sleep(time.Hour)
		b.wantProbes("idle stream", 0)
		for range 60 {
			b.call(codes.OK, 0, 0)
			time.Sleep(time.Second)
		}
		b.wantProbes("calls every second beside an idle stream", 0)
	})
}

// A connection that is closed while it is probed ends at once.
func TestCloseWhileProbing(t *testing.T) {
	inPulse(t, func(b *beating) {
		b.hangs.Load().Store(true)
		ended := make(chan struct{})
		began := time.Now()
		go func() { b.call(codes.Canceled, 2*firstLook, 2*firstLook+1); close(ended) }()
		time.Sleep(2*firstLook + 1)
		_ = b.conn.Close()
		<-ended
		if took := time.Since(began); took != 2*firstLook+1 {
			t.Errorf("a call ended after %s", took)
		}
		time.Sleep(time.Minute)
		if b.conn.pulse.timer.Stop() {
			t.Error("a closed connection is still looked at")
		}
	})
}
