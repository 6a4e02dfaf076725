package gateway

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pawlq/pawl/api/keda"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/gateway/access"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/fanout"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/gateway/statistics"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// many returns a list of n references to one task.
func many(n int, t *pawlv1.TaskSpec) []*pawlv1.TaskSpec {
	list := make([]*pawlv1.TaskSpec, n)
	for i := range list {
		list[i] = t
	}
	return list
}

// claimToken is a valid claim token.
var claimToken = task.Token{Epoch: 1, Fence: 2, Nonce: 3}.String()

const someID = "0b5e4d52-7b1c-4c58-9f0b-9d9d5f3f0001"

func TestSettingsAreRead(t *testing.T) {
	for _, n := range []int32{0, 1, 7} {
		s, err := apiproto.SettingsOf(&pawlv1.QueueSettings{MaxAttempts: n})
		if want := cmp.Or(int(n), task.DefaultSettings().MaxAttempts); err != nil || s.MaxAttempts != want {
			t.Errorf("max_attempts %d was decoded as %d, %v", n, s.MaxAttempts, err)
		}
	}
	if _, err := apiproto.TimeOf("at", &timestamppb.Timestamp{Nanos: -1}); err == nil {
		t.Error("TimeOf accepted an invalid timestamp")
	}
	for name, want := range map[string]string{"/pawl.v1.ProducerService/Enqueue": "ProducerService/Enqueue",
		"/grpc.health.v1.Health/Check": "grpc.health.v1.Health/Check"} {
		if got := access.RPCName(name); got != want {
			t.Errorf("RPCName(%s) = %s, want %s", name, got, want)
		}
	}
}

// countedStats returns a test's statistics for a minute and for a day, and records what was asked.
type countedStats struct {
	figures
	brief   stats.Brief
	day     stats.Report
	windows []stats.Window
	counts  broker.CountsQuery
}

type figures = statistics.Stats

func (c *countedStats) Briefs(context.Context, string, []string) verb.Partial[[]stats.Brief] {
	return verb.Partial[[]stats.Brief]{Value: []stats.Brief{c.brief}}
}

func (c *countedStats) Stats(_ context.Context, _ stats.Queue, w stats.Window) verb.Partial[stats.Report] {
	c.windows = append(c.windows, w)
	return verb.Partial[stats.Report]{Value: c.day}
}

func (c *countedStats) QueueCounts(_ context.Context, q broker.CountsQuery) (none verb.Partial[[]broker.QueueCount]) {
	c.counts = q
	return none
}

// The run time of tasks is taken from the last day if no task has ended recently and some wait or arrived. Otherwise the day is not asked
// for.
func TestScaleOfIdleQueue(t *testing.T) {
	for _, c := range []struct {
		ended, ready int
		readied      uint32
		want         float64 // seconds; 0: unknown
	}{{0, 0, 0, 0}, {0, 1, 0, 60}, {0, 0, 1, 60}, {1, 1, 1, 1}, {2, 1, 1, 1}, {1, 0, 0, 1}} {
		g := newGateway(newFake())
		ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
		put(t, g, ctx, "q", 1, "1")
		if c.ready == 0 {
			claimText(t, g, ctx, &pawlv1.ClaimRequest{Queues: shares("q")})
		}
		counted := &countedStats{brief: stats.Brief{Span: time.Minute, Rates: stats.Rates{Readied: c.readied}, Run: histogramOf(c.ended,
			time.Second)}, day: stats.Report{Run: histogramOf(3, time.Minute)}}
		g.cfg.Stats = counted
		g.wire()
		p, err := g.services.stats.GetQueueScale(ctx, &pawlv1.GetQueueScaleRequest{Queue: "q"})
		if err != nil || p.GetRunSeconds() != c.want || slices.Contains(counted.windows, stats.Day) != (c.want == 60) {
			t.Errorf("%+v: %v, %v, after asking for windows %v", c, p, err, counted.windows)
		}
	}
}

// A list of queues with a trait asks for exactly those counts.
func TestCountsOfQueues(t *testing.T) {
	for having, want := range map[string]broker.CountsQuery{contract.QueueDead: {State: task.Dead},
		contract.QueuePoisoned: {State: task.Poisoned}, contract.QueueNoWorker: {State: task.Ready, NoWorker: true}, "": {}} {
		g, counted := newGateway(newFake()), &countedStats{}
		g.cfg.Stats = counted
		g.wire()
		want.Namespace, want.Pattern = "default", "a*"
		q := queueList{ns: "default", pattern: "a*", having: having, most: having == "", limit: 7}
		if _, _, err := g.services.operator.listed(t.Context(), q); err != nil || counted.counts != want {
			t.Errorf("queues having %q: asked for counts %+v, want %+v (%v)", having, counted.counts, want, err)
		}
	}
}

// histogramOf returns a histogram of n durations.
func histogramOf(n int, d time.Duration) stats.Histogram {
	e := stats.Event{Namespace: "n", Queue: "q", Type: "t", Ran: d}
	e.Counts = e.Counts.With(stats.Succeeded)
	now := time.Now()
	recorder := stats.New(now.Add(-time.Hour))
	for range n {
		recorder.Record(now, []stats.Event{e})
	}
	return recorder.Briefs(now, "n", []string{"q"})[0].Run
}

// golden compares got with a golden file. -rewrite rewrites the file.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %v\ngot\n%swant\n%s", path, err, got, want)
	}
}

// A claim has its group's id, a follow-up the id of its task, and pages of large items end before they exceed the size of a message.
func TestRelatedIDs(t *testing.T) {
	id := task.NewID(1, 1, 1)
	c := &broker.Claimed{Envelope: &schema.Envelope{ID: id}, Exec: &schema.Exec{Links: &schema.Links{Group: id}}}
	if p := apiproto.ClaimedProto(c); p.GroupId != id.String() {
		t.Errorf("claim of a group's member = %v", p)
	}
	for _, links := range []*schema.Links{nil, {}} {
		c.Exec.Links = links
		if p := apiproto.ClaimedProto(c); p.GroupId != "" {
			t.Errorf("claim outside of groups = %v", p)
		}
	}
	v := &broker.View{Envelope: &schema.Envelope{ID: id}, Exec: &schema.Exec{Links: &schema.Links{}},
		Settings: task.Settings{Timeout: time.Minute}}
	if p := apiproto.TaskProto(v, false); p.GroupId != "" || p.Progress != nil || p.Timeout.AsDuration() != time.Minute {
		t.Errorf("task without settings of its own = %v", p)
	}
	v.Exec.Links.Group, v.Envelope.Timeout = id, time.Second
	for _, x := range []schema.Exec{{Progress: 50, Links: v.Exec.Links}, {ProgressText: "half", Links: v.Exec.Links}} {
		v.Exec = &x
		if p := apiproto.TaskProto(v, false); p.GroupId != id.String() || p.Progress.GetPercent() != x.Progress ||
			p.Progress.GetMessage() != x.ProgressText || p.Timeout.AsDuration() != time.Second {
			t.Errorf("task %+v = %v", x, p)
		}
	}
	view := func(payload int) *broker.View {
		return &broker.View{Envelope: &schema.Envelope{ID: id, Payload: make([]byte, payload), Parent: &task.Parent{Result: []byte("1")}},
			Exec: &schema.Exec{}, Settings: task.DefaultSettings(), Result: broker.Result{Data: []byte("2")}, Checkpoint: []byte("3")}
	}
	for _, x := range []struct {
		sizes []int
		want  int
	}{{[]int{1, 1}, 2}, {[]int{apiproto.MaxPageBytes + 1, 1}, 1}, {[]int{apiproto.MaxPageBytes - 1000, 1}, 2},
		{[]int{apiproto.MaxPageBytes / 2, apiproto.MaxPageBytes/2 + 1, 1}, 1}} {
		var views []*broker.View
		for _, n := range x.sizes {
			views = append(views, view(n))
		}
		if items, fit := apiproto.TasksProto(views, true); fit != x.want || len(items) != fit || items[0].Parent.Result == nil ||
			items[0].Result == nil || items[0].Checkpoint == nil {
			t.Errorf("tasks of %v bytes: %d fit, want %d", x.sizes, fit, x.want)
		}
		if items, fit := apiproto.TasksProto(views, false); fit != len(views) || items[0].Payload != nil || items[0].Parent.Result != nil ||
			items[0].Result != nil || items[0].Checkpoint != nil {
			t.Errorf("tasks of %v bytes without payloads: %d fit", x.sizes, fit)
		}
	}
	// exact returns a task that takes exactly n bytes of a response.
	exact := func(n int) *broker.View {
		v := view(n)
		v.Payload = v.Payload[proto.Size(apiproto.TaskProto(v, true))-n:]
		return v
	}
	for second, want := range map[int]int{1000: 2, 1001: 1} {
		if _, fit := apiproto.TasksProto([]*broker.View{exact(apiproto.MaxPageBytes - 1000), exact(second)}, true); fit != want {
			t.Errorf("%d tasks fit; the second has %d bytes, where 1000 are left", fit, second)
		}
	}
	l := task.Limits{Payload: 3}
	for data, code := range map[string]task.Code{"": "", "123": "", "1234": task.CodePayloadTooLarge, "{": task.CodeInvalidArgument} {
		if e, _ := task.AsError(apiproto.CheckData("payload", []byte(data), "", l)); (e == nil) != (code == "") || e != nil &&
			(e.Code != code || e.Field != "payload") {
			t.Errorf("CheckData(%q): %v, want %q", data, e, code)
		}
	}
	if err := apiproto.CheckData("payload", []byte("{"), "text/plain", l); err != nil {
		t.Error(err)
	}
	s := broker.ScheduleView{Schedule: task.Schedule{Cron: "@daily"}, Coming: []broker.Time{1, 2}}
	if p := apiproto.ScheduleProto(&s); len(p.Coming) != 2 || p.Last != nil || p.Paused {
		t.Errorf("ScheduleProto = %v", p)
	}
	for _, n := range []*pawlv1.TaskSpec{{Type: "a", Then: []*pawlv1.TaskSpec{nil}},
		{Type: "a", Then: []*pawlv1.TaskSpec{{Type: "b", Priority: 9}}}} {
		if e, _ := task.AsError(func() error { _, err := apiproto.SpecOf(n, task.DefaultLimits()); return err }()); e == nil ||
			!strings.HasPrefix(e.Field, "then[0]") {
			t.Errorf("SpecOf(%v): %v, want then[0] refused", n, e)
		}
	}
	if _, err := apiproto.SettingsOf(&pawlv1.QueueSettings{Weights: &pawlv1.PriorityWeights{}}); err == nil {
		t.Error("SettingsOf accepted empty weights")
	}
	if _, err := apiproto.SettingsOf(&pawlv1.QueueSettings{Keys: map[string]*pawlv1.KeyRules{"k": {Rate: &pawlv1.Rate{}}}}); err == nil {
		t.Error("SettingsOf accepted a key's rate without a period")
	}
}

// Pages end early where the response would not fit into a message, and the next page continues after them.
func TestPagesFitIntoMessages(t *testing.T) {
	const size, tasks = 1 << 20, 14
	f := newFake()
	f.rows = 100
	g := newGateway(f)
	ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
	put(t, g, ctx, "q", tasks, `"`+strings.Repeat("x", size-2)+`"`)
	var pages []int
	seen := map[string]bool{}
	for cursor := ""; ; {
		r, err := g.services.producer.ListTasks(ctx, &pawlv1.ListTasksRequest{Limit: 100, Cursor: cursor, WithPayload: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range r.Items {
			seen[i.TaskId] = true
		}
		pages = append(pages, len(r.Items))
		if cursor = r.NextCursor; cursor == "" {
			break
		}
	}
	if fmt.Sprint(pages) != "[11 3]" || len(seen) != tasks {
		t.Errorf("pages have %v tasks, %d in total", pages, len(seen))
	}
	one := func(n int) []*broker.View {
		return []*broker.View{{Envelope: &schema.Envelope{Payload: make([]byte, n)}, Exec: &schema.Exec{}}, {Envelope: &schema.Envelope{},
			Exec: &schema.Exec{}}}
	}
	if _, fit := apiproto.TasksProto(one(apiproto.MaxPageBytes+1), true); fit != 1 {
		t.Errorf("%d tasks fit, want only the first, which is too large by itself", fit)
	}
	if _, fit := apiproto.TasksProto(one(apiproto.MaxPageBytes+1), false); fit != 2 {
		t.Errorf("%d tasks fit without their payloads, want 2", fit)
	}
}

// An error whose text is not valid UTF-8 keeps its code.
func TestRefusalsOfBadText(t *testing.T) {
	g := newGateway(newFake())
	gone, leave := context.WithCancel(t.Context())
	leave()
	late, end := context.WithTimeout(t.Context(), 0)
	defer end()
	for want, ctx := range map[codes.Code]context.Context{codes.Canceled: gone, codes.DeadlineExceeded: late, codes.NotFound: t.Context()} {
		if got := status.Code(g.Status(ctx, task.NotFound("task", "x"))); got != want {
			t.Errorf("caller with context error %v got code %v, want %v", ctx.Err(), got, want)
		}
		if err := g.Status(ctx, nil); err != nil {
			t.Errorf("Status of no error = %v", err)
		}
	}
	if own := status.Error(codes.Aborted, "x"); g.Status(t.Context(), own) != own {
		t.Error("Status changed an error that is already a status")
	}
	err := g.Status(t.Context(), &task.Error{Code: task.CodeNotFound, Reason: "\xff", Message: "no such task"})
	if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "no such task") {
		t.Errorf("error with invalid text = %v", err)
	}
}

// Nothing is returned along with an error.
func TestNoValueBesideError(t *testing.T) {
	f := newFake()
	g := newGateway(f)
	limited, c := callinfo.Begin(task.WithScope(t.Context(), task.Scope{Queues: []string{"mail"}}), "grpc", "test")
	c.Principal = callinfo.Principal{Principal: auth.Anonymous}
	refused := map[string]func() (told any, err error){
		"places": func() (any, error) {
			_, one, err := g.claims.placesOf(limited, broker.ClaimCall{Queues: []broker.Share{{Queue: "q"}}})
			return one, err
		},
		"queue": func() (any, error) {
			_, ok, err := fanout.Scoped{Cluster: g.cfg.Cluster}.Queue(limited, "default", "q")
			return ok, err
		},
		"queue of SQS": func() (any, error) { _, ok, err := g.services.sqs.Queue(limited, "q"); return ok, err },
	}
	for what, do := range refused {
		if told, err := do(); err == nil || !reflect.ValueOf(told).IsZero() {
			t.Errorf("%s: got %v with error %v, want the zero value and an error", what, told, err)
		}
	}
}

// Long input is quoted only in part.
func TestLongInputIsTruncated(t *testing.T) {
	long := strings.Repeat("x", 5000)
	ctx, _ := callinfo.Begin(task.WithScope(t.Context(), task.Scope{Queues: []string{"mail"}}), "grpc", "test")
	callinfo.Of(ctx).Principal = callinfo.Principal{Principal: auth.Anonymous}
	f := newFake()
	g := newGateway(f)
	var logged strings.Builder
	g.cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	g.access = access.NewGuard(g.cfg.Auth, g.cfg.Hosts, g.cfg.Limits.Payload, g.cfg.Logger, nil)
	g.wire()
	unlimited, _ := callinfo.Begin(t.Context(), task.InterfaceGRPC, "test")
	_, metric := g.services.scaler.GetMetrics(unlimited, &keda.GetMetricsRequest{ScaledObjectRef: &keda.ScaledObjectRef{
		ScalerMetadata: map[string]string{"queue": "q"}}, MetricName: long})
	_, hosts := listen.ParseHosts([]string{long + "/"})
	w := httptest.NewRecorder()
	listen.OnlyLocal(http.NotFoundHandler()).ServeHTTP(w, &http.Request{Host: long})
	stray := g.access.CheckHost(&http.Request{Host: long})
	for what, c := range map[string]struct {
		said any
		most int
	}{
		"queue":  {callinfo.MayUse(ctx, long), 64},
		"metric": {metric, 256}, "hosts": {hosts, 300}, "host": {stray, 300}, "local host": {w.Body, 300},
		"host in the log": {logged.String(),
			300}, "address": {callinfo.HostOf(long), 64}, "host of an address": {callinfo.HostOf(long + ":1"), 64},
	} {
		if repeated := regexp.MustCompile("x{9,}").FindString(fmt.Sprint(c.said)); len(repeated) != c.most {
			t.Errorf("%s: %d bytes are repeated, want %d: %.400v", what, len(repeated), c.most, c.said)
		}
	}
}

// Settings of a gateway that are not set get their defaults, and others stay.
func TestGatewaysHaveDefaults(t *testing.T) {
	f := newFake()
	for _, c := range []struct{ said, want [2]int }{{[2]int{}, [2]int{20_000, 5_000}}, {[2]int{7, 3}, [2]int{7, 3}}} {
		cfg := f.config()
		cfg.MaxConns, cfg.MaxConnsPerAddress = c.said[0], c.said[1]
		g := New(cfg)
		ctx, call := callinfo.Begin(t.Context(), "grpc", "test")
		call.Principal = callinfo.Principal{Principal: auth.Anonymous}
		limits, err := g.services.access.GetLimits(ctx, &pawlv1.GetLimitsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var got [2]int
		for _, b := range limits.Limits {
			switch b.Name {
			case "connections":
				got[0] = int(b.Value)
			case "connections_per_address":
				got[1] = int(b.Value)
			}
		}
		if got != c.want {
			t.Errorf("connection limits %v became %v, want %v", c.said, got, c.want)
		}
	}
}

// A percentage is never negative zero, members are limited together, and a worker is returned with all known fields.
func TestEdgeCases(t *testing.T) {
	s, err := apiproto.ExtendOf("n", &pawlv1.ExtendRequest{TaskId: someID, ClaimToken: claimToken, Progress: &pawlv1.Progress{
		Percent: math.Copysign(0, -1)}})
	if err != nil || math.Signbit(s.Extend.Progress.Percent) {
		t.Errorf("progress was decoded as %v, %v", s.Extend, err)
	}
	stage := newStage(t)
	eight := `{"type":"a","content_type":"x/y","payload":"` + strings.Repeat("AAAA", task.MaxGroupBytes/8/3) + `"}`
	for n, good := range map[int]bool{7: true, 9: false} {
		_, err := stage.call("GroupService/AddGroupTasks", stage.fill(`{"group_id":"$group","tasks":`+copies(n, eight)+`}`))
		if e, _ := task.AsError(err); (err == nil) != good || err != nil && (e == nil || e.Code != task.CodePayloadTooLarge) {
			t.Errorf("%d members of 1 MiB: %v", n, err)
		}
	}
	at := time.Unix(100, 0)
	w := workerProto(&registry.Info{Lost: &registry.Lost{At: at, Reason: "silent"}, Quiet: &registry.Quiet{By: "lena", Reason: "deploy",
		At: at, Until: at.Add(time.Hour)}})
	if w.GetLostAt().AsTime().Unix() != 100 || w.GetLostReason() != "silent" || w.GetQuiet().GetBy() != "lena" ||
		w.GetQuiet().GetReason() != "deploy" || w.GetQuiet().GetUntil().AsTime().Unix() != 3700 ||
		w.GetQuiet().GetAt().AsTime().Unix() != 100 {
		t.Errorf("worker = %v", w)
	}
}

// headless panics when asked for leaders.
type headless struct{ Broker }

func (headless) Leader(context.Context, uint32) (node, term, index uint64) { panic("planted") }

// A panic in one of several parallel requests becomes the call's error, or that of the items it was about.
func TestPanicInOneShardsCall(t *testing.T) {
	f := newFake(1, 2)
	g := newGateway(f)
	g.cfg.Broker = headless{g.cfg.Broker}
	g.wire()
	ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
	if _, err := (g.services.operator).GetServer(ctx, &pawlv1.GetServerRequest{}); err == nil || !strings.Contains(err.Error(), "planted") {
		t.Errorf("GetServer: %v, want the panic as error", err)
	}
	if _, err := (g.services.cluster).GetMap(ctx, &pawlv1.GetMapRequest{}); err == nil || !strings.Contains(err.Error(), "planted") {
		t.Errorf("GetMap: %v, want the panic as error", err)
	}
	type counts interface{ statistics.Stats }
	panics := struct{ counts }{} // its methods are missing
	g.services.stats.Source, g.services.operator.Stats = panics, panics
	if _, err := (g.services.stats).GetStats(ctx, &pawlv1.GetStatsRequest{}); err == nil {
		t.Error("GetStats returned no error after a panic")
	}
	put(t, g, ctx, "q", 1, "1")
	if _, err := (g.services.operator).GetQueue(ctx, &pawlv1.GetQueueRequest{Queue: "q"}); err == nil {
		t.Error("GetQueue returned no error after a panic")
	}
	f.panics = true
	settled, err := g.services.worker.Settle(ctx, &pawlv1.SettleRequest{Acks: []*pawlv1.AckRequest{
		{TaskId: someID, ClaimToken: claimToken}}})
	if err != nil || settled.Acks[0].GetError().GetCode() != string(contract.CodeInternal) {
		t.Errorf("Settle: %v, %v, want an internal error of the item", settled, err)
	}
	if err := parallel.FirstError([]error{nil, errPlanted, io.EOF}); err != errPlanted {
		t.Errorf("FirstError = %v", err)
	}
}

// countless is a worker registry that does not know all workers.
type countless struct{ known }

func (countless) CountWorkers(_ context.Context, _ string, queues []string) verb.Partial[[]int64] {
	return verb.Partial[[]int64]{Value: make([]int64, len(queues)), Missing: []verb.Missing{{Node: "n7", Why: "hangs"}}}
}

// lossyCounts counts no tasks in shard 3.
type lossyCounts struct{ fakeStats }

func (lossyCounts) QueueCounts(context.Context, broker.CountsQuery) verb.Partial[[]broker.QueueCount] {
	return verb.Partial[[]broker.QueueCount]{Value: []broker.QueueCount{{Queue: "a", N: 1}, {Queue: "b", N: 2}},
		Missing: []verb.Missing{{Shard: 3, Why: "hangs"}}}
}

// Queues are listed although a shard and a node don't answer. The list names everything that is missing, each queue what its numbers lack.
func TestQueueListsNameWhatIsMissing(t *testing.T) {
	f := newFake(1, 2)
	f.home = map[string]uint32{"a": 1, "b": 2}
	verbtest.On(f.table(), broker.DescribeQueue, func(_ context.Context, q broker.OnQueue) (out broker.QueueDescribed, err error) {
		if q.Shard == 2 {
			return out, task.Unavailable(time.Second, "shard 2 has no leader")
		}
		out.Info.Scheduled = 5
		return out, nil
	})
	g := newGateway(f)
	g.cfg.Workers, g.cfg.Stats = countless{g.cfg.Workers}, lossyCounts{newFakeStats()}
	g.wire()
	ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
	words := func(missing []*pawlv1.Missing) (all string) {
		for _, m := range missing {
			all += fmt.Sprintf("%s %d %s; ", m.GetNode(), m.GetShard(), m.GetReason())
		}
		return all
	}
	for _, name := range []string{"a", "b"} {
		if _, err := g.services.operator.PutQueue(ctx, &pawlv1.PutQueueRequest{Queue: name, Settings: &pawlv1.QueueSettings{}}); err !=
			nil {
			t.Fatalf("a change of queue %s, which was made: %v", name, err)
		}
	}
	for _, c := range []struct {
		order pawlv1.QueueOrder
		want  string
	}{{0, "n7 0 hangs;  2 has no leader; "}, {pawlv1.QueueOrder_QUEUE_ORDER_MOST, "n7 0 hangs;  2 has no leader;  3 hangs; "}} {
		got, err := g.services.operator.ListQueues(ctx, &pawlv1.ListQueuesRequest{Order: c.order})
		if err != nil || len(got.GetItems()) != 2 || words(got.GetMissing()) != c.want {
			t.Fatalf("in order %v: %v, missing %q, %v; want two queues, without %q", c.order, got.GetItems(), words(got.GetMissing()), err,
				c.want)
		}
		for _, q := range got.GetItems() {
			want, depth := "n7 0 hangs; ", int64(5)
			if q.GetQueue() == "b" {
				want, depth = "n7 0 hangs;  2 has no leader; ", 0
			}
			if words(q.GetMissing()) != want || q.GetDepth().GetScheduled() != depth {
				t.Errorf("queue %s has %d scheduled, and lacks %q; want %d and %q", q.GetQueue(), q.GetDepth().GetScheduled(),
					words(q.GetMissing()), depth, want)
			}
		}
	}
}

// A queue is returned without numbers that were not counted.
func TestUncountedQueues(t *testing.T) {
	f := newFake()
	g := newGateway(f)
	g.cfg.Workers = countless{g.cfg.Workers}
	g.wire()
	ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
	for _, series := range []stats.Window{0, stats.Hour} {
		q := &pawlv1.Queue{Queue: "mail"}
		if g.services.operator.SetLately(ctx, series, q); q.Rates != nil || q.Series != nil || q.Workers != nil {
			t.Errorf("queue without counts = %v", q)
		}
	}
	g.cfg.Stats = newFakeStats()
	g.wire()
	q, other := &pawlv1.Queue{Queue: "mail", Depth: &pawlv1.Depth{Ready: 7}}, &pawlv1.Queue{Queue: "sms"}
	if g.services.operator.SetLately(ctx, stats.Hour, q, other); q.Rates == nil || q.Series == nil || other.Series == nil ||
		q.Workers != nil || q.GetRates().GetIn() == other.GetRates().GetIn() {
		t.Errorf("queues with counts = %v, %v", q, other)
	}
	q = &pawlv1.Queue{Queue: "mail"}
	if g.services.operator.SetLately(ctx, 0, q); q.Rates == nil || q.Series != nil {
		t.Errorf("queue without a series = %v", q)
	}
}

// Pages of group members end early too, and groups of dead letters are limited to a page.
func TestOtherPagesFitIntoMessages(t *testing.T) {
	const tasks, size = 14, 1 << 20
	f := newFake()
	g := newGateway(f)
	ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
	verbtest.On(f.table(), broker.GroupMembers, func(context.Context, broker.MemberList) (out broker.MembersListed, err error) {
		for i := range tasks {
			out.Members.Members = append(out.Members.Members, broker.GroupMember{Ref: task.ID{15: byte(i + 1)},
				Result: broker.Result{Data: make([]byte, size)}})
		}
		return out, nil
	})
	members, err := g.services.group.ListGroupMembers(ctx, &pawlv1.ListGroupMembersRequest{GroupId: someID})
	if err != nil || len(members.Items) != 11 || members.NextCursor != apiproto.EncodeCursor(apiproto.MemberCursor,
		append(make([]byte, 15), 11)) {
		t.Errorf("page has %d members, next cursor %q, %v", len(members.GetItems()), members.GetNextCursor(), err)
	}
	// of returns a member that takes exactly n bytes of a response.
	of := func(n int) broker.GroupMember {
		m := broker.GroupMember{Result: broker.Result{Data: make([]byte, n)}}
		for proto.Size(apiproto.MemberProto(&m)) > n {
			m.Result.Data = m.Result.Data[1:]
		}
		return m
	}
	for _, x := range []struct {
		sizes []int
		want  int
	}{{[]int{apiproto.MaxPageBytes + 1}, 1}, {[]int{apiproto.MaxPageBytes + 1, 1000}, 1}, {[]int{apiproto.MaxPageBytes - 1000, 1000}, 2},
		{[]int{apiproto.MaxPageBytes - 1000, 1001}, 1}} {
		verbtest.On(f.table(), broker.GroupMembers, func(context.Context, broker.MemberList) (out broker.MembersListed, err error) {
			for _, n := range x.sizes {
				out.Members.Members = append(out.Members.Members, of(n))
			}
			return out, nil
		})
		members, err := g.services.group.ListGroupMembers(ctx, &pawlv1.ListGroupMembersRequest{GroupId: someID})
		if err != nil || len(members.Items) != x.want || (members.NextCursor != "") != (x.want < len(x.sizes)) {
			t.Errorf("members of %v bytes: page has %d, want %d; next cursor %q (%v)", x.sizes, len(members.GetItems()), x.want,
				members.GetNextCursor(), err)
		}
	}
	for n, cut := range map[int]bool{contract.MaxPage: false, contract.MaxPage + 1: true} {
		verbtest.On(f.table(), broker.GroupDead, func(context.Context, broker.DeadOf) (out broker.DeadGrouped, err error) {
			for i := range n {
				out.Groups = append(out.Groups, broker.Group{Fingerprint: uint64(i), Queues: map[string]int64{"q": 1}})
			}
			return out, nil
		})
		if got, err := (g.services.operator).GroupDead(ctx, &pawlv1.GroupDeadRequest{}); err != nil ||
			len(got.Groups) != contract.MaxPage || got.Partial != cut {
			t.Errorf("%d groups: page has %d, partial %t, %v", n, len(got.GetGroups()), got.GetPartial(), err)
		}
	}
}

// A batch of settles is split by the shards of its tasks, and keeps its order in each.
func TestBatchesAreSplit(t *testing.T) {
	for shards, want := range map[string]string{"": "", "1": "1", "11": "11", "12": "1 2", "121": "11 2",
		"2112": "22 11", "1112": "111 2"} {
		var b settleBatch
		for i, s := range shards {
			b.calls = append(b.calls, broker.Settle{Hold: broker.Hold{ID: task.NewID(uint32(s-'0'), 1, uint64(i))}})
			b.answers = append(b.answers, &pawlv1.Settled{TaskId: b.calls[i].Hold.ID.String()})
		}
		var got []string
		for _, p := range b.byShard() {
			part, last := "", ""
			for i, c := range p.calls {
				id := c.Hold.ID.String()
				if part += fmt.Sprint(c.Hold.ID.Shard()); id != p.answers[i].TaskId || id[len(id)-4:] < last {
					t.Errorf("%s: %s got the response for %s", shards, id, p.answers[i].TaskId)
				}
				last = id[len(id)-4:]
			}
			got = append(got, part)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("tasks in shards %s were split into %q, want %q", shards, got, want)
		}
	}
}

// comparing has statistics before and after any time.
type comparing struct{ fakeStats }

func (s comparing) TypeStats(ctx context.Context, q stats.TypeQuery, queue string) verb.Partial[stats.TypeReport] {
	r := s.fakeStats.TypeStats(ctx, q, queue)
	if !q.Around.IsZero() {
		r.Value.Before, r.Value.After = &stats.Period{From: 1}, &stats.Period{From: 2}
	}
	return r
}

// Types are compared around the requested time, and only if one is requested.
func TestTypesAreComparedAroundATime(t *testing.T) {
	g := newGateway(newFake())
	g.cfg.Stats = comparing{newFakeStats()}
	g.wire()
	ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
	around := time.Now().Add(-10 * time.Second).Truncate(time.Second)
	got, err := g.services.stats.GetTypeStats(ctx, &pawlv1.GetTypeStatsRequest{Type: "welcome", Around: timestamppb.New(around)})
	if c := got.GetComparison(); err != nil || !c.GetAround().AsTime().Equal(around) || c.GetBefore().GetStart().GetSeconds() != 1 ||
		c.GetAfter().GetStart().GetSeconds() != 2 {
		t.Errorf("comparison around %v = %v, %v", around, c, err)
	}
	if got, err := (g.services.stats).GetTypeStats(ctx, &pawlv1.GetTypeStatsRequest{Type: "welcome"}); err != nil ||
		got.GetComparison() != nil {
		t.Errorf("comparison without a time = %v, %v", got.GetComparison(), err)
	}
}
