package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/task"
)

// textsOf are the values of strings that commands look into; others have the name of their field.
var textsOf = map[string]string{
	"next_cursor": "", "content_type": "application/json", "result_content_type": "application/json", "before": `{"a":1}`,
	"after": `{"b":2}`, "outcome": "delivered", "time_zone": "UTC", "seen_by": "",
}

// filled returns an answer of an rpc that has every field.
func filled(d protoreflect.MessageDescriptor) proto.Message {
	answer, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err)
	}
	m := answer.New()
	fill(m, nil)
	return m.Interface()
}

func fill(m protoreflect.Message, within []protoreflect.FullName) {
	switch p := m.Interface().(type) {
	case *durationpb.Duration:
		p.Seconds, p.Nanos = 90, 5e8
		return
	case *timestamppb.Timestamp:
		p.Seconds, p.Nanos = 1.8e9, 1.25e8
		return
	}
	within = append(within, m.Descriptor().FullName())
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		value := f
		if f.IsMap() {
			value = f.MapValue()
		}
		inner := value.Message()
		if inner != nil && (inner.FullName() == "pawl.v1.Error" || slices.Contains(within, inner.FullName())) {
			continue // a refusal, or the next task of a chain
		}
		one := func(fresh func() protoreflect.Value) protoreflect.Value {
			if inner == nil {
				return scalar(value)
			}
			v := fresh()
			fill(v.Message(), within)
			return v
		}
		switch {
		case f.IsMap():
			all := m.Mutable(f).Map()
			all.Set(protoreflect.ValueOfString("k").MapKey(), one(all.NewValue))
		case f.IsList():
			all := m.Mutable(f).List()
			all.Append(one(all.NewElement))
		default:
			m.Set(f, one(func() protoreflect.Value { return m.NewField(f) }))
		}
	}
}

func scalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		name := string(f.Name())
		if text, ok := textsOf[name]; ok {
			return protoreflect.ValueOfString(text)
		}
		return protoreflect.ValueOfString(name)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(`{"to": "<a>"}`))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(3)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1 << 60)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(3)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(1 << 60)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(0.5)
	case protoreflect.EnumKind:
		if f.Enum().Name() == "State" {
			return protoreflect.ValueOfEnum(pawlv1.State_STATE_SUCCEEDED.Number()) // some commands wait for an end
		}
		return protoreflect.ValueOfEnum(1)
	}
	panic(f.FullName())
}

// serveFilled answers every rpc with a message that has every field.
func serveFilled(t *testing.T) (addr string) {
	return serveFake(t, func(method string, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		if strings.HasSuffix(method, "/Produce") { // enqueues are sent as batches then
			return grpcstatus.Error(codes.Unimplemented, method)
		}
		return stream.SendMsg(filled(contract.Calls()[strings.TrimPrefix(method, "/pawl.v1.")].Method.Output()))
	})
}

// registerFilled registers the same answers for REST.
func registerFilled(s grpc.ServiceRegistrar) {
	for name, call := range contract.Calls() {
		service, method, _ := strings.Cut(name, "/")
		input, err := protoregistry.GlobalTypes.FindMessageByName(call.Method.Input().FullName())
		if err != nil {
			panic(err)
		}
		handle := func(_ any, _ context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			if err := read(input.New().Interface()); err != nil {
				return nil, err
			}
			return filled(call.Method.Output()), nil
		}
		s.RegisterService(&grpc.ServiceDesc{ServiceName: "pawl.v1." + service,
			Methods: []grpc.MethodDesc{{MethodName: method, Handler: handle}}}, nil)
	}
}

func restHandler() http.Handler {
	return rest.New(rest.Config{Register: registerFilled, Batch: 1000, Large: admission.NewMemoryPool(1 << 20),
		Extra: admission.NewMemoryPool(1 << 20), Namespace: func(context.Context) string { return "default" },
		Call: func(r *http.Request, _ *rest.Route, handle func(context.Context) error) (o rest.Outcome) {
			if err := handle(r.Context()); err != nil {
				o.Refusal, _ = task.AsError(err)
			}
			return o
		}})
}

// sameAs are commands, and the REST request whose answer they print.
var sameAs = map[string]string{
	"audit":                              "GET /api/v1/audit",
	"cluster status":                     "GET /api/v1/cluster",
	"dlq groups":                         "GET /api/v1/dead?group_by=error",
	"dlq ls --queue mail":                "GET /api/v1/queues/mail/dead",
	"enqueue a":                          `POST /api/v1/tasks {"type":"a"}`,
	"enqueue a --wait":                   "GET /api/v1/tasks/ID",
	`group add {"tasks":[{"type":"a"}]}`: `POST /api/v1/groups {"tasks":[{"type":"a"}]}`,
	"group cancel ID":                    "POST /api/v1/groups/ID/cancel",
	"group close ID":                     "POST /api/v1/groups/ID/close",
	"group ls":                           "GET /api/v1/groups",
	"group members ID":                   "GET /api/v1/groups/ID/members",
	"group show ID":                      "GET /api/v1/groups/ID",
	"marker add note text":               `POST /api/v1/markers {"kind":"note","title":"text"}`,
	"marker end ID":                      "POST /api/v1/markers/ID/end",
	"marker ls":                          "GET /api/v1/markers",
	"ns ls":                              "GET /api/v1/namespaces",
	"ns show a":                          "GET /api/v1/namespaces/a",
	"operation abort ID":                 "POST /api/v1/operations/ID/abort",
	"operation ls":                       "GET /api/v1/operations",
	"operation pause ID":                 "POST /api/v1/operations/ID/pause",
	"operation resume ID":                "POST /api/v1/operations/ID/resume",
	"operation show ID":                  "GET /api/v1/operations/ID",
	"queue close-breaker mail":           "POST /api/v1/queues/mail/breakers/close",
	"queue explain mail":                 "GET /api/v1/queues/mail/explain",
	"queue ls":                           "GET /api/v1/queues",
	"queue pause mail":                   "POST /api/v1/queues/mail/pause",
	"queue resume mail":                  "POST /api/v1/queues/mail/resume",
	"queue set mail --max-running 3":     `PUT /api/v1/queues/mail {"settings":{}}`,
	"queue show mail":                    "GET /api/v1/queues/mail",
	"queue spread mail --parts 2":        `POST /api/v1/queues/mail/spread {"parts":2}`,
	"schedule add s a --every 30s":       `POST /api/v1/schedules {"name":"s"}`,
	"schedule history s":                 "GET /api/v1/schedules/s/history",
	"schedule ls":                        "GET /api/v1/schedules",
	"schedule pause s":                   "POST /api/v1/schedules/s/pause",
	"schedule resume s":                  "POST /api/v1/schedules/s/resume",
	"schedule run s":                     "POST /api/v1/schedules/s/trigger",
	"schedule show s":                    "GET /api/v1/schedules/s",
	"stats":                              "GET /api/v1/stats",
	"stats mail":                         "GET /api/v1/queues/mail/stats",
	"task edit ID --priority high":       `PATCH /api/v1/tasks/ID {"priority":"high"}`,
	"task explain ID":                    "GET /api/v1/tasks/ID/explain",
	"task ls":                            "GET /api/v1/tasks",
	"task show ID":                       "GET /api/v1/tasks/ID",
	"task wait ID":                       "GET /api/v1/tasks/ID",
	"token add t --role admin --queue *": `POST /api/v1/tokens {"name":"t"}`,
	"token ls":                           "GET /api/v1/tokens",
	"token whoami":                       "GET /api/v1/me",
	"token rotate t":                     "POST /api/v1/tokens/t/rotate",
	"token show t":                       "GET /api/v1/tokens/t",
	"type ls":                            "GET /api/v1/types",
	"type show a":                        "GET /api/v1/types/a",
	"webhook add w https://example.com --event *": `POST /api/v1/webhooks {"name":"w"}`,
	"webhook ls":                   "GET /api/v1/webhooks",
	"webhook pause w":              "POST /api/v1/webhooks/w/pause",
	"webhook resume w":             "POST /api/v1/webhooks/w/resume",
	"webhook rotate w":             "POST /api/v1/webhooks/w/rotate",
	"webhook set w --depth-over 5": "PATCH /api/v1/webhooks/w",
	"webhook test w":               "POST /api/v1/webhooks/w/test",
	"worker ls":                    "GET /api/v1/workers",
	"worker quiet worker_id":       "POST /api/v1/workers/w/quiet",
	"worker resume worker_id":      "POST /api/v1/workers/w/resume",
	"worker show worker_id":        "GET /api/v1/workers/w",
}

// ownOutput are the commands whose output is their own: it is about several calls, a file or this program, or REST has nothing to say.
var ownOutput = []string{"backup", "bench", "cert", "cluster add", "cluster add-node", "cluster add-shards", "cluster audit-retention",
	"cluster drain", "cluster move", "cluster raise-level", "cluster remove", "cluster replication", "cluster transfer", "context", "demo",
	"dlq archive", "dlq discard", "dlq replay", "dlq show", "events", "help", "completion", "marker rm", "ns add", "ns rm", "ns set",
	"operation wait", "outbox", "payload-key", "ping", "queue purge", "queue rm", "recover", "restore", "schedule apply",
	"schedule rm", "serve", "task cancel", "task discard", "task move", "task retry", "task run-now", "task set-priority", "token generate",
	"token revoke", "top", "verify", "version", "webhook rm", "webhook show", "work"}

const anID = "0198c2f4-8a5b-7c3e-9d10-2f6b1c0a4e77"

// TestOutputIsTheAPIs: for programs a command prints what REST answers, with every field, whatever the command itself knows of it.
func TestOutputIsTheAPIs(t *testing.T) {
	server, api := serveFilled(t), restHandler()
	tested := map[string]bool{}
	for line, request := range sameAs {
		method, rest, _ := strings.Cut(strings.ReplaceAll(request, "ID", anID), " ")
		target, body, _ := strings.Cut(rest, " ")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
		if w.Code/100 != 2 {
			t.Errorf("%s: %d %s", request, w.Code, w.Body)
			continue
		}
		var args []string
		for _, word := range strings.Fields(line) {
			args = append(args, strings.ReplaceAll(word, "ID", anID))
		}
		var out, said, got, want bytes.Buffer
		exit := run(append(args, "-o", "json", "--server", server), strings.NewReader(""), &out, &said)
		if exit != cli.ExitDone {
			t.Errorf("pawl %s: status %d, %s", line, exit, said.String())
			continue
		}
		if err := errors.Join(json.Compact(&got, out.Bytes()), json.Compact(&want, w.Body.Bytes())); err != nil ||
			got.String() != want.String() {
			t.Errorf("pawl %s prints (%v)\n%s\nwant, as %s answers,\n%s", line, err, got.String(), request, want.String())
		}
		tested[line] = true
	}
	begins := func(list []string, path string) bool {
		return slices.ContainsFunc(list, func(line string) bool { return line == path || strings.HasPrefix(line, path+" ") })
	}
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			check(sub)
		}
		_, path, _ := strings.Cut(cmd.CommandPath(), " ")
		own := slices.ContainsFunc(ownOutput, func(name string) bool { return path == name || strings.HasPrefix(path, name+" ") })
		var lines []string
		for line := range sameAs {
			lines = append(lines, line)
		}
		if cmd.HasSubCommands() || path == "" || own || begins(lines, path) {
			return
		}
		t.Errorf("pawl %s: name the REST request whose answer it prints in sameAs, or it in ownOutput", path)
	}
	check(newRoot(&app{&cli.App{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}}))
	if len(tested) < 50 {
		t.Errorf("only %d commands were compared", len(tested))
	}
}

// TestEventsHaveEveryField: the line of an event is the object that REST sends, with its cursor, which REST sends as its id.
func TestEventsHaveEveryField(t *testing.T) {
	frame := filled((&pawlv1.WatchEventsResponse{}).ProtoReflect().Descriptor()).(*pawlv1.WatchEventsResponse)
	want := strings.TrimSuffix(string(apijson.Marshal(frame.GetEvents()[0])), "}") + `,"cursor":"cursor"}` + "\n"
	var out, said bytes.Buffer
	exit := run([]string{"events", "--limit", "1", "-o", "json", "--server", serveFilled(t)}, strings.NewReader(""), &out, &said)
	if exit != cli.ExitDone || out.String() != want {
		t.Errorf("status %d, %s\n%s\nwant\n%s", exit, said.String(), out.String(), want)
	}
}
