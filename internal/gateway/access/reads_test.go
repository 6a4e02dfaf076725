package access

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/audit/trail"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
)

// otherBytes are bytes in answers that are no contents. A new field of bytes must be here, or among contents.
var otherBytes = []protoreflect.Name{}

// services keeps what is registered.
type services map[string]*grpc.ServiceDesc

func (s services) RegisterService(d *grpc.ServiceDesc, _ any) { s[d.ServiceName] = d }

// fill sets a message's fields of bytes, and those of the messages in it, and reports whether it has any. Names collects theirs.
func fill(m protoreflect.Message, depth int, names map[protoreflect.Name]bool) (any bool) {
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		switch {
		case f.IsMap() || depth == 0:
		case f.Kind() == protoreflect.BytesKind && !f.IsList():
			names[f.Name()], any = true, true
			m.Set(f, protoreflect.ValueOfBytes([]byte("private")))
		case f.Kind() == protoreflect.BytesKind:
			names[f.Name()] = true
		case f.Message() != nil && f.IsList():
			e := m.Mutable(f).List().NewElement()
			if fill(e.Message(), depth-1, names) {
				any = true
				m.Mutable(f).List().Append(e)
			}
		case f.Message() != nil:
			if fill(m.NewField(f).Message(), depth-1, names) {
				any = true
				fill(m.Mutable(f).Message(), depth-1, names)
			}
		}
	}
	return any
}

// eachCall calls fn for every call of the API.
func eachCall(fn func(name string, m protoreflect.MethodDescriptor)) {
	protoregistry.GlobalFiles.RangeFilesByPackage("pawl.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			for j := range s.Methods().Len() {
				fn(string(s.Name())+"/"+string(s.Methods().Get(j).Name()), s.Methods().Get(j))
			}
		}
		return true
	})
}

// serverStream is a stream to a client.
type serverStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s serverStream) Context() context.Context { return s.ctx }
func (s serverStream) SendMsg(any) error        { return nil }

// Each call of the API whose answer holds something that users store leaves one record, and no other call does. Only
// workers' calls are exempt.
func TestEachReadIsRecorded(t *testing.T) {
	var lines bytes.Buffer
	tr := trail.New(trail.Config{Kinds: []trail.Kind{trail.Read}, Log: slog.New(slog.NewTextHandler(&lines, nil))})
	names, recorded := map[protoreflect.Name]bool{}, 0
	eachCall(func(name string, m protoreflect.MethodDescriptor) {
		out, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
		if err != nil {
			t.Fatal(err)
		}
		full := out.New()
		holds := fill(full, 8, names)
		for _, c := range []struct {
			answer proto.Message
			err    error
			want   bool
		}{{full.Interface(), nil, holds && !slices.Equal(contract.Calls()[name].GetRoles(), []pawlv1.Role{pawlv1.Role_ROLE_CONSUME})},
			{out.New().Interface(), nil, false}, {full.Interface(), context.Canceled, false}} {
			service, method, _ := strings.Cut(name, "/")
			d, registered := grpc.ServiceDesc{ServiceName: "pawl.v1." + service}, services{}
			if m.IsStreamingServer() {
				d.Streams = []grpc.StreamDesc{{StreamName: method, Handler: func(_ any, s grpc.ServerStream) error {
					for range 3 {
						if c.err == nil {
							_ = s.SendMsg(c.answer)
						}
					}
					return c.err
				}}}
			} else {
				d.Methods = []grpc.MethodDesc{{MethodName: method, Handler: func(any, context.Context, func(any) error,
					grpc.UnaryServerInterceptor) (any, error) {
					return c.answer, c.err
				}}}
			}
			RecordReads(registered, tr).RegisterService(&d, nil)
			ctx, _ := callinfo.Begin(t.Context(), "grpc", name)
			lines.Reset()
			if with := registered[d.ServiceName]; m.IsStreamingServer() {
				_ = with.Streams[0].Handler(nil, serverStream{ctx: ctx})
			} else {
				_, _ = with.Methods[0].Handler(nil, ctx, nil, nil)
			}
			got := strings.Count(lines.String(), `msg="payloads were read"`)
			if (got == 1) != c.want || got > 1 || strings.Contains(lines.String(), "private") || got == 1 &&
				!strings.Contains(lines.String(), "method="+name) {
				t.Errorf("%s with error %v: %d records, want one: %t: %s", name, c.err, got, c.want, lines.String())
			}
			recorded += got
		}
	})
	if recorded < 15 {
		t.Errorf("only %d calls were recorded", recorded)
	}
	for name := range names {
		if slices.Contains(contents, name) == slices.Contains(otherBytes, name) {
			t.Errorf("answers have bytes %q: are they something that users store?", name)
		}
	}
}

// A record names the tasks whose contents an answer has, and their queue if it is the same. A large page leaves several
// records. A list without contents leaves none.
func TestTasksAreNamed(t *testing.T) {
	var lines bytes.Buffer
	tr := trail.New(trail.Config{Kinds: []trail.Kind{trail.Read}, Log: slog.New(slog.NewTextHandler(&lines, nil))})
	task := func(id, queue, payload string) *pawlv1.Task {
		return &pawlv1.Task{TaskId: id, Queue: queue, Payload: []byte(payload), Key: "private"}
	}
	read := func(tasks ...*pawlv1.Task) string {
		lines.Reset()
		ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
		record(ctx, tr, &pawlv1.ListTasksRequest{}, &pawlv1.ListTasksResponse{Items: tasks})
		return lines.String()
	}
	for _, c := range []struct {
		tasks []*pawlv1.Task
		want  string
	}{
		{[]*pawlv1.Task{task("1", "mail", "")}, ""},
		{[]*pawlv1.Task{task("1", "mail", "x"), task("2", "mail", "y"), task("3", "mail", "")}, `object="1 2" queue=mail tasks=2` + "\n"},
		{[]*pawlv1.Task{task("1", "mail", "x"), task("2", "sms", "y")}, `object="1 2" tasks=2` + "\n"},
	} {
		if got := read(c.tasks...); (got == "") != (c.want == "") || !strings.HasSuffix(got, c.want) || strings.Contains(got, "private") {
			t.Errorf("recorded: %q, want %q", got, c.want)
		}
	}
	var many []*pawlv1.Task
	for range 2*maxIDs + 1 {
		many = append(many, task("00000000-0000-7000-8000-000000000001", "mail", "x"))
		many = append(many, task("00000000-0000-7000-8000-000000000002", "mail", "x"))
	}
	got := strings.Split(strings.TrimSpace(read(many...)), "\n")
	if ids := strings.Count(strings.Join(got, ""), "00000000-0000-7000-8000-"); len(got) != 5 || ids != len(many) {
		t.Errorf("%d records with %d ids of %d tasks", len(got), ids, len(many))
	}
}
