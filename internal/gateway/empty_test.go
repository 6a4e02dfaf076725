package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pawlq/pawl/internal/rest"
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
	"types": asList, "kinds": asList, "states": asList, "WebhookService/AddWebhook queues": asList,
	"WebhookService/SetWebhook queues": asList, "MarkerService/AddMarker queues": asList, "events": asList, "tags": asList,
	"headers": asList, "keys": asList, "breakers": asList, "shards": "without shards, parts is required",
}

// streams are requests of the rpcs that goodCalls leaves out.
var streams = map[string]string{
	"ProducerService/Produce": `{"tasks":[{"type":"a","queue":"mail"}]}`,
	"WorkerService/Work": `{"hello":{"queues":[{"queue":"mail"}]},"settle":{"acks":[{$claim}],"fails":[{$claim}],"extends":[{$claim}],` +
		`"releases":[{$claim}]}}`,
	"EventService/WatchEvents": `{}`,
	"ClusterService/Backup":    `{}`,
}

// empties returns what stands for nothing in a field: an empty text, a list with an empty text, or a time that callers'
// languages have for none.
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
				if last.IsList() && i == 0 && unchecked[of] { // its items have their own results
					continue
				}
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
				if status.Code(err) != codes.InvalidArgument && !strings.Contains(said, "invalid_argument") ||
					!strings.Contains(said, strings.TrimSuffix(string(last.Name()), "s")) {
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
func firstAnswer(t *testing.T, conn *grpc.ClientConn, m protoreflect.MethodDescriptor, in protoreflect.ProtoMessage) (*dynamicpb.Message,
	error) {
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

// emptyInREST are the fields and parameters of REST that may be empty, and the reasons.
var emptyInREST = map[string]string{
	"cursor": mayBeEmpty["cursor"], "content_type": mayBeEmpty["content_type"], "payload": asData, "checkpoint": asData,
	"reason": ofPeople, "message": ofPeople, "stack": ofPeople, "POST /api/v1/groups name": ofPeople, "error.type": ofPeople,
	"worker": noWorker, "POST /api/v1/groups tasks": "an open group begins without members",
	"tags": "a task has none", "then": "a task has no follow-ups",
}

// REST refuses an empty string, list or item in each field of a body and in each parameter of a query that its description has.
func TestNothingEmptyIsTakenByREST(t *testing.T) {
	var doc struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct{ Schemas map[string]map[string]any }
	}
	if err := json.Unmarshal(rest.OpenAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	s := newStage(t)
	handler := s.g.Handler()
	used, tried := map[string]bool{}, 0
	// refused sends a request with what is empty.
	refused := func(method, path, query, body, name, as string) {
		for field := range emptyInREST {
			if of := method + " " + path + " " + name; of == field || strings.HasSuffix(of, " "+field) || strings.HasSuffix(of, "."+field) {
				used[field] = true
				return
			}
		}
		tried++
		path = strings.NewReplacer("{queue}", "mail", "{shard}", "1", "{node}", "n1", "{worker}", "w", "{type}", "a",
			"{name}", "w").Replace(path)
		path = strings.ReplaceAll(path, "{id}", s.names.Replace("$ready"))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(method, "http://localhost:7295"+path+query, strings.NewReader(body)))
		if last := name[strings.LastIndex(name, ".")+1:]; w.Code != 400 && !strings.Contains(w.Body.String(), `"invalid_argument"`) ||
			!strings.Contains(w.Body.String(), last) {
			t.Errorf("%s %s%s with %s as %s: %d %.300s", method, path, query, name, as, w.Code, w.Body)
		}
	}
	resolve := func(schema map[string]any) map[string]any {
		for {
			ref, ok := schema["$ref"].(string)
			if !ok {
				return schema
			}
			schema = doc.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")]
		}
	}
	for path, item := range doc.Paths {
		for method, raw := range item {
			var op struct {
				Parameters []struct {
					Name, In string
				}
				RequestBody struct {
					Content map[string]struct {
						Schema  map[string]any
						Example json.RawMessage
					}
				}
			}
			if json.Unmarshal(raw, &op) != nil {
				continue // parameters of all methods
			}
			method = strings.ToUpper(method)
			for _, p := range op.Parameters {
				if p.In == "query" {
					refused(method, path, "?"+p.Name+"=", "", p.Name, "an empty parameter")
				}
			}
			body := op.RequestBody.Content["application/json"]
			base := string(body.Example)
			if base == "" {
				base = "{}"
			}
			var each func(schema map[string]any, in []string, depth int)
			each = func(schema map[string]any, in []string, depth int) {
				properties, _ := schema["properties"].(map[string]any)
				for name, p := range properties {
					at, of := append(in[:len(in):len(in)], name), resolve(p.(map[string]any))
					var empties []any
					switch kind := fmt.Sprint(of["type"]); {
					case kind == "string":
						empties = []any{""}
					case kind == "array":
						items := resolve(of["items"].(map[string]any))
						// checked elsewhere
						if empties = []any{[]any{}}; items["type"] == "string" && name != "places" &&
							!(name == "queues" && strings.HasPrefix(path, "/api/v1/webhooks")) {
							empties = append(empties, []any{""})
						}
						if items["type"] == "object" && depth < 3 {
							each(items, append(at[:len(at):len(at)], "0"), depth+1)
						}
					case kind == "object" && depth < 3:
						each(of, at, depth+1)
					}
					for _, value := range empties {
						refused(method, path, "", replaced(t, base, at, value), strings.ReplaceAll(strings.Join(at, "."), ".0", ""),
							fmt.Sprintf("%q", value))
					}
				}
			}
			each(resolve(body.Schema), nil, 0)
		}
	}
	for field, why := range emptyInREST {
		if !used[field] {
			t.Errorf("no field %s is tried: %s", field, why)
		}
	}
	if tried < 300 {
		t.Errorf("only %d requests were tried", tried)
	}
}

// replaced returns a JSON object with a value at a path, in which "0" is the only item of a list.
func replaced(t *testing.T, object string, path []string, value any) string {
	var root any
	if err := json.Unmarshal([]byte(object), &root); err != nil {
		t.Fatal(err)
	}
	var set func(in any, path []string) any
	set = func(in any, path []string) any {
		if len(path) == 0 {
			return value
		}
		if path[0] == "0" {
			list, _ := in.([]any)
			if len(list) == 0 {
				list = []any{nil}
			}
			return []any{set(list[0], path[1:])}
		}
		m, _ := in.(map[string]any)
		if m == nil {
			m = map[string]any{}
		}
		m[path[0]] = set(m[path[0]], path[1:])
		return m
	}
	text, err := json.Marshal(set(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
