package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/task"
)

// faults counts the calls that a gateway makes to its parts, and makes one of them fail.
type faults struct {
	mu    sync.Mutex
	asked int
	nth   int // which call fails, from 1; 0: none
}

var errPlanted = task.Unavailable(time.Second, "planted")

func (f *faults) ask() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked++; f.asked == f.nth {
		return errPlanted
	}
	return nil
}

// unaryCalls are the handlers of all unary rpcs.
type unaryCalls map[string]func(ctx context.Context, read func(proto.Message)) (proto.Message, error)

// RegisterService implements grpc.ServiceRegistrar.
func (u unaryCalls) RegisterService(d *grpc.ServiceDesc, impl any) {
	for _, m := range d.Methods {
		u[strings.TrimPrefix(d.ServiceName, "pawl.v1.")+"/"+m.MethodName] = func(ctx context.Context,
			read func(proto.Message)) (proto.Message, error) {
			out, err := m.Handler(impl, ctx, func(to any) error { read(to.(proto.Message)); return nil }, nil)
			answer, _ := out.(proto.Message)
			return answer, err
		}
	}
}

// stage is a gateway with one object of every kind, so that every call of goodCalls can be made on it.
type stage struct {
	f     *fake
	g     *Gateway
	calls unaryCalls
	names *strings.Replacer // placeholders for ids in requests
}

var someStats = sync.OnceValue(newFakeStats)

func newStage(t testing.TB) *stage {
	f, hooks := newFake(), &fakeWebhooks{}
	hooks.answer(f.table())
	g := newGateway(f)
	g.cfg.Webhooks, g.cfg.Stats = hooks, someStats()
	g.wire()
	s := &stage{f: f, g: g, calls: unaryCalls{}, names: strings.NewReplacer()}
	g.services.register(s.calls)
	do := func(name, request string) string {
		answer, err := s.call(name, s.fill(request))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return protojson.MarshalOptions{UseProtoNames: true}.Format(answer)
	}
	// field returns the value of a string field in an answer.
	field := func(answer, name string) string {
		_, rest, _ := strings.Cut(strings.ReplaceAll(answer, `": "`, `":"`), `"`+name+`":"`)
		value, _, _ := strings.Cut(rest, `"`)
		return value
	}
	do("ProducerService/Enqueue", `{"task":{"type":"a","queue":"mail","payload":"MQ=="}}`)
	claim := do("WorkerService/Claim", `{"queues":[{"queue":"mail"}],"worker":"w"}`)
	failed := do("ProducerService/Enqueue", `{"task":{"type":"a","queue":"mail","payload":"MQ=="}}`)
	ready := do("ProducerService/Enqueue", `{"task":{"type":"a","queue":"mail","payload":"MQ=="}}`)
	later := do("ProducerService/Enqueue", `{"task":{"type":"a","queue":"mail","payload":"MQ==","delay":"3600s"}}`)
	if _, _, err := f.verb(idIn(field(failed, "task_id")), "discard", task.Discarded, task.Ready); err != nil {
		t.Fatal(err)
	}
	do("ScheduleService/PutSchedule", `{"spec":{"name":"daily","cron":"@daily","task":{"type":"a"}}}`)
	group := do("GroupService/CreateGroup", `{"name":"g","open":true,"tasks":[{"type":"a"}]}`)
	operation := do("OperationService/StartOperation", `{"spec":{"action":"ACTION_CANCEL","filter":{"queue":"mail"}}}`)
	do("AccessService/AddToken", `{"name":"t","queues":["*"],"roles":["produce"]}`)
	do("WebhookService/AddWebhook", `{"name":"w","url":"https://example.com/x","events":["task.dead"],"queues":["mail"]}`)
	marker := do("MarkerService/AddMarker", `{"kind":"deploy","title":"v1"}`)
	ctx, _ := callinfo.Begin(t.Context(), task.InterfaceGRPC, "test")
	workers := workerQuery(ctx)
	workers.Limit = 1
	worker := f.registry.List(workers).Workers[0].ID
	s.names = strings.NewReplacer("$claim", fmt.Sprintf(`"task_id":%q,"claim_token":%q`, field(claim, "task_id"),
		field(claim, "claim_token")),
		"$ready", field(ready, "task_id"), "$failed", field(failed, "task_id"), "$later", field(later, "task_id"), "$group",
		field(group, "group_id"), "$operation", field(operation, "operation_id"), "$marker", field(marker, "id"), "$worker", worker)
	f.faults = &faults{}
	f.admin.faults, hooks.faults = f.faults, f.faults
	return s
}

func idIn(text string) task.ID {
	id, err := task.ParseID(text)
	if err != nil {
		panic(err)
	}
	return id
}

// fill returns a function that decodes a request from JSON.
func (s *stage) fill(request string) func(proto.Message) {
	return func(to proto.Message) {
		if err := protojson.Unmarshal([]byte(s.names.Replace(request)), to); err != nil {
			panic(fmt.Errorf("%s: %w", request, err))
		}
	}
}

func (s *stage) call(name string, read func(proto.Message)) (proto.Message, error) {
	ctx, _ := callinfo.Begin(context.Background(), "grpc", name)
	return s.calls[name](ctx, read)
}

// goodCalls has a request for each unary rpc that succeeds on a stage. The requests set as many fields as possible, so that tests
// over all of them cover every field.
var goodCalls = map[string]string{
	"AccessService/WhoAmI":             `{}`,
	"AccessService/ListTokens":         `{"pattern":"*"}`,
	"AccessService/GetToken":           `{"name":"t"}`,
	"AccessService/AddToken":           `{"name":"n","queues":["*"],"roles":["produce"]}`,
	"AccessService/RotateToken":        `{"name":"t"}`,
	"AccessService/RevokeToken":        `{"name":"t"}`,
	"AccessService/ListNamespaces":     `{"pattern":"*"}`,
	"AccessService/GetNamespace":       `{"name":"default"}`,
	"AccessService/AddNamespace":       `{"name":"n"}`,
	"AccessService/SetQuotas":          `{"name":"default","quotas":{"max_queues":9}}`,
	"AccessService/GetLimits":          `{}`,
	"AccessService/RemoveNamespace":    `{"name":"default"}`,
	"AuditService/ListAudit":           `{}`,
	"ClusterService/GetCluster":        `{}`,
	"ClusterService/GetMap":            `{}`,
	"ClusterService/DrainNode":         `{"node":"n1"}`,
	"ClusterService/RemoveNode":        `{"node":"n1"}`,
	"ClusterService/MoveReplica":       `{"shard":1,"from":"n1","to":"n2"}`,
	"ClusterService/TransferLeader":    `{"shard":1,"to":"n2"}`,
	"ClusterService/AddShards":         `{"total":4}`,
	"ClusterService/SetReplication":    `{"replication":3}`,
	"ClusterService/SetAuditRetention": `{"retention":"86400s"}`,
	"ClusterService/RaiseLevel":        `{}`,
	"ClusterService/VerifyShard":       `{"shard":1}`,
	"ProducerService/Enqueue":          `{"task":{"type":"a","queue":"mail"}}`,
	"ProducerService/EnqueueBatch":     `{"tasks":[{"type":"a","queue":"mail"}]}`,
	"ProducerService/GetTask":          `{"task_id":"$ready"}`,
	"ProducerService/CancelTask":       `{"task_id":"$ready","reason":"r"}`,
	"ProducerService/ListTasks":        `{"filter":{"queue":"mail"}}`,
	"ProducerService/UpdateTask":       `{"task_id":"$ready","payload":"Mg=="}`,
	"ProducerService/ExplainTask":      `{"task_id":"$ready"}`,
	"GroupService/CreateGroup": `{"tasks":[{"type":"a"}],"on_complete":{"type":"b"},"on_success":{"type":"b"},` +
		`"on_death":{"type":"b"}}`,
	"GroupService/AddGroupTasks":       `{"group_id":"$group","tasks":[{"type":"a"}]}`,
	"GroupService/GetGroup":            `{"group_id":"$group"}`,
	"GroupService/ListGroups":          `{}`,
	"GroupService/ListGroupMembers":    `{"group_id":"$group"}`,
	"GroupService/CloseGroup":          `{"group_id":"$group"}`,
	"GroupService/CancelGroup":         `{"group_id":"$group"}`,
	"MarkerService/AddMarker":          `{"kind":"deploy","title":"v2"}`,
	"MarkerService/ListMarkers":        `{}`,
	"MarkerService/EndMarker":          `{"id":"$marker"}`,
	"MarkerService/RemoveMarker":       `{"id":"$marker"}`,
	"OperationService/StartOperation":  `{"spec":{"action":"ACTION_CANCEL","filter":{"queue":"mail"}}}`,
	"OperationService/GetOperation":    `{"operation_id":"$operation","current_states":true}`,
	"OperationService/ListOperations":  `{}`,
	"OperationService/PauseOperation":  `{"operation_id":"$operation"}`,
	"OperationService/ResumeOperation": `{"operation_id":"$operation"}`,
	"OperationService/AbortOperation":  `{"operation_id":"$operation"}`,
	"StatsService/GetStats":            `{}`,
	"StatsService/GetQueueStats":       `{"queue":"mail"}`,
	"StatsService/GetQueueScale":       `{"queue":"mail"}`,
	"StatsService/ListTypes":           `{"queue":"mail"}`,
	"StatsService/GetTypeStats":        `{"type":"a","queue":"mail"}`,
	"OperatorService/ListQueues":       `{}`,
	"OperatorService/GetQueue":         `{"queue":"mail"}`,
	"OperatorService/PutQueue": `{"queue":"mail","settings":{"weights":{"high":1,"normal":1,"low":1},"rate":{"limit":1,` +
		`"period":"1s"},"per_key":{"rate":{"limit":1,"period":"1s"}}}}`,
	"OperatorService/DeleteQueue":          `{"queue":"mail"}`,
	"OperatorService/PauseQueue":           `{"queue":"mail"}`,
	"OperatorService/ResumeQueue":          `{"queue":"mail"}`,
	"OperatorService/SpreadQueue":          `{"queue":"mail","parts":1}`,
	"OperatorService/CloseBreaker":         `{"queue":"mail"}`,
	"OperatorService/PurgeQueue":           `{"queue":"mail"}`,
	"OperatorService/ExplainQueue":         `{"queue":"mail"}`,
	"OperatorService/ListDead":             `{"filter":{"queue":"mail"}}`,
	"OperatorService/ListPoisoned":         `{"filter":{"queue":"mail"}}`,
	"OperatorService/GroupDead":            `{"queue":"mail"}`,
	"OperatorService/RetryTask":            `{"task_id":"$failed"}`,
	"OperatorService/RunTaskNow":           `{"task_id":"$later"}`,
	"OperatorService/DiscardTask":          `{"task_id":"$ready"}`,
	"OperatorService/GetServer":            `{}`,
	"ScheduleService/ListSchedules":        `{}`,
	"ScheduleService/GetSchedule":          `{"name":"daily"}`,
	"ScheduleService/PutSchedule":          `{"spec":{"name":"s","cron":"@daily","task":{"type":"a"}}}`,
	"ScheduleService/DeleteSchedule":       `{"name":"daily"}`,
	"ScheduleService/PauseSchedule":        `{"name":"daily"}`,
	"ScheduleService/ResumeSchedule":       `{"name":"daily"}`,
	"ScheduleService/TriggerSchedule":      `{"name":"daily"}`,
	"ScheduleService/ListScheduleHistory":  `{"name":"daily"}`,
	"WebhookService/ListWebhooks":          `{}`,
	"WebhookService/GetWebhook":            `{"name":"w"}`,
	"WebhookService/AddWebhook":            `{"name":"w","url":"https://example.com/x","events":["task.dead"],"queues":["mail"]}`,
	"WebhookService/SetWebhook":            `{"name":"w","url":"https://example.com/x"}`,
	"WebhookService/RemoveWebhook":         `{"name":"w"}`,
	"WebhookService/PauseWebhook":          `{"name":"w"}`,
	"WebhookService/ResumeWebhook":         `{"name":"w"}`,
	"WebhookService/TestWebhook":           `{"name":"w"}`,
	"WebhookService/RotateWebhookSecret":   `{"name":"w"}`,
	"WebhookService/ListWebhookDeliveries": `{"name":"w"}`,
	"WorkerService/Claim":                  `{"queues":[{"queue":"mail"}]}`,
	"WorkerService/Ack":                    `{$claim}`,
	"WorkerService/Fail":                   `{$claim}`,
	"WorkerService/Extend":                 `{$claim}`,
	"WorkerService/Release":                `{$claim}`,
	"WorkerService/Settle":                 `{"acks":[{$claim}],"fails":[{$claim}],"extends":[{$claim}],"releases":[{$claim}]}`,
	"WorkerService/BeginOnce":              `{$claim,"key":"k"}`,
	"WorkerService/FinishOnce":             `{$claim,"key":"k"}`,
	"WorkerService/AbandonOnce":            `{$claim,"key":"k"}`,
	"WorkerRegistryService/ListWorkers":    `{}`,
	"WorkerRegistryService/GetWorker":      `{"worker_id":"$worker"}`,
	"WorkerRegistryService/QuietWorker":    `{"worker_id":"$worker"}`,
	"WorkerRegistryService/ResumeWorker":   `{"worker_id":"$worker"}`,
}

// moreCalls set what the requests of goodCalls don't.
var moreCalls = [][2]string{
	{"ProducerService/GetTask", `{"task_id":"$ready","consistency":2}`},
	{"ProducerService/GetTask", `{"task_id":"$failed","wait":"1s"}`},
	{"ProducerService/ListTasks", `{"with_payload":true}`},
	{"ProducerService/EnqueueBatch", `{"tasks":[{"type":"a"},{},{"type":"b","queue":"mail","headers":{"h":"v"},"then":[{"type":"c"}]}]}`},
	{"ProducerService/CancelTask", `{"task_id":"$ready"}`},
	{"GroupService/CreateGroup", `{"name":"g","open":true,"retention":"60s","tasks":[{"type":"a"},{"type":"b"},{"type":"c"},` +
		`{"type":"d"}]}`},
	{"GroupService/ListGroupMembers", `{"group_id":"$group","limit":1}`},
	{"GroupService/AddGroupTasks", `{"group_id":"$group","tasks":[{"type":"a"},{"type":"b"},{"type":"c"}]}`},
	{"OperationService/StartOperation", `{"dry_run":true,"spec":{"action":"ACTION_CANCEL","filter":{"queue":"mail"}}}`},
	{"OperationService/StartOperation", `{"spec":{"action":"ACTION_MOVE","filter":{"queue":"mail"},"to_queue":"sms","max":9,"canary":1,` +
		`"rate":0.5}}`},
	{"OperationService/GetOperation", `{"operation_id":"$operation"}`},
	{"OperatorService/GroupDead", `{"poisoned":true}`},
	{"OperatorService/PutQueue", `{"queue":"mail","settings":{"keys":{"a":{"max_running":1},"b":{"max_running":2},"c":{"rate":{"limit":3,` +
		`"period":"1s","burst":4}}},"breakers":{"t":{"failure_rate":40},"u":{"off":true},"v":{"probes":9}},"breaker":{"failure_rate":50},` +
		`"max_running":3}}`},
	{"OperatorService/PauseQueue", `{"queue":"mail","type":"a","reason":"paper"}`},
	{"OperatorService/SpreadQueue", `{"queue":"mail","shards":[1],"own":true}`},
	{"OperatorService/DiscardTask", `{"task_id":"$later","reason":"r"}`},
	{"OperatorService/ListQueues", `{"limit":1}`},
	{"AccessService/AddToken", `{"name":"n","roles":["produce"],"sqs":true,"never_expires":true,"queues":["a*"],"request_id":"$ready"}`},
	{"AccessService/AddToken", `{"name":"n","queues":["*"],"roles":["produce"],"certificate":"dns:worker.example"}`},
	{"AccessService/RotateToken", `{"name":"t","overlap":"60s","expires_in":"60s"}`},
	{"AccessService/ListTokens", `{"all_namespaces":true}`},
	{"AuditService/ListAudit", `{"filter":{"actor":"a","queue":"mail"},"limit":1}`},
	{"MarkerService/AddMarker", `{"kind":"deploy","title":"v2","queues":["mail"],"types":["a"],"version":"2","url":"https://example.com"}`},
	{"MarkerService/ListMarkers", `{"kind":"deploy","queue":"mail","type":"a","limit":1}`},
	{"ScheduleService/PutSchedule", `{"dry_run":true,"spec":{"name":"daily","cron":"@hourly","task":{"type":"a"}}}`},
	{"ScheduleService/PutSchedule", `{"spec":{"name":"daily","cron":"@hourly","task":{"type":"a"}}}`},
	{"ScheduleService/ListScheduleHistory", `{"name":"daily","limit":1}`},
	{"WorkerService/Claim", `{"queues":[{"queue":"mail","weight":1},{"queue":"sms","weight":2}],"max":2,"claim_key":"k","worker":"w"}`},
	{"WorkerService/Extend", `{$claim,"progress":{"percent":50,"message":"half"},"checkpoint":"MQ=="}`},
	{"WorkerService/Fail", `{$claim,"error":{"message":"no","type":"E","stack":"at"},"outcome":"FAIL_OUTCOME_DEAD"}`},
	{"WorkerRegistryService/ListWorkers", `{"lost":false,"queue":"mail","limit":1}`},
	{"WebhookService/AddWebhook", `{"name":"v","url":"https://example.com/x","events":["task.dead"]}`},
	{"WebhookService/ListWebhooks", `{"limit":1}`},
}

// eachCall calls fn for each of goodCalls, in the order of the proto files, and for moreCalls.
func eachCall(fn func(name, request string)) {
	eachRPC(func(name string, m protoreflect.MethodDescriptor) {
		if !m.IsStreamingServer() {
			fn(name, goodCalls[name])
		}
	})
	for _, c := range moreCalls {
		fn(c[0], c[1])
	}
}

// unsteady matches the parts of responses that vary.
var unsteady = regexp.MustCompile(`AWQ[A-Za-z0-9_-]+|pawl_[A-Za-z0-9_-]+|whsec_[A-Za-z0-9+/=]+|` +
	`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|"(secretAccessKey|accessKeyId|secret)": *"[^"]*"|  *`)

// The responses of a stage to all calls are in a golden file, so that a change shows up as callers will see it.
func TestGoldenResponses(t *testing.T) {
	someStats() // outside of all bubbles
	var all strings.Builder
	eachCall(func(name, request string) {
		if strings.HasPrefix(name, "StatsService/") { // they depend on the clock
			return
		}
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			answer, err := s.call(name, s.fill(request))
			if err != nil {
				t.Fatal(name, err)
			}
			said := unsteady.ReplaceAllStringFunc(strings.ReplaceAll(protojson.Format(answer), "\n", " "), func(part string) string {
				if strings.Trim(part, " ") == "" {
					return " "
				}
				return "…"
			})
			fmt.Fprintf(&all, "%s %s\n%s\n", name, request, said)
		})
	})
	golden(t, "testdata/answers.txt", []byte(all.String()))
}

// forgiven are the failed calls despite which a request still succeeds: for a namespace's usage, the leader of a shard, the state of the
// cluster, and whether a step of an operation is over.
var forgiven = []string{"AccessService/GetNamespace 2", "AccessService/ListNamespaces 2", "AccessService/SetQuotas 3",
	"AccessService/GetLimits 2", "ClusterService/GetMap 1", "OperationService/PauseOperation 2", "StatsService/GetStats 1",
	"StatsService/GetStats 2"}

// Every request fails if anything that it asks of shards, of the cluster or of other nodes fails, whichever call that is.
func TestNoFailureIsIgnored(t *testing.T) {
	someStats() // outside of all bubbles
	eachCall(func(name, request string) {
		for nth := 0; ; nth++ { // 0: none fails
			var s *stage
			var answer proto.Message
			var err error
			synctest.Test(t, func(t *testing.T) { // some wait for a while
				s = newStage(t)
				s.f.faults.nth = nth
				answer, err = s.call(name, s.fill(request))
			})
			failed := nth > 0 && s.f.faults.asked >= nth
			said := errors.Is(err, errPlanted) || strings.Contains(fmt.Sprint(answer), errPlanted.Error())
			if nth == 0 && err != nil || failed && !said && !slices.Contains(forgiven, fmt.Sprint(name, " ", nth)) {
				t.Errorf("%s, with failure of call %d: %v, %v", name, nth, answer, err)
			}
			if failed && strings.Contains(fmt.Sprint(answer), "usage:") {
				t.Errorf("%s: a namespace's usage was returned although a shard failed: %v", name, answer)
			}
			if nth > 0 && !failed {
				break
			}
		}
	})
}

// unchecked are fields that the gateway does not check, or refuses with other words: strings that are truncated, versions, and what the
// shards check.
var unchecked = map[string]bool{"message": true, "stack": true, "WorkerService/Fail type": true, "WorkerService/Settle type": true,
	"if_etag": true, "if_version": true, "depth_over": true, "WebhookService/AddWebhook queues": true,
	"WebhookService/SetWebhook queues": true, "weight": true}

// noWords are the words of the error for a malformed value.
var noWords = map[protoreflect.FullName]string{"google.protobuf.Duration": "is not a duration",
	"google.protobuf.Timestamp": "is not a time"}

// An invalid request is refused, and the error names the field. Invalid values are a string that is far too long, an unknown enum value, a
// negative number, and a malformed time or duration.
func TestEveryFieldIsChecked(t *testing.T) {
	eachRPC(func(name string, m protoreflect.MethodDescriptor) {
		if m.IsStreamingServer() {
			return
		}
		s := newStage(t)
		eachField(m.Input(), nil, func(path []protoreflect.FieldDescriptor) {
			last := path[len(path)-1]
			if unchecked[string(last.Name())] || unchecked[name+" "+string(last.Name())] || !spoils(last) {
				return
			}
			answer, err := s.call(name, func(to proto.Message) {
				s.fill(goodCalls[name])(to)
				spoil(to.ProtoReflect(), path)
			})
			said, words := fmt.Sprint(err, answer), ""
			if last.Message() != nil {
				words = noWords[last.Message().FullName()]
			}
			if !strings.Contains(said, words) || !strings.Contains(said, strings.TrimSuffix(string(last.Name()), "s")) ||
				!strings.Contains(said, "invalid_argument") && !errors.Is(err, task.ErrInvalidArgument) {
				t.Errorf("%s with an invalid %s: %.300s", name, pathText(path), said)
			}
		})
	})
}

// eachField calls fn with the path of every field of a message and of those nested in it, without recursion into the same type.
func eachField(d protoreflect.MessageDescriptor, path []protoreflect.FieldDescriptor, fn func([]protoreflect.FieldDescriptor)) {
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		here := append(slices.Clone(path), f)
		inner := f.Message()
		if inner == nil || f.IsMap() || inner.ParentFile().Package() != "pawl.v1" {
			fn(here)
		} else if !slices.ContainsFunc(path, func(above protoreflect.FieldDescriptor) bool { return above.Message() == inner }) {
			eachField(inner, here, fn)
		}
	}
}

func pathText(path []protoreflect.FieldDescriptor) string {
	names := make([]string, len(path))
	for i, f := range path {
		names[i] = string(f.Name())
	}
	return strings.Join(names, ".")
}

// wrong returns a value that is invalid for every field of the kind.
func wrong(f protoreflect.FieldDescriptor) (v protoreflect.Value, ok bool) {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(strings.Repeat("x", 70_000)), true
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(99), true
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(-1), true
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(-1), true
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(-1), true
	case protoreflect.MessageKind:
		switch f.Message().Name() {
		case "Duration":
			return protoreflect.ValueOfMessage((&durationpb.Duration{Seconds: 1, Nanos: -1}).ProtoReflect()), true
		case "Timestamp":
			return protoreflect.ValueOfMessage((&timestamppb.Timestamp{Nanos: -1}).ProtoReflect()), true
		}
	}
	return v, false
}

func spoils(f protoreflect.FieldDescriptor) bool {
	_, ok := wrong(f)
	return ok && !f.IsMap()
}

// spoil sets a wrong value at the end of a path.
func spoil(m protoreflect.Message, path []protoreflect.FieldDescriptor) {
	f := path[0]
	v, _ := wrong(f)
	switch {
	case len(path) == 1 && f.IsList():
		m.Mutable(f).List().Append(v)
	case len(path) == 1:
		m.Set(f, v)
	case f.IsList():
		list := m.Mutable(f).List()
		if list.Len() == 0 {
			list.AppendMutable()
		}
		spoil(list.Get(0).Message(), path[1:])
	default:
		spoil(m.Mutable(f).Message(), path[1:])
	}
}

// unattributed are calls whose author is not recorded: reads, and calls of producers and workers.
var unattributed = regexp.MustCompile(`/(Get|List|Explain|Enqueue|Group|WhoAmI|VerifyShard|CreateGroup|AddGroupTasks|CloseGroup)|` +
	`^WorkerService/`)

// A call that changes something has one actor and one reason. Duplicates are refused before anything is done.
func TestOneActorPerCall(t *testing.T) {
	for name, request := range goodCalls {
		s := newStage(t)
		ctx, _ := callinfo.Begin(metadata.NewIncomingContext(t.Context(), metadata.Pairs("pawl-actor", "a", "pawl-actor", "b")), "grpc",
			name)
		_, err := s.calls[name](ctx, s.fill(request))
		if e, _ := task.AsError(err); unattributed.MatchString(name) != (err == nil) || err != nil && (e == nil || e.Field != "actor") {
			t.Errorf("%s with two actors: %v", name, err)
		}
	}
}

// The registry has a worker's claim until it ends, also when it turns out to be stale, but not when a verb fails for another reason. An
// extension moves the end of its lease. This holds for unary calls and SQS alike.
func TestRegistryMatchesCalls(t *testing.T) {
	settle := map[string]func(g *Gateway, ctx context.Context, c broker.Settle) error{
		"a worker": func(g *Gateway, ctx context.Context, c broker.Settle) error {
			_, err := g.services.worker.settleOne(ctx, "", c)
			return err
		},
		"the SQS API": func(g *Gateway, ctx context.Context, c broker.Settle) error {
			return g.services.sqs.Settle(ctx, []broker.Settle{c})[0].Err
		},
		"a batch": func(g *Gateway, ctx context.Context, c broker.Settle) error {
			r, id, token := &pawlv1.SettleRequest{}, c.Hold.ID.String(), c.Hold.Token.String()
			if c.Verb == broker.Extend {
				r.Extends = []*pawlv1.ExtendRequest{{TaskId: id, ClaimToken: token}}
			} else {
				r.Acks = []*pawlv1.AckRequest{{TaskId: id, ClaimToken: token}}
			}
			out, err := g.services.worker.Settle(ctx, r)
			if e := slices.Concat(out.GetAcks(), out.GetExtends())[0].GetError(); e != nil {
				err = errors.New(e.GetMessage())
			}
			return err
		},
	}
	for who, do := range settle {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			g := newGateway(f)
			ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
			put(t, g, ctx, "q", 2, "1")
			got, err := g.services.worker.Claim(ctx, &pawlv1.ClaimRequest{Queues: shares("q"), Max: 2, Worker: "w"})
			if err != nil || len(got.Tasks) != 2 {
				t.Fatal(got, err)
			}
			call := func(i int, v broker.Verb) broker.Settle {
				h, err := apiproto.HoldOf("default", got.Tasks[i].TaskId, got.Tasks[i].ClaimToken)
				if err != nil {
					t.Fatal(err)
				}
				return broker.Settle{Verb: v, Hold: h}
			}
			known := func(i int) bool {
				c := call(i, broker.Ack)
				_, ok := g.cfg.Registry.Holding(c.Hold.ID, c.Hold.Token)
				return ok
			}
			if err := do(g, ctx, call(0, broker.Extend)); err != nil || !known(0) {
				t.Errorf("%s, extend: %v, in the registry: %t", who, err, known(0))
			}
			list := workerQuery(ctx)
			list.Limit = 1
			if run := g.cfg.Registry.List(list).Workers[0].Running; !slices.ContainsFunc(run, func(r registry.Run) bool {
				return r.LeaseUntil.Equal(time.Now().Add(time.Minute))
			}) {
				t.Errorf("%s, extend: registry has %+v, want the extended lease", who, run)
			}
			gone := call(1, broker.Ack)
			kept := f.tasks[gone.Hold.ID]
			delete(f.tasks, gone.Hold.ID)
			if err := do(g, ctx, gone); err == nil || !known(1) {
				t.Errorf("%s, ack of a task that is not found: %v, in the registry: %t", who, err, known(1))
			}
			f.tasks[gone.Hold.ID] = kept
			if err := do(g, ctx, call(0, broker.Ack)); err != nil || known(0) {
				t.Errorf("%s, ack: %v, in the registry: %t", who, err, known(0))
			}
			kept.view.Exec = &schema.Exec{State: task.Ready}
			if err := do(g, ctx, gone); err == nil || known(1) {
				t.Errorf("%s, ack of a stale claim: %v, in the registry: %t", who, err, known(1))
			}
			g.Shutdown(context.Background())
		})
	}
}

// Attention items come with the statistics: the cluster's for callers who may see all of it, and those of webhooks.
func TestStatsIncludeWebhooks(t *testing.T) {
	s := newStage(t)
	if _, err := s.call("WebhookService/ResumeWebhook", s.fill(`{"name":"w"}`)); err != nil { // it disables this one
		t.Fatal(err)
	}
	answer, err := s.call("StatsService/GetStats", s.fill(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, a := range answer.(*pawlv1.GetStatsResponse).Attention {
		kinds[a.Kind] = true
	}
	if !kinds["webhook"] || !kinds["shard"] {
		t.Errorf("attention = %v, want webhook and shard", answer.(*pawlv1.GetStatsResponse).Attention)
	}
}

// doneAllTheSame matches log lines of refusals, and of changes that were made, at least in part, although the call fails because it
// could not read the result.
var doneAllTheSame = regexp.MustCompile(`refused|quotas set|queue spread|breaker closed|dead letters (replayed|discarded)`)

// An operator's change is logged when it is done, and not when it is refused or fails.
func TestChangesAreLogged(t *testing.T) {
	someStats() // outside of all bubbles
	var all strings.Builder
	eachCall(func(name, request string) {
		for nth := 0; ; nth++ { // 0: none fails
			var lines strings.Builder
			var s *stage
			var err error
			synctest.Test(t, func(t *testing.T) {
				s = newStage(t)
				s.f.faults.nth = nth
				s.g.cfg.Logger = slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{ReplaceAttr: func(_ []string,
					a slog.Attr) slog.Attr {
					if a.Key != slog.MessageKey && a.Key != slog.LevelKey && a.Value.Kind() != slog.KindInt64 {
						return slog.Attr{}
					}
					return a
				}}))
				s.g.wire()
				_, err = s.call(name, s.fill(request))
			})
			if nth == 0 && lines.Len() > 0 {
				fmt.Fprintf(&all, "%s: %s", name, lines.String())
			}
			if err != nil && lines.Len() > 0 && !doneAllTheSame.MatchString(lines.String()) {
				t.Errorf("%s, with failure of call %d: %v, but logged %s", name, nth, err, lines.String())
			}
			if nth > 0 && s.f.faults.asked < nth {
				break
			}
		}
	})
	golden(t, "testdata/log.txt", []byte(all.String()))
}
