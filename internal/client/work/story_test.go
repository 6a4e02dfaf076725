package work

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/lease"
	"github.com/pawlq/pawl/internal/client/outcome"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/internal/client/telemetry"
	"github.com/pawlq/pawl/pawltype"
)

// TestStories runs a worker without a stream, and its slots by hand: what the broker sends, how handlers end and how time passes
// is in testdata/*.txt. Each step prints how the run reacts: what it logs and calls, which signals it sends, and what changes.
//
//	worker slots=N [traced]             starts over
//	push ID... [lease=D] [timeout=D]    the broker pushes tasks; 1..9 is many of them
//	end ID... [as=ERROR] [result=N]     handlers end; N bytes are the result
//	answer VERB ID... [code=C] [after=D] [cancel]   the broker answers an ack, a fail, a release or an extend
//	lost ID [reason=R]                  it reports that a claim is gone
//	quiet [on] [version=N]              an operator's order
//	attach, detach                      a stream opens, and ends
//	frame                               the next frame of the stream
//	pass D                              time passes
//	sweep                               when is the next one?
//	progress ID PERCENT
//	call NAME ID [code=C]               a call about a claim: checkpoint, begin, finish, abandon
//	drain, stop, leave                  no more tasks; handlers must end; those that don't are left behind
//	rest [code=C] [item=C]              settles the rest in calls; C is the code with which the call or each ack is refused
//	stats
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		synctest.Test(t, func(t *testing.T) {
			w := &world{T: t}
			datadriven.RunTest(t, path, func(_ *testing.T, d *datadriven.TestData) string { return w.step(d) })
		})
	})
}

// world is a Run and its surroundings.
type world struct {
	*testing.T
	run    *Run
	held   map[string]*heldClaim // claims whose handlers run, by task
	says   func(ctx context.Context) error
	result []byte
	call   args   // how calls are answered
	out    output // of this step
	spans  *tracetest.SpanRecorder
	shown  int // number of spans
	began  time.Time
	before map[string]string // the previous output of changes
}

// output is safe for concurrent use.
type output struct {
	mu sync.Mutex
	bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Buffer.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Buffer.String()
}

// args are the arguments of a step: with and without a value.
type args struct {
	lone []string
	of   map[string]string
}

func argsOf(d *datadriven.TestData) args {
	a := args{of: map[string]string{}}
	for _, x := range d.CmdArgs {
		first, last, many := strings.Cut(x.Key, "..")
		switch {
		case len(x.Vals) > 0:
			a.of[x.Key] = x.Vals[0]
		case many:
			from, _ := strconv.Atoi(first)
			to, _ := strconv.Atoi(last)
			for n := from; n <= to; n++ {
				a.lone = append(a.lone, strconv.Itoa(n))
			}
		default:
			a.lone = append(a.lone, x.Key)
		}
	}
	return a
}

func (a args) has(word string) bool { return slices.Contains(a.lone, word) }

func (a args) number(name string) int {
	n, _ := strconv.Atoi(a.of[name])
	return n
}

func (a args) period(name string) *durationpb.Duration {
	d, err := time.ParseDuration(a.of[name])
	if err != nil {
		return nil
	}
	return durationpb.New(d)
}

// refusal returns the error of an answer; nil: none.
func (a args) refusal(name string) *pawlv1.Error {
	if a.of[name] == "" {
		return nil
	}
	return &pawlv1.Error{Code: a.of[name], Reason: a.of["reason"], RetryAfter: a.period("after")}
}

func (w *world) start(a args) {
	var cfg telemetry.Config
	w.spans, w.shown, w.began, w.before = tracetest.NewSpanRecorder(), 0, time.Now(), nil
	if a.has("traced") {
		cfg.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(w.spans), sdktrace.WithIDGenerator(new(counted)))
	}
	tel, err := telemetry.New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(&w.out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string,
		x slog.Attr) slog.Attr {
		if x.Key == slog.TimeKey || x.Key == "task_id" || x.Key == "trace_id" || x.Key == "queue" {
			return slog.Attr{}
		}
		return x
	}}))
	caller := rpc.NewCaller(w, -1)
	w.held = map[string]*heldClaim{}
	w.run = NewRun(w.Context(), Config{Caller: caller, Calls: lease.NewCalls(caller, tel), Telemetry: tel, Log: log,
		Hello: &pawlv1.WorkHello{}, Name: "w", Concurrency: a.number("slots"), NewJob: func(*pawlv1.ClaimedTask, lease.Holder) Job {
			return w
		}})
}

// counted generates sequential span ids.
type counted struct{ last byte }

// NewIDs implements sdktrace.IDGenerator.
func (c *counted) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	return trace.TraceID{1}, c.NewSpanID(ctx, trace.TraceID{})
}

// NewSpanID implements sdktrace.IDGenerator.
func (c *counted) NewSpanID(context.Context, trace.TraceID) trace.SpanID {
	c.last++
	return trace.SpanID{c.last}
}

// Invoke implements rpc.Conn.
func (w *world) Invoke(_ context.Context, method string, req, resp any, _ ...grpc.CallOption) error {
	fmt.Fprintln(&w.out, "call", method[strings.LastIndexByte(method, '/')+1:])
	if e := w.call.refusal("code"); e != nil {
		st, _ := status.New(codes.FailedPrecondition, e.Code).WithDetails(e)
		return st.Err()
	}
	if r, ok := req.(*pawlv1.SettleRequest); ok {
		fmt.Fprintln(&w.out, len(r.Acks)+len(r.Fails), "ends are told")
		for range r.Acks {
			resp.(*pawlv1.SettleResponse).Acks = append(resp.(*pawlv1.SettleResponse).Acks, &pawlv1.Settled{Error: w.call.refusal("item")})
		}
		for range r.Fails {
			resp.(*pawlv1.SettleResponse).Fails = append(resp.(*pawlv1.SettleResponse).Fails, &pawlv1.Settled{})
		}
	}
	return nil
}

// NewStream implements rpc.Conn.
func (w *world) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.ErrUnsupported
}

// Close implements rpc.Conn.
func (w *world) Close() error { return nil }

// Run implements Job.
func (w *world) Run(ctx context.Context) error { return w.says(ctx) }

// Result implements Job.
func (w *world) Result() (data []byte, contentType string) { return w.result, "" }

// Failed implements Job.
func (w *world) Failed(_ context.Context, err error) {
	fmt.Fprintln(&w.out, "told of its failure:", err)
}

// returned has the errors of handlers. One that is stopped returns the cause.
var returned = map[string]func(ctx context.Context) error{
	"":        func(context.Context) error { return nil },
	"stopped": context.Cause,
	"failed":  func(context.Context) error { return errors.New("boom") },
	"panic":   func(context.Context) error { panic("oh") },
	"unknown": func(context.Context) error { return &outcome.UnknownType{Name: "a"} },
	"dead": func(context.Context) error {
		return &outcome.Directive{Outcome: pawltype.OutcomeDead, Err: errors.New("no")}
	},
	"discard": func(context.Context) error {
		return &outcome.Directive{Outcome: pawltype.OutcomeDiscarded, Err: errors.New("no")}
	},
	"snooze": func(context.Context) error {
		return &outcome.Directive{Outcome: pawltype.OutcomeSnoozed, Delay: time.Minute}
	},
}

func (w *world) step(d *datadriven.TestData) string {
	a, now := argsOf(d), time.Now()
	w.out.Reset()
	switch d.Cmd {
	case "worker":
		w.start(a)
	case "push":
		w.push(a, now)
	case "end":
		for _, id := range a.lone {
			w.says, w.result = returned[a.of["as"]], make([]byte, a.number("result"))
			w.run.finish(w.held[id], w.run.attempt(w.held[id]))
		}
		if len(a.lone) > 9 {
			w.out.Reset() // they log the same
		}
	case "answer":
		w.run.receive(&pawlv1.WorkResponse{Settled: answers(a)}, now)
	case "lost":
		w.run.receive(&pawlv1.WorkResponse{Lost: []*pawlv1.LostClaim{{ClaimToken: a.lone[0], Reason: a.of["reason"]}}}, now)
	case "quiet":
		w.run.receive(&pawlv1.WorkResponse{Quiet: &pawlv1.QuietNotice{Quiet: a.has("on"), Version: int64(a.number("version")),
			Reason: "a deploy"}}, now)
	case "attach":
		w.out.WriteString(frameText(w.run.attach(now)))
	case "detach":
		w.run.detach()
	case "frame":
		w.out.WriteString(frameText(w.run.nextFrame(now)))
	case "pass":
		pause, _ := time.ParseDuration(a.lone[0])
		time.Sleep(pause)
	case "sweep":
		fmt.Fprintln(&w.out, "again in", w.run.sweep(now).Sub(now))
	case "progress":
		percent, _ := strconv.ParseFloat(a.lone[1], 64)
		_ = holder{w.run}.Progress(w.Context(), lease.Claim{Token: a.lone[0]}, &pawlv1.Progress{Percent: percent})
	case "call":
		w.call = a
		w.callAbout(a.lone[0], lease.Claim{TaskID: a.lone[1], Token: a.lone[1]})
	case "drain":
		w.run.quiet = true
	case "stop":
		w.run.stop(pawltype.ErrDraining)
	case "leave":
		w.run.abandon()
	case "rest":
		w.call = a
		fmt.Fprintln(&w.out, "all told:", w.run.settleRest())
	case "stats":
		s := w.run.Stats()
		fmt.Fprintf(&w.out, "running %d, unsettled %d, succeeded %d, failed %d, leases lost %d, quiet %v, connected %v, reconnects %d\n",
			s.Running, s.Unsettled, s.Succeeded, s.Failed, s.LeasesLost, s.Quiet, s.Connected, s.Reconnects)
		fmt.Fprintln(&w.out, "disconnected for", w.run.Disconnected(now), "all idle", w.run.idle(), "all confirmed", w.run.confirmed())
	default:
		w.Fatalf("%s: unknown step %q", d.Pos, d.Cmd)
	}
	return w.out.String() + w.ended() + w.signals() + w.changes()
}

func (w *world) push(a args, now time.Time) {
	r := &pawlv1.WorkResponse{}
	for _, id := range a.lone {
		r.Tasks = append(r.Tasks, &pawlv1.ClaimedTask{TaskId: taskID(id), ClaimToken: id, Type: "a", Queue: "q", Attempt: 1,
			Lease: a.period("lease"), Timeout: a.period("timeout")})
	}
	w.run.receive(r, now)
	for len(w.run.jobs) > 0 {
		h := <-w.run.jobs
		w.held[h.ref.Token] = h
	}
}

// taskID returns the id of a task of a story: of "2.1" one in shard 2, of any other name itself.
func taskID(name string) string {
	shard, _, ok := strings.Cut(name, ".")
	if n, err := strconv.Atoi(shard); ok && err == nil {
		return fmt.Sprintf("00000000-0000-7%03x-8000-000000000001", n)
	}
	return name
}

// callAbout makes a call about a claim.
func (w *world) callAbout(name string, c lease.Claim) {
	var err error
	switch ctx := w.Context(); name {
	case "checkpoint":
		err = holder{w.run}.Checkpoint(ctx, c, []byte("7"))
	case "begin":
		_, err = holder{w.run}.BeginOnce(ctx, c, "k")
	case "finish":
		err = holder{w.run}.FinishOnce(ctx, c, "k", nil, 0)
	case "abandon":
		err = holder{w.run}.AbandonOnce(ctx, c, "k")
	}
	fmt.Fprintln(&w.out, "answered:", err)
}

// answers returns the answers to a frame of endings or extensions.
func answers(a args) *pawlv1.SettleResponse {
	r := &pawlv1.SettleResponse{}
	list := map[string]*[]*pawlv1.Settled{"ack": &r.Acks, "fail": &r.Fails, "release": &r.Releases, "extend": &r.Extends}[a.lone[0]]
	for _, id := range a.lone[1:] {
		*list = append(*list, &pawlv1.Settled{TaskId: taskID(id), ClaimToken: id, Error: a.refusal("code")})
	}
	return r
}

// frameText returns a line for each item of a frame; for many of a kind, their number.
func frameText(f *pawlv1.WorkRequest) string {
	if f == nil {
		return "no frame\n"
	}
	var said []string
	if f.Hello != nil {
		said = append(said, fmt.Sprintf("hello, quiet since version %d", f.Hello.QuietVersion))
	}
	if f.Quiet {
		said = append(said, "quiet")
	}
	if f.Grant != 0 {
		said = append(said, fmt.Sprint("grant ", f.Grant))
	}
	var each []string
	for _, x := range f.GetSettle().GetAcks() {
		each = append(each, "ack "+x.ClaimToken)
	}
	for _, x := range f.GetSettle().GetFails() {
		each = append(each, fmt.Sprintf("fail %s %s: %s", x.ClaimToken, strings.TrimPrefix(x.Outcome.String(), "FAIL_OUTCOME_"),
			x.Error.Message))
	}
	for _, x := range f.GetSettle().GetReleases() {
		each = append(each, fmt.Sprintf("release %s for %s", x.ClaimToken, x.Delay.AsDuration()))
	}
	for _, x := range f.GetSettle().GetExtends() {
		each = append(each, fmt.Sprintf("extend %s by %s, progress %v", x.ClaimToken, x.Lease.AsDuration(), x.Progress.GetPercent()))
	}
	if slices.Sort(each); len(each) > 9 {
		s := f.Settle
		each = []string{fmt.Sprintf("%d acks, %d fails, %d releases, %d extends", len(s.Acks), len(s.Fails),
			len(s.Releases), len(s.Extends))}
	}
	return "frame: " + strings.Join(append(said, each...), "; ") + "\n"
}

// ended reports the spans that have ended in this step.
func (w *world) ended() (said string) {
	for _, s := range w.spans.Ended()[w.shown:] {
		w.shown++
		said += fmt.Sprintf("span %s %s %s\n", s.Name(), s.Status().Code, s.Status().Description)
	}
	return said
}

// signals reports which signals were sent.
func (w *world) signals() string {
	var said []string
	for name, ch := range map[string]chan struct{}{"sender": w.run.sendMore, "sweeper": w.run.sweepNow, "drain": w.run.idleChanged} {
		select {
		case <-ch:
			said = append(said, name)
		default:
		}
	}
	if slices.Sort(said); len(said) == 0 {
		return ""
	}
	return "signals " + strings.Join(said, ", ") + "\n"
}

// changes returns the slots and each claim, if they have changed. Times count from the start of the worker.
func (w *world) changes() (said string) {
	s, now := w.run, map[string]string{}
	now[""] = fmt.Sprintf("busy %d, granted %d, claims %d, frames without answers %v", s.slots.busy, s.slots.granted, len(s.claims),
		s.out.of("").frames)
	for _, shard := range slices.Sorted(maps.Keys(s.out.endings)) {
		if shard > 0 {
			now[""] += fmt.Sprintf(", of shard %d %v", shard, s.out.endings[shard].frames)
		}
	}
	at := func(x time.Time) string {
		if x.IsZero() {
			return "never"
		}
		return x.Sub(w.began).Round(10 * time.Millisecond).String()
	}
	for id, h := range s.claims {
		phase := [...]string{running: "runs", lapsed: "has lapsed", lost: "is lost", ended: "has ended"}[h.phase]
		now[id] = fmt.Sprintf("  %s %s, due at %s, lease until %s", id, phase, at(h.due), at(h.leaseEnd))
		if h.phase == ended {
			now[id] += ", " + h.end.Verb()
		}
		switch cause := context.Cause(h.ctx); {
		case errors.Is(cause, context.Canceled): // it has ended normally
		case cause != nil:
			now[id] += ", stopped: " + cause.Error()
		case h.phase == ended:
			now[id] += ", its context goes on"
		}
	}
	for _, id := range slices.Sorted(maps.Keys(now)) {
		if now[id] != w.before[id] && (id == "" || len(s.claims) <= 9) {
			said += now[id] + "\n"
		}
	}
	w.before = now
	return said
}
