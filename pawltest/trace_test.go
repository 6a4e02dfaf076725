package pawltest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltest"
	"github.com/pawlq/pawl/pawltype"
	"go.opentelemetry.io/otel/attribute"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// traced is a broker, a client and a program, all of which record their spans.
type traced struct {
	*testing.T
	spans  *tracetest.SpanRecorder
	tracer trace.Tracer // the program's own
	log    *logbook     // the broker's
	broker *pawltest.Broker
	client *pawl.Client
}

// inTrace runs fn in a bubble. opts are the client's, in addition to those of tracing.
func inTrace(t *testing.T, fn func(w *traced), linked ...bool) {
	synctest.Test(t, func(t *testing.T) {
		inSample(t, sdktrace.ParentBased(sdktrace.AlwaysSample()), fn, pawl.Telemetry{LinkedTraces: len(linked) > 0})
	})
}

// inSample is inTrace within a bubble, with its own sampler.
func inSample(t *testing.T, sampler sdktrace.Sampler, fn func(w *traced), telemetry pawl.Telemetry, opts ...pawl.DialOptions) {
	w := &traced{T: t, spans: tracetest.NewSpanRecorder(), log: &logbook{}}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(w.spans), sdktrace.WithSampler(sampler))
	w.tracer = provider.Tracer("program")
	w.broker = pawltest.New(t, pawltest.WithTracerProvider(provider), pawltest.WithLogger(w.log.logger()))
	telemetry.TracerProvider = provider
	w.client = w.broker.Client(t, append([]pawl.DialOptions{{Telemetry: telemetry}}, opts...)...)
	fn(w)
}

// work runs a worker for a while, in a span of the program that is not related to its runs.
func (w *traced) work(d time.Duration, handlers map[string]pawl.Handler) {
	w.Helper()
	mux := pawl.NewMux()
	for name, handle := range handlers {
		mux.HandleFunc(name, handle)
	}
	ctx, stop := context.WithCancel(w.Context())
	if w.tracer != nil {
		ctx, _ = w.tracer.Start(ctx, "main")
	}
	done := make(chan error, 1)
	go func() { done <- pawl.NewWorker(w.client, mux, pawl.WorkerConfig{Name: "w1"}).Run(ctx) }()
	time.Sleep(d)
	stop()
	if err := <-done; err != nil {
		w.Fatal(err)
	}
}

// is compares the traces with the lines of a tree, one per span: kind, name and attributes.
func (w *traced) is(want string) {
	w.Helper()
	synctest.Wait()
	if got := w.tree(); got != strings.TrimSpace(want) {
		w.Errorf("got the traces\n%s\nwant\n%s", got, strings.TrimSpace(want))
	}
}

// shown maps the attributes that a tree shows to their names in it. The others are the same for all spans, or ids.
var shown = map[attribute.Key]string{
	"messaging.batch.message_count": "count", "messaging.message.body.size": "bytes", "messaging.client.id": "worker",
	"error.type": "error", "pawl.task.type": "type", "pawl.task.attempt": "attempt", "pawl.task.outcome": "outcome",
}

func (w *traced) tree() string {
	all := w.spans.Ended()
	slices.SortStableFunc(all, func(a, b sdktrace.ReadOnlySpan) int {
		return cmp.Or(a.StartTime().Round(time.Second).Compare(b.StartTime().Round(time.Second)), cmp.Compare(describe(a), describe(b)))
	})
	under := map[trace.SpanID][]sdktrace.ReadOnlySpan{}
	known := map[trace.SpanID]bool{{}: true}
	for _, s := range all {
		under[s.Parent().SpanID()] = append(under[s.Parent().SpanID()], s)
		known[s.SpanContext().SpanID()] = true
	}
	var lines []string
	var walk func(id trace.SpanID, indent string)
	walk = func(id trace.SpanID, indent string) {
		for _, s := range under[id] {
			lines = append(lines, indent+describe(s))
			walk(s.SpanContext().SpanID(), indent+"  ")
		}
	}
	walk(trace.SpanID{}, "")
	for id := range under {
		if !known[id] { // a parent that was not recorded
			lines = append(lines, "? "+id.String())
			walk(id, "  ")
		}
	}
	return strings.Join(lines, "\n")
}

func describe(s sdktrace.ReadOnlySpan) string {
	line := s.SpanKind().String() + " " + s.Name()
	said := map[string]string{}
	for _, a := range s.Attributes() {
		if word := shown[a.Key]; word != "" {
			said[word] = a.Value.String()
		}
	}
	if d := s.EndTime().Sub(s.StartTime()).Round(time.Second); d > 0 {
		said["took"] = d.String()
	}
	if n := len(s.Links()); n > 0 {
		said["links"] = fmt.Sprint(n)
	}
	for _, word := range slices.Sorted(maps.Keys(said)) {
		line += " " + word + "=" + said[word]
	}
	return line
}

func (w *traced) attrs(name string) map[attribute.Key]string {
	for _, s := range w.spans.Ended() {
		if s.Name() == name {
			out := map[attribute.Key]string{}
			for _, a := range s.Attributes() {
				out[a.Key] = a.Value.String()
			}
			return out
		}
	}
	w.Fatalf("no span %q was recorded", name)
	return nil
}

var task = pawl.RawTask{Type: "t", Payload: []byte(`"seven"`)}

// A task that fails once and then succeeds is one trace, from the program that enqueued it to the end of each attempt.
func TestTraceOfATask(t *testing.T) {
	inTrace(t, func(w *traced) {
		ctx, root := w.tracer.Start(w.Context(), "request")
		time.Sleep(time.Second)
		ref, err := w.client.Enqueue(ctx, task, pawl.In(3*time.Second), pawl.Retry(pawltype.RetryPolicy{Initial: 10 * time.Second,
			Jitter: pawltype.NoJitter}))
		if err != nil {
			w.Fatal(err)
		}
		root.End()
		time.Sleep(5 * time.Second)
		var seen []trace.TraceID
		w.work(20*time.Second, map[string]pawl.Handler{"t": func(ctx context.Context, c *pawl.Claim) error {
			seen = append(seen, trace.SpanContextFromContext(ctx).TraceID())
			_, own := w.tracer.Start(ctx, "database")
			time.Sleep(time.Second)
			own.End()
			if c.Attempt == 1 {
				return errors.New("no route")
			}
			return nil
		}})
		w.is(`
internal request took=1s
  producer send default bytes=7 type=t
    server enqueue default bytes=7 type=t
    internal wait default attempt=1 took=2s type=t worker=w1
    consumer process default attempt=1 bytes=7 error=*errors.errorString outcome=failed took=1s type=t worker=w1
      internal database took=1s
      client fail default attempt=1 type=t
    internal claim default attempt=1 type=t worker=w1
    server fail default attempt=1 type=t
    consumer process default attempt=2 bytes=7 outcome=succeeded took=1s type=t worker=w1
      internal database took=1s
      client ack default attempt=2 type=t
    internal claim default attempt=2 type=t worker=w1
    internal wait default attempt=2 type=t worker=w1
    server ack default attempt=2 type=t
`)
		for name, want := range map[string]map[attribute.Key]string{
			"send default": {"messaging.system": "pawl", "messaging.operation.name": "send", "messaging.operation.type": "send",
				"messaging.destination.name": "default", "messaging.message.id": ref.ID},
			"process default": {"messaging.system": "pawl", "messaging.operation.name": "process", "messaging.operation.type": "process",
				"messaging.destination.name": "default", "messaging.message.id": ref.ID},
			"ack default":     {"messaging.operation.name": "ack", "messaging.message.id": ref.ID},
			"wait default":    {"messaging.system": "pawl", "messaging.message.id": ref.ID, "pawl.shard": "1"},
			"enqueue default": {"messaging.message.id": ref.ID, "pawl.task.duplicate": "false"},
		} {
			got := w.attrs(name)
			for key, value := range want {
				if got[key] != value {
					w.Errorf("%s: %s = %q, want %q", name, key, got[key], value)
				}
			}
		}
		if len(seen) != 2 || seen[0] != root.SpanContext().TraceID() || seen[1] != seen[0] {
			w.Errorf("handlers ran in the traces %v, want %s twice", seen, root.SpanContext().TraceID())
		}
	})
}

// Each task of a batch has its own span, to which the batch links. The same is true for the members of a group.
func TestTraceOfABatch(t *testing.T) {
	inTrace(t, func(w *traced) {
		items := []pawl.Item{{Args: task}, {Args: task, Options: []pawl.Option{pawl.Queue("other")}},
			{Args: pawl.RawTask{Type: "t", Payload: []byte("{")}}}
		if _, err := w.client.EnqueueBatch(w.Context(), items); err != nil {
			w.Fatal(err)
		}
		w.is(`
client send count=3 links=3
producer create default bytes=1 error=invalid_argument type=t
  server enqueue default bytes=1 error=invalid_argument type=t
producer create default bytes=7 type=t
  server enqueue default bytes=7 type=t
producer create other bytes=7 type=t
  server enqueue other bytes=7 type=t
`)
		w.spans.Reset()
		ctx, root := w.tracer.Start(w.Context(), "request")
		if _, err := w.client.EnqueueGroup(ctx, pawl.GroupSpec{Tasks: []pawl.Item{{Args: task, Options: []pawl.Option{pawl.Queue("g")}}},
			OnComplete: &pawl.Item{Args: pawl.RawTask{Type: "sum"}, Options: []pawl.Option{pawl.Queue("g")}}}); err != nil {
			w.Fatal(err)
		}
		root.End()
		claimed, err := claims.New(w.client).Claim(w.Context(), claims.Request{Queues: pawl.Strict{"g"}})
		if err != nil || len(claimed) != 1 {
			w.Fatal(claimed, err)
		}
		if err := claims.New(w.client).Ack(w.Context(), claimed[0]); err != nil {
			w.Fatal(err)
		}
		last, err := claims.New(w.client).Claim(w.Context(), claims.Request{Queues: pawl.Strict{"g"}})
		if err != nil || len(last) != 1 || last[0].Type != "sum" {
			w.Fatal(last, err)
		}
		w.is(`
client ack g attempt=1 type=t
  server ack g attempt=1 type=t
client claim g count=1 links=1
client claim g count=1 links=1
internal request
  client send g count=1 links=1
    internal claim g attempt=1 type=sum
    internal wait g attempt=1 type=sum
  producer create g bytes=7 type=t
    internal claim g attempt=1 type=t
    internal wait g attempt=1 type=t
    server enqueue g bytes=7 type=t
`)
	})
}

// The tasks that a handler enqueues, and the task's follow-up tasks, belong to the trace of the task.
func TestTraceOfAChain(t *testing.T) {
	inTrace(t, func(w *traced) {
		if _, err := w.client.Enqueue(w.Context(), task, pawl.Then(pawl.RawTask{Type: "then"})); err != nil {
			w.Fatal(err)
		}
		none := func(context.Context, *pawl.Claim) error { return nil }
		w.work(time.Second, map[string]pawl.Handler{"then": none, "inner": none, "t": func(ctx context.Context, _ *pawl.Claim) error {
			_, err := w.client.Enqueue(ctx, pawl.RawTask{Type: "inner"}, pawl.Queue("default"))
			return err
		}})
		traces := map[trace.TraceID]int{}
		processed := map[string]bool{}
		for _, s := range w.spans.Ended() {
			traces[s.SpanContext().TraceID()]++
			if s.Name() == "process default" {
				for _, a := range s.Attributes() {
					processed[a.Value.String()] = true
				}
			}
		}
		if len(traces) != 1 || !processed["then"] || !processed["inner"] || !processed["t"] {
			w.Errorf("got %d traces, want 1 with all three tasks:\n%s", len(traces), w.tree())
		}
	})
}

// With linked traces, each run is its own trace.
func TestLinkedTraces(t *testing.T) {
	inTrace(t, func(w *traced) {
		if _, err := w.client.Enqueue(w.Context(), task); err != nil {
			w.Fatal(err)
		}
		w.work(time.Second, map[string]pawl.Handler{"t": func(context.Context, *pawl.Claim) error {
			return pawl.Discard(errors.New("no need"))
		}})
		w.is(`
consumer process default attempt=1 bytes=7 links=1 outcome=discarded type=t worker=w1
  client fail default attempt=1 type=t
producer send default bytes=7 type=t
  internal claim default attempt=1 type=t worker=w1
  internal wait default attempt=1 type=t worker=w1
  server enqueue default bytes=7 type=t
  server fail default attempt=1 type=t
`)
	}, true)
}

// A trace that the producer sets is kept, even if it is invalid. A task without one gets one from a broker that traces,
// and the task of a tick never has the trace of another.
func TestTracesOfProducers(t *testing.T) {
	const good, bad = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7-zz"
	inTrace(t, func(w *traced) { // the maximum number and size of headers, with no room for a trace
		var many []pawl.Option
		for i := range 64 {
			many = append(many, pawl.Header(fmt.Sprint(i), ""))
		}
		for _, opts := range [][]pawl.Option{many, {pawl.Header("h", strings.Repeat("x", 16<<10-1))}} {
			ref, err := w.client.Enqueue(w.Context(), task, opts...)
			if err != nil {
				w.Fatal(err)
			}
			if info, err := w.client.Task(w.Context(), ref.ID); err != nil || info.Headers["traceparent"] != "" ||
				len(info.Headers) != len(opts) {
				w.Errorf("the task has the headers %v, %v, want only its own", info.Headers, err)
			}
		}
	})
	inTrace(t, func(w *traced) {
		plain := w.broker.Client(w)
		headers := func(opts ...pawl.Option) map[string]string {
			w.Helper()
			ref, err := plain.Enqueue(w.Context(), task, opts...)
			if err != nil {
				w.Fatal(err)
			}
			info, err := w.client.Task(w.Context(), ref.ID)
			if err != nil {
				w.Fatal(err)
			}
			return info.Headers
		}
		if got := headers(pawl.Header("traceparent", good), pawl.Header("tracestate", "a=b")); got["traceparent"] != good ||
			got["tracestate"] != "a=b" {
			w.Errorf("the task has the headers %v, want the trace %q", got, good)
		}
		if got := headers(pawl.Header("traceparent", bad)); len(got) != 1 || got["traceparent"] != bad {
			w.Errorf("the task has the headers %v, want only the trace %q", got, bad)
		}
		if got := headers(); len(got) != 1 || !strings.HasPrefix(got["traceparent"], "00-") {
			w.Errorf("the task has the headers %v, want the trace that the broker started", got)
		}
		synctest.Wait()
		if n := len(w.spans.Ended()); n != 3 {
			w.Errorf("got %d spans, want one enqueue for each of 3 tasks:\n%s", n, w.tree())
		}
		w.spans.Reset()
		if _, err := w.client.Enqueue(w.Context(), task, pawl.Header("traceparent", good)); err != nil {
			w.Fatal(err)
		}
		w.is(`
producer send default bytes=7 links=1 type=t
? b7ad6b7169203331
  server enqueue default bytes=7 type=t
`)
	})
	inTrace(t, func(w *traced) {
		ctx, root := w.tracer.Start(w.Context(), "deploy")
		defer root.End()
		if _, err := admin.New(w.client).Schedules().Put(ctx, admin.ScheduleSpec{Name: "nightly", Every: time.Minute, Task: task,
			Options: []pawl.Option{pawl.Header("traceparent", good)}}); err != nil {
			w.Fatal(err)
		}
		var ids []trace.TraceID
		w.work(2*time.Minute+10*time.Second, map[string]pawl.Handler{"t": func(ctx context.Context, c *pawl.Claim) error {
			ids = append(ids, trace.SpanContextFromContext(ctx).TraceID())
			return nil
		}})
		if len(ids) != 2 || ids[0] == ids[1] || !ids[0].IsValid() || ids[0] == root.SpanContext().TraceID() {
			w.Errorf("the ticks ran in the traces %v, want two new ones", ids)
		}
	})
}

// A tick is a trace of its own, with everything that happens to its task. No call caused it, so the broker starts the trace.
func TestTraceOfATick(t *testing.T) {
	inTrace(t, func(w *traced) {
		sched := admin.ScheduleSpec{Name: "nightly", Every: time.Hour, Task: task, Options: []pawl.Option{
			pawl.MaxAttempts(2), pawl.Retry(pawltype.RetryPolicy{Initial: 10 * time.Second, Jitter: pawltype.NoJitter})}}
		if _, err := admin.New(w.client).Schedules().Put(w.Context(), sched); err != nil {
			w.Fatal(err)
		}
		var seen []trace.SpanContext
		w.work(time.Hour+time.Minute, map[string]pawl.Handler{"t": func(ctx context.Context, c *pawl.Claim) error {
			seen = append(seen, trace.SpanContextFromContext(ctx))
			return errors.New("no route")
		}})
		w.is(`
producer create default bytes=7 type=t
  consumer process default attempt=1 bytes=7 error=*errors.errorString outcome=failed type=t worker=w1
    client fail default attempt=1 type=t
  internal claim default attempt=1 type=t worker=w1
  internal wait default attempt=1 type=t worker=w1
  server fail default attempt=1 type=t
  consumer process default attempt=2 bytes=7 error=*errors.errorString outcome=failed type=t worker=w1
    client fail default attempt=2 type=t
  internal claim default attempt=2 type=t worker=w1
  internal wait default attempt=2 type=t worker=w1
  server fail default attempt=2 type=t
`)
		if len(seen) != 2 || seen[0].TraceID() != seen[1].TraceID() {
			w.Errorf("the attempts ran in the traces %v, want one trace", seen)
		}
		dead := w.log.lines(w.T, "task dead-lettered")
		if len(dead) != 1 || dead[0]["trace_id"] != seen[0].TraceID().String() {
			w.Errorf("the log has %v, want one dead letter of trace %s", dead, seen[0].TraceID())
		}
		if got := w.attrs("create default"); got["messaging.message.id"] != dead[0]["task_id"] || got["pawl.schedule"] != "nightly" ||
			got["messaging.operation.type"] != "create" {
			w.Errorf("the tick's span has the attributes %v", got)
		}
	})
	inTrace(t, func(w *traced) { // a tick that creates no task has no span, but a triggered one has
		sched := admin.ScheduleSpec{Name: "nightly", Every: time.Minute, Task: task, Overlap: admin.OverlapSkip}
		if _, err := admin.New(w.client).Schedules().Put(w.Context(), sched); err != nil {
			w.Fatal(err)
		}
		ref, err := admin.New(w.client).Schedules().Trigger(w.Context(), "nightly")
		if err != nil {
			w.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if _, err := admin.New(w.client).Schedules().Trigger(w.Context(), "nightly"); err == nil {
			w.Error("a trigger succeeded although the previous task had not ended")
		}
		w.is("producer create default bytes=7 type=t")
		if got := w.attrs("create default")["messaging.message.id"]; got != ref.ID {
			w.Errorf("the span is about task %q, want %q", got, ref.ID)
		}
	})
	synctest.Test(t, func(t *testing.T) { // the sampler is asked, as for any trace that starts here
		inSample(t, sdktrace.ParentBased(sdktrace.NeverSample()), func(w *traced) {
			if _, err := admin.New(w.client).Schedules().Put(w.Context(), admin.ScheduleSpec{Name: "nightly", Every: time.Minute,
				Task: task}); err != nil {
				w.Fatal(err)
			}
			var ids []string
			w.work(time.Minute+time.Second, map[string]pawl.Handler{"t": func(_ context.Context, c *pawl.Claim) error {
				ids = append(ids, c.Headers["traceparent"])
				return nil
			}})
			if len(ids) != 1 || !strings.HasSuffix(ids[0], "-00") {
				w.Errorf("the ticks have the traces %q, want one that is not sampled", ids)
			}
			w.is("")
		}, pawl.Telemetry{})
	})
}

// The trace of a cancelled task shows that, even if the task never ran.
func TestTraceOfACancel(t *testing.T) {
	inTrace(t, func(w *traced) {
		ref, err := w.client.Enqueue(w.Context(), task)
		if err != nil {
			w.Fatal(err)
		}
		if _, err := admin.New(w.client).WithReason("not needed").Tasks().Cancel(w.Context(), ref.ID); err != nil {
			w.Fatal(err)
		}
		w.is(`
producer send default bytes=7 type=t
  server cancel default type=t
  server enqueue default bytes=7 type=t
`)
		if got := w.attrs("cancel default")["messaging.message.id"]; got != ref.ID {
			w.Errorf("the span is about task %q, want %q", got, ref.ID)
		}
	})
}

// Trace context passes through a program that records nothing: from the headers of a task to what its handler enqueues.
func TestTracePassesThrough(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	synctest.Test(t, func(t *testing.T) {
		client := pawltest.New(t).Client(t)
		if _, err := client.Enqueue(t.Context(), task, pawl.Header("traceparent", parent)); err != nil {
			t.Fatal(err)
		}
		var inner string
		w := &traced{T: t, client: client}
		w.work(time.Second, map[string]pawl.Handler{
			"t": func(ctx context.Context, _ *pawl.Claim) error {
				_, err := client.EnqueueBatch(ctx, []pawl.Item{{Args: pawl.RawTask{Type: "inner"}}})
				return err
			},
			"inner": func(_ context.Context, c *pawl.Claim) error { inner = c.Headers["traceparent"]; return nil },
		})
		if inner != parent {
			t.Errorf("the inner task has traceparent %q, want %q", inner, parent)
		}
	})
}
