package conformance

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/pawlq/pawl/api/pawl/v1"
)

// maxNested is how deep the test goes into nested messages.
const maxNested = 3

// A control character in any text of a request never causes an internal error: the request is refused, not found, or accepted.
func TestControlCharacters(t *testing.T) {
	tellAll(t, []story{ofTheGateway(story{name: "no text in a request causes an internal error", tell: func(w *world) {
		rpc := newRPC(w.T, w.testNode)
		id := w.enqueue(spec{}).ID
		tried := 0
		protoregistry.GlobalFiles.RangeFilesByPackage("pawl.v1", func(f protoreflect.FileDescriptor) bool {
			for i := range f.Services().Len() {
				for n := range f.Services().Get(i).Methods().Len() {
					m := f.Services().Get(i).Methods().Get(n)
					if m.IsStreamingClient() || m.IsStreamingServer() {
						continue
					}
					for _, at := range textsIn(m.Input(), maxNested) {
						for _, bad := range []string{"\x00", "a\x00b", "a\nb", "\x7f", "dead-\x00.jsonl:1", strings.Repeat("\x01", 300)} {
							w.sends(rpc, m, at, id, bad)
							tried++
						}
					}
				}
			}
			return true
		})
		if tried < 1000 {
			w.Errorf("only %d text fields were tried, want at least 1000", tried)
		}
	}})})
}

// sends makes a call in which one text is bad, and all others may be valid.
func (w *world) sends(rpc *rpc, m protoreflect.MethodDescriptor, at []protoreflect.FieldDescriptor, id, bad string) {
	in, out := messageOf(w.T, m.Input()), messageOf(w.T, m.Output())
	fill(in, id)
	put(in, at, bad)
	ctx, cancel := context.WithTimeout(w.ctx(), time.Second)
	defer cancel()
	err := rpc.conn.Invoke(ctx, "/"+string(m.Parent().FullName())+"/"+string(m.Name()), in.Interface(), out.Interface())
	code := status.Code(err)
	if code == codes.Internal || code == codes.Unknown || strings.Contains(prototext.Format(out.Interface()), `"internal"`) {
		w.Errorf("%s: with %s set to %q: %v %s", m.FullName(), at[len(at)-1].FullName(), bad, err, prototext.Format(out.Interface()))
	}
}

func messageOf(t *testing.T, d protoreflect.MessageDescriptor) protoreflect.Message {
	typ, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	must(t, err)
	return typ.New()
}

// textsIn returns the paths of the texts in a message.
func textsIn(d protoreflect.MessageDescriptor, deep int) (ways [][]protoreflect.FieldDescriptor) {
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		switch {
		case f.IsMap():
		case f.Kind() == protoreflect.StringKind:
			ways = append(ways, []protoreflect.FieldDescriptor{f})
		case f.Kind() == protoreflect.MessageKind && deep > 0:
			for _, way := range textsIn(f.Message(), deep-1) {
				ways = append(ways, append([]protoreflect.FieldDescriptor{f}, way...))
			}
		}
	}
	return ways
}

// fill sets texts in a message that may be valid.
func fill(m protoreflect.Message, id string) {
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		if f.Kind() == protoreflect.StringKind && !f.IsMap() && f.Name() != "cursor" {
			put(m, []protoreflect.FieldDescriptor{f}, plausible(string(f.Name()), id))
		}
	}
}

func plausible(name, id string) string {
	switch {
	case strings.HasSuffix(name, "_id"), name == "task_ids":
		return id
	case name == "queue", name == "queues", name == "name":
		return "default"
	}
	return "x"
}

// put sets the text at a path, creating messages where the path leads through lists.
func put(m protoreflect.Message, way []protoreflect.FieldDescriptor, text string) {
	f := way[0]
	switch {
	case len(way) == 1 && f.IsList():
		m.Mutable(f).List().Append(protoreflect.ValueOfString(text))
	case len(way) == 1:
		m.Set(f, protoreflect.ValueOfString(text))
	case f.IsList():
		put(m.Mutable(f).List().AppendMutable().Message(), way[1:], text)
	default:
		put(m.Mutable(f).Message(), way[1:], text)
	}
}
