package access

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/audit/trail"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
)

// contents are the names of fields that hold what users store: of tasks, and of the file of a backup.
var contents = []protoreflect.Name{"payload", "result", "checkpoint", "data"}

// maxIDs bounds the tasks that one record names. A page of more leaves several.
const maxIDs = 100

func holdsContents(f protoreflect.FieldDescriptor) bool {
	return f.Kind() == protoreflect.BytesKind && slices.Contains(contents, f.Name())
}

// reaches reports whether a message, or one in it, has a field for contents.
func reaches(m protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	if seen[m.FullName()] {
		return false
	}
	seen[m.FullName()] = true
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if holdsContents(f) || f.Message() != nil && reaches(f.Message(), seen) {
			return true
		}
	}
	return false
}

// RecordsReads reports whether a call, given as Service/Method, is recorded if it returns contents.
func RecordsReads(call string) bool {
	service, method, _ := strings.Cut(call, "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("pawl.v1." + service + "." + method))
	if err != nil {
		return false // of another protocol: health, reflection, KEDA
	}
	forWorkers := slices.Equal(contract.Calls()[call].GetRoles(), []pawlv1.Role{pawlv1.Role_ROLE_CONSUME})
	return !forWorkers && reaches(d.(protoreflect.MethodDescriptor).Output(), map[protoreflect.FullName]bool{})
}

// RecordReads returns a registrar that registers services with another one so that their reads are recorded.
func RecordReads(s grpc.ServiceRegistrar, t *trail.Trail) grpc.ServiceRegistrar {
	if !t.Records(trail.Read) {
		return s
	}
	return registrar{s, t}
}

type registrar struct {
	grpc.ServiceRegistrar
	trail *trail.Trail
}

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(d *grpc.ServiceDesc, service any) {
	with := *d
	with.Methods, with.Streams = slices.Clone(d.Methods), slices.Clone(d.Streams)
	name := strings.TrimPrefix(d.ServiceName, "pawl.v1.") + "/"
	for i := range with.Methods {
		if m := &with.Methods[i]; RecordsReads(name + m.MethodName) {
			m.Handler = r.unary(m.Handler)
		}
	}
	for i := range with.Streams {
		if m := &with.Streams[i]; RecordsReads(name + m.StreamName) {
			handle := m.Handler
			m.Handler = func(srv any, s grpc.ServerStream) error { return handle(srv, &stream{ServerStream: s, trail: r.trail}) }
		}
	}
	r.ServiceRegistrar.RegisterService(&with, service)
}

func (r registrar) unary(handle grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, dec func(any) error, i grpc.UnaryServerInterceptor) (any, error) {
		var asked proto.Message
		answer, err := handle(srv, ctx, func(m any) error {
			asked, _ = m.(proto.Message)
			return dec(m)
		}, i)
		if m, ok := answer.(proto.Message); ok && err == nil {
			record(ctx, r.trail, asked, m)
		}
		return answer, err
	}
}

// stream records once that contents were sent.
type stream struct {
	grpc.ServerStream
	trail *trail.Trail
	told  bool
}

// SendMsg implements grpc.ServerStream.
func (s *stream) SendMsg(m any) error {
	if answer, ok := m.(proto.Message); ok && !s.told {
		s.told = record(s.Context(), s.trail, nil, answer)
	}
	return s.ServerStream.SendMsg(m)
}

// found is a message that holds contents.
type found struct{ id, queue string }

// record records the contents that an answer has, if it has any.
func record(ctx context.Context, t *trail.Trail, asked, answer proto.Message) bool {
	var all []found
	find(answer.ProtoReflect(), found{}, &all)
	if len(all) == 0 {
		return false
	}
	c := callinfo.Of(ctx)
	e := c.Event(trail.Read)
	if e.Actor == "" {
		by, _ := callinfo.Author(ctx, "")
		e.Actor = by.Name
	}
	for items := range slices.Chunk(all, maxIDs) {
		e.Tasks, e.Queue = len(items), items[0].queue
		var ids []string
		for _, f := range items {
			if f.id != "" {
				ids = append(ids, f.id)
			}
			if f.queue != e.Queue {
				e.Queue = ""
			}
		}
		if e.Object = strings.Join(ids, " "); e.Object == "" && asked != nil {
			e.Object = textOf(asked.ProtoReflect(), "id", "task_id", "name")
		}
		t.Record(e)
	}
	return true
}

// find appends the messages in m that hold contents. Around is what is known of them from the messages around them.
func find(m protoreflect.Message, around found, all *[]found) {
	if id := textOf(m, "id", "task_id"); id != "" {
		around.id = id
	} else if around.id == "" {
		around.id = textOf(m, "name")
	}
	if queue := textOf(m, "queue"); queue != "" {
		around.queue = queue
	}
	holds := false
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool { // only fields that are set
		switch {
		case holdsContents(f):
			holds = true
		case f.Message() == nil || f.IsMap() && f.MapValue().Message() == nil:
		case f.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { find(v.Message(), around, all); return true })
		case f.IsList():
			for i := range v.List().Len() {
				find(v.List().Get(i).Message(), around, all)
			}
		default:
			find(v.Message(), around, all)
		}
		return true
	})
	if n := len(*all); holds && (n == 0 || around.id == "" || (*all)[n-1] != around) { // not once more for what follows a task
		*all = append(*all, around)
	}
}

// textOf returns the first of some text fields that a message has.
func textOf(m protoreflect.Message, names ...protoreflect.Name) string {
	for _, name := range names {
		if f := m.Descriptor().Fields().ByName(name); f != nil && f.Kind() == protoreflect.StringKind && !f.IsList() {
			if text := m.Get(f).String(); text != "" {
				return text
			}
		}
	}
	return ""
}
