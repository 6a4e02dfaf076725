package gateway

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Why a field that gRPC can't tell from one that is left out may be empty.
const (
	ofPeople = "a text for people"
	asData   = "data, which may have no bytes"
	noWorker = "it names a worker that claims, and selects nothing"
	asList   = "an empty list is not sent; its items are checked"
)

// mayBeEmpty are the fields that may be empty, with or without their rpc, and the reasons.
var mayBeEmpty = map[string]string{
	"cursor":       "the next_cursor of a last page is empty, too; a page is no larger without it",
	"content_type": "as documented: JSON",
	"reason":       ofPeople, "message": ofPeople, "stack": ofPeople, "GroupService/CreateGroup name": ofPeople, "error.type": ofPeople,
	"payload": asData, "result": asData, "checkpoint": asData, "payload.value": "a value to compare with",
	"worker": noWorker, "host": noWorker, "version": noWorker, "instance": noWorker,
	"types": asList, "kinds": asList, "states": asList, "queues": asList, "events": asList, "tags": asList, "headers": asList, "keys": asList, "breakers": asList,
	"task_ids": "without ids, a filter is required",
	"shards":   "without shards, parts is required",
}

// streams are requests of the rpcs that goodCalls leaves out.
var streams = map[string]string{
	"ProducerService/Produce":  `{"tasks":[{"type":"a","queue":"mail"}]}`,
	"WorkerService/Work":       `{"hello":{"queues":[{"queue":"mail"}]},"settle":{"acks":[{$claim}],"fails":[{$claim}],"extends":[{$claim}],"releases":[{$claim}]}}`,
	"EventService/WatchEvents": `{}`,
	"ClusterService/Backup":    `{}`,
}

// empties returns what stands for nothing in a field: an empty text, a list with an empty text, or a time that callers' languages have for none.
func empties(f protoreflect.FieldDescriptor) (all []func(protoreflect.Message)) {
	set := func(v protoreflect.Value) {
		all = append(all, func(m protoreflect.Message) { m.Set(f, v) })
	}
	switch {
	case f.IsList() && f.Kind() == protoreflect.StringKind:
		all = append(all, func(m protoreflect.Message) { m.Clear(f); m.Mutable(f).List().Append(protoreflect.ValueOfString("")) })
		fallthrough
	case f.IsList() || f.IsMap():
		all = append(all, func(m protoreflect.Message) { m.Clear(f) })
	case f.Kind() == protoreflect.StringKind:
		set(protoreflect.ValueOfString(""))
	case f.Kind() == protoreflect.BytesKind:
		set(protoreflect.ValueOfBytes(nil))
	case f.Message() != nil && f.Message().FullName() == "google.protobuf.Timestamp":
		set(protoreflect.ValueOfMessage((&timestamppb.Timestamp{}).ProtoReflect()))
		set(protoreflect.ValueOfMessage(timestamppb.New(time.Time{}).ProtoReflect()))
	}
	return all
}

// A field that is given and empty, such as an unset variable, is refused by name, in every request: as if it were left out, the call would
// concern more than its caller meant.
func TestNothingEmptyIsTaken(t *testing.T) {
	used := map[string]bool{}
	eachRPC(func(name string, m protoreflect.MethodDescriptor) {
		s := newStage(t)
		conn := dialGateway(t, s.g)
		request := goodCalls[name] + streams[name]
		eachField(m.Input(), nil, func(path []protoreflect.FieldDescriptor) {
			last, of := path[len(path)-1], name+" "+pathText(path)
			for i, empty := range empties(last) {
				in := dynamicpb.NewMessage(m.Input())
				s.fill(request)(in)
				empty(holderOf(in, path))
				if i == len(empties(last))-1 && (last.Kind() != protoreflect.StringKind || !last.HasPresence()) {
					for field := range mayBeEmpty {
						if of == field || strings.HasSuffix(of, " "+field) || strings.HasSuffix(of, "."+field) {
							used[field] = true
							return
						}
					}
				}
				answer, err := firstAnswer(t, conn, m, in)
				said := fmt.Sprint(err, answer)
				if status.Code(err) != codes.InvalidArgument && !strings.Contains(said, "invalid_argument") || !strings.Contains(said, strings.TrimSuffix(string(last.Name()), "s")) {
					t.Errorf("%s given as %d: %.200s", of, i, said)
				}
			}
		})
	})
	for field, why := range mayBeEmpty {
		if !used[field] {
			t.Errorf("no field %s is tried: %s", field, why)
		}
	}
}

// firstAnswer calls an rpc, and returns its first answer.
func firstAnswer(t *testing.T, conn *grpc.ClientConn, m protoreflect.MethodDescriptor, in protoreflect.ProtoMessage) (*dynamicpb.Message, error) {
	d := &grpc.StreamDesc{ClientStreams: m.IsStreamingClient(), ServerStreams: m.IsStreamingServer()}
	s, err := conn.NewStream(t.Context(), d, fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name()))
	if err == nil {
		err = s.SendMsg(in)
	}
	if err == nil || err == io.EOF {
		err = s.CloseSend()
	}
	answer := dynamicpb.NewMessage(m.Output())
	if err == nil {
		err = s.RecvMsg(answer)
	}
	return answer, err
}
