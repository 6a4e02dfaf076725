package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/administration"
	"github.com/pawlq/pawl/internal/gateway/fanout"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/system/workers"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// notes are the calls that a gateway makes to its parts, with all of their arguments.
type notes struct {
	mu    sync.Mutex
	calls []string
}

func (n *notes) note(what string, args ...any) {
	text, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, what+" "+string(text))
}

// listen notes what a stage's gateway asks for from now on.
func (s *stage) listen() *notes {
	n, c := &notes{}, &s.g.cfg
	c.Broker, c.Cluster = notedBroker{c.Broker, n}, notedCluster{c.Cluster, n}
	c.Schedules, c.Groups, c.Operations = notedSchedules{c.Schedules, n}, notedGroups{c.Groups, n}, notedOperations{c.Operations, n}
	c.Workers, c.Admin = notedWorkers{c.Workers, n}, notedAdmin{c.Admin, n}
	s.g.wire()
	return n
}

type notedBroker struct {
	Broker
	*notes
}

func (b notedBroker) Do(ctx context.Context, c verb.Call) error {
	b.note(c.Rule().Name, c.Request())
	return b.Broker.Do(ctx, c)
}

func (b notedBroker) Enqueue(ctx context.Context, shard uint32, ns string, specs []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
	b.note("enqueue", shard, ns, specs)
	return b.Broker.Enqueue(ctx, shard, ns, specs)
}

func (b notedBroker) Claim(ctx context.Context, shard uint32, c broker.ClaimCall, wait time.Duration) ([]broker.Claimed,
	broker.Stamp, error) {
	b.note("claim", shard, c, wait)
	return b.Broker.Claim(ctx, shard, c, wait)
}

func (b notedBroker) Settle(ctx context.Context, shard uint32, calls []broker.Settle) ([]broker.Settled, broker.Stamp, error) {
	b.note("settle", shard, calls)
	return b.Broker.Settle(ctx, shard, calls)
}

func (b notedBroker) Task(ctx context.Context, ns string, id task.ID, wait time.Duration) (*broker.View, broker.Stamp, error) {
	b.note("task", ns, id, wait)
	return b.Broker.Task(ctx, ns, id, wait)
}

func (b notedBroker) Once(ctx context.Context, c broker.OnceCall) (broker.OnceAnswer, broker.Stamp, error) {
	b.note("once", c)
	return b.Broker.Once(ctx, c)
}

func (b notedBroker) Audit(ctx context.Context, q broker.AuditQuery, behind *broker.AuditPlace, limit int) (verb.Partial[broker.AuditList],
	[]broker.Stamp, error) {
	b.note("audit", q, behind, limit)
	return b.Broker.Audit(ctx, q, behind, limit)
}

type notedCluster struct {
	fanout.Cluster
	*notes
}

func (c notedCluster) Queues(ctx context.Context, ns string, of queues.Query) ([]queues.Queue, error) {
	c.note("queues", ns, of)
	return c.Cluster.Queues(ctx, ns, of)
}

func (c notedCluster) PutQueue(ctx context.Context, by auditlog.Action, ns, name string,
	change func(*task.QueueConfig) error) (queues.Queue, error) {
	config := task.QueueConfig{Version: 1, Paused: true, Holds: []task.Hold{{Type: "x"}, {Key: "x"}}}
	err := change(&config)
	c.note("put queue", by, ns, name, config, fmt.Sprint(err))
	return c.Cluster.PutQueue(ctx, by, ns, name, change)
}

func (c notedCluster) Spread(ctx context.Context, by task.Author, ns, name string, to queues.SpreadTarget) (queues.Queue, error) {
	c.note("spread", by, ns, name, to)
	return c.Cluster.Spread(ctx, by, ns, name, to)
}

type notedSchedules struct {
	Schedules
	*notes
}

func (s notedSchedules) PutSchedule(ctx context.Context, by task.Author, ns string,
	put broker.SchedulePut) (broker.SchedulePutDone, broker.Stamp, error) {
	s.note("put schedule", by, ns, put)
	return s.Schedules.PutSchedule(ctx, by, ns, put)
}

func (s notedSchedules) TriggerSchedule(ctx context.Context, by task.Author, ns, name string, request task.ID) (broker.Accepted,
	broker.Stamp, error) {
	s.note("trigger", by, ns, name, request)
	return s.Schedules.TriggerSchedule(ctx, by, ns, name, request)
}

type notedGroups struct {
	Groups
	*notes
}

func (g notedGroups) MakeGroup(ctx context.Context, ns string, of task.Group) (broker.GroupMade, broker.Stamp, error) {
	g.note("make group", ns, of)
	return g.Groups.MakeGroup(ctx, ns, of)
}

func (g notedGroups) AddToGroup(ctx context.Context, ns string, id task.ID, tasks []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
	g.note("add to group", ns, id, tasks)
	return g.Groups.AddToGroup(ctx, ns, id, tasks)
}

type notedOperations struct {
	Operations
	*notes
}

func (o notedOperations) StartOperation(ctx context.Context, ns string, spec broker.OperationSpec) (broker.OperationView,
	broker.Stamp, error) {
	o.note("start operation", ns, spec)
	return o.Operations.StartOperation(ctx, ns, spec)
}

func (o notedOperations) Operation(ctx context.Context, ns string, id task.ID, wait time.Duration) (broker.OperationView,
	broker.Stamp, error) {
	o.note("operation", ns, id, wait)
	return o.Operations.Operation(ctx, ns, id, wait)
}

// workersOfNodes is Workers by a name that is not one of its methods.
type workersOfNodes Workers

type notedWorkers struct {
	workersOfNodes
	*notes
}

func (w notedWorkers) Workers(ctx context.Context, q registry.Query, node string) (verb.Partial[registry.Page], error) {
	w.note("workers", q, node)
	return w.workersOfNodes.Workers(ctx, q, node)
}

func (w notedWorkers) QuietWorker(ctx context.Context, by task.Author, name workers.Name, called string,
	span time.Duration) (workers.Quiet, error) {
	w.note("quiet", by, name, called, span)
	return w.workersOfNodes.QuietWorker(ctx, by, name, called, span)
}

func (w notedWorkers) ResumeWorker(ctx context.Context, by task.Author, name workers.Name) (bool, error) {
	w.note("resume", by, name)
	return w.workersOfNodes.ResumeWorker(ctx, by, name)
}

type notedAdmin struct {
	administration.Admin
	*notes
}

func (a notedAdmin) Verify(ctx context.Context, shard uint32) (administration.Verification, error) {
	a.note("verify", shard)
	return a.Admin.Verify(ctx, shard)
}

func (a notedAdmin) Backup(ctx context.Context, by task.Author, w io.Writer, progress func(done, total int) error) error {
	a.note("backup", by)
	return a.Admin.Backup(ctx, by, w, progress)
}

// TestEveryFieldCounts: a field that is set changes what the gateway asks its parts for, or what it answers. So none gets lost on the way.
func TestEveryFieldCounts(t *testing.T) {
	someStats() // outside of all bubbles
	// told returns all that a request brings about.
	told := func(name, request string, set func(protoreflect.Message)) (all string, refusal error) {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			n := s.listen()
			answer, err := s.call(name, func(to proto.Message) {
				s.fill(request)(to)
				set(to.ProtoReflect())
			})
			text := ""
			if answer != nil && err == nil {
				text = protojson.Format(answer)
			}
			all, refusal = unsteady.ReplaceAllString(fmt.Sprint(n.calls, " ", text, " ", err), "…"), err
		})
		return drawn.ReplaceAllString(all, `"$1":…`), refusal
	}
	eachRPC(func(name string, m protoreflect.MethodDescriptor) {
		if m.IsStreamingServer() {
			return
		}
		eachField(m.Input(), nil, func(path []protoreflect.FieldDescriptor) {
			last := path[len(path)-1]
			of := name + " " + pathText(path)
			if heldElsewhere.MatchString(of) {
				return
			}
			request := goodCalls[name]
			if other := beside[of]; other != "" {
				request = other
			}
			without, err := told(name, request, func(m protoreflect.Message) { prepare(holderOf(m, path), last) })
			if err != nil {
				t.Fatalf("%s: %v", of, err)
			}
			with, err := told(name, request, func(m protoreflect.Message) {
				holder := holderOf(m, path)
				prepare(holder, last)
				setIn(holder, last, valueOf(of, last))
			})
			switch {
			case errors.Is(err, task.ErrInvalidArgument):
				t.Errorf("%s: the test has no valid value: %v", of, err)
			case with == without:
				t.Errorf("%s changes nothing", of)
			}
		})
	})
}

// drawn matches what is drawn at random.
var drawn = regexp.MustCompile(`"(Hash|Entropy)":(\[[0-9,]*\]|[0-9]+)`)

// heldElsewhere are fields that other tests hold: cursors and limits (TestListsAcceptTheirOwnCursors, TestPagesOfOne), secrets, those of
// statistics, which depend on the clock (TestREST, TestKEDA), what says the same again, and what is refused there.
var heldElsewhere = regexp.MustCompile(`(^StatsService/.*| cursor|Service/List(Tokens|Namespaces|Webhooks) limit` +
	`|ListTokens all_namespaces| secret|SpreadQueue (parts|shards)` +
	`|(ListDead|ListPoisoned) filter.states|per_key.weight|settings.breaker.off` +
	`|PutSchedule spec.task.(delay|run_at|idempotency_key|idempotency_ttl|request_id|group_id)|on_[a-z]+.request_id` +
	`|(CreateGroup|AddGroupTasks) [a-z_]+.group_id)$`)

// beside are the requests to which a field is added, where those of goodCalls won't do.
var beside = map[string]string{
	"OperationService/StartOperation spec.to_queue": `{"spec":{"action":"ACTION_MOVE","filter":{"queue":"mail"},"to_queue":"sms"}}`,
	"OperationService/StartOperation spec.priority": `{"spec":{"action":"ACTION_SET_PRIORITY","filter":{},"priority":"PRIORITY_HIGH"}}`,
	"ScheduleService/PutSchedule spec.every":        `{"spec":{"name":"s","every":"3600s","task":{"type":"a"}}}`,
	"WorkerService/Claim order":                     `{"queues":[{"queue":"mail","weight":1}]}`,
	"WorkerService/Claim queues.weight":             `{"queues":[{"queue":"mail","weight":1}]}`,
}

// values are valid values of fields, by RPC and path, or by the name of the field alone.
var values = map[string]any{
	"task_id": someID, "task_ids": someID, "group_id": someID, "operation_id": someID, "operation": someID, "id": someID,
	"request_id": someID, "claim_token": task.Token{Epoch: 1, Fence: 2, Nonce: 9}.String(), "fingerprint": "0123456789abcdef",
	"url": "https://example.com/y", "roles": "consume", "certificate": "dns:x", "target_kind": "queue", "kind": "incident",
	"events": "task.poisoned", "cron": "@weekly", "time_zone": "Europe/Berlin", "factor": 3.0, "current_states": false,
	"order": protoreflect.EnumNumber(pawlv1.Order_ORDER_STRICT), "states": protoreflect.EnumNumber(pawlv1.State_STATE_DEAD),
	"wait": span(31 * time.Second), "series": span(time.Hour),
	"AuditService/ListAudit filter.action":               "queue.*",
	"ClusterService/SetAuditRetention retention":         span(48 * time.Hour),
	"OperationService/StartOperation spec.filter.states": protoreflect.EnumNumber(pawlv1.State_STATE_READY),
}

func span(d time.Duration) protoreflect.Message { return durationpb.New(d).ProtoReflect() }

// prepare sets what a field requires beside it.
func prepare(m protoreflect.Message, f protoreflect.FieldDescriptor) {
	switch m := m.Interface().(type) {
	case *pawlv1.TaskSpec:
		if f.Name() == "idempotency_ttl" {
			m.IdempotencyKey = new("k")
		}
	case *pawlv1.Unique:
		if f.Name() == "states" {
			m.States = []pawlv1.State{1, 2, 3, 4}
		}
	case *pawlv1.PayloadField:
		m.Path = "a"
	}
}

// valueOf returns a valid value for a field, or for one item of it.
func valueOf(of string, f protoreflect.FieldDescriptor) protoreflect.Value {
	if f.IsMap() {
		f = f.MapValue()
	}
	v, ok := values[of]
	if !ok {
		v, ok = values[string(f.Name())]
	}
	if ok {
		return protoreflect.ValueOf(v)
	}
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("x")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("7"))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(f.Enum().Values().Len() - 1))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(7)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(7)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(2)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(0.5)
	}
	switch f.Message().Name() {
	case "Duration":
		return protoreflect.ValueOfMessage(durationpb.New(61 * time.Second).ProtoReflect())
	case "Timestamp":
		return protoreflect.ValueOfMessage(timestamppb.New(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)).ProtoReflect())
	}
	return protoreflect.Value{} // of a map: see setIn
}

// holderOf returns the message that has the field at the end of a path.
func holderOf(m protoreflect.Message, path []protoreflect.FieldDescriptor) protoreflect.Message {
	for _, f := range path[:len(path)-1] {
		if !f.IsList() {
			m = m.Mutable(f).Message()
			continue
		}
		list := m.Mutable(f).List()
		if list.Len() == 0 {
			list.AppendMutable()
		}
		m = list.Get(0).Message()
	}
	return m
}

// setIn sets a field, or adds to it.
func setIn(m protoreflect.Message, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	key := protoreflect.ValueOfString("x").MapKey()
	switch {
	case f.IsMap() && f.MapValue().Message() != nil:
		inner := m.Mutable(f).Map().Mutable(key).Message()
		for i := range inner.Descriptor().Fields().Len() {
			if number := inner.Descriptor().Fields().Get(i); number.Kind() == protoreflect.Int32Kind {
				inner.Set(number, protoreflect.ValueOfInt32(7))
				return
			}
		}
	case f.IsMap():
		m.Mutable(f).Map().Set(key, v)
	case f.IsList():
		m.Mutable(f).List().Append(v)
	default:
		m.Set(f, v)
	}
}
