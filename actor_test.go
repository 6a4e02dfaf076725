package pawl_test

import (
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pawlq/pawl"
)

// listener is a server that knows no call and notes what comes with each.
type listener struct {
	mu    sync.Mutex
	heard map[string]metadata.MD // by method
}

func listen(t *testing.T, opts ...pawl.DialOption) (*listener, *pawl.Client) {
	l := &listener{heard: map[string]metadata.MD{}}
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		md, _ := metadata.FromIncomingContext(stream.Context())
		l.mu.Lock()
		l.heard[method] = md
		l.mu.Unlock()
		return status.Error(codes.InvalidArgument, "not here")
	}))
	pipe := bufconn.Listen(1 << 16)
	go func() { _ = s.Serve(pipe) }()
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }
	client, err := pawl.Dial("there", append(opts, pawl.WithDialer(dial), pawl.WithoutDirect())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); s.Stop() })
	return l, client
}

// taken is what came with the calls since it was last asked.
func (l *listener) taken() map[string]metadata.MD {
	l.mu.Lock()
	defer l.mu.Unlock()
	heard := l.heard
	l.heard = map[string]metadata.MD{}
	return heard
}

// Each method of Admin says who acts and why. One that forgets to, or that this test can't call, fails it.
func TestEachOperatorCallSaysWhoActs(t *testing.T) {
	l, client := listen(t, pawl.WithActor("nobody"))
	admin := client.Admin().As("lena").Because("größer")
	schedule := pawl.Schedule{Name: "s", Cron: "@daily", Task: welcome{}}
	dead := pawl.DeadSelection{Queue: "q", Filter: &pawl.Filter{}}
	arguments := map[reflect.Type]reflect.Value{
		reflect.TypeFor[context.Context](): reflect.ValueOf(t.Context()),
		reflect.TypeFor[io.Writer]():       reflect.ValueOf(io.Discard),
		reflect.TypeOf(schedule):           reflect.ValueOf(schedule),
		reflect.TypeOf(dead):               reflect.ValueOf(dead),
		reflect.TypeFor[pawl.Operation]():  reflect.ValueOf(pawl.Operation{Action: pawl.ActionCancel, Filter: &pawl.Filter{}}),
	}
	v := reflect.ValueOf(admin)
	for i := range v.NumMethod() {
		name, m := v.Type().Method(i).Name, v.Method(i)
		if name == "As" || name == "Because" {
			continue
		}
		var args []reflect.Value
		for i := range m.Type().NumIn() {
			in := m.Type().In(i)
			arg, ok := arguments[in]
			if !ok {
				arg = reflect.Zero(in)
			}
			args = append(args, arg)
		}
		for _, out := range m.Call(args[:len(args)-variadic(m)]) {
			if out.Type().CanSeq2() {
				for range out.Seq2() {
					break
				}
			}
		}
		heard := l.taken()
		if len(heard) == 0 {
			t.Errorf("%s made no call", name)
		}
		for method, md := range heard {
			actor, reason := md.Get("pawl-actor"), md.Get("pawl-reason-bin")
			if len(actor) != 1 || actor[0] != "lena" || len(reason) != 1 || reason[0] != "größer" {
				t.Errorf("%s calls %s with actor %q and reason %q", name, method, actor, reason)
			}
		}
	}
}

func variadic(m reflect.Value) int {
	if m.Type().IsVariadic() {
		return 1
	}
	return 0
}

// Cancelling and editing are an operator's work too. They have the name that the client was given.
func TestCancelAndUpdateSayWhoActs(t *testing.T) {
	l, client := listen(t, pawl.WithActor("lena"))
	_, _ = client.Cancel(t.Context(), "x", "")
	_, _ = client.Update(t.Context(), "x", pawl.Change{})
	heard := l.taken()
	if len(heard) != 2 {
		t.Errorf("calls %v, want 2", heard)
	}
	for method, md := range heard {
		if got := md.Get("pawl-actor"); len(got) != 1 || got[0] != "lena" {
			t.Errorf("%s with actor %q", method, got)
		}
	}
}

// A name that no header can carry is refused before anything is sent.
func TestActorThatIsNoName(t *testing.T) {
	for _, name := range []string{"a\nb", "Łena", string(make([]byte, 1)), long(257)} {
		if _, err := pawl.Dial("localhost", pawl.WithActor(name)); !errors.Is(err, pawl.ErrInvalidArgument) {
			t.Errorf("dial as %q: %v", name, err)
		}
		l, client := listen(t)
		if _, err := client.Admin().As(name).Queue(t.Context(), "q"); !errors.Is(err, pawl.ErrInvalidArgument) || len(l.taken()) > 0 {
			t.Errorf("a call as %q: %v", name, err)
		}
	}
	_, client := listen(t)
	if _, err := client.Admin().Because(long(1025)).Queue(t.Context(), "q"); !errors.Is(err, pawl.ErrInvalidArgument) {
		t.Errorf("a long reason: %v", err)
	}
}

func long(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a'
	}
	return string(b)
}
