package work

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/lease"
	"github.com/pawlq/pawl/internal/client/outcome"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/protobuf/types/known/durationpb"
)

// workTrace is a life of a worker. The package comment of test/conformance/outside describes its format.
type workTrace struct {
	Name  string
	Slots int
	Steps []traceStep
}

type traceStep struct {
	At    float64
	Open  bool
	Break bool

	Push           []string
	Lease, Timeout float64

	Answer struct {
		tokens
		Code, Reason string
		RetryAfter   float64 `json:"retry_after"`
	}
	Lost     []string
	Reason   string
	Quiet    *bool
	End      map[string]string
	Progress string
	Drain    bool
	Stop     bool
	Abandon  bool

	Sends   traceFrame
	Holds   map[string]string
	Stopped map[string]string
	Busy    *int
}

// tokens are those of claims, by what is asked or answered about them.
type tokens struct{ Ack, Fail, Release, Extend []string }

// traceFrame is what a worker sends in a step, in one frame or several.
type traceFrame struct {
	Hello, Quiet bool
	Grant        int32
	tokens
}

func (f *traceFrame) add(r *pawlv1.WorkRequest) {
	f.Hello, f.Quiet, f.Grant = f.Hello || r.Hello != nil, f.Quiet || r.Quiet, f.Grant+r.Grant
	for _, x := range r.GetSettle().GetAcks() {
		f.Ack = append(f.Ack, x.ClaimToken)
	}
	for _, x := range r.GetSettle().GetFails() {
		f.Fail = append(f.Fail, x.ClaimToken)
	}
	for _, x := range r.GetSettle().GetReleases() {
		f.Release = append(f.Release, x.ClaimToken)
	}
	for _, x := range r.GetSettle().GetExtends() {
		f.Extend = append(f.Extend, x.ClaimToken)
	}
}

// TestTraces plays what the broker sends and how time passes, as the tests of the other SDKs do, and compares what the
// worker sends and holds.
func TestTraces(t *testing.T) {
	data, err := os.ReadFile("../../../test/conformance/outside/traces.json")
	if err != nil {
		t.Fatal(err)
	}
	var traces []workTrace
	if err := json.Unmarshal(data, &traces); err != nil || len(traces) == 0 {
		t.Fatalf("%d traces, %v", len(traces), err)
	}
	for _, tr := range traces {
		t.Run(tr.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newPlayer(t, tr.Slots).play(tr.Steps) })
		})
	}
}

// player plays a trace on a Run whose slots and sweeps are its own, and whose stream is the player.
type player struct {
	*testing.T
	run   *Run
	jobs  map[string]*tracedJob
	open  bool
	began time.Time
}

// tracedJob is a handler that ends when the trace says so.
type tracedJob struct {
	run  context.Context // nil: not started
	ends chan string
}

func (j *tracedJob) Run(ctx context.Context) error {
	j.run = ctx
	switch how := <-j.ends; how {
	case "returns":
		return nil
	case "fails", "returns what cannot be sent": // a Go handler gets that error from SetResult
		return errors.New("boom")
	case "fails without words":
		var silent *pointed
		return silent
	case "snoozes":
		return &outcome.Directive{Outcome: pawltype.OutcomeSnoozed, Delay: time.Minute}
	case "stops":
		return context.Cause(ctx)
	default:
		panic("unknown end: " + how)
	}
}

func (*tracedJob) Result() (data []byte, contentType string) { return nil, "" }
func (*tracedJob) Failed(context.Context, error)             {}

func newPlayer(t *testing.T, slots int) *player {
	w := (&broker{}).at(t, nil)
	p := &player{T: t, jobs: map[string]*tracedJob{}, began: time.Now()}
	cfg := w.run.cfg
	cfg.Concurrency, cfg.Hello = slots, &pawlv1.WorkHello{}
	cfg.NewJob = func(task *pawlv1.ClaimedTask, _ lease.Holder) Job {
		p.jobs[task.ClaimToken] = &tracedJob{ends: make(chan string, 1)}
		return p.jobs[task.ClaimToken]
	}
	p.run = NewRun(t.Context(), cfg)
	return p
}

func (p *player) play(steps []traceStep) {
	ctx, cancel := context.WithCancel(p.Context())
	defer cancel()
	go p.run.keep(ctx)
	for range p.run.cfg.Concurrency {
		go func() {
			for h := range p.run.jobs {
				p.run.finish(h, p.run.attempt(h))
			}
		}()
	}
	defer close(p.run.jobs)
	defer func() {
		for _, j := range p.jobs {
			select {
			case j.ends <- "returns":
			default:
			}
		}
	}()
	for i, s := range steps {
		var sent traceFrame
		for at := p.began.Add(time.Duration(s.At * float64(time.Second))); time.Now().Before(at); {
			time.Sleep(min(time.Until(at), 10*time.Millisecond))
			p.collect(&sent)
		}
		synctest.Wait()
		p.happens(&s, &sent)
		p.collect(&sent)
		p.check(i, &s, &sent)
	}
}

// collect takes what the run has to send.
func (p *player) collect(sent *traceFrame) {
	synctest.Wait()
	for p.open {
		f := p.run.nextFrame(time.Now())
		if f == nil {
			return
		}
		sent.add(f)
	}
}

func (p *player) happens(s *traceStep, sent *traceFrame) {
	now := time.Now()
	period := func(seconds float64) *durationpb.Duration {
		return durationpb.New(time.Duration(seconds * float64(time.Second)))
	}
	switch {
	case s.Open:
		p.open = true
		sent.add(p.run.attach(now))
	case s.Break:
		p.open = false
		p.run.detach()
	case s.Push != nil:
		r := &pawlv1.WorkResponse{}
		for _, token := range s.Push {
			task := &pawlv1.ClaimedTask{TaskId: token, ClaimToken: token, Type: "t", Queue: "q", Attempt: 1, Lease: period(max(s.Lease, 0))}
			if s.Lease == 0 {
				task.Lease = period(30)
			}
			if s.Timeout > 0 {
				task.Timeout = period(s.Timeout)
			}
			r.Tasks = append(r.Tasks, task)
		}
		p.run.receive(r, now)
	case s.Lost != nil:
		r := &pawlv1.WorkResponse{}
		for _, token := range s.Lost {
			r.Lost = append(r.Lost, &pawlv1.LostClaim{ClaimToken: token, Reason: s.Reason})
		}
		p.run.receive(r, now)
	case s.Quiet != nil:
		p.run.receive(&pawlv1.WorkResponse{Quiet: &pawlv1.QuietNotice{Quiet: *s.Quiet, Version: 1}}, now)
	case s.End != nil:
		for token, how := range s.End {
			p.jobs[token].ends <- how
		}
	case s.Progress != "":
		_ = holder{p.run}.Progress(p.Context(), lease.Claim{Token: s.Progress}, &pawlv1.Progress{Percent: 50})
	case s.Drain:
		p.run.mu.Lock()
		p.run.quiet = true
		p.run.mu.Unlock()
	case s.Stop:
		p.run.stop(pawltype.ErrDraining)
	case s.Abandon:
		p.run.abandon()
	default:
		p.answers(s, now)
	}
}

func (p *player) answers(s *traceStep, now time.Time) {
	a, r := &s.Answer, &pawlv1.SettleResponse{}
	for _, of := range []struct {
		tokens []string
		list   *[]*pawlv1.Settled
	}{{a.Ack, &r.Acks}, {a.Fail, &r.Fails}, {a.Release, &r.Releases}, {a.Extend, &r.Extends}} {
		for _, token := range of.tokens {
			each := &pawlv1.Settled{TaskId: token, ClaimToken: token}
			if a.Code != "" {
				each.Error = &pawlv1.Error{Code: a.Code, Reason: a.Reason,
					RetryAfter: durationpb.New(time.Duration(a.RetryAfter * float64(time.Second)))}
			}
			*of.list = append(*of.list, each)
		}
	}
	p.run.receive(&pawlv1.WorkResponse{Settled: r}, now)
}

// check compares what was sent, and what is held.
func (p *player) check(i int, s *traceStep, sent *traceFrame) {
	for _, list := range []*[]string{&sent.Ack, &sent.Fail, &sent.Release, &sent.Extend, &s.Sends.Ack, &s.Sends.Fail,
		&s.Sends.Release, &s.Sends.Extend} {
		slices.Sort(*list)
	}
	if !reflect.DeepEqual(*sent, s.Sends) {
		p.Errorf("step %d sends %+v, want %+v", i, *sent, s.Sends)
	}
	p.run.mu.Lock()
	defer p.run.mu.Unlock()
	holds, stopped := map[string]string{}, map[string]string{}
	for token, h := range p.run.claims {
		holds[token] = [...]string{running: "running", lapsed: "lapsed", lost: "lost", ended: "ended"}[h.phase]
		if h.phase == ended {
			continue
		}
		switch cause := context.Cause(h.ctx); {
		case errors.Is(cause, pawltype.ErrCancelled):
			stopped[token] = "cancelled"
		case errors.Is(cause, pawltype.ErrLeaseLost):
			stopped[token] = "lease_lost"
		case errors.Is(cause, pawltype.ErrDraining):
			stopped[token] = "draining"
		case errors.Is(cause, context.DeadlineExceeded):
			stopped[token] = "timed_out"
		}
	}
	if s.Holds != nil && !maps.Equal(holds, s.Holds) {
		p.Errorf("step %d holds %v, want %v", i, holds, s.Holds)
	}
	if s.Stopped != nil && !maps.Equal(stopped, s.Stopped) {
		p.Errorf("step %d has stopped %v, want %v", i, stopped, s.Stopped)
	}
	if s.Busy != nil && p.run.slots.busy != *s.Busy {
		p.Errorf("step %d has %d busy slots, want %d", i, p.run.slots.busy, *s.Busy)
	}
}
