package pawl_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// listener is a server that knows no call and notes what comes with each.
type listener struct {
	mu    sync.Mutex
	heard map[string]metadata.MD // by method
}

func listen(t *testing.T, opts ...pawl.DialOptions) (*listener, *pawl.Client) {
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
	client, err := pawl.Dial("there", append(opts, pawl.DialOptions{Dialer: dial, NoRouting: true})...)
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
	l, client := listen(t)
	operator := admin.New(client).WithActor("lena").WithReason("größer")
	schedule := admin.ScheduleSpec{Name: "s", Cron: "@daily", Task: welcome{}}
	dead := admin.DeadSelection{Queue: "q", Filter: &admin.Filter{}}
	arguments := map[reflect.Type]reflect.Value{
		reflect.TypeFor[context.Context]():     reflect.ValueOf(t.Context()),
		reflect.TypeFor[io.Writer]():           reflect.ValueOf(io.Discard),
		reflect.TypeOf(schedule):               reflect.ValueOf(schedule),
		reflect.TypeOf(dead):                   reflect.ValueOf(dead),
		reflect.TypeFor[admin.OperationSpec](): reflect.ValueOf(admin.OperationSpec{Action: admin.ActionCancel, Filter: &admin.Filter{}}),
	}
	type call struct {
		name string
		fn   reflect.Value
	}
	var calls []call
	all := reflect.ValueOf(operator)
	for i := range all.NumMethod() {
		name, m := all.Type().Method(i).Name, all.Method(i)
		switch {
		case strings.HasPrefix(name, "With"):
		case m.Type().NumIn() > 0:
			calls = append(calls, call{name, m})
		default:
			group := m.Call(nil)[0]
			for i := range group.NumMethod() {
				calls = append(calls, call{name + "." + group.Type().Method(i).Name, group.Method(i)})
			}
		}
	}
	for _, c := range calls {
		name, m := c.name, c.fn
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

// Cancelling and editing are an operator's work too. They have the name that was given.
func TestCancelAndUpdateSayWhoActs(t *testing.T) {
	l, client := listen(t)
	operator := admin.New(client).WithActor("lena")
	_, _ = operator.Tasks().Cancel(t.Context(), "x", "")
	_, _ = operator.Tasks().Update(t.Context(), "x", admin.TaskUpdate{})
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
		l, client := listen(t)
		if _, err := admin.New(client).WithActor(name).Queues().Get(t.Context(), "q"); !errors.Is(err, pawltype.ErrInvalidArgument) || len(l.taken()) > 0 {
			t.Errorf("a call as %q: %v", name, err)
		}
	}
	_, client := listen(t)
	if _, err := admin.New(client).WithReason(long(1025)).Queues().Get(t.Context(), "q"); !errors.Is(err, pawltype.ErrInvalidArgument) {
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

// What the audit says arrives whole.
func TestAuditPage(t *testing.T) {
	f, client := start(t)
	var asked string
	f.operator = func(method string, r any) (any, bool) {
		asked = method + " " + strings.ReplaceAll(fmt.Sprint(r), " ", "")
		return &pawlv1.ListAuditResponse{NextCursor: "c2", Items: []*pawlv1.AuditEntry{{Shard: 1, Seq: 2, Actor: "lena", Address: "10.0.0.1", Face: "rest", Reason: "why",
			Action: "queue.purge", TargetKind: "queue", Target: "mail", Queue: "mail", Tasks: 3, Before: `{"a":1}`, Hash: "h", PreviousHash: "p"}}}, true
	}
	page, err := admin.New(client).Audit().ListPage(t.Context(), admin.AuditFilter{Actor: "lena", Action: "queue.*", TargetKind: "queue", Target: "mail", Queue: "mail"},
		pawltype.PageRequest{Limit: 5, Cursor: "c1"})
	want := admin.AuditEntry{Shard: 1, Seq: 2, Actor: "lena", Address: "10.0.0.1", Face: "rest", Reason: "why", Action: "queue.purge", TargetKind: "queue", Target: "mail",
		Queue: "mail", Tasks: 3, Before: json.RawMessage(`{"a":1}`), Hash: "h", Previous: "p"}
	if err != nil || len(page.Items) != 1 || !reflect.DeepEqual(*page.Items[0], want) || page.NextCursor != "c2" {
		t.Errorf("the page is %+v, %v", page, err)
	}
	if want := `ListAudit filter:{actor:"lena"action:"queue.*"target_kind:"queue"target:"mail"queue:"mail"}limit:5cursor:"c1"`; asked != want {
		t.Errorf("asked %s, want %s", asked, want)
	}
}
