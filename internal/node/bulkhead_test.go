package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/webhook"
)

// bulkheadShards is how many data shards the node of these tests has.
const bulkheadShards = 3

// rpcRow is a call: its request, and which shards it needs. In the request, $name is the fixture of that name, and $other.name that of the
// faulty shard.
type rpcRow struct {
	name string // the method, and what distinguishes the row from others of the same method
	// needs are the shards that the call needs. d: the data shard of its fixtures; s: the system shard; 1: the first data
	// shard; a: all data shards; l: all of them, but it answers with a part and says which shards are missing; p: several,
	// each for a part of the call. Further letters say what the answer is like. b: each item of it says what is missing;
	// m: it need not say what is missing; t: it may take two seconds; w: the call waits for what may come.
	needs string
	in    string // in JSON
}

var rpcRows = []rpcRow{
	{"AccessService/WhoAmI", "", `{}`},
	{"AccessService/ListTokens", "s", `{}`},
	{"AccessService/GetToken", "s", `{"name":"token$shard"}`},
	{"AccessService/AddToken", "s", `{"name":"new$shard","queues":["*"],"roles":["produce"]}`},
	{"AccessService/RotateToken", "s", `{"name":"token$shard"}`},
	{"AccessService/RevokeToken", "s", `{"name":"token$shard"}`},
	{"AccessService/ListNamespaces", "slm", `{}`},
	{"AccessService/GetNamespace", "slm", `{"name":"default"}`},
	{"AccessService/AddNamespace", "s", `{"name":"new$shard"}`},
	{"AccessService/SetQuotas", "sa", `{"name":"space$shard","quotas":{"maxRunning":"100"}}`},
	{"AccessService/GetLimits", "slm", `{}`},
	{"AccessService/RemoveNamespace", "sa", `{"name":"space$shard"}`},
	{"AuditService/ListAudit", "sl", `{}`},
	{"ClusterService/GetCluster", "sm", `{}`},
	{"ClusterService/GetMap", "", `{}`},
	{"ClusterService/DrainNode", "s", `{"node":"n1","undo":true}`},
	{"ClusterService/RemoveNode", "s", `!{"node":"n9"}`},
	{"ClusterService/MoveReplica", "s", `!{"shard":$shard,"from":"n1","to":"n9"}`},
	{"ClusterService/TransferLeader", "s", `{"shard":$shard,"to":"n1"}`},
	{"ClusterService/AddShards", "s", `{"total":3}`},
	{"ClusterService/SetReplication", "s", `{"replication":3}`},
	{"ClusterService/SetAuditRetention", "s", `{"retention":"86400s"}`},
	{"ClusterService/RaiseLevel", "s", `{}`},
	{"ClusterService/VerifyShard", "d", `{"shard":$shard}`},
	{"ClusterService/Backup", "sa", `{}`},
	{"EventService/WatchEvents", "dmtw", `{"queue":"$idle"}`},
	{"EventService/WatchEvents all", "pt", `{}`},
	{"GroupService/CreateGroup", "d", `{"tasks":[{"type":"job","queue":"$idle"}],"open":true}`},
	{"GroupService/AddGroupTasks", "d", `{"groupId":"$group","tasks":[{"type":"job","queue":"$idle"}]}`},
	{"GroupService/GetGroup", "d", `{"groupId":"$group"}`},
	{"GroupService/ListGroups", "l", `{}`},
	{"GroupService/ListGroupMembers", "d", `{"groupId":"$group"}`},
	{"GroupService/CloseGroup", "d", `{"groupId":"$group"}`},
	{"GroupService/CancelGroup", "d", `{"groupId":"$group"}`},
	{"MarkerService/AddMarker", "s", `{"kind":"deploy","title":"new"}`},
	{"MarkerService/ListMarkers", "s", `{}`},
	{"MarkerService/EndMarker", "s", `{"id":"$marker"}`},
	{"MarkerService/RemoveMarker", "s", `{"id":"$marker"}`},
	{"OperationService/StartOperation", "1lm", `{"spec":{"action":"ACTION_CANCEL","filter":{"queue":"$spare"}}}`},
	{"OperationService/GetOperation", "1", `{"operationId":"$operation"}`},
	{"OperationService/ListOperations", "1", `{}`},
	{"OperationService/PauseOperation", "1t", `{"operationId":"$operation"}`},
	{"OperationService/ResumeOperation", "1", `{"operationId":"$operation"}`},
	{"OperationService/AbortOperation", "1t", `{"operationId":"$operation"}`},
	{"OperatorService/ListQueues", "sl", `{}`},
	{"OperatorService/GetQueue", "d", `{"queue":"$queue"}`},
	{"OperatorService/PutQueue", "sd", `{"queue":"$spare","settings":{"maxAttempts":7}}`},
	{"OperatorService/PauseQueue", "sd", `{"queue":"$spare"}`},
	{"OperatorService/ResumeQueue", "sd", `{"queue":"$spare"}`},
	{"OperatorService/PauseQueue spread", "sa", `{"queue":"spread"}`},
	{"OperatorService/ResumeQueue spread", "sa", `{"queue":"spread"}`},
	{"OperatorService/SpreadQueue", "sd", `{"queue":"$spare","shards":[$shard]}`},
	{"OperatorService/CloseBreaker", "sd", `{"queue":"$spare","type":"job"}`},
	{"OperatorService/PurgeQueue", "sd", `{"queue":"$spare"}`},
	{"OperatorService/ExplainQueue", "d", `{"queue":"$queue"}`},
	{"OperatorService/ExplainQueue spread", "l", `{"queue":"spread"}`},
	{"OperatorService/GetQueue spread", "l", `{"queue":"spread"}`},
	{"OperatorService/ListDead", "d", `{"filter":{"queue":"$queue"}}`},
	{"OperatorService/ListDead spread", "l", `{"filter":{"queue":"spread"}}`},
	{"OperatorService/ListPoisoned", "d", `{"filter":{"queue":"$queue"}}`},
	{"OperatorService/GroupDead", "d", `{"queue":"$queue"}`},
	{"OperatorService/GroupDead spread", "l", `{"queue":"spread"}`},
	{"OperatorService/RetryTask", "d", `{"taskId":"$dead"}`},
	{"OperatorService/RunTaskNow", "d", `{"taskId":"$later"}`},
	{"OperatorService/DiscardTask", "d", `{"taskId":"$dead"}`},
	{"OperatorService/GetServer", "", `{}`},
	{"OperatorService/DeleteQueue", "sd", `{"queue":"$spare"}`},
	{"ProducerService/Enqueue", "d", `{"task":{"type":"job","queue":"$idle"}}`},
	{"ProducerService/EnqueueBatch", "db", `{"tasks":[{"type":"job","queue":"$idle"},{"type":"job","queue":"$idle"}]}`},
	{"ProducerService/EnqueueBatch several", "pb", `{"tasks":[{"type":"job","queue":"$other.idle"},{"type":"job","queue":"$idle"}]}`},
	{"ProducerService/Produce", "d", `{"number":"1","tasks":[{"type":"job","queue":"$idle"}]}`},
	{"ProducerService/Produce several", "p", `{"number":"1","tasks":[{"type":"job","queue":"$other.idle"}]}~{"number":"2",` +
		`"tasks":[{"type":"job","queue":"$idle"}]}`},
	{"ProducerService/GetTask", "d", `{"taskId":"$later"}`},
	{"ProducerService/CancelTask", "d", `{"taskId":"$later"}`},
	{"ProducerService/ListTasks", "d", `{"filter":{"queue":"$queue"}}`},
	{"ProducerService/ListTasks all", "l", `{}`},
	{"ProducerService/UpdateTask", "d", `{"taskId":"$later","maxAttempts":9}`},
	{"ProducerService/ExplainTask", "d", `{"taskId":"$later"}`},
	{"ScheduleService/ListSchedules", "l", `{}`},
	{"ScheduleService/GetSchedule", "sd", `{"name":"$schedule"}`},
	{"ScheduleService/PutSchedule", "sda", `{"spec":{"name":"new$shard","every":"3600s","task":{"type":"job","queue":"$idle"}}}`},
	{"ScheduleService/PauseSchedule", "sd", `{"name":"$schedule"}`},
	{"ScheduleService/ResumeSchedule", "sd", `{"name":"$schedule"}`},
	{"ScheduleService/TriggerSchedule", "sd", `{"name":"$schedule"}`},
	{"ScheduleService/ListScheduleHistory", "sd", `{"name":"$schedule"}`},
	{"ScheduleService/DeleteSchedule", "sd", `{"name":"$schedule"}`},
	{"StatsService/GetStats", "slm", `{}`},
	{"StatsService/GetQueueStats", "dm", `{"queue":"$queue"}`},
	{"StatsService/GetQueueScale", "d", `{"queue":"$queue"}`},
	{"StatsService/ListTypes", "", `{}`},
	{"StatsService/GetTypeStats", "", `{"type":"job"}`},
	{"WebhookService/ListWebhooks", "s", `{}`},
	{"WebhookService/GetWebhook", "s", `{"name":"hook$shard"}`},
	{"WebhookService/AddWebhook", "sa", `{"name":"new$shard","url":"http://192.0.2.1/new"}`},
	{"WebhookService/SetWebhook", "sa", `{"name":"hook$shard","url":"http://192.0.2.1/hook","queues":["$idle"]}`},
	{"WebhookService/PauseWebhook", "s", `{"name":"hook$shard"}`},
	{"WebhookService/ResumeWebhook", "s", `{"name":"hook$shard"}`},
	{"WebhookService/TestWebhook", "s", `{"name":"hook$shard"}`},
	{"WebhookService/RotateWebhookSecret", "s", `{"name":"hook$shard"}`},
	{"WebhookService/ListWebhookDeliveries", "s", `{"name":"hook$shard"}`},
	{"WebhookService/RemoveWebhook", "sa", `{"name":"hook$shard"}`},
	{"WorkerService/Claim", "d", `{"queues":[{"queue":"$queue"}],"max":1,"worker":"w"}`},
	{"WorkerService/Claim strict", "p", `{"queues":[{"queue":"$other.queue"},{"queue":"$queue"}],"order":"ORDER_STRICT","max":1,` +
		`"worker":"w","wait":"10s"}`},
	{"WorkerService/Claim weighted", "p", `{"queues":[{"queue":"$other.queue","weight":9},{"queue":"$queue","weight":1}],"max":1,` +
		`"worker":"w","wait":"10s"}`},
	{"WorkerService/Ack", "d", `{$claim}`},
	{"WorkerService/Fail", "d", `{$claim}`},
	{"WorkerService/Extend", "d", `{$claim}`},
	{"WorkerService/Release", "d", `{$claim}`},
	{"WorkerService/Settle", "db", `{"acks":[{$claim}],"extends":[{$claim}]}`},
	{"WorkerService/Settle several", "pb", `{"acks":[{$other.claim},{$claim}]}`},
	{"WorkerService/BeginOnce", "d", `{$once,"key":"k"}`},
	{"WorkerService/FinishOnce", "d", `{$once,"key":"k"}`},
	{"WorkerService/BeginOnce more", "d", `{$once,"key":"k2"}`},
	{"WorkerService/AbandonOnce", "d", `{$once,"key":"k2"}`},
	{"WorkerService/Work", "dw", `{"hello":{"queues":[{"queue":"$queue"}],"worker":"v"},"grant":1}`},
	{"WorkerService/Work several", "p", `{"hello":{"queues":[{"queue":"$other.queue"},{"queue":"$queue"}],"worker":"v"},"grant":1}`},
	{"WorkerService/Work settles", "p", `{"hello":{"queues":[{"queue":"$queue"}],` +
		`"worker":"v"}}~{"settle":{"acks":[{$other.claim}]}}~{"settle":{"acks":[{$claim}]}}`},
	{"WorkerRegistryService/ListWorkers", "", `{}`},
	{"WorkerRegistryService/GetWorker", "", `{"workerId":"$worker"}`},
	{"WorkerRegistryService/QuietWorker", "s", `{"workerId":"$worker"}`},
	{"WorkerRegistryService/ResumeWorker", "s", `{"workerId":"$worker"}`},
}

// fixture is the queues, tasks and other objects in one shard that calls are about, by name. What a call uses up has several values.
type fixture map[string][]string

var placeholder = regexp.MustCompile(`\$(other\.)?([a-z]+)`)

// fill replaces the placeholders of a request.
func fill(in string, here, other fixture) string {
	return placeholder.ReplaceAllStringFunc(in, func(p string) string {
		name, of := strings.TrimPrefix(p, "$"), here
		if rest, ok := strings.CutPrefix(name, "other."); ok {
			name, of = rest, other
		}
		values := of[name]
		if len(values) == 0 {
			return p
		}
		if len(values) > 1 {
			of[name] = values[1:]
		}
		return values[0]
	})
}

// faultyNode is a node whose shards can be made faulty.
type faultyNode struct {
	*server
	conn       *grpc.ClientConn
	fixtures   map[uint32]fixture
	worker     grpc.ClientStream
	eventQueue string
	hooks      *receiver
}

func newFaultyNode(t *testing.T) *faultyNode {
	hooks := newReceiver(t)
	cfg := Config{InMemory: true, DataShards: bulkheadShards, WebhookNetworks: webhook.Networks{
		auth.AllNamespaces: {netip.MustParsePrefix("192.0.2.0/24")}}, dialWebhook: hooks.dial}
	s := &faultyNode{hooks: hooks, server: start(t, cfg), fixtures: map[uint32]fixture{}}
	var err error
	if s.conn, err = grpc.NewClient("passthrough:node", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.pipe.DialContext(ctx) })); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.conn.Close() })
	work, err := s.open(t.Context(), methods()["WorkerService/Work"])
	if err == nil {
		err = s.send(work, methods()["WorkerService/Work"], `{"hello":{"queues":[{"queue":"nothing"}],"worker":"idle"}}`)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.worker = work
	for i := 0; len(s.fixtures) < bulkheadShards; i++ {
		s.addFixtures(fmt.Sprintf("q%d", i))
	}
	w := s.must("WorkerRegistryService/ListWorkers", `{}`)
	id := s.field(w.Get(w.Descriptor().Fields().ByJSONName("items")).List().Get(0).Message(), "workerId")
	for _, here := range s.fixtures {
		here["worker"] = []string{id}
	}
	s.enqueue(fixture{}, "x", `"queue":"spread"`, 1)
	s.must("OperatorService/SpreadQueue", `{"queue":"spread","parts":3}`)
	time.Sleep(5 * time.Second)
	for i := range 30 {
		s.enqueue(fixture{}, "x", `"queue":"spread","key":"`+fmt.Sprint(i)+`"`, 1)
	}
	s.fixtures[0] = s.fixtures[3] // while the system shard is faulty, the calls are about another shard
	return s
}

// addFixtures creates a queue, and what else the calls need in its shard, unless that shard has its fixture.
func (s *faultyNode) addFixtures(queue string) {
	here := fixture{"queue": {queue}}
	shard := s.enqueue(here, "ready", `"queue":"`+queue+`"`, 1)
	if s.fixtures[shard] != nil {
		return
	}
	s.fixtures[shard] = here
	here["shard"] = []string{fmt.Sprint(shard)}
	for _, kind := range []string{"idle", "spare", "member", "delayed", "scheduled", "deep", "awaited", "worked", "added", "finished",
		"follow", "fatal", "triggered", "operated", "batch"} {
		for i := 0; here[kind] == nil; i++ {
			name := fmt.Sprintf("%s-%s%d", queue, kind, i)
			if s.enqueue(fixture{}, "ready", `"queue":"`+name+`"`, 1) == shard {
				s.must("OperatorService/PurgeQueue", `{"queue":"`+name+`"}`)
				here[kind] = []string{name}
			}
		}
	}
	s.enqueue(here, "later", `"delay":"3600s","queue":"`+queue+`"`, 12)
	s.enqueue(fixture{}, "ready", `"queue":"`+queue+`"`, 60)
	n := fmt.Sprint(shard)
	for _, c := range [][2]string{{"AccessService/AddToken", `{"name":"token$n","queues":["*"],"roles":["produce"]}`},
		{"AccessService/AddNamespace", `{"name":"space$n"}`}, {"WebhookService/AddWebhook",
			`{"name":"hook$n","url":"http://192.0.2.1/hook"}`},
		{"ScheduleService/PutSchedule", `{"spec":{"name":"daily$n","cron":"0 3 * * *","task":{"type":"job","queue":"` +
			here["idle"][0] + `"}}}`}} {
		s.must(c[0], strings.ReplaceAll(c[1], "$n", n))
	}
	here["schedule"] = []string{"daily" + n}
	group := s.must("GroupService/CreateGroup", `{"tasks":[{"type":"job","queue":"`+here["idle"][0]+`"}],"open":true}`)
	here["group"] = []string{s.field(group, "group", "groupId")}
	operation := s.must("OperationService/StartOperation", `{"spec":{"action":"ACTION_SET_PRIORITY","priority":"PRIORITY_HIGH","rate":0.1,`+
		`"filter":{"queue":"`+queue+`","states":["STATE_SCHEDULED"]}}}`)
	here["operation"] = []string{s.field(operation, "operation", "operationId")}
	for range 2 {
		here["marker"] = append(here["marker"], s.field(s.must("MarkerService/AddMarker", `{"kind":"deploy","title":"one"}`), "marker",
			"id"))
	}
	for range 8 {
		c := s.claim(queue)
		s.must("WorkerService/Fail", `{`+c+`,"outcome":"FAIL_OUTCOME_DEAD"}`)
		here["dead"] = append(here["dead"], strings.Split(c, `"`)[3])
	}
	here["once"] = []string{s.claim(queue)}
	for range 16 {
		here["claim"] = append(here["claim"], s.claim(queue))
	}
}

func (s *faultyNode) claim(queue string) string {
	m := s.must("WorkerService/Claim", `{"queues":[{"queue":"`+queue+`"}],"max":1,"worker":"w","lease":"3600s"}`)
	l := m.Get(m.Descriptor().Fields().ByJSONName("tasks")).List()
	if l.Len() != 1 {
		s.t.Fatalf("queue %s: %d tasks claimed", queue, l.Len())
	}
	c := l.Get(0).Message()
	return `"taskId":"` + s.field(c, "taskId") + `","claimToken":"` + s.field(c, "claimToken") + `"`
}

// enqueue enqueues n tasks, adds their ids to a fixture, and returns their shard.
func (s *faultyNode) enqueue(to fixture, kind, spec string, n int) uint32 {
	s.t.Helper()
	for {
		text := s.field(s.must("ProducerService/Enqueue", `{"task":{"type":"job",`+spec+`}}`), "task", "taskId")
		if to[kind] = append(to[kind], text); len(to[kind]) >= n {
			id, err := task.ParseID(text)
			if err != nil {
				s.t.Fatal(err)
			}
			return id.Shard()
		}
	}
}

// field returns a string of a message.
func (s *faultyNode) field(m protoreflect.Message, path ...string) string {
	s.t.Helper()
	for i, name := range path {
		f := m.Descriptor().Fields().ByJSONName(name)
		if f == nil {
			s.t.Fatalf("%s has no field %q", m.Descriptor().FullName(), name)
		}
		if i == len(path)-1 {
			return m.Get(f).String()
		}
		m = m.Get(f).Message()
	}
	return ""
}

func (s *faultyNode) must(method, in string) protoreflect.Message {
	s.t.Helper()
	out, err := s.call(s.t.Context(), method, in)
	if err != nil {
		s.t.Fatalf("%s: %v", method, err)
	}
	return out
}

func (s *faultyNode) call(ctx context.Context, method, in string) (protoreflect.Message, error) {
	m := methods()[method]
	if m == nil {
		return nil, fmt.Errorf("there is no method %q", method)
	}
	answer := newMessage(m.Output())
	if !m.IsStreamingServer() {
		request := newMessage(m.Input())
		if err := protojson.Unmarshal([]byte(in), request); err != nil {
			return nil, fmt.Errorf("%s: %w", in, err)
		}
		return answer.ProtoReflect(), s.conn.Invoke(ctx, path(m), request, answer)
	}
	if method == "EventService/WatchEvents" {
		time.AfterFunc(20*time.Millisecond, func() {
			_, _ = s.call(ctx, "ProducerService/Enqueue", `{"task":{"type":"job","queue":"`+s.eventQueue+`"}}`)
		})
	}
	stream, err := s.open(ctx, m)
	if err != nil {
		return nil, err
	}
	for _, frame := range strings.Split(in, "~") {
		if err := s.send(stream, m, frame); err != nil {
			return nil, err
		}
	}
	if !m.IsStreamingClient() {
		_ = stream.CloseSend()
	}
	err = stream.RecvMsg(answer)
	for method == "EventService/WatchEvents" && err == nil && !strings.Contains(fmt.Sprint(answer), "task.") {
		err = stream.RecvMsg(answer)
	}
	for method == "ClusterService/Backup" && err == nil {
		if err = stream.RecvMsg(answer); errors.Is(err, io.EOF) {
			return answer.ProtoReflect(), nil
		}
	}
	return answer.ProtoReflect(), err
}

func path(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

func (s *faultyNode) open(ctx context.Context, m protoreflect.MethodDescriptor) (grpc.ClientStream, error) {
	return s.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, path(m))
}

func (s *faultyNode) send(to grpc.ClientStream, m protoreflect.MethodDescriptor, in string) error {
	request := newMessage(m.Input())
	if err := protojson.Unmarshal([]byte(in), request); err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	return to.SendMsg(request)
}

func newMessage(d protoreflect.MessageDescriptor) proto.Message {
	m, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err)
	}
	return m.New().Interface()
}

// methods returns the methods of the API, by service and name.
var methods = sync.OnceValue(func() map[string]protoreflect.MethodDescriptor {
	all := map[string]protoreflect.MethodDescriptor{}
	protoregistry.GlobalFiles.RangeFilesByPackage("pawl.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			of := f.Services().Get(i)
			for j := range of.Methods().Len() {
				m := of.Methods().Get(j)
				all[fmt.Sprintf("%s/%s", of.Name(), m.Name())] = m
			}
		}
		return true
	})
	return all
})

// hang makes a shard accept calls and answer none, until the returned function is called.
func (s *faultyNode) hang(id uint32) (heal func()) {
	began, over := make(chan struct{}), make(chan struct{})
	var held sync.WaitGroup
	held.Go(func() {
		_, _, _ = shard.Update(context.Background(), s.replicas.get(id).shard, func(*store.Tx) (struct{}, error) {
			close(began)
			<-over
			return struct{}{}, errors.New("it was only held")
		})
	})
	<-began
	return func() { close(over); held.Wait() }
}

// slow makes a shard answer only now and then.
func (s *faultyNode) slow(id uint32) (heal func()) {
	over := make(chan struct{})
	var held sync.WaitGroup
	held.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			heal := s.hang(id)
			time.Sleep(300 * time.Millisecond)
			heal()
			time.Sleep(time.Millisecond)
		}
	})
	time.Sleep(time.Millisecond)
	return func() { close(over); held.Wait() }
}

// stopLeader ends a shard's only replica, so that nobody leads it.
func (s *faultyNode) stopLeader(id uint32) (heal func()) {
	s.replicas.get(id).shard.Stop()
	return func() {}
}

// eachFault runs a test for each fault of each shard. Without long, the last shard is left out: as the second it is neither the first nor
// the system shard, and none comes after it. The race detector sees each fault in one shard: the goroutines are the same.
func eachFault(t *testing.T, test func(t *testing.T, s *faultyNode, fault string, faulty uint32, fail func() (heal func()))) {
	for raced, f := range []struct {
		name string
		fail func(*faultyNode, uint32) func()
	}{{"slow", (*faultyNode).slow}, {"no leader", (*faultyNode).stopLeader}, {"hang", (*faultyNode).hang}} {
		for faulty := range uint32(bulkheadShards + 1) {
			if faulty == bulkheadShards && !long() || testing.Short() && faulty != uint32(raced) {
				continue
			}
			t.Run(fmt.Sprintf("%s %d", f.name, faulty), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newFaultyNode(t)
					test(t, s, f.name, faulty, func() func() { return f.fail(s, faulty) })
				})
			})
		}
	}
}

// While a shard hangs, has no leader or is slow, the calls that do not need it are answered within a second, and the others say what is
// missing.
func TestBulkheads(t *testing.T) {
	eachFault(t, func(_ *testing.T, s *faultyNode, fault string, faulty uint32, fail func() (heal func())) {
		heal := fail()
		s.calls(fault, faulty)
		heal()
	})
}

// calls makes all calls while a shard is faulty: first those that need it; while these wait, those that do not.
func (s *faultyNode) calls(fault string, faulty uint32) {
	var waiting sync.WaitGroup
	healthy := uint32(1)
	if faulty == 1 {
		healthy = 2
	}
	needs := map[uint32]string{0: "s", 1: "1al"}[faulty]
	if faulty > 1 {
		needs = "al"
	}
	s.eventQueue = s.fixtures[healthy]["idle"][0]
	begin := func(r rpcRow, here uint32) {
		in := fill(r.in, s.fixtures[here], s.fixtures[faulty])
		waiting.Go(func() { s.mustNameShard(fault, faulty, r, in) })
	}
	for _, r := range rpcRows {
		if (strings.ContainsAny(r.needs, needs) || faulty != 0 && strings.Contains(r.needs, "d")) && r.name != "ClusterService/Backup" {
			begin(r, faulty)
		}
	}
	time.Sleep(time.Millisecond)
	for _, r := range rpcRows {
		if !strings.ContainsAny(r.needs, needs) {
			s.mustAnswer(fault, faulty, r, fill(r.in, s.fixtures[healthy], s.fixtures[faulty]))
		}
	}
	for _, r := range rpcRows {
		if strings.ContainsAny(r.needs, needs) {
			begin(r, healthy)
		}
	}
	waiting.Wait()
}

// mustAnswer makes a call that does not need the faulty shard. It must be answered within a second.
func (s *faultyNode) mustAnswer(fault string, faulty uint32, r rpcRow, in string) {
	took, text, err := s.timed(r, in)
	refused := strings.HasPrefix(in, "!")
	if refused && err != nil && answered(err) {
		err = nil
	} else if refused && err == nil {
		err = errors.New("not refused")
	}
	most := time.Second
	if strings.Contains(r.needs, "t") {
		most *= 2
	}
	if err != nil || took > most {
		s.t.Errorf("%s: %v after %v, want an answer within %v", r.name, err, took, most)
	}
	ofSeveral := strings.Contains(r.needs, "b") && strings.Contains(r.needs, "p")
	if faulty != 0 && fault != "slow" && ofSeveral && !strings.Contains(text, "unavailable") {
		s.t.Errorf("%s: the answer does not say what is missing: %.300s", r.name, text)
	}
}

// mustNameShard makes a call that needs the faulty shard. It must be answered once that shard answers, or with an error
// or a part that names the shard. A shard that hangs may keep a caller waiting for as long as the caller wants.
func (s *faultyNode) mustNameShard(fault string, faulty uint32, r rpcRow, in string) {
	took, text, err := s.timed(r, in)
	switch {
	case fault == "slow" && (err != nil && !answered(err) || took > 5*time.Second):
		s.t.Errorf("%s: %v after %v, want an answer", r.name, err, took)
	case fault == "slow" || err != nil && answered(err) || err == nil && strings.Contains(r.needs, "m"):
	case err != nil && status.Code(err) == codes.DeadlineExceeded && strings.Contains(r.needs, "w"): // it waits for what may come
	case fault == "no leader" && took > 25*time.Second:
		s.t.Errorf("%s: %v after %v, want an answer soon after the time of an election", r.name, err, took)
	case fault == "hang" && took == callTime && (status.Code(err) == codes.DeadlineExceeded ||
		strings.Contains(text, "the call ended before its answer")):
		m := methods()[strings.Fields(r.name)[0]].Output()
		if strings.Contains(r.needs, "l") && faulty != 0 && m.Fields().ByName("missing") != nil {
			s.t.Errorf("%s: no answer within %v, though there could be one without the shard that hangs", r.name, took)
		}
	case err != nil && status.Code(err) == codes.Unavailable && faulty == 0 && strings.Contains(err.Error(), "system shard"):
	case strings.Contains(text, "another backup"):
	case !regexp.MustCompile(fmt.Sprintf(`shards? (\d+, )*%d\b`, faulty)).MatchString(text) && !strings.Contains(r.needs, "b"):
		s.t.Errorf("%s: the answer after %v does not name shard %d: %v %.300s", r.name, took, faulty, err, text)
	}
}

// callTime is how long the callers of these tests wait.
const callTime = 30 * time.Second

func (s *faultyNode) timed(r rpcRow, in string) (took time.Duration, text string, err error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), callTime)
	defer cancel()
	began := time.Now()
	out, err := s.call(ctx, strings.Fields(r.name)[0], strings.TrimPrefix(in, "!"))
	if err != nil {
		return time.Since(began), err.Error(), err
	}
	var b bytes.Buffer
	raw, err := protojson.Marshal(out.Interface())
	if err == nil {
		err = json.Compact(&b, raw) // protojson adds spaces at random
	}
	return time.Since(began), missingShards(out) + b.String(), err
}

// missingShards names the shards that an answer, or a part of it, declares as missing.
func missingShards(m protoreflect.Message) (names string) {
	if is, ok := m.Interface().(*pawlv1.Missing); ok && is.GetNode() == "" {
		return fmt.Sprintf("shard %d, ", is.GetShard())
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				names += missingShards(v.List().Get(i).Message())
			}
		case f.IsList() && f.Name() == "unconfirmed_shards":
			for i := range v.List().Len() {
				names += fmt.Sprintf("shard %d, ", v.List().Get(i).Uint())
			}
		case !f.IsMap() && f.Message() != nil:
			names += missingShards(v.Message())
		}
		return true
	})
	return names
}

// answered reports whether an error is an answer about the subject of a call: another call has changed it.
func answered(err error) bool {
	switch status.Code(err) {
	case codes.NotFound, codes.FailedPrecondition, codes.AlreadyExists, codes.InvalidArgument, codes.Aborted:
		return true
	}
	return false
}

// Every method of the API has a row.
func TestBulkheadsAreComplete(t *testing.T) {
	for name := range methods() {
		if !slices.ContainsFunc(rpcRows, func(r rpcRow) bool { return strings.Fields(r.name)[0] == name }) {
			t.Errorf("%s has no row in rpcRows: which shards does it need?", name)
		}
	}
}
